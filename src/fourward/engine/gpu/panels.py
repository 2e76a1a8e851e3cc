"""Kernels that walk a network panel by panel: products of tiles, and 32 steps within a panel, in registers.

A program owns BB samples and walks all panels, so nothing waits for another program but for the weights: in the same
launch, the programs that come first lay them out in dense tiles.

What a panel takes from within is a sweep: a lane holds the sum of one neuron for a sample, and each neuron's
activation is handed to all lanes by a shuffle. While a panel is swept, what the next panel takes from it is added step
by step; what that takes from all panels before are products of tiles, G at a time, each warp on tiles of its own.

A product of tiles multiplies weights that don't exist, as 0, with activations. Where one of these is infinite or NaN
that gives NaN. So every sum is looked at, and a slice in which one isn't finite is walked again, edge by edge.

Memory: `kept` holds the activations as (slices, rows, BB), after them z in the same way where a derivative needs it,
and then the weights: M tiles as (source, target), then P diagonal tiles, then these transposed, then for each panel the
tile from the panel before, transposed.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fourward.engine.gpu.formulas import activate
from fourward.engine.gpu.table import address, note, own_address
from fourward.engine.gpu.tiles import (
    RUNTIME,
    added,
    column_of,
    columns_of,
    known_at,
    not_finite,
    packed_after,
    rows_of,
    scales_of,
    share,
    sums_at,
    tile_edges,
    tile_rows,
)

# Places in the table of addresses.
_BIAS, _KEY, _OUT, _KEPT, _SUMS = (tl.constexpr(i) for i in range(5))


@triton.jit
def _pack(
    weight, packed, program, tiles, panels, packer, packers, LAST_OF, WORD, BASE, OWN_WORD, OWN_BASE,
    WIDE: tl.constexpr,
):  # fmt: skip
    """Lay out every packers-th tile."""
    kk = tl.arange(0, 32)
    tt = kk[:, None]
    for i in range(packer, tiles + panels, packers):
        own = i >= tiles
        last_of = tl.load(program + LAST_OF + i, mask=i < tiles, other=-1)
        word_at = tl.where(own, OWN_WORD + (i - tiles) * 32, WORD + i * 32)
        base_at = tl.where(own, OWN_BASE + (i - tiles) * 32, BASE + i * 32)
        has, edge = tile_edges(program, word_at, base_at)
        w = tl.load(weight + edge, mask=has, other=0.0).to(WIDE)
        tl.store(packed + i * 1024 + kk * 32 + tt, w)
        turned = tl.where(own, i + panels, tiles + 2 * panels + last_of)
        if own | (last_of >= 0):
            tl.store(packed + turned * 1024 + tt * 32 + kk, w)


@triton.jit
def _ahead(packed, first, last, G: tl.constexpr):
    """Up to G tiles into a panel, (G, source, target)."""
    tile = first + tl.arange(0, G)
    place = tl.arange(0, 32)[:, None] * 32 + tl.arange(0, 32)[None, :]
    return tl.load(
        packed + tile[:, None, None] * 1024 + place[None, :, :], mask=(tile < last)[:, None, None], other=0.0
    )


@triton.jit
def _times(w, known, acc, WIDE: tl.constexpr):
    """Add products of tiles into a panel."""
    return tl.dot(tl.permute(w, (0, 2, 1)), known, acc, input_precision="ieee", out_dtype=WIDE)


@triton.jit
def _products(values, packed, program, column, BLOCK, first, last, BB: tl.constexpr, G: tl.constexpr,
              STAGES: tl.constexpr, WIDE: tl.constexpr):  # fmt: skip
    """(G, 32, columns) sums of products over the tiles first:last into a panel; still to be added over G."""
    acc = tl.zeros((G, 32, column.shape[0]), WIDE)
    for j in tl.range(first, last, G, num_stages=STAGES):
        known = known_at(values, rows_of(program, BLOCK, j, last, G), column, BB, WIDE)
        acc = _times(_ahead(packed, j, last, G), known, acc, WIDE)
    return acc


@triton.jit
def _by_edges(values, packed, program, BLOCK, WORD, first, last, BB: tl.constexpr, WIDE: tl.constexpr):
    """(BB, 32) what _products computes, but only over edges that exist."""
    bb = tl.arange(0, BB)
    tt = tl.arange(0, 32)
    z = tl.zeros((BB, 32), WIDE)
    for tile in range(first, last):
        word = tl.load(program + WORD + tile * 32 + tt)
        row = tl.load(program + BLOCK + tile) * 32
        for k in range(32):
            a = tl.load(values + (row + k) * BB + bb).to(WIDE)
            w = tl.load(packed + tile * 1024 + k * 32 + tt)
            z += tl.where((((word >> k) & 1) != 0)[None, :], a[:, None] * w[None, :], 0.0)
    return z


@triton.jit
def _activation(z, code, scale, CODES: tl.constexpr, DROP: tl.constexpr, X: tl.constexpr, WIDE: tl.constexpr):
    """a, as it will be read again from memory."""
    a = activate(z, code, CODES)
    if DROP:
        a = a * scale
    return a.to(X).to(WIDE)


@triton.jit
def _sweep(z, then, inner, onward, code, scale, first, COUNT: tl.constexpr, BB: tl.constexpr, CODES: tl.constexpr,
           DROP: tl.constexpr, X: tl.constexpr, WIDE: tl.constexpr):  # fmt: skip
    """COUNT steps: finish a neuron's sum, add its activation to those of its panel and of the next."""
    for i in tl.static_range(COUNT):
        a = column_of(z, first + i, BB)
        drop = column_of(scale, first + i, BB) if DROP else a
        own = code if CODES & (CODES - 1) == 0 else column_of(code, first + i, BB)
        a = _activation(a, own, drop, CODES, DROP, X, WIDE)
        z = tl.fma(a, inner[i], z)
        then = tl.fma(a, onward[i], then)
    return z, then


