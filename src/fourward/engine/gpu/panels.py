"""Kernels that walk a network panel by panel: products of tiles, and 32 steps within a panel, in registers.

A program owns BB samples and walks all panels, so nothing waits for another program but for the weights: in the same
launch, the programs that come first lay them out in dense tiles.

What a panel takes from within is a sweep: a lane holds the sum of one neuron for a sample, and each neuron's
activation is handed to all lanes by a shuffle. While a panel is swept, what the next panel takes from it is added step
by step; what that takes from all panels before are products of tiles, G at a time, each warp on tiles of its own.

A product of tiles multiplies weights that don't exist, as 0, with activations. Where one of these is infinite or NaN
that gives NaN. So every sum is looked at, and a slice in which one isn't finite is walked again, edge by edge.

Memory: `kept` holds the activations as (slices, rows, BB), and after them z in the same way where a derivative needs
it; `packed` holds M tiles as (source, target), then P diagonal tiles, then these transposed, then for each panel the
tile from the panel before, transposed.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fourward.engine.gpu.formulas import activate, draw_node, kept_scale, slope
from fourward.engine.gpu.moves import enter, leave

_RUNTIME = ["B", "I", "columns", "rows", "lead", "tiles", "panels", "packers", "slices", "threshold", "p_bits"]
_RUNTIME += ["first_panel", "last_panel", "first_block", "LOWER", "UPPER"]


@triton.jit
def _popcount(x):
    """How many bits of a uint32 are set; LLVM knows this pattern as one instruction."""
    x = x - ((x >> 1) & 0x55555555)
    x = (x & 0x33333333) + ((x >> 2) & 0x33333333)
    x = (x + (x >> 4)) & 0x0F0F0F0F
    return ((x * 0x01010101) >> 24).to(tl.int32)


@triton.jit
def _edges(program, word_at, base_at):
    """(32 targets, 32 sources) of a tile: which edges exist, and their numbers."""
    kk = tl.arange(0, 32).to(tl.uint32)[None, :]
    tt = tl.arange(0, 32)
    word = tl.load(program + word_at + tt).to(tl.uint32, bitcast=True)[:, None]
    base = tl.load(program + base_at + tt)[:, None]
    one = tl.full((1, 32), 1, tl.uint32)
    return ((word >> kk) & 1) != 0, base + _popcount(word & ((one << kk) - 1))


@triton.jit
def _pack(
    weight, packed, program, tiles, panels, packer, packers, LAST_OF, WORD, BASE, OWN_WORD, OWN_BASE,
    WIDE: tl.constexpr,
):  # fmt: skip
    """Lay out every packers-th tile."""
    kk = tl.arange(0, 32)[None, :]
    tt = tl.arange(0, 32)[:, None]
    for i in range(packer, tiles + panels, packers):
        own = i >= tiles
        last_of = tl.load(program + LAST_OF + i, mask=i < tiles, other=-1)
        word_at = tl.where(own, OWN_WORD + (i - tiles) * 32, WORD + i * 32)
        base_at = tl.where(own, OWN_BASE + (i - tiles) * 32, BASE + i * 32)
        has, edge = _edges(program, word_at, base_at)
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
def _behind(packed, program, BACK_TILE, first, last, G: tl.constexpr):
    """Up to G tiles out of a block, (G, source, target)."""
    out = first + tl.arange(0, G)
    tile = tl.load(program + BACK_TILE + out, mask=out < last, other=0)
    place = tl.arange(0, 32)[:, None] * 32 + tl.arange(0, 32)[None, :]
    return tl.load(packed + tile[:, None, None] * 1024 + place[None, :, :], mask=(out < last)[:, None, None], other=0.0)


@triton.jit
def _rows_of(program, at, first, last, G: tl.constexpr):
    """(G, 32) the rows of up to G blocks, counted from block 0; -1 where there is none."""
    tile = first + tl.arange(0, G)
    block = tl.load(program + at + tile, mask=tile < last, other=-1)
    return tl.where(block[:, None] >= 0, block[:, None] * 32 + tl.arange(0, 32)[None, :], -1)


@triton.jit
def _known(values, row, BB: tl.constexpr, WIDE: tl.constexpr):
    """(G, 32, BB) of what is known already, at these rows."""
    at = values + row[:, :, None] * BB + tl.arange(0, BB)[None, None, :]
    return tl.load(at, mask=(row >= 0)[:, :, None], other=0.0).to(WIDE)


@triton.jit
def _times(w, known, acc, WIDE: tl.constexpr):
    """Add products of tiles into a panel."""
    return tl.dot(tl.permute(w, (0, 2, 1)), known, acc, input_precision="ieee", out_dtype=WIDE)


@triton.jit
def _times_back(w, known, acc, WIDE: tl.constexpr):
    """Add products of tiles out of a block."""
    return tl.dot(w, known, acc, input_precision="ieee", out_dtype=WIDE)


@triton.jit
def _products(
    values,
    packed,
    program,
    BLOCK,
    first,
    last,
    BB: tl.constexpr,
    G: tl.constexpr,
    STAGES: tl.constexpr,
    WIDE: tl.constexpr,
):
    """(G, 32, BB) sums of products over the tiles first:last into a panel; still to be added over G."""
    acc = tl.zeros((G, 32, BB), WIDE)
    for j in tl.range(first, last, G, num_stages=STAGES):
        known = _known(values, _rows_of(program, BLOCK, j, last, G), BB, WIDE)
        acc = _times(_ahead(packed, j, last, G), known, acc, WIDE)
    return acc


@triton.jit
def _products_back(found, packed, program, BACK_TILE, BACK_PANEL, first, last,
                   BB: tl.constexpr, G: tl.constexpr, STAGES: tl.constexpr, WIDE: tl.constexpr):  # fmt: skip
    """(G, 32, BB) the same over the tiles out of a block; `found` starts at the rows of the first panel."""
    acc = tl.zeros((G, 32, BB), WIDE)
    for j in tl.range(first, last, G, num_stages=STAGES):
        known = _known(found, _rows_of(program, BACK_PANEL, j, last, G), BB, WIDE)
        acc = _times_back(_behind(packed, program, BACK_TILE, j, last, G), known, acc, WIDE)
    return acc


@triton.jit
def _added(acc):
    """(BB, 32) the sum over G."""
    return tl.trans(tl.sum(acc, 0))


@triton.jit
def _not_finite(z):
    return tl.where(z - z == 0, 0, 1)


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
def _by_edges_back(found, packed, program, BACK_TILE, BACK_PANEL, WORD, first, last,
                   BB: tl.constexpr, WIDE: tl.constexpr):  # fmt: skip
    bb = tl.arange(0, BB)
    kk = tl.arange(0, 32)
    s = tl.zeros((BB, 32), WIDE)
    for j in range(first, last):
        tile = tl.load(program + BACK_TILE + j)
        row = tl.load(program + BACK_PANEL + j) * 32
        for t in range(32):
            d = tl.load(found + (row + t) * BB + bb).to(WIDE)
            w = tl.load(packed + tile * 1024 + kk * 32 + t)
            word = tl.load(program + WORD + tile * 32 + t)
            s += tl.where((((word >> kk) & 1) != 0)[None, :], d[:, None] * w[None, :], 0.0)
    return s


@triton.jit
def _rows(packed, tile, first, COUNT: tl.constexpr):
    """Rows of a tile, each a vector over lanes."""
    rows = ()
    lane = tl.arange(0, 32)
    for t in tl.static_range(COUNT):
        rows = rows + (tl.load(packed + tile * 1024 + (first + t) * 32 + lane),)  # type: ignore[assignment] # noqa: RUF005
    return rows


@triton.jit
def _column(z, t, BB: tl.constexpr):
    """(BB, 1) column t of (BB, 32)."""
    return tl.gather(z, tl.zeros((BB, 1), tl.int32) + t, 1)


@triton.jit
def _scales(program, key, row, r, NODE, HIDDEN, threshold, p_bits, WIDE: tl.constexpr):
    """(BB, 32) what dropout multiplies the neurons at these rows with."""
    node = draw_node(key, tl.load(program + NODE + row))
    hidden = tl.load(program + HIDDEN + row)
    return kept_scale(node[None, :], r[:, None], threshold, p_bits, hidden[None, :], WIDE)


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
        a = _column(z, first + i, BB)
        drop = _column(scale, first + i, BB) if DROP else a
        own = code if CODES & (CODES - 1) == 0 else _column(code, first + i, BB)
        a = _activation(a, own, drop, CODES, DROP, X, WIDE)
        z += a * inner[i][None, :]
        then += a * onward[i][None, :]
    return z, then


@triton.jit
def _bias_of(bias, program, BIAS_AT, row, BIASED: tl.constexpr, WIDE: tl.constexpr):
    """(1, 32) biases of these rows."""
    found = tl.zeros((1, 32), WIDE)
    if BIASED:
        at = tl.load(program + BIAS_AT + row)
        found += tl.load(bias + at, mask=at >= 0, other=0.0).to(WIDE)[None, :]
    return found


@triton.jit
def _slow_forward(
    values, z_values, bias, key, packed, program, r, lead, tiles, threshold, p_bits, first_panel, last_panel,
    CODE, NODE, HIDDEN, BIAS_AT, START, BLOCK, WORD, OWN_WORD,
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
        z += _bias_of(bias, program, BIAS_AT, row, BIASED, WIDE)
        code = tl.load(program + CODE + row)[None, :]
        scale = tl.full((BB, 32), 1, WIDE)
        if DROP:
            scale = _scales(program, key, row, r, NODE, HIDDEN, threshold, p_bits, WIDE)
        word = tl.load(program + OWN_WORD + panel * 32 + kk)
        for t in range(32):
            a = _activation(z, code, scale, CODES, DROP, X, WIDE)
            a = _column(a, t, BB)
            w = tl.load(packed + (tiles + panel) * 1024 + t * 32 + kk)
            z += tl.where((((word >> t) & 1) != 0)[None, :], a * w[None, :], 0.0)
        at = row[None, :] * BB + tl.arange(0, BB)[:, None]
        tl.store(values + at, _activation(z, code, scale, CODES, DROP, X, WIDE))
        if KEEP_Z:
            tl.store(z_values + at, z)
        tl.debug_barrier()


@triton.jit(do_not_specialize=_RUNTIME)
def panels_forward(
    x, weight, bias, key, out, kept, packed, sums, program, counters,
    B, I, columns, rows, lead, tiles, panels, packers, slices, threshold: tl.int64, p_bits: tl.int64,
    first_panel, last_panel,
    CODE, NODE, HIDDEN, BIAS_AT, COLUMN, LOWER, START, BLOCK, LAST_OF, WORD, BASE, OWN_WORD, OWN_BASE,
    BB: tl.constexpr, G: tl.constexpr, STAGES: tl.constexpr, CODES: tl.constexpr, BIASED: tl.constexpr,
    DROP: tl.constexpr, KEEP_Z: tl.constexpr, STEPS: tl.constexpr, SUMS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """A = f(b + W a), panel by panel, for BB samples.

    Programs take a ticket: the first `packers` of them lay out the weights, the others wait until all have done so. As
    tickets are taken in the order in which programs start, nobody waits for a program that can't start.
    """
    ticket = tl.atomic_add(counters, 1)
    if ticket < packers:
        _pack(weight, packed, program, tiles, panels, ticket, packers, LAST_OF, WORD, BASE, OWN_WORD, OWN_BASE, WIDE)
        tl.debug_barrier()
        tl.atomic_add(counters + 1, 1)
    else:
        X: tl.constexpr = kept.dtype.element_ty
        piece = ticket - packers
        size = (rows * BB).to(tl.int64)
        values = kept + piece * size
        z_values = kept + (slices + piece) * size
        r = piece * BB + tl.arange(0, BB)
        kk = tl.arange(0, 32)
        if first_panel == 0:
            enter(x, values, r, B, I, lead * 32, BB)
            tl.debug_barrier()
        ready = tl.atomic_add(counters + 1, 0)
        while ready < packers:
            ready = tl.atomic_add(counters + 1, 0)
        row = (lead + first_panel) * 32 + kk
        at = row[None, :] * BB + tl.arange(0, BB)[:, None]
        first = tl.load(program + LOWER + first_panel)
        last = tl.load(program + START + first_panel + 1)
        z = _added(_products(values, packed, program, BLOCK, first, last, BB, G, STAGES, WIDE))
        z += _bias_of(bias, program, BIAS_AT, row, BIASED, WIDE)
        if SUMS:
            z += tl.load(sums + piece * size + at)
        more = first_panel + 1 < last_panel  # whether there is a next panel
        first = tl.load(program + LOWER + first_panel + 1, mask=more, other=0)
        last = (
            tl.load(program + START + first_panel + 2, mask=more, other=1) - 1
        )  # the tile that is swept, not this one
        w = _ahead(packed, first, last, G)
        block = _rows_of(program, BLOCK, first, last, G)
        odd = tl.zeros((BB, 32), tl.int32)
        for panel in tl.range(first_panel, last_panel, num_stages=1):
            more = panel + 2 < last_panel
            first_then = tl.load(program + LOWER + panel + 2, mask=more, other=0)
            last_then = tl.load(program + START + panel + 3, mask=more, other=1) - 1
            inner = _rows(packed, tiles + panel, 0, STEPS)
            onward = _rows(packed, last, 0, STEPS)
            known = _known(values, block, BB, WIDE)
            code = tl.load(program + CODE + row)[None, :] + tl.zeros((BB, 1), tl.int32)
            scale = tl.zeros((BB, 32), WIDE)
            if DROP:
                scale = _scales(program, key, row, r, NODE, HIDDEN, threshold, p_bits, WIDE)
            then = _bias_of(bias, program, BIAS_AT, tl.minimum(row + 32, rows - 1), BIASED, WIDE)
            then = then + tl.zeros((BB, 1), WIDE)
            if SUMS:
                then += tl.load(sums + piece * size + at + 32 * BB, mask=(row + 32 < rows)[None, :], other=0.0)
            acc = _products(values, packed, program, BLOCK, first + G, last, BB, G, STAGES, WIDE)
            acc = _times(w, known, acc, WIDE)
            w = _ahead(packed, first_then, last_then, G)
            block = _rows_of(program, BLOCK, first_then, last_then, G)
            z, then = _sweep(z, then, inner, onward, code, scale, 0, STEPS, BB, CODES, DROP, X, WIDE)
            if STEPS < 32:  # steps are costly to compile: few of them, in a loop
                for t in range(STEPS, 32, STEPS):
                    inner = _rows(packed, tiles + panel, t, STEPS)
                    onward = _rows(packed, last, t, STEPS)
                    z, then = _sweep(z, then, inner, onward, code, scale, t, STEPS, BB, CODES, DROP, X, WIDE)
            tl.store(values + at, _activation(z, code, scale, CODES, DROP, X, WIDE))
            if KEEP_Z:
                tl.store(z_values + at, z)
            odd |= _not_finite(z)
            z = then + _added(acc)
            first, last = first_then, last_then
            row += 32
            at += 32 * BB
            tl.debug_barrier()
        if tl.sum(odd) != 0:
            _slow_forward(
                values, z_values, bias, key, packed, program, r, lead, tiles, threshold, p_bits, first_panel,
                last_panel, CODE, NODE, HIDDEN, BIAS_AT, START, BLOCK, WORD, OWN_WORD,
                BB, CODES, BIASED, DROP, KEEP_Z, WIDE,
            )  # fmt: skip
        if last_panel == panels:
            leave(out, values, program, COLUMN, r, B, columns, BB)
        if tl.atomic_add(counters + 2, 1) == slices - 1:  # the last one leaves the counters as it found them
            tl.store(counters + tl.arange(0, 4), tl.zeros((4,), tl.int32))


@triton.jit
def _steep(
    values, z_values, program, key, row, at, r, CODE, NODE, HIDDEN, threshold, p_bits,
    CODES: tl.constexpr, DROP: tl.constexpr, KEEP_Z: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """(BB, 32) f'(z), times what dropout multiplied with."""
    a = tl.load(values + at).to(WIDE)
    z = a
    if KEEP_Z:
        z = tl.load(z_values + at).to(WIDE)
    code = tl.load(program + CODE + row)[None, :]
    if DROP:
        scale = _scales(program, key, row, r, NODE, HIDDEN, threshold, p_bits, WIDE)
        a = tl.where(scale == 0, 0.0, a / tl.where(scale == 0, 1.0, scale))
        return slope(z, a, code, CODES) * scale
    return slope(z, a, code, CODES)


