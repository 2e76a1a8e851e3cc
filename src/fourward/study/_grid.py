"""The experiments over the paper's grid: times of a forward pass, of a training step, and attributes of graphs."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fourward.errors import OptionError, Repair
from fourward.graph._dag import Dag
from fourward.graph.generate import erdos_renyi
from fourward.layering import Layering, longest_path
from fourward.nn._fourward import FourWard
from fourward.paper import DeepStruct, Masked4Ward, SequentialBaseline
from fourward.study._limits import CutOff, no_collection, one_line, time_limit
from fourward.study._protocol import Key, Outcome, Protocol, Task, graph_keys, grid_keys
from fourward.study._store import CUT_OFF, FAILED
from fourward.study._timing import Call, clock_for, summarize_turns, time_batches, training_step

METHOD_CLASSES: Mapping[str, Callable[..., nn.Module]] = {
    "sequential": SequentialBaseline,
    "deepstruct": DeepStruct,
    "4ward": Masked4Ward,
    "fourward": FourWard,
}
#: Ours compiles kernels on first use, which doesn't count as part of a run.
_COMPILED = frozenset({"fourward"})
#: Outputs that differ more are wrong, and aren't timed; biases are a few hundredths in size.
_RELATIVE, _ABSOLUTE = 1e-3, 1e-4


def times_tasks(protocol: Protocol) -> Iterator[Task]:
    """Forward passes over batches of ones."""
    check_device(protocol.device)
    for graph, keys in grid_keys(protocol):
        yield Task(keys, partial(_measure, graph, protocol, False))


def training_tasks(protocol: Protocol) -> Iterator[Task]:
    """Training steps on batches of ones: forward, mean square of the outputs, backward, Adam."""
    check_device(protocol.device)
    for graph, keys in grid_keys(protocol):
        yield Task(keys, partial(_measure, graph, protocol, True))


def attributes_tasks(protocol: Protocol) -> Iterator[Task]:
    """Height and height attenuation; nothing is timing."""
    for key in graph_keys(protocol):
        yield Task([key], _describe)


def check_device(device: str) -> None:
    """Raise OptionError if torch can't run on this device."""
    if device == "cuda" and not torch.cuda.is_available():
        raise OptionError("torch sees no CUDA device here.", Repair("device", "cpu", "run on the CPU"))


def generate_graph(key: Mapping[str, Any], seed: str = "seed") -> Dag:
    """The graph that a key describes."""
    return erdos_renyi(key["size"], key["p"], seed=key[seed])


class Networks:
    """The same network by several methods, each built once; they alternate at each batch size."""

    def __init__(self, dag: Dag, protocol: Protocol) -> None:
        gc.collect()  # what earlier networks left; not at each batch size, where it would visit all of these
        self.dag, self.protocol = dag, protocol
        self.clock = clock_for(protocol.device)
        self.models: dict[str, nn.Module] = {}
        self.seconds: dict[str, float] = {}  # seconds of building, until a run has included them
        self.missing: dict[str, tuple[str, str]] = {}  # status and note of what couldn't be built

    def build(self, name: str, method: str, layering: Layering | None = None) -> None:
        """Build a method's network under a name, or record why there is none."""
        limit = math.inf if method in _COMPILED else self.protocol.limit
        start = time.perf_counter()
        try:
            with no_collection(), time_limit(limit):
                make = METHOD_CLASSES[method]
                self.models[name] = make(self.dag, seed=0, layering=layering, device=self.protocol.device)
        except CutOff:
            self._cut_off(name, limit)
        except (
            Exception
        ) as error:  # out of memory, for example: the outcome of this network, which doesn't affect others
            self.missing[name] = FAILED, f"building failed: {one_line(error)}"
            self._recover()
        self.seconds[name] = time.perf_counter() - start
        if self.seconds[name] >= limit and name in self.models:
            del self.models[name]
            self._cut_off(name, limit)

    def measure(self, names: Mapping[str, Key], batch: int, *, train: bool = False) -> Iterator[Outcome]:
        """Time networks at a batch size; all results must agree with the first network's."""
        calls = self._calls(names, torch.ones(batch, self.dag.num_inputs, device=self.protocol.device), train)
        for name in [name for name in names if name in self.missing]:
            yield Outcome(names[name], summarize_turns([]), *self.missing[name], self.seconds.pop(name, 0.0))
        timings = time_batches(
            calls,
            self.clock,
            batches=self.protocol.batches,
            limit=self.protocol.limit,
            compiled=frozenset(name for name in calls if isinstance(self.models[name], FourWard)),
            check=None if train else _Agreement(),
            grad=train,
        )
        for name, timing in timings:
            seconds = timing.seconds + self.seconds.pop(name, 0.0)
            yield Outcome(names[name], dict(timing.values), timing.status, timing.note, seconds)
            if timing.status == FAILED:
                self._recover()

    def _calls(self, names: Iterable[str], x: Tensor, train: bool) -> dict[str, Call]:
        """Calls that run one batch, for each network that could be built."""
        calls: dict[str, Call] = {}
        for name in names:
            if name in self.models:
                try:
                    calls[name] = training_step(self.models[name], x) if train else partial(self.models[name], x)
                except Exception as error:  # nothing to train, for example: the outcome of this network
                    self.missing[name] = FAILED, one_line(error)
        return calls

    def _cut_off(self, name: str, limit: float) -> None:
        self.missing[name] = CUT_OFF, f"cut off after {limit:.3g} s, while it was built"

    def _recover(self) -> None:
        self.clock.synchronize()
        if self.protocol.device == "cuda":
            torch.cuda.empty_cache()


class _Agreement:
    """Checks that all results agree."""

    def __init__(self) -> None:
        self.first: tuple[str, Tensor] | None = None

    def __call__(self, name: str, result: Tensor) -> None:
        if self.first is None:
            self.first = name, result.clone()
        reference, expected = self.first
        if not torch.allclose(result, expected, rtol=_RELATIVE, atol=_ABSOLUTE):
            error = float((result - expected).abs().max())
            raise ArithmeticError(f"the outputs differ from those of {reference} by {error:.2g}")


def _measure(graph: Key, protocol: Protocol, train: bool, keys: Sequence[Key]) -> Iterator[Outcome]:
    """The runs of one graph."""
    dag = generate_graph(graph)
    shape = {"height": longest_path(dag).height, "edges": dag.num_edges}
    networks = Networks(dag, protocol)
    for method in dict.fromkeys(str(key["method"]) for key in keys):
        networks.build(method, method)
    for batch in dict.fromkeys(int(key["batch"] or 0) for key in keys):
        names = {str(key["method"]): key for key in keys if key["batch"] == batch}
        for outcome in networks.measure(names, batch, train=train):
            outcome.values.update(shape)
            yield outcome


def _describe(keys: Sequence[Key]) -> Iterator[Outcome]:
    for key in keys:
        start = time.perf_counter()
        dag = generate_graph(key)
        layering = longest_path(dag)
        values = {"height": layering.height, "attenuation": layering.attenuation, "nodes": dag.num_nodes}
        values |= {"edges": dag.num_edges, "inputs": dag.num_inputs, "outputs": dag.num_outputs}
        yield Outcome(key, values, seconds=time.perf_counter() - start)
