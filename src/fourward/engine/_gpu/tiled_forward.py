"""Kernels that walk a network panel by panel: 32 steps within a panel, sums of all panels in registers.

A program owns BB samples and walks all panels, so nothing waits for another program but for the weights: in the same
launch, the programs that come first lay them out in dense tiles.

A lane holds the sum of one neuron of each panel, for a sample. A step hands a neuron's activation to all lanes by a
shuffle, and they add what it gives to their sums, those of its own panel and of all later ones. A shuffle takes long,
so the sums of four neurons are handed on at once (FOURS), and each lane adds for itself what they give each other. Rows
of tiles come by way of shared memory, some steps before they are needed. Where a network has more panels than a walk,
what a stretch of panels takes from all before it are products of tiles, spread over the card.

A tile multiplies weights that don't exist, as 0, with activations. Where one of these is infinite or NaN that gives
NaN. So every sum is looked at, and a slice in which one isn't finite is walked again, edge by edge.

Memory: `kept` holds the activations as (slices, rows, BB), after them z in the same way where a derivative needs it,
and then the weights: tiles ahead as walks take them, `span` for each block; all M tiles as (source, target), where
there are several stretches or a backward pass will come; and for that, tiles behind, `span` for each panel.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fourward.engine._gpu.activations import activate
from fourward.engine._gpu.pointer_table import address, note, own_address
from fourward.engine._gpu.tile_ops import (
    RUNTIME,
    added,
    column_of,
    columns_of,
    edge_weights,
    four_of,
    known_at,
    moved_on,
    near_weights,
    not_finite,
    packed_after,
    parts,
    rows_of,
    scales_of,
    share,
    sums_at,
    tile_edges,
    tiles_at,
    walk_rows,
)

# Places in the table of addresses.
_WEIGHT, _BIAS, _KEY, _OUT, _KEPT, _SUMS = (tl.constexpr(i) for i in range(6))


@triton.jit
def _pack(
    weight, packed, program, tiles, panels, near, holes, packer, packers, AHEAD, BEHIND, HOLE, WORD, BASE, OWN_WORD,
    OWN_BASE, plain, again, WIDE: tl.constexpr,
):  # fmt: skip
    """Lay out every packers-th tile, wherever it is taken from; then zeros where a walk expects one."""
    kk = tl.arange(0, 32)
    tt = kk[:, None]
    for i in range(packer, tiles + panels, packers):
        own = i >= tiles
        ahead = tl.load(program + AHEAD + i)
        behind = tl.load(program + BEHIND + i)
        word_at = tl.where(own, OWN_WORD + (i - tiles) * 32, WORD + i * 32)
        base_at = tl.where(own, OWN_BASE + (i - tiles) * 32, BASE + i * 32)
        has, edge = tile_edges(program, word_at, base_at)
        w = tl.load(weight + edge, mask=has, other=0.0).to(WIDE)
        if ahead >= 0:
            tl.store(packed + ahead * 1024 + kk // 4 * 128 + tt * 4 + kk % 4, w)
        if plain & (i < tiles):
            tl.store(packed + (near + i) * 1024 + kk * 32 + tt, w)
        if again & (behind >= 0):
            tl.store(packed + (near + tiles + behind) * 1024 + tt // 4 * 128 + kk * 4 + tt % 4, w)
    for i in range(packer, holes, packers):
        hole = tl.load(program + HOLE + i)
        tl.store(packed + hole * 1024 + tl.arange(0, 1024), tl.zeros((1024,), WIDE))


@triton.jit
def _products(values, packed, program, column, BLOCK, first, last, BB: tl.constexpr, G: tl.constexpr,
              STAGES: tl.constexpr, WIDE: tl.constexpr):  # fmt: skip
    """(BB, 32) the sums of products over the tiles first:last into a panel, G at a time."""
    acc = tl.zeros((G, 32, column.shape[0]), WIDE)
    for j in tl.range(first, last, G, num_stages=STAGES):
        known = known_at(values, rows_of(program, BLOCK, j, last, G), column, BB, WIDE)
        tile = j + tl.arange(0, G)
        w = tl.permute(tiles_at(packed, tile, tile < last), (0, 2, 1))
        acc = tl.dot(w, known, acc, input_precision="ieee", out_dtype=WIDE)
    return added(acc)


@triton.jit
def _by_edges(values, weight, program, BLOCK, WORD, BASE, first, last, BB: tl.constexpr, WIDE: tl.constexpr):
    """(BB, 32) the sums over all edges into a panel from others."""
    bb = tl.arange(0, BB)
    tt = tl.arange(0, 32)
    z = tl.zeros((BB, 32), WIDE)
    for tile in range(first, last):
        word = tl.load(program + WORD + tile * 32 + tt)
        base = tl.load(program + BASE + tile * 32 + tt)
        row = tl.load(program + BLOCK + tile) * 32
        for k in range(32):
            a = tl.load(values + (row + k) * BB + bb).to(WIDE)
            w, has = edge_weights(weight, word, base, tt * 0 + k, WIDE)
            z += tl.where(has[None, :], a[:, None] * w[None, :], 0.0)
    return z


@triton.jit
def _activation(z, code, scale, CODES: tl.constexpr, DROP: tl.constexpr, X: tl.constexpr, WIDE: tl.constexpr):
    """a, as it will be read again from memory."""
    a = activate(z, code, CODES)
    if DROP:
        a = a * scale
    return a.to(X).to(WIDE)


@triton.jit
def _sweep(sums, rows, near, code, scale, first, COUNT: tl.constexpr, SPAN: tl.constexpr, FOURS: tl.constexpr,
           BB: tl.constexpr, CODES: tl.constexpr, DROP: tl.constexpr, X: tl.constexpr, WIDE: tl.constexpr):  # fmt: skip
    """COUNT steps: finish a neuron's sum, add what its activation gives to those of its panel and of later ones."""
    four = four_of(sums[0], first, BB)
    for i in tl.static_range(COUNT):
        if FOURS and i % 4 == 0 and i > 0:
            four = four_of(sums[0], first + i, BB)
        z = four[i % 4] if FOURS else column_of(sums[0], first + i, BB)
        drop = column_of(scale, first + i, BB) if DROP else z
        own = code if CODES & (CODES - 1) == 0 else column_of(code, first + i, BB)
        a = _activation(z, own, drop, CODES, DROP, X, WIDE)
        rest = ()
        for k in tl.static_range(4):
            z = four[k]
            if FOURS and k > i % 4:
                z = tl.fma(a, near[i // 4 * 16 + k * 4 + i % 4], z)
            rest = rest + (z,)  # type: ignore[assignment] # noqa: RUF005
        four = rest
        found = ()  # here and not in a function: to hand it all rows takes Triton seconds
        for k in tl.static_range(SPAN):
            found = found + (tl.fma(a, rows[k * COUNT + i], sums[k]),)  # type: ignore[assignment] # noqa: RUF005
        sums = found
    return sums


@triton.jit
def _take(v, sums, rows, first, COUNT: tl.constexpr, SPAN: tl.constexpr, BB: tl.constexpr):
    """Add what COUNT inputs give."""
    for i in tl.static_range(COUNT):
        a = column_of(v, first + i, BB)
        found = ()
        for k in tl.static_range(SPAN):
            found = found + (tl.fma(a, rows[k * COUNT + i], sums[k]),)  # type: ignore[assignment] # noqa: RUF005
        sums = found
    return sums


@triton.jit
def _biases(bias, program, BIAS_AT, row, end, BIASED: tl.constexpr, WIDE: tl.constexpr):
    """The biases of these rows, in their shape; 0 from the end on."""
    z = tl.zeros_like(row).to(WIDE)
    if BIASED:
        at = tl.load(program + BIAS_AT + row, mask=row < end, other=-1)
        z = tl.load(bias + at, mask=at >= 0, other=0.0).to(WIDE)
    return z


@triton.jit
def _few_rows(weight, program, IN_WORD, IN_BASE, end, COUNT: tl.constexpr, SPAN: tl.constexpr, WIDE: tl.constexpr):
    """The rows of COUNT inputs as `walk_rows` gives them, from weights as they are."""
    row = tl.arange(0, 32)[:, None, None] + 32 * tl.arange(0, SPAN)[None, :, None]
    word = tl.load(program + IN_WORD + row, mask=row < end, other=0)
    base = tl.load(program + IN_BASE + row, mask=row < end, other=0)
    w, _ = edge_weights(weight, word, base, tl.arange(0, COUNT)[None, None, :], WIDE)
    return parts(tl.reshape(w, (1, 32, SPAN * COUNT)), 1, 32, SPAN * COUNT)


@triton.jit
def _leave(a, out, column, r, B, columns):
    """Copy (BB, 32) to those columns of out (B, columns) that aren't negative."""
    mask = (r < B)[:, None] & (column >= 0)
    tl.store(out + r[:, None].to(tl.int64) * columns + column, a, mask=mask)


@triton.jit
def _inputs(x, r, block, B, I, WIDE: tl.constexpr):
    """(BB, 32) a block of inputs, 0 beyond the batch and beyond the inputs."""
    row = block * 32 + tl.arange(0, 32)
    mask = (r < B)[:, None] & (row < I)[None, :]
    return tl.load(x + r[:, None].to(tl.int64) * I + row[None, :], mask=mask, other=0.0).to(WIDE)


@triton.jit
def _enter(x, values, out, program, OUT_OF, r, B, I, lead, columns, BB: tl.constexpr, WIDE: tl.constexpr):
    """Copy samples r of x (B, I) to the first rows, and to the result where an input is an output, too."""
    for j in range(lead):
        row = j * 32 + tl.arange(0, 32)
        column = tl.load(program + OUT_OF + row)
        v = _inputs(x, r, j, B, I, WIDE)
        tl.store(values + row[None, :] * BB + tl.arange(0, BB)[:, None], v)
        _leave(v, out, column[None, :], r, B, columns)


@triton.jit
def _codes(program, CODE, row, rows, BB: tl.constexpr, CODES: tl.constexpr):
    """(BB, 32) the activations of these rows; whatever there is, if all are the same."""
    code = tl.zeros((BB, 32), tl.int32)
    if CODES & (CODES - 1) != 0:
        code += tl.load(program + CODE + row, mask=row < rows, other=0)[None, :]
    return code


@triton.jit
def _scales(program, draw, row, r, rows, NODE, HIDDEN, threshold, p_bits, BB: tl.constexpr, DROP: tl.constexpr,
            WIDE: tl.constexpr):  # fmt: skip
    """(BB, 32) what dropout multiplies these rows with; rows beyond the last have what the last has."""
    scale = tl.zeros((BB, 32), WIDE)
    if DROP:
        row = tl.minimum(row, rows - 1)
        scale = scales_of(program, draw, row, r, NODE, HIDDEN, threshold, p_bits, WIDE)
    return scale


@triton.jit
def _wait(counters, packers):
    """Wait until the weights are laid out. Returns how many have waited before, at the first of 256 places.

    At least one place for each thread: a scalar would be handed to all threads at once, and they would wait for it.
    """
    ready = tl.atomic_add(counters, 0, sem="acquire")
    while ready < packers:
        ready = tl.atomic_add(counters, 0, sem="acquire")
    place = tl.arange(0, 256)
    return tl.atomic_add(counters + 1 + place * 0, 1, mask=place == 0, sem="relaxed")


@triton.jit
def _set_back(counters, waited, slices, COUNT: tl.constexpr):
    """Leave the counters as they were found, if all others have waited before."""
    place = tl.arange(0, 256)
    for i in tl.static_range(COUNT):
        tl.store(counters + i + place * 0, place * 0, mask=(place == 0) & (waited == slices - 1))


@triton.jit
def _slow_forward(
    values, z_values, out, weight, bias, draw, program, r, lead, threshold, p_bits, first_panel, last_panel,
    B, columns, rows, CODE, NODE, HIDDEN, BIAS_AT, OUT_OF, START, BLOCK, WORD, BASE, OWN_WORD, OWN_BASE,
    BB: tl.constexpr, CODES: tl.constexpr, BIASED: tl.constexpr, DROP: tl.constexpr, KEEP_Z: tl.constexpr,
    WIDE: tl.constexpr,
):  # fmt: skip
    """The same walk over edges that exist, and no others."""
    X: tl.constexpr = values.dtype.element_ty
    kk = tl.arange(0, 32)
    for panel in range(first_panel, last_panel):
        row = (lead + panel) * 32 + kk
        first = tl.load(program + START + panel)
        last = tl.load(program + START + panel + 1)
        z = _by_edges(values, weight, program, BLOCK, WORD, BASE, first, last, BB, WIDE)
        at = row[None, :] * BB + tl.arange(0, BB)[:, None]
        z += _biases(bias, program, BIAS_AT, row, rows, BIASED, WIDE)[None, :]
        code = _codes(program, CODE, row, rows, BB, CODES)
        scale = _scales(program, draw, row, r, rows, NODE, HIDDEN, threshold, p_bits, BB, DROP, WIDE)
        word = tl.load(program + OWN_WORD + panel * 32 + kk)
        base = tl.load(program + OWN_BASE + panel * 32 + kk)
        for t in range(32):
            a = _activation(z, code, scale, CODES, DROP, X, WIDE)
            a = column_of(a, t, BB)
            w, has = edge_weights(weight, word, base, kk * 0 + t, WIDE)
            z += tl.where(has[None, :], a * w[None, :], 0.0)
        a = _activation(z, code, scale, CODES, DROP, X, WIDE)
        _leave(a, out, tl.load(program + OUT_OF + row)[None, :], r, B, columns)
        tl.store(values + at, a)
        if KEEP_Z:
            tl.store(z_values + at, z)
        tl.debug_barrier()


@triton.jit(do_not_specialize=RUNTIME)
def panels_forward(
    x, weight, bias, key, out, kept, sums, program, table,
    B, I, columns, rows, lead, tiles, panels, packers, holes, slices, threshold: tl.int64, p_bits: tl.int64,
    first_panel, last_panel, again,
    CODE, NODE, HIDDEN, BIAS_AT, OUT_OF, START, BLOCK, AHEAD, BEHIND, HOLE, WORD, BASE, OWN_WORD, OWN_BASE, IN_WORD,
    IN_BASE,
    BB: tl.constexpr, SPAN: tl.constexpr, STEPS: tl.constexpr, FOURS: tl.constexpr, FEW: tl.constexpr,
    CODES: tl.constexpr, BIASED: tl.constexpr, DROP: tl.constexpr, KEEP_Z: tl.constexpr, SUMS: tl.constexpr,
    FIRST: tl.constexpr, TICKETS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """A = f(b + W a), panel by panel, for BB samples.

    The first launch of several notes where its tensors are, and the others look there: theirs are of the same types,
    but may be others by then.

    The first `packers` programs lay out the weights, the others wait until all have done so. Where there are more than
    a card holds, those that wait could keep out those that they wait for: then programs take tickets, in the order in
    which they start (TICKETS).

    One loop walks over the inputs, one over all panels, STEPS rows at a time, so that rows are under way throughout.
    What else a panel needs is read during the one before: `_then` is for the next panel.
    """
    counters = table.to(tl.pointer_type(tl.int32), bitcast=True)
    number = tl.program_id(0)
    if TICKETS:
        number = tl.atomic_add(counters + 2, 1, sem="relaxed")
    if FIRST and number == 0:
        note(table, _WEIGHT, weight)
        note(table, _BIAS, bias)
        note(table, _KEY, key)
        note(table, _OUT, out)
        note(table, _KEPT, kept)
        note(table, _SUMS, sums)
    if SUMS:
        weight = address(table, _WEIGHT, weight.dtype.element_ty)
        bias = address(table, _BIAS, bias.dtype.element_ty)
        key = address(table, _KEY, key.dtype.element_ty)
        out = own_address(table, _OUT, out.dtype.element_ty)
        kept = own_address(table, _KEPT, kept.dtype.element_ty)
        sums = own_address(table, _SUMS, sums.dtype.element_ty)
    size = (rows * BB).to(tl.int64)
    stride = slices * size
    packed = packed_after(kept, stride * (2 if KEEP_Z else 1), WIDE)
    piece = number - packers
    if piece < 0:
        if SUMS == 0:  # after the first launch all are laid out
            _pack(
                weight, packed, program, tiles, panels, (lead + panels) * SPAN, holes, number, packers, AHEAD, BEHIND,
                HOLE, WORD, BASE, OWN_WORD, OWN_BASE, FIRST | (again != 0), again != 0, WIDE,
            )  # fmt: skip
            tl.debug_barrier()
            tl.atomic_add(counters, 1, sem="release")
    else:
        X: tl.constexpr = kept.dtype.element_ty
        draw = tl.load(key)
        CHUNKS: tl.constexpr = 32 // STEPS
        values = kept + piece * size
        z_values = kept + (slices + piece) * size
        r = piece * BB + tl.arange(0, BB)
        kk = tl.arange(0, 32)
        bb = tl.arange(0, BB)
        row = (lead + first_panel) * 32 + kk
        end = (lead + last_panel) * 32
        every = row[None, :, None] + 32 * tl.arange(0, SPAN)[None, None, :]  # the rows of all panels, loaded at once
        before = _biases(bias, program, BIAS_AT, every, end, BIASED, WIDE) + tl.zeros((BB, 1, 1), WIDE)
        if SUMS:
            before += sums_at(sums, piece * size + every * BB + bb[:, None, None], every < end, stride, SUMS)
        found = parts(before, BB, 32, SPAN)
        exits = parts(tl.load(program + OUT_OF + every, mask=every < end, other=-1), 1, 32, SPAN)
        code = _codes(program, CODE, row, rows, BB, CODES)
        code_then = _codes(program, CODE, row + 32, rows, BB, CODES)
        scale = _scales(program, draw, row, r, rows, NODE, HIDDEN, threshold, p_bits, BB, DROP, WIDE)
        if SUMS == 0:  # what doesn't need the weights is done while they are laid out
            _enter(x, values, out, program, OUT_OF, r, B, I, lead, columns, BB, WIDE)
            v = _inputs(x, r, 0, B, I, WIDE)
            v_then = _inputs(x, r, 1, B, I, WIDE)
            if FEW:
                for _ in range(tl.cdiv(I, FEW)):  # once: after a loop, Triton keeps the sums in one layout
                    few = _few_rows(weight, program, IN_WORD, IN_BASE, last_panel * 32, FEW, SPAN, WIDE)
                    found = _take(v, found, few, 0, FEW, SPAN, BB)
            waited = _wait(counters, packers)
            TAKEN: tl.constexpr = STEPS if STEPS < 16 else 16
            for step in tl.range(0, 0 if FEW else tl.cdiv(I, TAKEN), num_stages=3):
                block = step * TAKEN // 32
                t = step * TAKEN % 32
                given = walk_rows(packed, block * SPAN, tl.arange(0, SPAN) < last_panel, t, TAKEN, SPAN)
                found = _take(v, found, given, t, TAKEN, SPAN, BB)
                if t == 32 - TAKEN:
                    v = v_then
                    v_then = _inputs(x, r, block + 2, B, I, WIDE)
        odd = tl.zeros((BB, 32), tl.int32)
        for step in tl.range(0, (last_panel - first_panel) * CHUNKS, num_stages=3):
            panel = first_panel + step // CHUNKS
            t = step % CHUNKS * STEPS
            there = panel + tl.arange(0, SPAN) < last_panel
            ahead = walk_rows(packed, (lead + panel) * SPAN, there, t, STEPS, SPAN)
            near = near_weights(packed, (lead + panel) * SPAN, t, STEPS)
            found = _sweep(found, ahead, near, code, scale, t, STEPS, SPAN, FOURS, BB, CODES, DROP, X, WIDE)
            if (t == 32 - STEPS) & (panel < last_panel):  # always so, but for Triton, which else wouldn't load ahead
                z = found[0]
                row = (lead + panel) * 32 + kk
                at = tl.max_contiguous(row[None, :] * BB + bb[:, None], (1, 1))
                a = _activation(z, code, scale, CODES, DROP, X, WIDE)
                _leave(a, out, exits[0], r, B, columns)
                tl.store(values + at, a)
                if KEEP_Z:
                    tl.store(z_values + at, z)
                odd |= not_finite(z)
                found = moved_on(found, SPAN)
                exits = moved_on(exits, SPAN)
                code = code_then
                code_then = _codes(program, CODE, row + 64, rows, BB, CODES)
                scale = _scales(program, draw, row + 32, r, rows, NODE, HIDDEN, threshold, p_bits, BB, DROP, WIDE)
        if tl.sum(odd) != 0:
            tl.debug_barrier()
            _slow_forward(
                values, z_values, out, weight, bias, draw, program, r, lead, threshold, p_bits, first_panel, last_panel,
                B, columns, rows, CODE, NODE, HIDDEN, BIAS_AT, OUT_OF, START, BLOCK, WORD, BASE, OWN_WORD, OWN_BASE,
                BB, CODES, BIASED, DROP, KEEP_Z, WIDE,
            )  # fmt: skip
        if SUMS == 0:
            _set_back(counters, waited, slices, 4 if TICKETS else 2)


@triton.jit(do_not_specialize=RUNTIME)
def panels_products(
    program, table, rows, lead, slices, near, first_panel, LOWER, UPPER, BLOCK,
    BB: tl.constexpr, P: tl.constexpr, G: tl.constexpr, STAGES: tl.constexpr, KEEP_Z: tl.constexpr,
    X: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """What a stretch of panels takes from all panels before the stretch.

    A program for each P slices and panel, or several that share the tiles, each with sums of its own.
    """
    kept = own_address(table, _KEPT, X)
    sums = own_address(table, _SUMS, WIDE)
    panel = first_panel + tl.program_id(1)
    size = (rows * BB).to(tl.int64)
    packed = packed_after(kept, slices * size * (2 if KEEP_Z else 1), WIDE) + near * 1024
    column, there = columns_of(tl.program_id(0) * P, slices, size, BB, P)
    first, last = share(tl.load(program + LOWER + panel), tl.load(program + UPPER + panel))
    z = _products(kept, packed, program, column, BLOCK, first, last, BB, G, STAGES, WIDE)
    row = (lead + panel) * 32 + tl.arange(0, 32)
    own = sums + tl.program_id(2) * slices * size
    tl.store(own + row[None, :] * BB + column[:, None], z, mask=there[:, None])
