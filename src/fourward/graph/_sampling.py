"""Random edges as arrays, behind `generate`: G(n, p), vacant pairs of an MLP, degree-preserving swaps."""

from __future__ import annotations

import numpy as np

from fourward._arrays import IntArray
from fourward._jit import cached_njit

_MULTIPLIER = 0x2360ED051FC65DA44385DF649FCCF645  # multiplier of PCG64, 128 bits


def gnp_pairs(n: int, p: float, seed: int) -> IntArray:
    """(E, 2) the pairs v > w of a sample of G(n, p), sorted by v, then w (Batagelj and Brandes, 2005).

    Draw for draw what undirected_gnp_random_graph of rustworkx 0.18 does with this seed, which a test compares: written
    here so that a seed means the same graph whatever version of rustworkx is installed.
    """
    total = n * (n - 1) // 2
    if 1 - p == 1 or total == 0:
        return np.empty((0, 2), np.int64)
    keys = np.arange(total) if p == 1 else _bernoulli_indices(total, p, seed)
    # Pair k of all pairs in that order has v (v - 1) / 2 pairs of smaller v before it; the root may be off by one.
    v = ((1 + np.sqrt(8.0 * keys + 1)) / 2).astype(np.int64)
    v -= v * (v - 1) // 2 > keys
    v += v * (v + 1) // 2 <= keys
    return np.stack((v, keys - v * (v - 1) // 2), -1)


def _bernoulli_indices(total: int, p: float, seed: int) -> IntArray:
    """Draw each integer below `total` with probability p, by the geometric gaps between those drawn."""
    stream, last, parts = _rust_pcg64(seed), -1, []
    while last < total:
        expected = (total - last) * p
        count = int(expected + 4 * expected**0.5) + 16
        uniform = (stream.random_raw(count) >> np.uint64(12)) * 2.0**-52
        gaps = (np.log(1 - uniform) / np.log(1 - p)).clip(max=total).astype(np.int64) + 1
        parts.append(last + np.cumsum(gaps))
        last = int(parts[-1][-1])
    indices: IntArray = np.concatenate(parts)
    return indices[indices < total]


def _rust_pcg64(seed: int) -> np.random.PCG64:
    """PCG64 seeded with 64 bits as Rust's rand crate does it: eight words of a small PCG fill its 256 bits."""
    bits = 0
    for k in range(8):
        seed = (seed * 6364136223846793005 + 11634580027462260723) % 2**64
        word, rotation = ((seed >> 18 ^ seed) >> 27) % 2**32, seed >> 59
        bits |= ((word >> rotation | word << (32 - rotation)) % 2**32) << (32 * k)
    state, increment = bits % 2**128, bits >> 128 | 1
    stream = np.random.PCG64(0)
    state = ((state + increment) * _MULTIPLIER + increment) % 2**128
    stream.state = {**stream.state, "state": {"state": state, "inc": increment}, "has_uint32": 0, "uinteger": 0}
    return stream


def count_pairs(num_inputs: int, first_output: int, n: int) -> int:
    """Number of pairs u < v of n nodes with u < first_output and v >= num_inputs: where an MLP may have edges."""
    inner = first_output - num_inputs
    return first_output * (n - num_inputs) - inner * (inner + 1) // 2


def vacant_pairs(
    count: int,
    occupied: IntArray,
    num_inputs: int,
    first_output: int,
    n: int,
    rng: np.random.Generator,
) -> IntArray:
    """(count,) distinct random keys u * n + v of the pairs of `count_pairs`, none of them in the sorted `occupied`."""
    if 2 * count > count_pairs(num_inputs, first_output, n) - len(occupied):
        # Most vacant pairs are drawn: list them all, which are then fewer than 3 E.
        low = np.maximum(np.arange(1, first_output + 1), num_inputs)
        width = n - low
        skipped = np.repeat(np.cumsum(width) - width, width)
        keys = np.repeat(np.arange(first_output) * n + low, width) + np.arange(width.sum()) - skipped
        return rng.permutation(_set_difference(keys, occupied))[:count]
    drawn = np.empty(0, np.int64)
    while len(drawn) < count:
        draws = 4 * (count - len(drawn))
        u, v = rng.integers(0, first_output, draws), rng.integers(num_inputs, n, draws)
        drawn = np.concatenate((drawn, _set_difference((u * n + v)[u < v], occupied)))
        _, first = np.unique(drawn, return_index=True)
        drawn = drawn[np.sort(first)]
    return drawn[:count]


def _set_difference(keys: IntArray, occupied: IntArray) -> IntArray:
    """The keys, in their order, that aren't in the sorted `occupied`."""
    vacant: IntArray = keys[occupied[np.searchsorted(occupied, keys).clip(max=len(occupied) - 1)] != keys]
    return vacant


@cached_njit
def swap_targets(source: IntArray, target: IntArray, rank: IntArray, first: IntArray, second: IntArray) -> None:
    """Exchange, in place, the targets of edges first[k] and second[k], where ranks still ascend and no edge doubles."""
    num_nodes = len(rank)
    present = set()
    for k in range(len(source)):
        present.add(np.int64(source[k]) * num_nodes + target[k])
    for i, j in zip(first, second):  # noqa: B905 - numba has no strict=
        u, v, x, y = np.int64(source[i]), target[i], np.int64(source[j]), target[j]
        if rank[u] >= rank[y] or rank[x] >= rank[v] or u * num_nodes + y in present or x * num_nodes + v in present:
            continue
        present.remove(u * num_nodes + v)
        present.remove(x * num_nodes + y)
        present.add(u * num_nodes + y)
        present.add(x * num_nodes + v)
        target[i], target[j] = y, v


@cached_njit
def search_edges(source: IntArray, start: IntArray, position: IntArray, tail: IntArray, head: IntArray) -> IntArray:
    """(K,) the index of the edge from tail[k] to head[k], -1 if there is none.

    Args:
        source: (E,) the node where each edge starts, sorted by the position of the target, then of the source.
        start: (N+1,) the edges into the node at position q are start[q]:start[q+1].
        position: (N,) the position of each node.
        tail: (K,) nodes.
        head: (K,) nodes.
    """
    index = np.empty(len(tail), np.int64)
    for k in range(len(tail)):
        wanted, q = position[tail[k]], position[head[k]]
        low, high = start[q], start[q + 1]
        while low < high:  # sources before `low` stand before the wanted one, those from `high` on don't
            middle = (low + high) // 2
            if position[source[middle]] < wanted:
                low = middle + 1
            else:
                high = middle
        index[k] = low if low < start[q + 1] and source[low] == tail[k] else -1
    return index
