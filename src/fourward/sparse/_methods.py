"""SET, RigL and Prune: training that changes the wiring every so many steps."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fourward._arrays import BoolArray, IntArray
from fourward.errors import CycleError, OptionError, TrainingError
from fourward.graph._convert import is_integer
from fourward.graph._dag import Dag
from fourward.graph._edit import Changed
from fourward.sparse._gradients import Recorder, absent_gradients
from fourward.sparse._growth import Growth, Pool, Rule, draw_pairs, list_pairs
from fourward.sparse._history import EditHistory
from fourward.sparse._optimizers import Optimizers
from fourward.sparse._prune import select_prunable
from fourward.sparse._rewire import Edit, Network, rewire_indices, unwrap
from fourward.sparse._selection import By, FloatArray, keep_driven, removable, score_edges, select_weakest

GrowthInit = Literal["zeros", "kaiming_uniform"]
#: Pairs that RigL computes gradients for, at least, before it draws some of them.
LEAST_CANDIDATES = 200_000


class Rewiring(ABC):
    """What SET, RigL and Prune share: call `step()` after each step of the optimiser.

    The same seed gives the same wiring. `state_dict` and `load_state_dict` continue a run to the same bits.

    Args:
        net: A FourWard or a Recurrent.
        optimizer: As in `rewire`.
        every: Steps between two edits.
        until: The step after which the wiring stays; None for none.
        seed: Seed of what is drawn; None draws one from the system's entropy.
        keep_history: Whether `history` records all pairs, which takes 16 bytes for each edge that is replaced.
    """

    def __init__(
        self, net: Network, optimizer: Optimizers, every: int, until: int | None, seed: int | None, keep_history: bool
    ) -> None:
        numbers: tuple[tuple[str, Any, int], ...] = (("every", every, 1), ("until", until, 0), ("seed", seed, 0))
        for name, value, least in numbers:
            if not (value is None and name != "every") and not (is_integer(value) and value >= least):
                raise OptionError(f"{name} must be an int of at least {least}, got {value!r}.")
        self.net, self.optimizer, self.every, self.until = unwrap(net), optimizer, int(every), until
        self.seed = int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else int(seed)
        self.steps, self.edits = 0, 0  #: calls of `step`, and those that changed the wiring
        self.replaced = 0  #: edges that the last edit removed
        self.history = EditHistory() if keep_history else None
        self._labels, self._num_nodes = self.net.graph.labels, self.net.graph.num_nodes

    def step(self) -> Edit | None:
        """Count a step of the optimiser, and change the wiring if it is time to: what changed, else None."""
        self.steps += 1
        due = self._is_due(self.steps)
        if due:
            self._check_nodes()
        edit = self._edit() if due else None
        self._prepare(self._is_due(self.steps + 1))
        return edit

    def _check_nodes(self) -> None:
        labels = self.net.graph.labels
        if labels is not self._labels and list(labels) != list(self._labels):  # an edit of edges keeps the object
            exchanged = ", others among them" if len(labels) == self._num_nodes else ""
            raise OptionError(
                f"expected the {self._num_nodes:,} nodes that the network had at the start, got {len(labels):,}"
                f"{exchanged}. Make a new {type(self).__name__} after nodes were added or removed."
            )

    def _is_due(self, step: int) -> bool:
        return step % self.every == 0 and (self.until is None or step <= self.until)

    def _prepare(self, due: bool) -> None:  # noqa: B027 - most methods need no preparation
        """Prepare for the next step; `due`: whether it changes the wiring."""

    @abstractmethod
    def _edit(self) -> Edit:
        """Change the wiring."""

    def _apply(self, change: Changed, weight: Any = 0.0) -> Edit:
        graph = self.net.graph
        edit = rewire_indices(self.net, self.optimizer, change, weight)
        self.edits, self.replaced = self.edits + 1, len(edit.removed)
        if self.history is not None:
            self.history.append(self.steps, change.add, graph.edges[edit.removed])
        return edit

    def _generator(self) -> np.random.Generator:
        """The generator of this edit, which depends on the seed and the number of edits alone."""
        return np.random.default_rng((self.seed, self.edits))

    def state_dict(self) -> dict[str, Any]:
        """All that a later run needs to continue, as numbers and tensors; the network and the optimiser apart."""
        state: dict[str, Any] = {name: getattr(self, name) for name in ("steps", "edits", "replaced", "seed")}
        arrays = {} if self.history is None else {f"history.{k}": v for k, v in self.history.to_arrays().items()}
        return state | {name: torch.from_numpy(np.array(values)) for name, values in (arrays | self._arrays()).items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where another run was when it called `state_dict`; `net` must have the wiring of that time."""
        numbers = [state[name] for name in ("steps", "edits", "replaced", "seed")]
        if not all(type(number) is int and number >= 0 for number in numbers):
            raise OptionError(f"expected non-negative ints as steps, edits, replaced and seed, got {numbers}.")
        arrays = {name: value.cpu().numpy() for name, value in state.items() if isinstance(value, Tensor)}
        if self.history is not None:
            listed = {k.removeprefix("history."): v for k, v in arrays.items() if k.startswith("history.")}
            self.history = EditHistory.from_arrays(listed, self._num_nodes)
        self._load_arrays(arrays)
        self.steps, self.edits, self.replaced, self.seed = numbers
        self._prepare(self._is_due(self.steps + 1))

    def _arrays(self) -> dict[str, Any]:
        return {}

    def _load_arrays(self, arrays: dict[str, Any]) -> None:
        """Take what `_arrays` returned, checked."""
        del arrays

    def __repr__(self) -> str:
        return f"{type(self).__name__}(every={self.every}, {self.edits:,} edits in {self.steps:,} steps)"


