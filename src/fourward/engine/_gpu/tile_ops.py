"""Operations on tiles, blocks of rows and lanes that the tiled kernels of both directions share.

A *block* is 32 consecutive rows (of inputs or of neurons), a *panel* a block of neurons, a *tile* the 32x32 weights
from one block to one panel, a *segment* up to SEGMENT consecutive panels, computed by one launch. Rows are those of the
activations, values (rows, BLOCK_B) for one slice of the batch.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fourward.engine._gpu.activations import dropout_factor, hash_node

#: Parameters that Triton must not specialise on, whatever their values.
RUNTIME = ["B", "I", "columns", "rows", "input_blocks", "tiles", "panels", "packers", "slices", "threshold", "p_bits"]
RUNTIME += ["first_panel", "last_panel", "first_block", "needs_backward", "num_counters", "num_empty_tiles"]
RUNTIME += ["forward_slots", "FIRST_TILE", "END_TILE"]


@triton.jit
def _popcount(x):
    """How many bits of a uint32 are set; LLVM knows this pattern as one instruction."""
    x = x - ((x >> 1) & 0x55555555)
    x = (x & 0x33333333) + ((x >> 2) & 0x33333333)
    x = (x + (x >> 4)) & 0x0F0F0F0F
    return ((x * 0x01010101) >> 24).to(tl.int32)


@triton.jit
def decode_tile_edges(packed_plan, edge_mask_at, first_edge_at):
    """Which edges of a tile exist, and their indices: two (32 targets, 32 sources).

    Target t has an edge from source k if bit k of edge_mask[t] is set. Its edges are consecutive from first_edge[t] on,
    by source, so edge k is the number of lower bits that are set further on.
    """
    offs_k = tl.arange(0, 32).to(tl.uint32)[None, :]
    offs_t = tl.arange(0, 32)
    edge_mask = tl.load(packed_plan + edge_mask_at + offs_t).to(tl.uint32, bitcast=True)[:, None]
    first_edge = tl.load(packed_plan + first_edge_at + offs_t)[:, None]
    lowest_bit = tl.full((1, 32), 1, tl.uint32)
    return ((edge_mask >> offs_k) & 1) != 0, first_edge + _popcount(edge_mask & ((lowest_bit << offs_k) - 1))


@triton.jit
def load_edge_weights(weight, edge_mask, first_edge, k, ACC_DTYPE: tl.constexpr):
    """The weights of the edges from source k, 0 where there is none, and whether there is one: in the shape of k."""
    edge_mask = edge_mask.to(tl.uint32, bitcast=True)
    k = k.to(tl.uint32)
    exists = ((edge_mask >> k) & 1) != 0
    edge = first_edge + _popcount(edge_mask & ((k * 0 + 1 << k) - 1))
    return tl.load(weight + edge, mask=exists, other=0.0).to(ACC_DTYPE), exists


@triton.jit
def packed_tiles(saved, count, ACC_DTYPE: tl.constexpr):
    """The packed weights, which follow `count` activations (and z) in `saved`."""
    return tl.multiple_of((saved + count).to(tl.pointer_type(ACC_DTYPE), bitcast=True), 16)


@triton.jit
def block_rows(packed_plan, at, first, last, TILE_GROUP: tl.constexpr):
    """(TILE_GROUP, 32) the rows of the blocks that the packed plan lists at first:last; -1 from last on."""
    tile = first + tl.arange(0, TILE_GROUP)
    block = tl.load(packed_plan + at + tile, mask=tile < last, other=-1)
    return tl.where(block[:, None] >= 0, block[:, None] * 32 + tl.arange(0, 32)[None, :], -1)


@triton.jit
def load_rows(values, row, column, BLOCK_B: tl.constexpr, ACC_DTYPE: tl.constexpr):
    """(TILE_GROUP, 32, len(column)) values at these rows; 0 where a row is -1."""
    at = values + row[:, :, None] * BLOCK_B + column[None, None, :]
    return tl.load(at, mask=(row >= 0)[:, :, None], other=0.0).to(ACC_DTYPE)


@triton.jit
def load_tiles(packed, tile, exists):
    """(TILE_GROUP, 32 sources, 32 targets) tiles from the row-major copy; 0 where they don't exist."""
    offsets = tl.arange(0, 32)[:, None] * 32 + tl.arange(0, 32)[None, :]
    at = packed + tile[:, None, None] * 1024 + offsets[None, :, :]
    return tl.load(at, mask=exists[:, None, None], other=0.0)


@triton.jit
def slice_columns(first, slices, size, BLOCK_B: tl.constexpr, SLICES_PER_PROGRAM: tl.constexpr):
    """Offsets of the samples of SLICES_PER_PROGRAM slices from row 0 of slice 0, and which of these slices exist."""
    c = tl.arange(0, BLOCK_B * SLICES_PER_PROGRAM)
    slice_id = first + c // BLOCK_B
    return tl.minimum(slice_id, slices - 1) * size + c % BLOCK_B, slice_id < slices


@triton.jit
def split_range(first, last):
    """The part of first:last that belongs to this program of the third grid axis (split-K)."""
    size = tl.cdiv(last - first, tl.num_programs(2))
    first += tl.program_id(2) * size
    return first, tl.minimum(first + size, last)


@triton.jit
def load_partials(partials, at, mask, stride, SPLIT_K: tl.constexpr):
    """The sum of SPLIT_K partial sums, in their order; partials is (SPLIT_K, stride)."""
    total = tl.load(partials + at, mask=mask, other=0.0)
    for k in tl.static_range(1, SPLIT_K):
        total += tl.load(partials + k * stride + at, mask=mask, other=0.0)
    return total


