"""The cells of the GPU benchmark: one graph and one batch size, all baselines, forward and training."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from benchmarks import baselines
from benchmarks.contest import Maker, Outcome, as_is, captured, contest, relative_error
from benchmarks.cpu import MOST_PAIRS
from benchmarks.fresh import random_edges
from fourward import Dag, FourWard, paper
from fourward.study._limits import CutOff
from fourward.study._timing import Clock, clock_for, training_step

#: Never cut off, however slow: the goals are about these.
ALWAYS = ("fourward", "fourward graph", "masked", "masked graph")
#: Gradients farther than this from the paper's method's, relative to its largest, are wrong. Where a sum is zero but
#: for its rounding, ReLU may take either side, and a sample's share of a gradient with it: more room than for results.
GRADIENT_TOLERANCE = 1e-2
#: Contestants that compute the same network, and so must agree.
SAME = ("fourward", "sequential", "deepstruct", "masked graph", "fourward graph")


@dataclass(frozen=True)
class Settings:
    """The device, and how long to measure."""

    device: str = "cuda"
    rounds: int = 11
    limit: float = 2.0  #: seconds of all turns of a contestant at a cell

    @cached_property
    def clock(self) -> Clock:
        """The clock of the device."""
        return clock_for(self.device)

    @property
    def graphs(self) -> bool:
        """Whether there are CUDA graphs."""
        return self.device == "cuda"

    def contest(self, makers: dict[str, Maker], wants: dict[str, Tensor] | None = None) -> Outcome:
        """Run a contest with these limits."""
        return contest(makers, self.clock, expected=wants, rounds=self.rounds, limit=self.limit, always=ALWAYS)

    def random(self, batch: int, width: int) -> Tensor:
        """(batch, width) features on the device, the same each time."""
        return torch.randn(batch, width, generator=torch.Generator().manual_seed(0)).to(self.device)


class Field:
    """A graph with all contestants that are built for it, to be measured at several batch sizes."""

    def __init__(self, dag: Dag, settings: Settings) -> None:
        self.dag, self.settings, device = dag, settings, settings.device
        self.net = FourWard(dag, seed=0, device=device)
        self.masked = paper.Masked4Ward(dag, seed=0, device=device)
        self.methods: dict[str, nn.Module] = {"fourward": self.net, "masked": self.masked}
        self.methods["sequential"] = paper.SequentialBaseline(dag, seed=0, device=device)
        self.pairs = len(set(zip(*self.net.layering.level[dag.edges].T.tolist(), strict=True)))
        if self.pairs <= MOST_PAIRS:
            self.methods["deepstruct"] = paper.DeepStruct(dag, seed=0, device=device)
        self.mlp, self.width = baselines.mlp(dag.num_edges, device)

    def cell(self, batch: int) -> dict[str, Any]:
        """Forward and training of all contestants."""
        x, x_mlp = (self.settings.random(batch, width) for width in (self.dag.num_inputs, self.width))
        gradient = gradient_error(self.net, self.masked, x)
        outcomes = {"forward": self.forward(x, x_mlp), "train": self.train(x, x_mlp, gradient)}
        return build_cell(self.net, batch, outcomes, {"gradient": gradient})

    @torch.no_grad()
    def forward(self, x: Tensor, x_mlp: Tensor) -> Outcome:
        """As called, and under a CUDA graph."""
        calls: dict[str, Any] = {name: partial(model, x) for name, model in self.methods.items()}
        solves = baselines.triangular_solves(self.dag, len(x), self.settings.device)
        calls |= solves | {"mlp": partial(self.mlp, x_mlp)}
        makers = {name: as_is(call) for name, call in calls.items()}
        if "deepstruct" not in makers:
            makers["deepstruct"] = partial(_cut_off, f"{self.pairs:,} pairs of layers, {MOST_PAIRS:,} at most")
        if self.settings.graphs:
            replayed = "fourward", "masked", "mlp", *solves
            makers |= {f"{name} graph": partial(captured, calls[name]) for name in replayed}
        want = self.masked(x).clone()
        return self.settings.contest(makers, dict.fromkeys(SAME, want))

    def train(self, x: Tensor, x_mlp: Tensor, gradient: float) -> Outcome:
        """Forward, backward and fused Adam."""
        makers = training_makers({"fourward": self.net, "masked": self.masked}, x, self.settings, graphs=("fourward",))
        makers |= training_makers({"mlp": self.mlp}, x_mlp, self.settings, graphs=("mlp",))
        if gradient > GRADIENT_TOLERANCE:
            wrong = partial(_wrong, f"wrong gradient, relative error {gradient:.2g}")
            makers |= {name: wrong for name in makers if name.startswith("fourward")}
        return self.settings.contest(makers)


def measure(dag: Dag, what: dict[str, Any], batches: list[int], settings: Settings) -> Iterator[dict[str, Any]]:
    """A cell for each batch size."""
    field = Field(dag, settings)
    for batch in batches:
        yield what | field.cell(batch)


def measure_large(edges: int, degree: int, batch: int, settings: Settings) -> dict[str, Any]:
    """Ours, CSR levels and the MLP on a random graph with that many edges into a node on average."""
    nodes = edges // degree
    drawn = random_edges(nodes, edges)
    marks = [time.perf_counter()]
    dag = Dag.from_edges(drawn, nodes=nodes)
    marks.append(time.perf_counter())
    # What graphs captured for earlier cells still hold.
    before = torch.cuda.memory_allocated() if settings.graphs else 0
    net = FourWard(dag, seed=0, device=settings.device)
    settings.clock.synchronize()
    marks.append(time.perf_counter())
    x = settings.random(batch, dag.num_inputs)
    memory = measure_memory(net, x, before) if settings.graphs else {}
    outcomes = _large_outcomes(net, x, settings)
    cell = {"degree": degree, "wanted": edges} | build_cell(net, batch, outcomes, {})
    seconds = {"graph": marks[1] - marks[0], "network": marks[2] - marks[1]}
    return cell | {"memory": memory, "building": seconds, "bytes": bytes_moved(dag.num_nodes, dag.num_edges, batch)}


def _large_outcomes(net: FourWard, x: Tensor, settings: Settings) -> dict[str, Outcome]:
    mlp, width = baselines.mlp(net.dag.num_edges, settings.device)
    x_mlp = settings.random(len(x), width)
    with torch.no_grad():
        calls: dict[str, Any] = {"fourward": partial(net, x), "mlp": partial(mlp, x_mlp)}
        makers = {name: as_is(call) for name, call in calls.items()}
        wants = {}
        try:
            csr = baselines.sparse_levels(net)
            wants = dict.fromkeys(SAME, csr(x).clone())
            makers["csr"] = as_is(partial(csr, x))
        except RuntimeError as error:  # cuSPARSE may refuse; then nothing of this size is left to compare with
            makers["csr"] = partial(_wrong, str(error))
        if settings.graphs:
            makers["fourward graph"] = partial(captured, calls["fourward"])
        forward = settings.contest(makers, wants)
        wants.clear()
    training = training_makers({"fourward": net}, x, settings, graphs=("fourward",))
    return {"forward": forward, "train": settings.contest(training | training_makers({"mlp": mlp}, x_mlp, settings))}


def training_makers(
    models: dict[str, nn.Module], x: Tensor, settings: Settings, graphs: tuple[str, ...] = ()
) -> dict[str, Maker]:
    """Training steps of models, and of those named in `graphs` under a CUDA graph too."""
    makers: dict[str, Maker] = {n: partial(training_step, m, x, fused=True) for n, m in models.items()}
    if settings.graphs:
        makers |= {f"{name} graph": partial(_captured_step, models[name], x) for name in graphs}
    return makers


def _captured_step(model: nn.Module, x: Tensor) -> Any:
    return captured(training_step(model, x, fused=True, capturable=True))


def gradient_error(net: FourWard, masked: paper.Masked4Ward, x: Tensor) -> float:
    """The largest relative error of our gradients of weights and biases against the paper's method's."""
    for model in (net, masked):
        model.zero_grad()
        model(x).square().mean().backward()
    ours = (net.weight.grad, None if net.bias is None else net.bias.grad)
    pairs = [(a, b) for a, b in zip(ours, masked.edge_weights(grad=True), strict=True) if a is not None]
    errors = [relative_error(a, b) for a, b in pairs if b is not None]
    for model in (net, masked):
        model.zero_grad()
    return max(errors, default=0.0)


def measure_memory(net: FourWard, x: Tensor, before: int) -> dict[str, float]:
    """Bytes on the GPU that the network took at the peak of a training step, and what it must take.

    It must hold weights, their gradients, Adam's two moments, and activations with their gradients.
    """
    step = training_step(net, x, fused=True)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(2):  # the first makes Adam's state
        step()
    torch.cuda.synchronize()
    peak, dag = torch.cuda.max_memory_allocated(), net.dag
    net.zero_grad()
    return {"before": before, "peak": peak - before, "least": 16 * dag.num_edges + 8 * dag.num_nodes * len(x)}


def bytes_moved(nodes: int, edges: int, batch: int) -> dict[str, float]:
    """Least traffic of float32 passes in bytes; the report states the formulas.

    Edges: weight and source, 4 bytes each, in either direction; a gradient written; Adam reads four numbers and
    writes three. Activations: written and read forward; backward they are read, and their gradients written and read.
    `gathered` adds a row of the batch for each edge and direction, as if no row were ever found in a cache.
    """
    rows, gathered = 4 * nodes * batch, 4 * edges * batch
    forward, train = 8 * edges + 2 * rows, (8 + 8 + 4 + 28) * edges + 5 * rows
    return {
        "forward": forward,
        "forward, gathered": forward - rows + gathered,
        "train": train,
        "train, gathered": train - 2 * rows + 2 * gathered,
    }


def build_cell(net: FourWard, batch: int, outcomes: dict[str, Outcome], errors: dict[str, float]) -> dict[str, Any]:
    """What is stored of a cell."""
    dag = net.dag
    what = {"batch": batch, "nodes": dag.num_nodes, "edges": dag.num_edges, "height": net.layering.height}
    return {
        **what,
        "engine": net.engine,
        **{kind: outcome.times for kind, outcome in outcomes.items()},
        "missing": {kind: outcome.missing for kind, outcome in outcomes.items()},
        "errors": outcomes["forward"].errors | errors,
    }


def _cut_off(reason: str) -> NoReturn:
    raise CutOff(reason)


def _wrong(reason: str) -> NoReturn:
    raise ValueError(reason)
