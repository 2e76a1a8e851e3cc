"""What the kernels of both directions do with tiles, blocks of rows and lanes."""

from __future__ import annotations

import triton
import triton.language as tl

from fourward.engine._gpu.activations import draw_node, kept_scale

#: Parameters that Triton must not compile in, whatever their values.
RUNTIME = ["B", "I", "columns", "rows", "lead", "tiles", "panels", "packers", "slices", "threshold", "p_bits"]
RUNTIME += ["first_panel", "last_panel", "first_block", "again", "counts", "holes", "near", "LOWER", "UPPER"]


@triton.jit
def _popcount(x):
    """How many bits of a uint32 are set; LLVM knows this pattern as one instruction."""
    x = x - ((x >> 1) & 0x55555555)
    x = (x & 0x33333333) + ((x >> 2) & 0x33333333)
    x = (x + (x >> 4)) & 0x0F0F0F0F
    return ((x * 0x01010101) >> 24).to(tl.int32)


@triton.jit
def tile_edges(program, word_at, base_at):
    """(32 targets, 32 sources) of a tile: which edges exist, and their numbers."""
    kk = tl.arange(0, 32).to(tl.uint32)[None, :]
    tt = tl.arange(0, 32)
    word = tl.load(program + word_at + tt).to(tl.uint32, bitcast=True)[:, None]
    base = tl.load(program + base_at + tt)[:, None]
    one = tl.full((1, 32), 1, tl.uint32)
    return ((word >> kk) & 1) != 0, base + _popcount(word & ((one << kk) - 1))


@triton.jit
def packed_after(kept, numbers, WIDE: tl.constexpr):
    """The tiles of weights, which lie behind so many activations."""
    return tl.multiple_of((kept + numbers).to(tl.pointer_type(WIDE), bitcast=True), 16)


@triton.jit
def rows_of(program, at, first, last, G: tl.constexpr):
    """(G, 32) the rows of up to G blocks, counted from block 0; -1 where there is none."""
    tile = first + tl.arange(0, G)
    block = tl.load(program + at + tile, mask=tile < last, other=-1)
    return tl.where(block[:, None] >= 0, block[:, None] * 32 + tl.arange(0, 32)[None, :], -1)


@triton.jit
def known_at(values, row, column, BB: tl.constexpr, WIDE: tl.constexpr):
    """(G, 32, columns) of what is known already, at these rows."""
    at = values + row[:, :, None] * BB + column[None, None, :]
    return tl.load(at, mask=(row >= 0)[:, :, None], other=0.0).to(WIDE)


@triton.jit
def columns_of(first, slices, size, BB: tl.constexpr, P: tl.constexpr):
    """Where the samples of P slices from the first on lie within a row, and which of these slices there are."""
    c = tl.arange(0, BB * P)
    piece = first + c // BB
    return tl.minimum(piece, slices - 1) * size + c % BB, piece < slices


@triton.jit
def sums_at(sums, at, mask, stride, COUNT: tl.constexpr):
    """COUNT sums, added in their order."""
    total = tl.load(sums + at, mask=mask, other=0.0)
    for k in tl.static_range(1, COUNT):
        total += tl.load(sums + k * stride + at, mask=mask, other=0.0)
    return total


@triton.jit
def share(first, last):
    """The tiles of first:last that a program on the third axis has."""
    size = tl.cdiv(last - first, tl.num_programs(2))
    first += tl.program_id(2) * size
    return first, tl.minimum(first + size, last)


@triton.jit
def added(acc):
    """(BB, 32) the sum over G."""
    return tl.trans(tl.sum(acc, 0))


@triton.jit
def not_finite(z):
    """1 where a sum is infinite or NaN, else 0."""
    return tl.where(z - z == 0, 0, 1)


@triton.jit
def edge_weights(weight, word, base, k, WIDE: tl.constexpr):
    """The weights of edges k of these targets, 0 where there is none; and where there is one."""
    word = word.to(tl.uint32, bitcast=True)
    k = k.to(tl.uint32)
    has = ((word >> k) & 1) != 0
    edge = base + _popcount(word & ((k * 0 + 1 << k) - 1))
    return tl.load(weight + edge, mask=has, other=0.0).to(WIDE), has


