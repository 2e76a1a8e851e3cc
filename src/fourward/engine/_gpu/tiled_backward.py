"""The panels from the last to the first, then the gradients of all weights: the transpose of panels.py."""

from __future__ import annotations

import triton
import triton.language as tl

from fourward.engine._gpu.activations import slope
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
_OUT_GRAD, _KEY, _WEIGHT, _X_GRAD, _KEPT, _DELTAS, _SUMS, _WEIGHT_GRAD, _BIAS_GRAD = (tl.constexpr(i) for i in range(9))


@triton.jit
def _products_back(found, packed, program, column, BACK_TILE, BACK_PANEL, first, last,
                   BB: tl.constexpr, G: tl.constexpr, STAGES: tl.constexpr, WIDE: tl.constexpr):  # fmt: skip
    """(BB, 32) the same over the tiles out of a block; `found` starts at the rows of the first panel."""
    acc = tl.zeros((G, 32, column.shape[0]), WIDE)
    for j in tl.range(first, last, G, num_stages=STAGES):
        known = known_at(found, rows_of(program, BACK_PANEL, j, last, G), column, BB, WIDE)
        out = j + tl.arange(0, G)
        tile = tl.load(program + BACK_TILE + out, mask=out < last, other=0)
        acc = tl.dot(tiles_at(packed, tile, out < last), known, acc, input_precision="ieee", out_dtype=WIDE)
    return added(acc)


@triton.jit
def _by_edges_back(found, weight, program, BACK_TILE, BACK_PANEL, WORD, BASE, first, last,
                   BB: tl.constexpr, WIDE: tl.constexpr):  # fmt: skip
    """(BB, 32) the sums over all edges out of a block to others."""
    bb = tl.arange(0, BB)
    kk = tl.arange(0, 32)
    s = tl.zeros((BB, 32), WIDE)
    for j in range(first, last):
        tile = tl.load(program + BACK_TILE + j)
        row = tl.load(program + BACK_PANEL + j) * 32
        for t in range(32):
            d = tl.load(found + (row + t) * BB + bb).to(WIDE)
            word = tl.load(program + WORD + tile * 32 + t)
            w, has = edge_weights(weight, word, tl.load(program + BASE + tile * 32 + t), kk, WIDE)
            s += tl.where(has[None, :], d[:, None] * w[None, :], 0.0)
    return s