@triton.jit
def _bias_place(program, BIAS_AT, row, rows, BIASED: tl.constexpr):
    """Where the biases of these rows are; -1 where there is none."""
    at = tl.full((32,), -1, tl.int32)
    if BIASED:
        at = tl.load(program + BIAS_AT + row, mask=row < rows, other=-1)
    return at


@triton.jit
def _biases(bias, bias_at, BIASED: tl.constexpr, WIDE: tl.constexpr):
    """(1, 32) the biases at these places."""
    found = tl.zeros((1, 32), WIDE)
    if BIASED:
        found += tl.load(bias + bias_at, mask=bias_at >= 0, other=0.0).to(WIDE)[None, :]
    return found


@triton.jit
def _before(bias, bias_at, sums, row, at, rows, stride, BIASED: tl.constexpr, SUMS: tl.constexpr, WIDE: tl.constexpr):
    """(BB, 32) what these rows have before their stretch is walked: biases, and sums from others; 0 beyond the rows."""
    z = _biases(bias, bias_at, BIASED, WIDE) + tl.zeros_like(at).to(WIDE)
    if SUMS:
        z += sums_at(sums, at, (row < rows)[None, :], stride, SUMS)
    return z


@triton.jit
def _span(program, LOWER, START, panel, stop):
    """The tiles into a panel whose products are taken, up to the one that is swept; none from the stop on."""
    more = panel < stop
    first = tl.load(program + LOWER + panel, mask=more, other=0)
    return first, tl.load(program + START + panel + 1, mask=more, other=1) - 1


@triton.jit
def _leave(a, out, column, r, B, columns):
    """Copy (BB, 32) to those columns of out (B, columns) that aren't negative."""
    mask = (r < B)[:, None] & (column >= 0)[None, :]
    tl.store(out + r[:, None].to(tl.int64) * columns + column[None, :], a, mask=mask)


@triton.jit
def _enter(x, values, out, program, OUT_OF, r, B, I, lead, columns, BB: tl.constexpr):
    """Copy samples r of x (B, I) to the first rows, and to the result where an input is an output, too."""
    bb = tl.arange(0, BB)
    for j in range(lead):
        row = j * 32 + tl.arange(0, 32)
        mask = (r < B)[:, None] & (row < I)[None, :]
        column = tl.load(program + OUT_OF + row)
        v = tl.load(x + r[:, None].to(tl.int64) * I + row[None, :], mask=mask, other=0.0)
        tl.store(values + row[None, :] * BB + bb[:, None], v)
        _leave(v, out, column, r, B, columns)


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
    if tl.max(tl.where(tl.arange(0, 256) == 0, waited, 0)) == slices - 1:
        tl.store(counters + tl.arange(0, COUNT), tl.zeros((COUNT,), tl.int32))