@triton.jit
def _given(out_grad, program, OUT_OF, row, r, B, columns, WIDE: tl.constexpr):
    """(BB, 32) the gradients that came for these rows; 0 where a node is no output."""
    column = tl.load(program + OUT_OF + row)
    mask = (column >= 0)[None, :] & (r < B)[:, None]
    return tl.load(out_grad + r[:, None].to(tl.int64) * columns + column[None, :], mask=mask, other=0.0).to(WIDE)


@triton.jit
def _slow_backward(
    out_grad, values, z_values, found, packed, key, program, r, B, columns, lead, tiles, panels, threshold, p_bits,
    first_panel, last_panel,
    CODE, NODE, HIDDEN, OUT_OF, OWN_BACK, BACK_START, BACK_TILE, BACK_PANEL, WORD,
    BB: tl.constexpr, CODES: tl.constexpr, DROP: tl.constexpr, KEEP_Z: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """The same walk over edges that exist, and no others."""
    kk = tl.arange(0, 32)
    for i in range(last_panel - first_panel):
        panel = last_panel - 1 - i
        row = (lead + panel) * 32 + kk
        at = row[None, :] * BB + tl.arange(0, BB)[:, None]
        first = tl.load(program + BACK_START + lead + panel)
        last = tl.load(program + BACK_START + lead + panel + 1)
        later = found + lead * 32 * BB
        s = _by_edges_back(later, packed, program, BACK_TILE, BACK_PANEL, WORD, first, last, BB, WIDE)
        s += _given(out_grad, program, OUT_OF, row, r, B, columns, WIDE)
        steep = _steep(
            values, z_values, program, key, row, at, r, CODE, NODE, HIDDEN, threshold, p_bits, CODES, DROP, KEEP_Z, WIDE
        )
        word = tl.load(program + OWN_BACK + panel * 32 + kk)
        for step in range(32):
            t = 31 - step
            d = _column(s * steep, t, BB)
            w = tl.load(packed + (tiles + panels + panel) * 1024 + t * 32 + kk)
            s += tl.where((((word >> t) & 1) != 0)[None, :], d * w[None, :], 0.0)
        tl.store(found + at, s * steep)
        tl.debug_barrier()


@triton.jit(do_not_specialize=_RUNTIME)
def panels_backward(
    out_grad, kept, packed, sums, key, x_grad, deltas, program,
    B, I, columns, rows, lead, tiles, panels, slices, threshold: tl.int64, p_bits: tl.int64,
    first_panel, last_panel,
    CODE, NODE, HIDDEN, OUT_OF, OWN_BACK, BACK_START, UPPER, BACK_TILE, BACK_PANEL, WORD,
    BB: tl.constexpr, G: tl.constexpr, STAGES: tl.constexpr, CODES: tl.constexpr, DROP: tl.constexpr,
    KEEP_Z: tl.constexpr, X_GRAD: tl.constexpr, SUMS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """D = f'(z) (g + W^T d), panel by panel from the last, for BB samples; then the gradient of x."""
    piece = tl.program_id(0)
    size = (rows * BB).to(tl.int64)
    values = kept + piece * size
    z_values = kept + (slices + piece) * size
    found = deltas + piece * size
    later = found + lead * 32 * BB
    r = piece * BB + tl.arange(0, BB)
    kk = tl.arange(0, 32)
    row = (lead + last_panel - 1) * 32 + kk
    at = row[None, :] * BB + tl.arange(0, BB)[:, None]
    first = tl.load(program + BACK_START + lead + last_panel - 1)
    last = tl.load(program + UPPER + lead + last_panel - 1)
    s = _added(_products_back(later, packed, program, BACK_TILE, BACK_PANEL, first, last, BB, G, STAGES, WIDE))
    s += _given(out_grad, program, OUT_OF, row, r, B, columns, WIDE)
    if SUMS:
        s += tl.load(sums + piece * size + at)
    more = first_panel + 1 < last_panel  # whether there is a panel before; its first tile is swept
    first = tl.load(program + BACK_START + lead + last_panel - 2, mask=more, other=-1) + 1
    last = tl.load(program + UPPER + lead + last_panel - 2, mask=more, other=0)
    w = _behind(packed, program, BACK_TILE, first, last, G)
    block = _rows_of(program, BACK_PANEL, first, last, G)
    odd = tl.zeros((BB, 32), tl.int32)
    for i in tl.range(0, last_panel - first_panel, num_stages=1):
        panel = last_panel - 1 - i
        more = panel - 2 >= first_panel
        first_then = tl.load(program + BACK_START + lead + panel - 2, mask=more, other=-1) + 1
        last_then = tl.load(program + UPPER + lead + panel - 2, mask=more, other=0)
        inner = _rows(packed, tiles + panels + panel, 0, 32)
        turned = tiles + panels + panel + tl.where(panel > 0, panels, 0)  # panel 0 has none before it
        onward = _rows(packed, turned, 0, 32)
        known = _known(later, block, BB, WIDE)
        steep = _steep(
            values, z_values, program, key, row, at, r, CODE, NODE, HIDDEN, threshold, p_bits, CODES, DROP, KEEP_Z, WIDE
        )
        then = _given(out_grad, program, OUT_OF, tl.maximum(row - 32, 0), r, B, columns, WIDE)
        if SUMS:
            then += tl.load(sums + piece * size + at - 32 * BB, mask=(row >= 32)[None, :], other=0.0)
        acc = _products_back(later, packed, program, BACK_TILE, BACK_PANEL, first + G, last, BB, G, STAGES, WIDE)
        acc = _times_back(w, known, acc, WIDE)
        w = _behind(packed, program, BACK_TILE, first_then, last_then, G)
        block = _rows_of(program, BACK_PANEL, first_then, last_then, G)
        for t in tl.static_range(31, -1, -1):
            d = _column(s * steep, t, BB)
            s += d * inner[t][None, :]
            then += d * onward[t][None, :]
        tl.store(found + at, s * steep)
        odd |= _not_finite(s)
        odd |= _not_finite(s * steep)
        s = then + _added(acc)
        first, last = first_then, last_then
        row -= 32
        at -= 32 * BB
        tl.debug_barrier()
    broken = tl.sum(odd) != 0
    if broken:
        _slow_backward(
            out_grad, values, z_values, found, packed, key, program, r, B, columns, lead, tiles, panels, threshold,
            p_bits, first_panel, last_panel, CODE, NODE, HIDDEN, OUT_OF, OWN_BACK, BACK_START, BACK_TILE, BACK_PANEL,
            WORD, BB, CODES, DROP, KEEP_Z, WIDE,
        )  # fmt: skip
    if X_GRAD and first_panel == 0:
        for j in range(lead):
            row = j * 32 + kk
            first = tl.load(program + BACK_START + j)
            last = tl.load(program + UPPER + j)
            s = _added(_products_back(later, packed, program, BACK_TILE, BACK_PANEL, first, last, BB, G, STAGES, WIDE))
            if SUMS:
                s += tl.load(sums + piece * size + row[None, :] * BB + tl.arange(0, BB)[:, None])
            if tl.sum(_not_finite(s)) != 0:
                last = tl.load(program + BACK_START + j + 1)
                s = _by_edges_back(later, packed, program, BACK_TILE, BACK_PANEL, WORD, first, last, BB, WIDE)
            s += _given(out_grad, program, OUT_OF, row, r, B, columns, WIDE)
            mask = (row < I)[None, :] & (r < B)[:, None]
            tl.store(x_grad + r[:, None].to(tl.int64) * I + row[None, :], s, mask=mask)


@triton.jit
def _batch_rows(values, row, r, size, B, BB: tl.constexpr, WIDE: tl.constexpr):
    """(32, KB) values of a block at samples r, 0 beyond the batch."""
    at = (r // BB).to(tl.int64) * size + r % BB
    return tl.load(values + row[:, None] * BB + at[None, :], mask=(r < B)[None, :], other=0.0).to(WIDE)


@triton.jit(do_not_specialize=_RUNTIME)
def panels_weights(
    kept, deltas, weight_grad, bias_grad, program,
    B, rows, lead, tiles, panels,
    START, BLOCK, WORD, BASE, OWN_WORD, OWN_BASE, BIAS_AT, TILE_PANEL,
    BB: tl.constexpr, KB: tl.constexpr, BIASED: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """dW[u, v] = the sum over the batch of a[u] d[v], a tile for each program; diagonal ones sum the biases, too."""
    i = tl.program_id(0)
    own = i >= tiles
    kk = tl.arange(0, 32)
    panel = tl.load(program + TILE_PANEL + i, mask=i < tiles, other=0)
    block = tl.load(program + BLOCK + i, mask=i < tiles, other=0)
    panel = tl.where(own, i - tiles, panel)
    block = tl.where(own, lead + i - tiles, block)
    size = (rows * BB).to(tl.int64)
    acc = tl.zeros((32, 32), WIDE)
    total = tl.zeros((32,), WIDE)
    for j in tl.range(0, B, KB, num_stages=2):
        r = j + tl.arange(0, KB)
        d = _batch_rows(deltas, (lead + panel) * 32 + kk, r, size, B, BB, WIDE)
        a = _batch_rows(kept, block * 32 + kk, r, size, B, BB, WIDE)
        acc = tl.dot(d, tl.trans(a), acc, input_precision="ieee", out_dtype=WIDE)
        if BIASED:
            total += tl.sum(d, 1)
    word_at = tl.where(own, OWN_WORD + (i - tiles) * 32, WORD + i * 32)
    base_at = tl.where(own, OWN_BASE + (i - tiles) * 32, BASE + i * 32)
    has, edge = _edges(program, word_at, base_at)
    tl.store(weight_grad + edge, acc, mask=has)
    if BIASED:
        at = tl.load(program + BIAS_AT + (lead + panel) * 32 + kk)
        tl.store(bias_grad + at, total, mask=(at >= 0) & own)


@triton.jit(do_not_specialize=_RUNTIME)
def panels_products(
    kept, packed, sums, program, rows, lead, first_panel, LOWER, UPPER, BLOCK,
    BB: tl.constexpr, G: tl.constexpr, STAGES: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """What a stretch of panels takes from all panels before the stretch: a program for each panel and slice."""
    piece = tl.program_id(0)
    panel = first_panel + tl.program_id(1)
    size = (rows * BB).to(tl.int64)
    first = tl.load(program + LOWER + panel)
    last = tl.load(program + UPPER + panel)
    z = _added(_products(kept + piece * size, packed, program, BLOCK, first, last, BB, G, STAGES, WIDE))
    row = (lead + panel) * 32 + tl.arange(0, 32)
    tl.store(sums + piece * size + row[None, :] * BB + tl.arange(0, BB)[:, None], z)


@triton.jit(do_not_specialize=_RUNTIME)
def panels_products_back(
    deltas, packed, sums, program, rows, lead, first_block, LOWER, UPPER, BACK_TILE, BACK_PANEL,
    BB: tl.constexpr, G: tl.constexpr, STAGES: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """The same for a backward pass: what a stretch of blocks takes from all panels after the stretch."""
    piece = tl.program_id(0)
    block = first_block + tl.program_id(1)
    size = (rows * BB).to(tl.int64)
    first = tl.load(program + LOWER + block)
    last = tl.load(program + UPPER + block)
    later = deltas + piece * size + lead * 32 * BB
    s = _added(_products_back(later, packed, program, BACK_TILE, BACK_PANEL, first, last, BB, G, STAGES, WIDE))
    row = block * 32 + tl.arange(0, 32)
    tl.store(sums + piece * size + row[None, :] * BB + tl.arange(0, BB)[:, None], s)