@triton.jit
def _steep(
    values, z_values, program, draw, row, at, r, CODE, NODE, HIDDEN, threshold, p_bits,
    CODES: tl.constexpr, DROP: tl.constexpr, KEEP_Z: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """(BB, 32) f'(z), times what dropout multiplied with."""
    a = tl.load(values + at).to(WIDE)
    z = a
    if KEEP_Z:
        z = tl.load(z_values + at).to(WIDE)
    code = tl.full((1, 32), 0, tl.int32)
    if CODES & (CODES - 1) != 0:
        code += tl.load(program + CODE + row)[None, :]
    if DROP:
        scale = scales_of(program, draw, row, r, NODE, HIDDEN, threshold, p_bits, WIDE)
        return slope(z, a / tl.where(scale == 0, 1.0, scale), code, CODES) * scale
    return slope(z, a, code, CODES)


@triton.jit
def _sweep_back(sums, steep, rows, near, first, COUNT: tl.constexpr, SPAN: tl.constexpr, FOURS: tl.constexpr,
                BB: tl.constexpr):  # fmt: skip
    """COUNT steps from the last to the first: add what a neuron gives to the sums of its panel and of earlier ones."""
    four = four_of(sums[0], first + COUNT - 4, BB)
    for i in tl.static_range(COUNT - 1, -1, -1):
        if FOURS and i % 4 == 3 and i < COUNT - 1:
            four = four_of(sums[0], first + i - 3, BB)
        own = sums[0] * steep
        d = four[i % 4] * column_of(steep, first + i, BB) if FOURS else column_of(own, first + i, BB)
        rest = ()
        for k in tl.static_range(4):
            s = four[k]
            if FOURS and k < i % 4:
                s = tl.fma(d, near[i // 4 * 16 + k * 4 + i % 4], s)
            rest = rest + (s,)  # type: ignore[assignment] # noqa: RUF005
        four = rest
        found = ()
        for k in tl.static_range(SPAN):
            found = found + (tl.fma(d, rows[k * COUNT + i], sums[k]),)  # type: ignore[assignment] # noqa: RUF005
        sums = found
    return sums


@triton.jit
def _given(out_grad, column, r, B, columns, WIDE: tl.constexpr):
    """The gradients that came for these columns and samples; 0 where a column is negative."""
    mask = (column >= 0) & (r < B)
    return tl.load(out_grad + r.to(tl.int64) * columns + column, mask=mask, other=0.0).to(WIDE)


@triton.jit
def _slow_backward(
    out_grad, weight, values, z_values, found, draw, program, r, B, columns, lead, threshold, p_bits,
    first_panel, last_panel,
    CODE, NODE, HIDDEN, OUT_OF, BACK_START, BACK_TILE, BACK_PANEL, WORD, BASE, OWN_WORD, OWN_BASE,
    BB: tl.constexpr, CODES: tl.constexpr, DROP: tl.constexpr, KEEP_Z: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """The same walk over edges that exist, and no others."""
    kk = tl.arange(0, 32)
    later = found + lead * 32 * BB
    for i in range(last_panel - first_panel):
        panel = last_panel - 1 - i
        row = (lead + panel) * 32 + kk
        at = row[None, :] * BB + tl.arange(0, BB)[:, None]
        first = tl.load(program + BACK_START + lead + panel)
        last = tl.load(program + BACK_START + lead + panel + 1)
        s = _by_edges_back(later, weight, program, BACK_TILE, BACK_PANEL, WORD, BASE, first, last, BB, WIDE)
        s += _given(out_grad, tl.load(program + OUT_OF + row)[None, :], r[:, None], B, columns, WIDE)
        steep = _steep(
            values, z_values, program, draw, row, at, r, CODE, NODE, HIDDEN, threshold, p_bits,
            CODES, DROP, KEEP_Z, WIDE,
        )  # fmt: skip
        for step in range(32):
            t = 31 - step
            d = column_of(s * steep, t, BB)
            word = tl.load(program + OWN_WORD + panel * 32 + t)
            w, has = edge_weights(weight, word, tl.load(program + OWN_BASE + panel * 32 + t), kk, WIDE)
            s += tl.where(has[None, :], d * w[None, :], 0.0)
        tl.store(found + at, s * steep)
        tl.debug_barrier()


@triton.jit(do_not_specialize=RUNTIME)
def panels_backward(
    out_grad, key, weight, x_grad, kept, deltas, sums, weight_grad, bias_grad, program, table,
    B, I, columns, rows, lead, tiles, panels, slices, threshold: tl.int64, p_bits: tl.int64,
    first_panel, last_panel, counts,
    CODE, NODE, HIDDEN, OUT_OF, BACK_START, UPPER, BACK_TILE, BACK_PANEL, WORD, BASE, OWN_WORD, OWN_BASE,
    BB: tl.constexpr, SPAN: tl.constexpr, STEPS: tl.constexpr, FOURS: tl.constexpr, CODES: tl.constexpr,
    DROP: tl.constexpr, KEEP_Z: tl.constexpr, X_GRAD: tl.constexpr, SUMS: tl.constexpr, FIRST: tl.constexpr,
    WIDE: tl.constexpr,
):  # fmt: skip
    """D = f'(z) (g + W^T d), panel by panel from the last, for BB samples; then the gradient of x.

    One loop walks over all panels, and what a panel needs is read ahead, as in `panels_forward`. The first program also
    lays out the zeros that `panels_weights` counts with, after the deltas.
    """
    piece = tl.program_id(0)
    if FIRST and piece == 0:
        note(table, _OUT_GRAD, out_grad)
        note(table, _KEY, key)
        note(table, _WEIGHT, weight)
        note(table, _X_GRAD, x_grad)
        note(table, _KEPT, kept)
        note(table, _DELTAS, deltas)
        note(table, _SUMS, sums)
        note(table, _WEIGHT_GRAD, weight_grad)
        note(table, _BIAS_GRAD, bias_grad)
    if SUMS:
        out_grad = address(table, _OUT_GRAD, out_grad.dtype.element_ty)
        key = address(table, _KEY, key.dtype.element_ty)
        weight = address(table, _WEIGHT, weight.dtype.element_ty)
        x_grad = own_address(table, _X_GRAD, x_grad.dtype.element_ty)
        kept = own_address(table, _KEPT, kept.dtype.element_ty)
        deltas = own_address(table, _DELTAS, deltas.dtype.element_ty)
        sums = own_address(table, _SUMS, sums.dtype.element_ty)
    CHUNKS: tl.constexpr = 32 // STEPS
    draw = tl.load(key)
    size = (rows * BB).to(tl.int64)
    stride = slices * size
    packed = packed_after(kept, stride * (2 if KEEP_Z else 1), WIDE) + (lead + panels) * SPAN * 1024
    if piece == 0:
        for j in range(0, counts, 32):
            i = j + tl.arange(0, 32)
            tl.store(deltas + stride + i, tl.zeros((32,), WIDE), mask=i < counts)
    values = kept + piece * size
    z_values = kept + (slices + piece) * size
    found = deltas + piece * size
    r = piece * BB + tl.arange(0, BB)
    kk = tl.arange(0, 32)
    bb = tl.arange(0, BB)
    row = (lead + last_panel - 1) * 32 + kk
    end = (lead + first_panel) * 32
    every = row[None, :, None] - 32 * tl.arange(0, SPAN)[None, None, :]  # the rows of all panels, loaded at once
    column = tl.load(program + OUT_OF + every, mask=every >= end, other=-1)
    given = _given(out_grad, column, r[:, None, None], B, columns, WIDE)
    if SUMS:
        given += sums_at(sums, piece * size + every * BB + bb[:, None, None], every >= end, stride, SUMS)
    gained = parts(given, BB, 32, SPAN)
    odd = tl.zeros((BB, 32), tl.int32)
    for step in tl.range(0, (last_panel - first_panel) * CHUNKS, num_stages=3):
        panel = last_panel - 1 - step // CHUNKS
        t = 32 - STEPS - step % CHUNKS * STEPS
        there = panel - tl.arange(0, SPAN) >= first_panel
        behind = walk_rows(packed, tiles + panel * SPAN, there, t, STEPS, SPAN)
        near = near_weights(packed, tiles + panel * SPAN, t, STEPS)
        row = (lead + panel) * 32 + kk
        at = row[None, :] * BB + bb[:, None]
        steep = _steep(
            values, z_values, program, draw, row, at, r, CODE, NODE, HIDDEN, threshold, p_bits,
            CODES, DROP, KEEP_Z, WIDE,
        )  # fmt: skip
        gained = _sweep_back(gained, steep, behind, near, t, STEPS, SPAN, FOURS, BB)
        if t == 0:
            s = gained[0]
            tl.store(found + at, s * steep)
            odd |= not_finite(s * steep)  # nor is it where s isn't
            gained = moved_on(gained, SPAN)
    if tl.sum(odd) != 0:
        tl.debug_barrier()
        _slow_backward(
            out_grad, weight, values, z_values, found, draw, program, r, B, columns, lead, threshold, p_bits,
            first_panel, last_panel, CODE, NODE, HIDDEN, OUT_OF, BACK_START, BACK_TILE, BACK_PANEL, WORD, BASE,
            OWN_WORD, OWN_BASE, BB, CODES, DROP, KEEP_Z, WIDE,
        )  # fmt: skip
    if X_GRAD and first_panel == 0:
        tl.debug_barrier()
        later = found + lead * 32 * BB
        for j in range(lead):
            row = j * 32 + kk
            first = tl.load(program + BACK_START + j)
            last = tl.load(program + UPPER + j)
            s = _products_back(later, packed, program, bb, BACK_TILE, BACK_PANEL, first, last, BB, 2, 1, WIDE)
            if SUMS:
                s += sums_at(sums, piece * size + row[None, :] * BB + tl.arange(0, BB)[:, None], True, stride, SUMS)
            if tl.sum(not_finite(s)) != 0:
                last = tl.load(program + BACK_START + j + 1)
                s = _by_edges_back(later, weight, program, BACK_TILE, BACK_PANEL, WORD, BASE, first, last, BB, WIDE)
            s += _given(out_grad, tl.load(program + OUT_OF + row)[None, :], r[:, None], B, columns, WIDE)
            mask = (row < I)[None, :] & (r < B)[:, None]
            tl.store(x_grad + r[:, None].to(tl.int64) * I + row[None, :], s, mask=mask)


@triton.jit
def _batch_rows(values, row, r, size, slices, B, BB: tl.constexpr, WIDE: tl.constexpr):
    """(32, KB) values of a block at samples r, 0 beyond the batch."""
    piece = r // BB
    at = row[:, None] * BB + (piece.to(tl.int64) * size + r % BB)[None, :]
    found = tl.load(values + at, mask=(piece < slices)[None, :], other=0.0).to(WIDE)  # whole slices: wide loads
    return tl.where((r < B)[None, :], found, 0.0)


@triton.jit
def _from_all(acc, total, room, tiles, i, BIASED: tl.constexpr, WIDE: tl.constexpr):
    """Lay down what this program found for tile i; the last to do so has the sum over all, in their order."""
    shares = tl.num_programs(1)
    kk = tl.arange(0, 32)
    place = kk[:, None] * 32 + kk[None, :]
    mine = room + tiles + (i * shares + tl.program_id(1)).to(tl.int64) * 1056
    tl.store(mine + place, acc)
    if BIASED:
        tl.store(mine + 1024 + kk, total)
    tl.debug_barrier()
    last = tl.atomic_add(room.to(tl.pointer_type(tl.int32), bitcast=True) + i, 1) == shares - 1
    if last:
        acc = tl.zeros((32, 32), WIDE)
        total = tl.zeros((32,), WIDE)
        for k in range(shares):
            theirs = room + tiles + (i * shares + k).to(tl.int64) * 1056
            acc += tl.load(theirs + place)
            if BIASED:
                total += tl.load(theirs + 1024 + kk)
    return acc, total, last


@triton.jit(do_not_specialize=RUNTIME)
def panels_weights(
    kept, deltas, weight_grad, bias_grad, program, table,
    B, rows, lead, tiles, panels, slices,
    BLOCK, WORD, BASE, OWN_WORD, OWN_BASE, BIAS_AT, TILE_PANEL,
    BB: tl.constexpr, KB: tl.constexpr, BIASED: tl.constexpr, SHARED: tl.constexpr, TABLE: tl.constexpr,
    WIDE: tl.constexpr,
):  # fmt: skip
    """dW[u, v] = the sum over the batch of a[u] d[v], a tile for each program; diagonal ones sum the biases, too.

    Where tiles are few, several programs share the batch of each (SHARED).
    """
    if TABLE:
        kept = own_address(table, _KEPT, kept.dtype.element_ty)
        deltas = own_address(table, _DELTAS, deltas.dtype.element_ty)
        weight_grad = own_address(table, _WEIGHT_GRAD, weight_grad.dtype.element_ty)
        bias_grad = own_address(table, _BIAS_GRAD, bias_grad.dtype.element_ty)
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
    part = tl.cdiv(tl.cdiv(B, KB), tl.num_programs(1)) * KB
    first = tl.program_id(1) * part
    for j in tl.range(first, tl.minimum(first + part, B), KB, num_stages=2):
        r = j + tl.arange(0, KB)
        d = _batch_rows(deltas, (lead + panel) * 32 + kk, r, size, slices, B, BB, WIDE)
        a = _batch_rows(kept, block * 32 + kk, r, size, slices, B, BB, WIDE)
        acc = tl.dot(d, tl.trans(a), acc, input_precision="ieee", out_dtype=WIDE)
        if BIASED:
            total += tl.sum(d, 1)
    done = True
    if SHARED:
        acc, total, done = _from_all(acc, total, deltas + slices * size, tiles + panels, i, BIASED, WIDE)
    if done:
        word_at = tl.where(own, OWN_WORD + (i - tiles) * 32, WORD + i * 32)
        base_at = tl.where(own, OWN_BASE + (i - tiles) * 32, BASE + i * 32)
        has, edge = tile_edges(program, word_at, base_at)
        tl.store(weight_grad + edge, acc, mask=has)
        if BIASED:
            at = tl.load(program + BIAS_AT + (lead + panel) * 32 + kk)
            tl.store(bias_grad + at, total, mask=(at >= 0) & own)


@triton.jit(do_not_specialize=RUNTIME)
def panels_products_back(
    program, table, rows, lead, slices, near, first_block, LOWER, UPPER, BACK_TILE, BACK_PANEL,
    BB: tl.constexpr, P: tl.constexpr, G: tl.constexpr, STAGES: tl.constexpr, KEEP_Z: tl.constexpr,
    X: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """The same for a backward pass: what a stretch of blocks takes from all panels after the stretch."""
    kept = own_address(table, _KEPT, X)
    deltas = own_address(table, _DELTAS, WIDE)
    sums = own_address(table, _SUMS, WIDE)
    block = first_block + tl.program_id(1)
    size = (rows * BB).to(tl.int64)
    packed = packed_after(kept, slices * size * (2 if KEEP_Z else 1), WIDE) + near * 1024
    column, there = columns_of(tl.program_id(0) * P, slices, size, BB, P)
    first, last = share(tl.load(program + LOWER + block), tl.load(program + UPPER + block))
    later = deltas + lead * 32 * BB
    s = _products_back(later, packed, program, column, BACK_TILE, BACK_PANEL, first, last, BB, G, STAGES, WIDE)
    row = block * 32 + tl.arange(0, 32)
    own = sums + tl.program_id(2) * slices * size
    tl.store(own + row[None, :] * BB + column[:, None], s, mask=there[:, None])
