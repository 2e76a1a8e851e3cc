"""What the kernels of both directions do with tiles, blocks of rows and lanes."""

from __future__ import annotations

import triton
import triton.language as tl

from fourward.engine.gpu.formulas import draw_node, kept_scale

#: Parameters that Triton must not compile in, whatever their values.
RUNTIME = ["B", "I", "columns", "rows", "lead", "tiles", "panels", "packers", "slices", "threshold", "p_bits"]
RUNTIME += ["first_panel", "last_panel", "first_block", "counts", "LOWER", "UPPER"]


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
def tile_rows(packed, tile, first, COUNT: tl.constexpr):
    """Rows of a tile, each (1, 32) over lanes."""
    rows = ()
    at = packed + tile * 1024 + first * 32 + tl.arange(0, 32)[None, :]
    for t in tl.static_range(COUNT):
        rows = rows + (tl.load(at + t * 32),)  # type: ignore[assignment] # noqa: RUF005
    return rows


@triton.jit
def column_of(z, t, BB: tl.constexpr):
    """(BB, 1) column t of (BB, 32)."""
    return tl.gather(z, tl.zeros((BB, 1), tl.int32) + t, 1)


@triton.jit
def scales_of(program, key, row, r, NODE, HIDDEN, threshold, p_bits, WIDE: tl.constexpr):
    """(BB, 32) what dropout multiplies the neurons at these rows with."""
    node = draw_node(key, tl.load(program + NODE + row))
    hidden = tl.load(program + HIDDEN + row)
    return kept_scale(node[None, :], r[:, None], threshold, p_bits, hidden[None, :], WIDE)
