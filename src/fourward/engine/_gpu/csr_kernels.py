"""Kernels that walk a network by lists of edges: nothing is computed for edges that don't exist.

One program can walk all levels for a slice of the batch (then the slices are narrow and the launch is one), or each
launch computes one level, with a program for every T neurons and slice (then the slices are wide, and rows are read as
whole lines of memory).

Where a level is a launch, the addresses of the tensors lie in a table on the card, so that a captured CUDA graph of all
launches serves whatever tensors the next call brings.

Memory: activations as (slices, nodes, BB), by position, and z after them where a derivative needs it.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fourward.engine._gpu.activations import activate, draw_node, kept_scale, slope
from fourward.engine._gpu.pointer_table import address, own_address

_RUNTIME = ["B", "I", "columns", "rows", "slices", "threshold", "p_bits", "low", "high", "lead", "edges", "nodes"]
_RUNTIME += ["edge_blocks"]
# Places in the table of addresses, going forward and going back.
_X, _WEIGHT, _BIAS, _KEY, _OUT, _KEPT = (tl.constexpr(i) for i in range(6))
_OUT_GRAD, _BY_SOURCE, _BACK_KEY, _X_GRAD, _BACK_KEPT, _DELTAS, _WEIGHT_GRAD, _BIAS_GRAD = (
    tl.constexpr(i) for i in range(8)
)


@triton.jit
def _rows_address(table, place: tl.constexpr, KIND: tl.constexpr, D: tl.constexpr):
    """Where rows are that are gathered D edges at a time; wide loads are faster at 8, and slower at 32."""
    if D == 8:
        return own_address(table, place, KIND)
    else:
        return address(table, place, KIND)


@triton.jit
def _scale(program, key, q, r, NODE, HIDDEN, threshold, p_bits, WIDE: tl.constexpr):
    """(chunk, BB) what dropout multiplies with."""
    node = draw_node(tl.load(key), tl.load(program + NODE + q))
    hidden = tl.load(program + HIDDEN + q)
    return kept_scale(node[:, None], r[None, :], threshold, p_bits, hidden[:, None], WIDE)


@triton.jit
def _gathered(values, weight, program, START, OTHER, q, inside, BB: tl.constexpr, D: tl.constexpr, WIDE: tl.constexpr):
    """(T, BB) sums over the edges of each of T nodes, D at a time."""
    bb = tl.arange(0, BB)
    dd = tl.arange(0, D)
    start = tl.load(program + START + q, mask=inside, other=0)
    stop = tl.load(program + START + q + 1, mask=inside, other=0)
    total = tl.zeros((q.shape[0], BB), WIDE)
    for i in range(0, tl.max(stop - start), D):
        k = start[:, None] + i + dd[None, :]
        here = k < stop[:, None]
        other = tl.load(program + OTHER + k, mask=here, other=0).to(tl.int64)
        w = tl.load(weight + k, mask=here, other=0.0).to(WIDE)
        v = tl.load(values + other[:, :, None] * BB + bb[None, None, :], mask=here[:, :, None], other=0.0).to(WIDE)
        total += tl.sum(w[:, :, None] * v, 1)
    return total


@triton.jit
def _neurons_forward(
    values, z_values, weight, bias, key, program, low, high, r, threshold, p_bits,
    CODE, NODE, HIDDEN, BIAS_AT, EDGE_START, SOURCE,
    T: tl.constexpr, BB: tl.constexpr, D: tl.constexpr, CODES: tl.constexpr, BIASED: tl.constexpr,
    DROP: tl.constexpr, KEEP_Z: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """A = f(b + W a) for the neurons low:low+T, as far as they are under high."""
    q = low + tl.arange(0, T)
    inside = q < high
    q = tl.where(inside, q, low)
    z = _gathered(values, weight, program, EDGE_START, SOURCE, q, inside, BB, D, WIDE)
    if BIASED:
        z += tl.load(bias + tl.load(program + BIAS_AT + q)).to(WIDE)[:, None]
    a = activate(z, tl.load(program + CODE + q)[:, None], CODES)
    if DROP:
        a *= _scale(program, key, q, r, NODE, HIDDEN, threshold, p_bits, WIDE)
    at = q[:, None].to(tl.int64) * BB + tl.arange(0, BB)[None, :]
    tl.store(values + at, a, mask=inside[:, None])
    if KEEP_Z:
        tl.store(z_values + at, z, mask=inside[:, None])


@triton.jit
def _enter(x, values, r, B, I, BB: tl.constexpr):
    """Copy samples r of x (B, I) to rows 0:I; 0 beyond the batch."""
    bb = tl.arange(0, BB)
    kk = tl.arange(0, 32)
    for j in range(0, I, 32):
        row = j + kk
        inside = (row < I)[:, None]
        v = tl.load(x + r[None, :].to(tl.int64) * I + row[:, None], mask=(r < B)[None, :] & inside, other=0.0)
        tl.store(values + row[:, None] * BB + bb[None, :], v, mask=inside)


@triton.jit
def _leave(out, values, program, COLUMN, r, B, columns, BB: tl.constexpr):
    """Copy to samples r of out (B, columns) the rows that stand in the program from COLUMN on."""
    bb = tl.arange(0, BB)
    kk = tl.arange(0, 32)
    for j in range(0, columns, 32):
        column = j + kk
        row = tl.load(program + COLUMN + column, mask=column < columns, other=0)
        v = tl.load(values + row[None, :] * BB + bb[:, None])
        mask = (r < B)[:, None] & (column < columns)[None, :]
        tl.store(out + r[:, None].to(tl.int64) * columns + column[None, :], v, mask=mask)


@triton.jit(do_not_specialize=_RUNTIME)
def lists_forward(
    table, x, weight, bias, key, out, kept, program,
    B, I, columns, rows, slices, threshold: tl.int64, p_bits: tl.int64, low, high,
    CODE, NODE, HIDDEN, BIAS_AT, COLUMN, LEVEL_START, EDGE_START, SOURCE,
    WALK: tl.constexpr, T: tl.constexpr, BB: tl.constexpr, D: tl.constexpr, CODES: tl.constexpr, BIASED: tl.constexpr,
    DROP: tl.constexpr, KEEP_Z: tl.constexpr, X: tl.constexpr, W: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """For BB samples: all levels from low to high, or T neurons of the level that spans the positions low:high."""
    blocks = 1 if WALK else tl.cdiv(high - low, T)
    piece = tl.program_id(0) // blocks
    size = rows.to(tl.int64) * BB
    r = piece * BB + tl.arange(0, BB)
    if WALK:
        values = kept + piece * size
        _enter(x, values, r, B, I, BB)
        tl.debug_barrier()
        for level in range(low, high):
            last = tl.load(program + LEVEL_START + level + 1)
            for q in range(tl.load(program + LEVEL_START + level), last, T):
                _neurons_forward(
                    values, values + slices * size, weight, bias, key, program, q, last, r, threshold, p_bits,
                    CODE, NODE, HIDDEN, BIAS_AT, EDGE_START, SOURCE, T, BB, D, CODES, BIASED, DROP, KEEP_Z, WIDE,
                )  # fmt: skip
            tl.debug_barrier()
        _leave(out, values, program, COLUMN, r, B, columns, BB)
    else:
        values = _rows_address(table, _KEPT, X, D) + piece * size
        _neurons_forward(
            values, values + slices * size, address(table, _WEIGHT, W), address(table, _BIAS, W),
            address(table, _KEY, tl.int64), program, low + tl.program_id(0) % blocks * T, high, r, threshold, p_bits,
            CODE, NODE, HIDDEN, BIAS_AT, EDGE_START, SOURCE, T, BB, D, CODES, BIASED, DROP, KEEP_Z, WIDE,
        )  # fmt: skip


@triton.jit
def _nodes_backward(
    values, z_values, found, weight, key, out_grad, x_grad, program, low, high, r, B, I, columns, threshold, p_bits,
    CODE, NODE, HIDDEN, OUT_OF, OUT_START, OUT_TARGET,
    T: tl.constexpr, BB: tl.constexpr, D: tl.constexpr, CODES: tl.constexpr, DROP: tl.constexpr,
    KEEP_Z: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """D = f'(z) (g + W^T d) for the nodes low:low+T, as far as they are under high; inputs have no f."""
    q = low + tl.arange(0, T)
    inside = q < high
    q = tl.where(inside, q, low)
    s = _gathered(found, weight, program, OUT_START, OUT_TARGET, q, inside, BB, D, WIDE)
    column = tl.load(program + OUT_OF + q)
    mask = (column >= 0)[:, None] & (r < B)[None, :]
    s += tl.load(out_grad + r[None, :].to(tl.int64) * columns + column[:, None], mask=mask, other=0.0).to(WIDE)
    at = q[:, None].to(tl.int64) * BB + tl.arange(0, BB)[None, :]
    if low < I:
        mask = inside[:, None] & (r < B)[None, :]
        tl.store(x_grad + r[None, :].to(tl.int64) * I + q[:, None], s, mask=mask)
    else:
        a = tl.load(values + at).to(WIDE)
        z = a
        if KEEP_Z:
            z = tl.load(z_values + at).to(WIDE)
        code = tl.load(program + CODE + q)[:, None]
        if DROP:
            scale = _scale(program, key, q, r, NODE, HIDDEN, threshold, p_bits, WIDE)
            a = a / tl.where(scale == 0, 1.0, scale)
            s *= slope(z, a, code, CODES) * scale
        else:
            s *= slope(z, a, code, CODES)
        tl.store(found + at, s, mask=inside[:, None])


