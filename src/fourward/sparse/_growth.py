"""Growth: which pairs of nodes may become edges, and random ones among those that aren't."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from fourward._arrays import BoolArray, IntArray, distinct
from fourward.errors import OptionError
from fourward.graph._dag import Dag
from fourward.graph._digraph import Digraph
from fourward.graph._sampling import search_edges

Pairs = Literal["levels", "layered"]
#: "levels" allows edges from any level to any higher one, "layered" those between levels that edges join at the
#: start, whose number stays for each. A function of (K,) sources and (K,) targets, node indices, returns the pairs that
#: are allowed, (K,) bools; so does an array of bools (N, N). Both restrict "levels".
Rule = Pairs | Callable[[IntArray, IntArray], Any] | np.ndarray[Any, Any]

#: Pairs of a pool up to which all are listed where most draws would be rejected.
LISTED = 2**24


class Pool(NamedTuple):
    """Pairs that may become edges of a kind: for each block, all its sources with all its targets."""

    feedback: bool  #: whether these edges carry the value of the step before
    sources: IntArray  #: nodes by level; a block takes a slice of them
    targets: IntArray  #: neurons by level, as sources
    slices: IntArray  #: (blocks, 4) the first source and the one after the last, then the same for targets

    def size(self) -> int:
        """How many pairs there are."""
        return int(self._sizes().sum())

    def _sizes(self) -> IntArray:
        first, last, first_target, last_target = self.slices.T
        sizes: IntArray = (last - first) * (last_target - first_target)
        return sizes

    def decode(self, number: IntArray) -> tuple[IntArray, IntArray]:
        """Source and target of the pairs with these numbers, from 0 to `size`."""
        if len(self.slices) == 1:  # arrays of numbers that are all the same would take most of the time
            (first, last, first_target, _), index = self.slices[0].tolist(), number
        else:
            first, last, first_target, index = self._find_block(number)
        target, source = np.divmod(index, last - first)
        return self.sources[first + source], self.targets[first_target + target]

    def _find_block(self, number: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """For each number its block's first three entries of `slices`, and the number within the block."""
        end = np.cumsum(self._sizes())
        block = np.searchsorted(end, number, side="right")
        first, last, first_target, _ = self.slices[block].T
        return first, last, first_target, number - (end - self._sizes())[block]


