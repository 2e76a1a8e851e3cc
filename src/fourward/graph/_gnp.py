"""G(n, p): the sample behind `generate.erdos_renyi`, the same for a seed wherever it is drawn."""

from __future__ import annotations

import numpy as np

from fourward._arrays import IntArray

_MULTIPLIER = 0x2360ED051FC65DA44385DF649FCCF645  # of PCG64, 128 bits


def gnp_pairs(n: int, p: float, seed: int) -> IntArray:
    """(E, 2) the pairs v > w of a sample, in the order of v, then w (Batagelj and Brandes, 2005).

    Draw for draw what rustworkx's undirected_gnp_random_graph does with this seed, which a test compares: written here
    so that a seed means the same graph where rustworkx isn't installed.
    """
    total = n * (n - 1) // 2
    if 1 - p == 1 or total == 0:
        return np.empty((0, 2), np.int64)
    keys = np.arange(total) if p == 1 else _kept(total, p, seed)
    # Pair k of all pairs in that order has v (v - 1) / 2 pairs of smaller v before it; the root may be off by one.
    v = ((1 + np.sqrt(8.0 * keys + 1)) / 2).astype(np.int64)
    v -= v * (v - 1) // 2 > keys
    v += v * (v + 1) // 2 <= keys
    return np.stack((v, keys - v * (v - 1) // 2), -1)


def _kept(total: int, p: float, seed: int) -> IntArray:
    """The numbers under `total` that are kept, each with probability p: the gaps between them are geometric."""
    stream, last, parts = _stream(seed), -1, []
    while last < total:
        expected = (total - last) * p
        count = int(expected + 4 * expected**0.5) + 16
        uniform = (stream.random_raw(count) >> np.uint64(12)) * 2.0**-52
        gaps = (np.log(1 - uniform) / np.log(1 - p)).clip(max=total).astype(np.int64) + 1
        parts.append(last + np.cumsum(gaps))
        last = int(parts[-1][-1])
    keys: IntArray = np.concatenate(parts)
    return keys[keys < total]


def _stream(seed: int) -> np.random.PCG64:
    """PCG64 seeded with 64 bits in the way of Rust's rand crate: eight words of a small PCG fill its 256 bits."""
    filled = 0
    for place in range(8):
        seed = (seed * 6364136223846793005 + 11634580027462260723) % 2**64
        word, turn = ((seed >> 18 ^ seed) >> 27) % 2**32, seed >> 59
        filled |= ((word >> turn | word << (32 - turn)) % 2**32) << (32 * place)
    state, step = filled % 2**128, filled >> 128 | 1
    stream = np.random.PCG64(0)
    state = ((state + step) * _MULTIPLIER + step) % 2**128
    stream.state = {**stream.state, "state": {"state": state, "inc": step}, "has_uint32": 0, "uinteger": 0}
    return stream
