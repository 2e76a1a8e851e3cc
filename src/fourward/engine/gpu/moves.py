"""In and out of the rows that a program owns: from (B, columns) to (rows, BB), and back."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def enter(x, values, r, B, I, limit, BB: tl.constexpr):
    """Copy samples r of x (B, I) to rows 0:I; 0 beyond the batch, and in the rows from I to the limit."""
    bb = tl.arange(0, BB)
    kk = tl.arange(0, 32)
    for j in range(0, limit, 32):
        row = j + kk
        mask = (r < B)[None, :] & (row < I)[:, None]
        v = tl.load(x + r[None, :].to(tl.int64) * I + row[:, None], mask=mask, other=0.0)
        tl.store(values + row[:, None] * BB + bb[None, :], v, mask=(row < limit)[:, None])


@triton.jit
def leave(out, values, program, COLUMN, r, B, columns, BB: tl.constexpr):
    """Copy to samples r of out (B, columns) the rows that stand in the program from COLUMN on."""
    bb = tl.arange(0, BB)
    kk = tl.arange(0, 32)
    for j in range(0, columns, 32):
        column = j + kk
        row = tl.load(program + COLUMN + column, mask=column < columns, other=0)
        v = tl.load(values + row[None, :] * BB + bb[:, None])
        mask = (r < B)[:, None] & (column < columns)[None, :]
        tl.store(out + r[:, None].to(tl.int64) * columns + column[None, :], v, mask=mask)