class _Regrowth(Rewiring):
    """Removes the weakest edges, and grows as many."""

    def __init__(
        self, net: Network, optimizer: Optimizers, fraction: float, every: int, until: int | None, rule: Rule,
        seed: int | None, keep_history: bool,
    ) -> None:  # fmt: skip
        super().__init__(net, optimizer, every, until, seed, keep_history)
        if not isinstance(fraction, int | float) or not 0 < fraction <= 1:
            raise OptionError(f"fraction must be a number above 0 and at most 1, got {fraction!r}.")
        self.fraction = float(fraction)
        self._growth = Growth(self.net.graph, self.net.layering.level, rule)

    def _edit(self) -> Edit:
        graph, scores, may_go = self.net.graph, score_edges(self.net, "magnitude"), removable(self.net)
        rng, fraction = self._generator(), self._fraction_now()
        removed, added, feedback = [], [], []
        for pool, edges in self._growth.groups(graph):
            edges = edges if may_go is None else edges[may_go[edges]]
            weakest = select_weakest(scores, edges, int(fraction * len(edges)), ordered=False)
            weakest = keep_driven(graph, scores, weakest)
            pairs = self._grow(pool, weakest, rng)
            if len(pairs) < len(weakest):  # where fewer pairs can grow, fewer edges go
                weakest = select_weakest(scores, weakest, len(pairs))
            removed.append(weakest)
            added.append(pairs)
            feedback.append(np.full(len(pairs), pool.feedback))
        pairs = np.concatenate([np.empty((0, 2), np.int64), *added])
        change = Changed(
            pairs, np.sort(np.concatenate([np.empty(0, np.int64), *removed])),
            feedback=None if isinstance(graph, Dag) else np.concatenate([np.empty(0, np.bool_), *feedback]),
        )  # fmt: skip
        try:
            return self._apply(change, self._new_weights(pairs, rng))
        except CycleError as error:
            raise OptionError(
                "edges were added by hand against the levels that the network had at the start, and growth, which "
                f"follows these, would close a cycle. Nothing was changed. Make a new {type(self).__name__} after "
                "such edits."
            ) from error

    def _fraction_now(self) -> float:
        return self.fraction

    @abstractmethod
    def _grow(self, pool: Pool, removed: IntArray, rng: np.random.Generator) -> IntArray:
        """(K, 2) pairs of a pool that grow, at most as many as edges are removed."""

    def _new_weights(self, pairs: IntArray, rng: np.random.Generator) -> Any:
        return 0.0

    def _arrays(self) -> dict[str, Any]:
        growth = self._growth
        return {name: getattr(growth, name) for name in ("level", "sends", "receives", "joined")} | {
            name: np.array(getattr(growth, name)) for name in ("all_delayed", "self_loops")
        }

    def _load_arrays(self, arrays: dict[str, Any]) -> None:
        growth = self._growth
        for name in ("level", "sends", "receives"):
            before, values = getattr(growth, name), arrays[name]
            if values.shape != before.shape or values.dtype != before.dtype or (values.astype(np.int64) < 0).any():
                raise OptionError(f"expected {name} of {before.dtype} and shape {before.shape}, one for each node.")
        height = int(arrays["level"].max()) + 1
        if height > self._num_nodes or not np.isin(arrays["joined"], np.arange(2 * height**2)).all():
            raise OptionError("expected levels below the number of nodes, and pairs of levels among these.")
        for name in ("level", "sends", "receives", "joined"):
            setattr(growth, name, arrays[name].copy())
        growth.all_delayed, growth.self_loops = bool(arrays["all_delayed"]), bool(arrays["self_loops"])