@triton.jit
def parts(w, A: tl.constexpr, L: tl.constexpr, COUNT: tl.constexpr):
    """(A, L, COUNT) cut along the last axis into COUNT times (A, L), in their order; COUNT is a power of two."""
    found = (w,)
    for level in tl.static_range(10):
        if COUNT >> level > 1:
            even = ()
            odd = ()
            for i in tl.static_range(1 << level):
                both = found[i]
                if COUNT >> level > 2:
                    both = tl.reshape(both, (A, L, COUNT >> (level + 1), 2))
                one, other = tl.split(both)
                even = even + (one,)  # type: ignore[assignment] # noqa: RUF005
                odd = odd + (other,)  # type: ignore[assignment] # noqa: RUF005
            found = even + odd  # type: ignore[assignment]
    return found if COUNT > 1 else (tl.reshape(w, (A, L)),)


@triton.jit
def tiles_at(packed, tile, there):
    """(G, source, target) these tiles, as they are; 0 where there is none."""
    place = tl.arange(0, 32)[:, None] * 32 + tl.arange(0, 32)[None, :]
    at = packed + tile[:, None, None] * 1024 + place[None, :, :]
    return tl.load(at, mask=there[:, None, None], other=0.0)


@triton.jit
def walk_rows(walk, place, there, first, COUNT: tl.constexpr, SPAN: tl.constexpr):
    """COUNT rows of each of SPAN tiles from a place on, each (1, 32) over lanes; 0 where there is none.

    Four rows lie side by side for each lane, so that a lane loads them at once. Loaded in a loop with stages, they come
    by way of shared memory, from which each warp takes all.
    """
    tl.static_assert(COUNT % 4 == 0)
    at = (place + tl.arange(0, SPAN)[:, None]) * 1024 + first * 32 + tl.arange(0, COUNT * 32)[None, :]
    w = tl.load(walk + at, mask=there[:, None], other=0.0)
    w = tl.permute(tl.reshape(w, (SPAN, COUNT // 4, 32, 4)), (2, 0, 1, 3))
    return parts(tl.reshape(w, (1, 32, SPAN * COUNT)), 1, 32, SPAN * COUNT)


@triton.jit
def near_weights(walk, place, first, COUNT: tl.constexpr):
    """The weights among each four of COUNT neurons of a panel, each (1, 1).

    They are in the panel's tile with itself, at its place; what i gives to the k-th of its four is number
    i // 4 * 16 + k * 4 + i % 4. Whatever COUNT is, the load has 128 places: were they fewer than the threads,
    Triton would have each thread load all.
    """
    four = first // 4 + tl.arange(0, 8)[:, None]
    w = tl.load(walk + place * 1024 + four * 144 + tl.arange(0, 16)[None, :], mask=four < 8, other=0.0)
    w = tl.permute(tl.reshape(w, (1, 1, 32 // COUNT, COUNT * 4)), (0, 1, 3, 2))
    w = parts(tl.reshape(w, (1, COUNT * 4, 32 // COUNT)), 1, COUNT * 4, 32 // COUNT)[0]
    return parts(tl.reshape(w, (1, 1, COUNT * 4)), 1, 1, COUNT * 4)


@triton.jit
def moved_on(sums, SPAN: tl.constexpr):
    """All but the first sum, then 0."""
    found = ()
    for k in tl.static_range(1, SPAN):
        found = found + (sums[k],)  # type: ignore[assignment] # noqa: RUF005
    return found + (tl.zeros_like(sums[0]),)  # noqa: RUF005


@triton.jit
def column_of(z, t, BB: tl.constexpr):
    """(BB, 1) column t of (BB, 32)."""
    return tl.gather(z, tl.zeros((BB, 1), tl.int32) + t, 1)


@triton.jit
def four_of(z, t, BB: tl.constexpr):
    """Four columns of (BB, 32) from t on, each (BB, 1)."""
    return column_of(z, t, BB), column_of(z, t + 1, BB), column_of(z, t + 2, BB), column_of(z, t + 3, BB)


@triton.jit
def scales_of(program, draw, row, r, NODE, HIDDEN, threshold, p_bits, WIDE: tl.constexpr):
    """(BB, 32) what dropout multiplies the neurons at these rows with."""
    node = draw_node(draw, tl.load(program + NODE + row))
    hidden = tl.load(program + HIDDEN + row)
    return kept_scale(node[None, :], r[:, None], threshold, p_bits, hidden[None, :], WIDE)