@triton.jit
def reduce_group(acc):
    """(TILE_GROUP, 32, columns) -> (columns, 32): the sum over the group."""
    return tl.trans(tl.sum(acc, 0))


@triton.jit
def is_nonfinite(z):
    """1 where z is infinite or NaN, else 0."""
    return tl.where(
        tl.abs(z) < float("inf"), 0, 1
    )  # not z - z == 0: of a product, an FMA makes that its rounding error


@triton.jit
def unstack(w, A: tl.constexpr, L: tl.constexpr, COUNT: tl.constexpr):
    """(A, L, COUNT) along its last axis as a tuple of COUNT tensors (A, L); COUNT is a power of two.

    tl.split halves an axis of length 2, into even and odd. After `level` rounds there are 2^level tensors, and number i
    holds the indices i, i + 2^level, i + 2 * 2^level, ...
    """
    pieces = (w,)
    for level in tl.static_range(10):
        if COUNT >> level > 1:
            even = ()
            odd = ()
            for i in tl.static_range(1 << level):
                both = pieces[i]
                if COUNT >> level > 2:
                    both = tl.reshape(both, (A, L, COUNT >> (level + 1), 2))
                lower, upper = tl.split(both)
                even = even + (lower,)  # type: ignore[assignment] # noqa: RUF005
                odd = odd + (upper,)  # type: ignore[assignment] # noqa: RUF005
            pieces = even + odd  # type: ignore[assignment]
    return pieces if COUNT > 1 else (tl.reshape(w, (A, L)),)


@triton.jit
def load_tile_rows(packed, slot, exists, first, COUNT: tl.constexpr, SEGMENT: tl.constexpr):
    """Rows first:first+COUNT of the SEGMENT tiles in the slots from `slot` on, each (1, 32) over lanes.

    Row i of tile k is number k * COUNT + i of the tuple; 0 where a tile doesn't exist. In a slot a tile is
    (8, 32 lanes, 4): four rows lie side by side for each lane, so that a lane loads them at once. Loaded in a loop with
    stages, they pass through shared memory, from which each warp reads all.
    """
    tl.static_assert(COUNT % 4 == 0)
    at = (slot + tl.arange(0, SEGMENT)[:, None]) * 1024 + first * 32 + tl.arange(0, COUNT * 32)[None, :]
    w = tl.load(packed + at, mask=exists[:, None], other=0.0)
    w = tl.permute(tl.reshape(w, (SEGMENT, COUNT // 4, 32, 4)), (2, 0, 1, 3))
    return unstack(tl.reshape(w, (1, 32, SEGMENT * COUNT)), 1, 32, SEGMENT * COUNT)


@triton.jit
def load_quad_weights(packed, slot, first, COUNT: tl.constexpr):
    """The weights within each quad (four consecutive neurons of a panel) of rows first:first+COUNT, each (1, 1).

    The weight from neuron i to the k-th of its quad is number i // 4 * 16 + k * 4 + i % 4. They are the 4x4 blocks on
    the diagonal of the panel's diagonal tile, (8, 32, 4) in its slot: quad j starts at j * 128 + 4 * j * 4 = 144 j.
    Whatever COUNT is, the load has 128 elements: were they fewer than the threads, Triton would have each thread load
    all.
    """
    quad = first // 4 + tl.arange(0, 8)[:, None]
    w = tl.load(packed + slot * 1024 + quad * 144 + tl.arange(0, 16)[None, :], mask=quad < 8, other=0.0)
    w = tl.permute(tl.reshape(w, (1, 1, 32 // COUNT, COUNT * 4)), (0, 1, 3, 2))
    w = unstack(tl.reshape(w, (1, COUNT * 4, 32 // COUNT)), 1, COUNT * 4, 32 // COUNT)[0]
    return unstack(tl.reshape(w, (1, 1, COUNT * 4)), 1, 1, COUNT * 4)


@triton.jit
def shift(values, SEGMENT: tl.constexpr):
    """All but the first of SEGMENT values, then 0: the next panel becomes the first."""
    shifted = ()
    for k in tl.static_range(1, SEGMENT):
        shifted = shifted + (values[k],)  # type: ignore[assignment] # noqa: RUF005
    return shifted + (tl.zeros_like(values[0]),)  # noqa: RUF005


@triton.jit
def take_column(z, t, BLOCK_B: tl.constexpr):
    """(BLOCK_B, 1) column t of (BLOCK_B, 32): a warp shuffle, since lanes lie along the columns."""
    return tl.gather(z, tl.zeros((BLOCK_B, 1), tl.int32) + t, 1)


@triton.jit
def take_quad(z, t, BLOCK_B: tl.constexpr):
    """Columns t:t+4 of (BLOCK_B, 32), each (BLOCK_B, 1)."""
    return (
        take_column(z, t, BLOCK_B),
        take_column(z, t + 1, BLOCK_B),
        take_column(z, t + 2, BLOCK_B),
        take_column(z, t + 3, BLOCK_B),
    )


@triton.jit
def dropout_scales(packed_plan, key, row, samples, NODE, HIDDEN, threshold, p_bits, ACC_DTYPE: tl.constexpr):
    """(BLOCK_B, 32) the factors of dropout at these rows; `key` is the loaded key of the pass."""
    node_hash = hash_node(key, tl.load(packed_plan + NODE + row))
    hidden = tl.load(packed_plan + HIDDEN + row)
    return dropout_factor(node_hash[None, :], samples[:, None], threshold, p_bits, hidden[None, :], ACC_DTYPE)