class SET(_Regrowth):
    """Sparse evolutionary training (Mocanu et al., 2018): the weakest edges go, and random ones grow in their place.

    The number of edges stays. Frozen and tied edges stay, too, and so does the strongest into each driven input.

    Args:
        net: A FourWard or a Recurrent.
        optimizer: As in `rewire`.
        fraction: The fraction of edges that each edit replaces.
        every: Steps between two edits; the paper's is an epoch.
        until: The step after which the wiring stays.
        rule: Which pairs may grow: "levels", from any level of the network's layering to any higher one; "layered",
            between levels that edges join at the start, each with its number of edges, as in the paper; or a function
            of two arrays of node indices, sources and targets, that returns bools, or an array of bools (N, N), which
            restrict "levels".
        init: Weights of new edges: "zeros", so that the outputs stay, or "kaiming_uniform".
        seed: As in `Rewiring`.
        keep_history: As in `Rewiring`.

    >>> from fourward import FourWard, generate
    >>> net = FourWard(generate.erdos_renyi(50, 0.2, seed=0), seed=0)
    >>> optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    >>> method = SET(net, optimizer, fraction=0.3, every=1, seed=0)
    >>> method.step()
    Edit(74 edges added, 74 removed, 173 kept)
    """

    def __init__(
        self, net: Network, optimizer: Optimizers = None, fraction: float = 0.3, *, every: int = 100,
        until: int | None = None, rule: Rule = "levels", init: GrowthInit = "zeros", seed: int | None = None,
        keep_history: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(net, optimizer, fraction, every, until, rule, seed, keep_history)
        if init not in ("zeros", "kaiming_uniform"):
            raise OptionError(f"init must be 'zeros' or 'kaiming_uniform', got {init!r}.")
        self.init = init

    def _grow(self, pool: Pool, removed: IntArray, rng: np.random.Generator) -> IntArray:
        gone = np.zeros(self.net.graph.num_edges, np.bool_)
        gone[removed] = True
        return draw_pairs(self._growth, pool, self.net.graph, len(removed), rng, gone)

    def _new_weights(self, pairs: IntArray, rng: np.random.Generator) -> Any:
        if self.init == "zeros":
            return 0.0
        graph, constraints = self.net.graph, self.net.constraints
        values = rng.uniform(-1, 1, len(pairs)) / np.sqrt(np.maximum(graph.in_degree[pairs[:, 1]], 1))
        if constraints is not None and constraints.node_sign is not None:
            sign = constraints.node_sign[pairs[:, 0]]
            values = np.where(sign == 0, values, np.abs(values) * sign)
        return values


class RigL(_Regrowth):
    """RigL (Evci et al., 2020): the weakest edges go, and those grow whose weight has the largest gradient.

    New edges have weight 0. Gradients are those of the last pass: when an edit is due, its outputs are computed again
    by a network that has the candidates, too. Under a sign, only gradients that lead to weights of this sign count.

    Args:
        net: A FourWard or a Recurrent.
        optimizer: As in `rewire`.
        fraction: The fraction of edges that the first edit replaces; with `until` it falls to 0 along a cosine.
        every: Steps between two edits.
        until: The step after which the wiring stays.
        rule: As in `SET`.
        candidates: The most pairs that gradients are computed for: random ones if more could grow. Default: twice the
            number of edges, and at least 200,000.
        reduce: A function that sums a tensor over processes, where each has its own samples, as DDP's do.
        seed: As in `Rewiring`.
        keep_history: As in `Rewiring`.
    """

    def __init__(
        self, net: Network, optimizer: Optimizers = None, fraction: float = 0.3, *, every: int = 100,
        until: int | None = None, rule: Rule = "levels", candidates: int | None = None,
        reduce: Callable[[Tensor], Tensor] | None = None, seed: int | None = None, keep_history: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(net, optimizer, fraction, every, until, rule, seed, keep_history)
        if candidates is not None and (not is_integer(candidates) or candidates < 1):
            raise OptionError(f"candidates must be a positive int or None, got {candidates!r}.")
        self.candidates = candidates
        self._reduce = reduce
        self._recorder: Recorder | None = None
        self._ranked: list[IntArray] = []  # by pool, the pairs with the largest gradients first
        self._prepare(self._is_due(1))

    def _prepare(self, due: bool) -> None:
        if self._recorder is not None:
            self._recorder.remove()
        self._recorder = Recorder(self.net) if due else None

    def _fraction_now(self) -> float:
        if not self.until:
            return self.fraction
        return self.fraction / 2 * (1 + math.cos(math.pi * self.steps / self.until))

    def _edit(self) -> Edit:
        pools = [pool for pool, _ in self._growth.groups(self.net.graph)]
        candidates = self._list_candidates(pools)
        feedback = np.repeat([pool.feedback for pool in pools], [len(each) for each in candidates])
        pairs = np.concatenate([np.empty((0, 2), np.int64), *candidates])
        scores = self._score(pairs, None if isinstance(self.net.graph, Dag) else feedback)
        parts = np.split(scores, np.cumsum([len(each) for each in candidates])[:-1]) if pools else []
        listed = zip(candidates, parts, strict=True)
        self._ranked = [each[np.argsort(-part, kind="stable")] for each, part in listed]
        return super()._edit()

    def _grow(self, pool: Pool, removed: IntArray, rng: np.random.Generator) -> IntArray:
        return self._ranked.pop(0)[: len(removed)]  # pools come in the order in which they were ranked

    def _list_candidates(self, pools: list[Pool]) -> list[IntArray]:
        """Pairs whose gradients are computed: all that can grow, or random ones, as many in each pool as its share."""
        graph, rng = self.net.graph, self._generator()
        most = max(2 * graph.num_edges, LEAST_CANDIDATES) if self.candidates is None else self.candidates
        sizes = [pool.size() for pool in pools]
        if sum(sizes) <= most:
            return [list_pairs(self._growth, pool, graph) for pool in pools]
        shares = [math.ceil(most * size / sum(sizes)) for size in sizes]
        return [
            draw_pairs(self._growth, *each, rng, None) for each in zip(pools, [graph] * len(pools), shares, strict=True)
        ]

    def _score(self, pairs: IntArray, feedback: BoolArray | None) -> FloatArray:
        """(K,) how large the gradient of each pair is."""
        passes = [] if self._recorder is None else [each for each in self._recorder.recorded if each.grads]
        if not passes:
            raise TrainingError(
                "RigL needs a backward pass through the network before an edit, but there was none since the step "
                "before. Call step() after loss.backward(), and train the network itself: torch.compile doesn't "
                "see the hook."
            )
        gradient = absent_gradients(self.net, passes, pairs, feedback)
        if self._reduce is not None:
            gradient = self._reduce(gradient)
        values: FloatArray = gradient.cpu().numpy()
        constraints = self.net.constraints
        if constraints is None or constraints.node_sign is None:
            return np.abs(values)
        sign = constraints.node_sign[pairs[:, 0]]
        return np.where(sign == 0, np.abs(values), -sign * values)


class Prune(Rewiring):
    """Gradual pruning (Zhu and Gupta, 2017): edges go every so many steps, many at first and ever fewer.

    After step t, amount * (1 - (1 - (t - start) / (until - start))^3) of the edges at the start are gone. Frozen and
    tied edges stay, and so does the strongest into each driven input. Neurons stay, too: `fw.prune(net, amount=0)`
    removes those that have no edges left.

    Args:
        net: A FourWard or a Recurrent.
        optimizer: As in `rewire`.
        amount: The fraction of edges that is gone at last.
        until: The step at which it is.
        start: The step before which none goes.
        every: Steps between two edits.
        by: As in `prune`.
        keep_history: As in `Rewiring`.

    >>> from fourward import FourWard, generate
    >>> net = FourWard(generate.layered_mlp([4, 8, 2]), seed=0)
    >>> method = Prune(net, amount=0.5, until=2, every=1)
    >>> method.step(), method.step()
    (Edit(0 edges added, 21 removed, 27 kept), Edit(0 edges added, 3 removed, 24 kept))
    """

    def __init__(
        self, net: Network, optimizer: Optimizers = None, amount: float = 0.9, *, until: int, start: int = 0,
        every: int = 100, by: By = "magnitude", keep_history: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(net, optimizer, every, until, 0, keep_history)
        if not isinstance(amount, int | float) or not 0 <= amount <= 1:
            raise OptionError(f"amount must be a fraction from 0 to 1, got {amount!r}.")
        if not is_integer(start) or not 0 <= start < until:
            raise OptionError(f"start must be an int from 0 to below until={until}, got {start!r}.")
        self.amount, self.start, self.by = float(amount), int(start), by
        self.last = int(until)
        self._initial = self.net.graph.num_edges

    def _is_due(self, step: int) -> bool:
        return self.start < step and (step == self.last or (step < self.last and step % self.every == 0))

    def _edit(self) -> Edit:
        progress = (self.steps - self.start) / (self.last - self.start)
        gone = int(self.amount * (1 - (1 - progress) ** 3) * self._initial + 1e-9)
        edges = select_prunable(self.net, max(0, self.net.graph.num_edges - self._initial + gone), self.by)
        return self._apply(Changed(np.empty((0, 2), np.int64), edges))

    def _arrays(self) -> dict[str, Any]:
        return {"initial": np.array(self._initial)}

    def _load_arrays(self, arrays: dict[str, Any]) -> None:
        initial = arrays["initial"]
        if initial.shape != () or initial.dtype.kind != "i" or initial < self.net.graph.num_edges:
            raise OptionError(f"expected the number of edges at the start, at least {self.net.graph.num_edges:,}.")
        self._initial = int(initial)