@triton.jit(do_not_specialize=_RUNTIME)
def lists_backward(
    table, out_grad, weight, key, x_grad, kept, deltas, program,
    B, I, columns, rows, slices, threshold: tl.int64, p_bits: tl.int64, low, high,
    CODE, NODE, HIDDEN, OUT_OF, LEVEL_START, OUT_START, OUT_TARGET,
    WALK: tl.constexpr, T: tl.constexpr, BB: tl.constexpr, D: tl.constexpr, CODES: tl.constexpr, DROP: tl.constexpr,
    KEEP_Z: tl.constexpr, X_GRAD: tl.constexpr, X: tl.constexpr, W: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """For BB samples: all levels from the last, then inputs; or T nodes of the level that spans low:high.

    Weights come in the order of the edges out of each node.
    """
    blocks = 1 if WALK else tl.cdiv(high - low, T)
    piece = tl.program_id(0) // blocks
    size = rows.to(tl.int64) * BB
    r = piece * BB + tl.arange(0, BB)
    if WALK:
        values = kept + piece * size
        found = deltas + piece * size
        for i in range(high - low):
            level = high - 1 - i
            last = tl.load(program + LEVEL_START + level + 1)
            for q in range(tl.load(program + LEVEL_START + level), last, T):
                _nodes_backward(
                    values, values + slices * size, found, weight, key, out_grad, x_grad, program, q, last, r, B, I,
                    columns, threshold, p_bits, CODE, NODE, HIDDEN, OUT_OF, OUT_START, OUT_TARGET,
                    T, BB, D, CODES, DROP, KEEP_Z, WIDE,
                )  # fmt: skip
            tl.debug_barrier()
        if X_GRAD:
            for q in range(0, I, T):
                _nodes_backward(
                    values, values + slices * size, found, weight, key, out_grad, x_grad, program, q, I, r, B, I,
                    columns, threshold, p_bits, CODE, NODE, HIDDEN, OUT_OF, OUT_START, OUT_TARGET,
                    T, BB, D, CODES, DROP, KEEP_Z, WIDE,
                )  # fmt: skip
    else:
        values = _rows_address(table, _BACK_KEPT, X, D) + piece * size
        _nodes_backward(
            values, values + slices * size, _rows_address(table, _DELTAS, WIDE, D) + piece * size,
            address(table, _BY_SOURCE, W), address(table, _BACK_KEY, tl.int64), address(table, _OUT_GRAD, X),
            address(table, _X_GRAD, X), program, low + tl.program_id(0) % blocks * T, high, r, B, I, columns,
            threshold, p_bits,
            CODE, NODE, HIDDEN, OUT_OF, OUT_START, OUT_TARGET, T, BB, D, CODES, DROP, KEEP_Z, WIDE,
        )  # fmt: skip


@triton.jit
def _samples(values, row, there, r, size, slices, B, BB: tl.constexpr, WIDE: tl.constexpr):
    """(rows, KB) values at samples r, 0 beyond the batch and in rows that aren't there."""
    piece = r // BB
    at = row[:, None].to(tl.int64) * BB + (piece.to(tl.int64) * size + r % BB)[None, :]
    mask = there[:, None] & (piece < slices)[None, :]  # whole slices: wide loads
    return tl.where((r < B)[None, :], tl.load(values + at, mask=mask, other=0.0).to(WIDE), 0.0)


@triton.jit(do_not_specialize=_RUNTIME)
def lists_weights(
    table, kept, deltas, weight_grad, bias_grad, program,
    B, rows, slices, edges, nodes, lead, edge_blocks, SOURCE, TARGET, BIAS_AT,
    WALK: tl.constexpr, BB: tl.constexpr, EB: tl.constexpr, KB: tl.constexpr, BIASED: tl.constexpr,
    X: tl.constexpr, W: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """dW[u, v] = the sum over the batch of a[u] d[v], EB edges for each program; the last programs sum the biases."""
    if not WALK:
        kept = own_address(table, _BACK_KEPT, X)
        deltas = own_address(table, _DELTAS, WIDE)
        weight_grad = address(table, _WEIGHT_GRAD, W)
        bias_grad = address(table, _BIAS_GRAD, W)
    size = rows.to(tl.int64) * BB
    block = tl.program_id(0)
    total = tl.zeros((EB,), WIDE)
    if block < edge_blocks:
        k = block * EB + tl.arange(0, EB)
        source = tl.load(program + SOURCE + k, mask=k < edges, other=0)
        target = tl.load(program + TARGET + k, mask=k < edges, other=0)
        for j in range(0, B, KB):
            r = j + tl.arange(0, KB)
            a = _samples(kept, source, k < edges, r, size, slices, B, BB, WIDE)
            total += tl.sum(a * _samples(deltas, target, k < edges, r, size, slices, B, BB, WIDE), 1)
        tl.store(weight_grad + k, total, mask=k < edges)
    elif BIASED:
        q = lead + (block - edge_blocks) * EB + tl.arange(0, EB)
        for j in range(0, B, KB):
            r = j + tl.arange(0, KB)
            total += tl.sum(_samples(deltas, q, q < nodes, r, size, slices, B, BB, WIDE), 1)
        at = tl.load(program + BIAS_AT + q, mask=q < nodes, other=-1)
        tl.store(bias_grad + at, total, mask=at >= 0)


@triton.jit(do_not_specialize=_RUNTIME)
def lists_enter(table, program, B, I, rows, BB: tl.constexpr, X: tl.constexpr):
    """X (B, I) to the rows of the inputs, 0 beyond the batch."""
    blocks = tl.cdiv(I, 32)
    piece = tl.program_id(0) // blocks
    row = tl.program_id(0) % blocks * 32 + tl.arange(0, 32)
    r = piece * BB + tl.arange(0, BB)
    mask = (row < I)[:, None] & (r < B)[None, :]
    v = tl.load(address(table, _X, X) + r[None, :].to(tl.int64) * I + row[:, None], mask=mask, other=0.0)
    values = own_address(table, _KEPT, X) + piece * (rows.to(tl.int64) * BB)
    tl.store(values + row[:, None] * BB + tl.arange(0, BB)[None, :], v, mask=(row < I)[:, None])


@triton.jit(do_not_specialize=_RUNTIME)
def lists_leave(table, program, B, columns, rows, COLUMN, BB: tl.constexpr, X: tl.constexpr):
    """The activations that were asked for to out (B, columns)."""
    blocks = tl.cdiv(columns, 32)
    piece = tl.program_id(0) // blocks
    column = tl.program_id(0) % blocks * 32 + tl.arange(0, 32)
    r = piece * BB + tl.arange(0, BB)
    row = tl.load(program + COLUMN + column, mask=column < columns, other=0).to(tl.int64)
    values = own_address(table, _KEPT, X) + piece * (rows.to(tl.int64) * BB)
    v = tl.load(values + row[:, None] * BB + tl.arange(0, BB)[None, :])
    mask = (column < columns)[:, None] & (r < B)[None, :]
    tl.store(address(table, _OUT, X) + r[None, :].to(tl.int64) * columns + column[:, None], v, mask=mask)