@triton.jit
def _slow_forward(
    values, z_values, out, bias, key, packed, program, r, lead, tiles, threshold, p_bits, first_panel, last_panel,
    B, columns, rows, CODE, NODE, HIDDEN, BIAS_AT, OUT_OF, START, BLOCK, WORD, OWN_WORD,
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
        z = _by_edges(values, packed, program, BLOCK, WORD, first, last, BB, WIDE)
        z += _biases(bias, _bias_place(program, BIAS_AT, row, rows, BIASED), BIASED, WIDE)
        code = tl.load(program + CODE + row)[None, :]
        scale = tl.full((BB, 32), 1, WIDE)
        if DROP:
            scale = scales_of(program, key, row, r, NODE, HIDDEN, threshold, p_bits, WIDE)
        word = tl.load(program + OWN_WORD + panel * 32 + kk)
        for t in range(32):
            a = _activation(z, code, scale, CODES, DROP, X, WIDE)
            a = column_of(a, t, BB)
            w = tl.load(packed + (tiles + panel) * 1024 + t * 32 + kk)
            z += tl.where((((word >> t) & 1) != 0)[None, :], a * w[None, :], 0.0)
        at = row[None, :] * BB + tl.arange(0, BB)[:, None]
        a = _activation(z, code, scale, CODES, DROP, X, WIDE)
        _leave(a, out, tl.load(program + OUT_OF + row), r, B, columns)
        tl.store(values + at, a)
        if KEEP_Z:
            tl.store(z_values + at, z)
        tl.debug_barrier()


@triton.jit(do_not_specialize=RUNTIME)
def panels_forward(
    x, weight, bias, key, out, kept, sums, program, table,
    B, I, columns, rows, lead, tiles, panels, packers, slices, threshold: tl.int64, p_bits: tl.int64,
    first_panel, last_panel,
    CODE, NODE, HIDDEN, BIAS_AT, OUT_OF, LOWER, START, BLOCK, LAST_OF, WORD, BASE, OWN_WORD, OWN_BASE,
    BB: tl.constexpr, G: tl.constexpr, CODES: tl.constexpr, BIASED: tl.constexpr,
    DROP: tl.constexpr, KEEP_Z: tl.constexpr, STEPS: tl.constexpr, SUMS: tl.constexpr, FIRST: tl.constexpr,
    TICKETS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """A = f(b + W a), panel by panel, for BB samples.

    The first launch of several notes where its tensors are, and the others look there: theirs are of the same types,
    but may be others by then.

    The first `packers` programs lay out the weights, the others wait until all have done so. Where there are more than
    a card holds, those that wait could keep out those that they wait for: then programs take tickets, in the order in
    which they start (TICKETS).

    A load whose place must be loaded first would be waited for twice. So where something lies is read at least one
    panel before it is: `_then` is for the panel after the next one, `_later` for the one after that.
    """
    counters = table.to(tl.pointer_type(tl.int32), bitcast=True)
    number = tl.program_id(0)
    if TICKETS:
        number = tl.atomic_add(counters + 2, 1, sem="relaxed")
    if FIRST and number == 0:
        note(table, _BIAS, bias)
        note(table, _KEY, key)
        note(table, _OUT, out)
        note(table, _KEPT, kept)
        note(table, _SUMS, sums)
    if SUMS:
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
        _pack(
            weight, packed, program, tiles, panels, number, packers, LAST_OF, WORD, BASE, OWN_WORD, OWN_BASE,
            WIDE,
        )  # fmt: skip
        tl.debug_barrier()
        tl.atomic_add(counters, 1, sem="release")
    else:
        X: tl.constexpr = kept.dtype.element_ty
        values = kept + piece * size
        z_values = kept + (slices + piece) * size
        r = piece * BB + tl.arange(0, BB)
        kk = tl.arange(0, 32)
        bb = tl.arange(0, BB)
        row = (lead + first_panel) * 32 + kk
        at = row[None, :] * BB + bb[:, None]
        bias_at = _bias_place(program, BIAS_AT, row, rows, BIASED)
        bias_at_then = _bias_place(program, BIAS_AT, row + 32, rows, BIASED)
        first, last = _span(program, LOWER, START, first_panel + 1, last_panel)
        first_then, last_then = _span(program, LOWER, START, first_panel + 2, last_panel)
        if SUMS == 0:  # what doesn't need the weights is done while they are laid out
            first_now = tl.load(program + LOWER)
            last_now = tl.load(program + START + 1)
            _enter(x, values, out, program, OUT_OF, r, B, I, lead, columns, BB)
        block = rows_of(program, BLOCK, first, last, G)
        z = _before(bias, bias_at, sums, row, piece * size + at, rows, stride, BIASED, SUMS, WIDE)
        if SUMS == 0:
            block_now = rows_of(program, BLOCK, first_now, last_now, G)
            tl.debug_barrier()
            known = known_at(values, block_now, bb, BB, WIDE)
            waited = _wait(counters, packers)
            w = _ahead(packed, first_now, last_now, G)
            acc = _products(values, packed, program, bb, BLOCK, first_now + G, last_now, BB, G, 1, WIDE)
            z += added(_times(w, known, acc, WIDE))
        w = _ahead(packed, first, last, G)
        odd = tl.zeros((BB, 32), tl.int32)
        for panel in tl.range(first_panel, last_panel, num_stages=1):
            known = known_at(values, block, bb, BB, WIDE)
            first_later, last_later = _span(program, LOWER, START, panel + 3, last_panel)
            inner = tile_rows(packed, tiles + panel, 0, STEPS)
            onward = tile_rows(packed, last, 0, STEPS)
            column = tl.load(program + OUT_OF + row)
            bias_at = bias_at_then
            bias_at_then = _bias_place(program, BIAS_AT, row + 64, rows, BIASED)
            before = _before(
                bias, bias_at, sums, row + 32, piece * size + at + 32 * BB, rows, stride, BIASED, SUMS, WIDE
            )
            code = tl.load(program + CODE + row)[None, :] + tl.zeros((BB, 1), tl.int32)
            scale = tl.zeros((BB, 32), WIDE)
            if DROP:
                scale = scales_of(program, key, row, r, NODE, HIDDEN, threshold, p_bits, WIDE)
            acc = _products(values, packed, program, bb, BLOCK, first + G, last, BB, G, 1, WIDE)
            acc = _times(w, known, acc, WIDE)
            w = _ahead(packed, first_then, last_then, G)
            block = rows_of(program, BLOCK, first_then, last_then, G)
            then = tl.zeros((BB, 32), WIDE)
            z, then = _sweep(z, then, inner, onward, code, scale, 0, STEPS, BB, CODES, DROP, X, WIDE)
            if STEPS < 32:  # steps are costly to compile: few of them, in a loop
                for t in range(STEPS, 32, STEPS):
                    inner = tile_rows(packed, tiles + panel, t, STEPS)
                    onward = tile_rows(packed, last, t, STEPS)
                    z, then = _sweep(z, then, inner, onward, code, scale, t, STEPS, BB, CODES, DROP, X, WIDE)
            a = _activation(z, code, scale, CODES, DROP, X, WIDE)
            _leave(a, out, column, r, B, columns)
            tl.store(values + at, a)
            if KEEP_Z:
                tl.store(z_values + at, z)
            odd |= not_finite(z)
            z = before + then + added(acc)
            first, last = first_then, last_then
            first_then, last_then = first_later, last_later
            row += 32
            at += 32 * BB
            tl.debug_barrier()
        if tl.sum(odd) != 0:
            _slow_forward(
                values, z_values, out, bias, key, packed, program, r, lead, tiles, threshold, p_bits, first_panel,
                last_panel, B, columns, rows, CODE, NODE, HIDDEN, BIAS_AT, OUT_OF, START, BLOCK, WORD, OWN_WORD,
                BB, CODES, BIASED, DROP, KEEP_Z, WIDE,
            )  # fmt: skip
        if SUMS == 0:
            _set_back(counters, waited, slices, 4 if TICKETS else 2)


@triton.jit(do_not_specialize=RUNTIME)
def panels_products(
    program, table, rows, lead, slices, first_panel, LOWER, UPPER, BLOCK,
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
    packed = packed_after(kept, slices * size * (2 if KEEP_Z else 1), WIDE)
    column, there = columns_of(tl.program_id(0) * P, slices, size, BB, P)
    first, last = share(tl.load(program + LOWER + panel), tl.load(program + UPPER + panel))
    z = added(_products(kept, packed, program, column, BLOCK, first, last, BB, G, STAGES, WIDE))
    row = (lead + panel) * 32 + tl.arange(0, 32)
    own = sums + tl.program_id(2) * slices * size
    tl.store(own + row[None, :] * BB + column[:, None], z, mask=there[:, None])