class Growth:
    """The pairs that may become edges of a graph, as its wiring at the start and a rule say.

    No edge leads into an input that carries its feature, or out of an output that had none; none within a step leads
    from a level to the same or a lower one, levels being those at the start, so that no cycle can arise, and the graph
    doesn't become deeper. A neuron feeds back to itself only if some did at the start.

    Args:
        graph: The graph.
        level: (N,) the level of each node.
        rule: Which pairs are allowed.
    """

    def __init__(self, graph: Dag | Digraph, level: IntArray, rule: Rule) -> None:
        _check_rule(rule, graph.num_nodes)
        self.level, self.rule = np.array(level, np.int32), rule
        sinks = graph.outputs[graph.out_degree[graph.outputs] == 0]
        self.sends, self.receives = np.ones(graph.num_nodes, np.bool_), np.zeros(graph.num_nodes, np.bool_)
        self.sends[sinks], self.receives[graph.neurons] = False, True
        self.self_loops = bool((graph.source == graph.target).any())
        self.all_delayed = isinstance(graph, Digraph) and graph.dag.num_edges == 0 < graph.num_edges
        #: What "layered" allows: a code for each two levels that edges join, ascending; those of feedback edges last.
        self.joined = distinct(self._join_levels(graph)) if _is_layered(rule) else np.empty(0, np.int64)

    def pools(self, feedback: bool) -> list[Pool]:
        """The pools of edges within a step, or of feedback edges; each keeps its number of edges."""
        sources, targets = (self._by_level(can) for can in (self.sends, self.receives))
        height = int(self.level.max()) + 1
        bounds = np.arange(height + 1)
        source_start, target_start = (np.searchsorted(self.level[nodes], bounds) for nodes in (sources, targets))
        if _is_layered(self.rule):
            first = height**2 if feedback else 0
            a, b = np.divmod(self.joined[(self.joined // height**2) == feedback] - first, height)
            slices = np.stack((source_start[a], source_start[a + 1], target_start[b], target_start[b + 1]), -1)
            return [Pool(feedback, sources, targets, each[None]) for each in slices]
        if feedback and self.all_delayed:
            slices = np.array([[0, len(sources), 0, len(targets)]])
        elif feedback:  # from the same or a higher level
            ends = np.full(len(bounds) - 1, len(sources))
            slices = np.stack((source_start[:-1], ends, target_start[:-1], target_start[1:]), -1)
        else:
            slices = np.stack((0 * bounds[1:], source_start[:-1], target_start[:-1], target_start[1:]), -1)
        return [Pool(feedback, sources, targets, slices)]

    def groups(self, graph: Dag | Digraph) -> Iterator[tuple[Pool, IntArray]]:
        """Each pool, and the edges that are in it."""
        within = graph.dag.num_edges
        if not _is_layered(self.rule):
            for feedback, edges in ((False, np.arange(within)), (True, np.arange(within, graph.num_edges))):
                if len(edges):
                    yield self.pools(feedback)[0], edges
            return
        code = self._join_levels(graph)
        order = np.arange(len(code)) if (np.diff(code) >= 0).all() else np.argsort(code, kind="stable")
        first, last = (np.searchsorted(code[order], self.joined, side=side) for side in ("left", "right"))
        pools = [*self.pools(False), *self.pools(True)]
        yield from ((pool, order[a:b]) for pool, a, b in zip(pools, first, last, strict=True))

    def _join_levels(self, graph: Dag | Digraph) -> IntArray:
        """(E,) a code for the two levels that each edge joins, and for whether it is feedback."""
        height = int(self.level.max()) + 1
        code = self.level[graph.source].astype(np.int64) * height + self.level[graph.target]
        code[graph.dag.num_edges :] += height**2
        return code

    def allows(self, graph: Dag | Digraph, source: IntArray, target: IntArray, gone: BoolArray | None) -> BoolArray:
        """(K,) which pairs aren't edges, those that are gone apart, and are allowed by the rule."""
        allowed = np.ones(len(source), np.bool_) if self.self_loops else source != target
        for index in _search(graph, source, target):
            is_edge = index >= 0
            if gone is not None:
                is_edge[is_edge] = ~gone[index[is_edge]]
            allowed &= ~is_edge
        if not isinstance(self.rule, str):
            allowed[allowed] = self._apply_rule(source[allowed], target[allowed])
        result: BoolArray = allowed
        return result

    def _apply_rule(self, source: IntArray, target: IntArray) -> BoolArray:
        if isinstance(self.rule, np.ndarray):
            selected: BoolArray = self.rule[source, target]
            return selected
        assert callable(self.rule)
        result = np.asarray(self.rule(source, target))
        if result.shape != source.shape or result.dtype != np.bool_:
            raise OptionError(
                f"expected the rule to return {len(source):,} bools, one for each pair, got {result.dtype} of shape "
                f"{result.shape}. It receives two arrays of node indices."
            )
        return result

    def _by_level(self, can: BoolArray) -> IntArray:
        nodes = np.flatnonzero(can)
        return nodes[np.argsort(self.level[nodes], kind="stable")]


def draw_pairs(
    growth: Growth, pool: Pool, graph: Dag | Digraph, count: int, rng: np.random.Generator, gone: BoolArray | None
) -> IntArray:
    """(count, 2) distinct random pairs of a pool that may become edges; fewer if there are fewer.

    Args:
        growth: The rule.
        pool: The pool.
        graph: The graph.
        count: How many.
        rng: The generator.
        gone: (E,) edges of the graph that are about to be removed, whose pairs may be drawn, too; or None.
    """
    size = pool.size()
    drawn: IntArray = np.empty(0, np.int64)
    rate = 1.0  # the fraction of draws that is accepted
    while len(drawn) < count and size > 0:
        missing = count - len(drawn)
        draws = int(missing / rate) + 16
        if draws > size // 4 and size <= LISTED:
            return list_pairs(growth, pool, graph, rng, gone)[:count]
        if rate < 1e-4:
            break
        number: IntArray = distinct(rng.integers(0, size, draws))
        number = number[growth.allows(graph, *pool.decode(number), gone)]
        rate = max(rate / 16, min(len(number) / draws, 1.0))
        number = _without(number, drawn)
        if len(number) > missing:
            number = number[np.sort(rng.permutation(len(number))[:missing])]
        drawn = distinct(np.concatenate((drawn, number)))
    return np.stack(pool.decode(drawn), -1).astype(np.int64) if size else np.empty((0, 2), np.int64)


def list_pairs(
    growth: Growth, pool: Pool, graph: Dag | Digraph, rng: np.random.Generator | None = None,
    gone: BoolArray | None = None,
) -> IntArray:  # fmt: skip
    """(K, 2) all pairs of a pool that may become edges, with a generator in random order."""
    number = np.arange(pool.size())
    source, target = pool.decode(number)
    number = number[growth.allows(graph, source, target, gone)]
    if rng is not None:
        number = rng.permutation(number)
    return np.stack(pool.decode(number), -1).astype(np.int64)


def _search(graph: Dag | Digraph, source: IntArray, target: IntArray) -> Iterator[IntArray]:
    """(K,) the edge that each pair is, or -1: of those within a step, then of feedback edges."""
    dag = graph.dag
    yield search_edges(dag.source, dag.in_start, dag.position, source, target)
    if isinstance(graph, Digraph) and graph.num_feedback:
        count = np.bincount(dag.position[graph.feedback[:, 1]], minlength=dag.num_nodes)
        start = np.concatenate(([0], np.cumsum(count)))
        tail = np.ascontiguousarray(graph.feedback[:, 0])
        index = search_edges(tail, start, dag.position, source, target)
        yield np.where(index < 0, -1, index + dag.num_edges)


def _without(numbers: IntArray, known: IntArray) -> IntArray:
    """The numbers that are not among the known ones; both are sorted."""
    if not len(known):
        return numbers
    index = np.searchsorted(known, numbers).clip(max=len(known) - 1)
    rest: IntArray = numbers[known[index] != numbers]
    return rest


def _is_layered(rule: Rule) -> bool:
    return isinstance(rule, str) and rule == "layered"


def _check_rule(rule: Any, num_nodes: int) -> None:
    if isinstance(rule, np.ndarray) and (rule.shape != (num_nodes, num_nodes) or rule.dtype != np.bool_):
        raise OptionError(
            f"rule must be an array of bools of shape ({num_nodes}, {num_nodes}), got {rule.dtype} of shape "
            f"{rule.shape}."
        )
    if isinstance(rule, str) and rule not in get_args(Pairs):
        raise OptionError(f"rule must be 'levels', 'layered', a function or an array of bools, got {rule!r}.")
    if not isinstance(rule, str | np.ndarray) and not callable(rule):
        raise OptionError(
            f"rule must be 'levels', 'layered', a function or an array of bools, got a {type(rule).__name__}."
        )
