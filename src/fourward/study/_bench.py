"""A quick comparison of methods on one graph: ours, the paper's, and an MLP with as many weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fourward.errors import OptionError, summarize
from fourward.graph._dag import Dag
from fourward.study._grid import METHOD_CLASSES, check_device
from fourward.study._limits import CutOff, one_line, time_limit
from fourward.study._store import CUT_OFF, FAILED
from fourward.study._timing import clock_for, time_batches, training_step

#: What can be compared, in the order of the report.
METHODS = ("fourward", "4ward", "sequential", "deepstruct", "mlp")


class MethodTiming(NamedTuple):
    """Median seconds a batch of a method; None with a note that says why, where there is no time."""

    name: str
    forward: float | None
    step: float | None
    note: str


def make_mlp(num_weights: int, device: str = "cpu") -> nn.Sequential:
    """An MLP of four equal layers with about `num_weights` weights, initialised from a fixed seed."""
    width = max(1, round((num_weights / 4) ** 0.5))
    generator = torch.Generator().manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(4):
        layer = nn.utils.skip_init(nn.Linear, width, width)
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.uniform_(-(width**-0.5), width**-0.5, generator=generator)
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1]).to(device)


def compare_methods(
    dag: Dag,
    batch: int = 64,
    *,
    methods: Sequence[str] = ("fourward", "4ward", "mlp"),
    device: str = "cpu",
    batches: int = 50,
    limit: float = 10.0,
) -> list[MethodTiming]:
    """Time forward passes and training steps (forward, backward, Adam) of methods that alternate in this process.

    Args:
        dag: The graph.
        batch: Samples per batch.
        methods: Any of "fourward", "4ward", "sequential", "deepstruct" and "mlp".
        device: "cpu" or "cuda".
        batches: Number of batches that count.
        limit: Seconds for building a method, and for each of its two measurements, after which it is cut off.
    """
    unknown = [name for name in methods if name not in METHODS]
    if unknown:
        raise OptionError(f"unknown method {unknown[0]!r}. Choose from {summarize(METHODS, len(METHODS))}.")
    check_device(device)
    notes: dict[str, str] = {}
    models = dict(_build(dag, methods, device, limit, notes))
    medians: dict[str, dict[bool, float | None]] = {name: {} for name in methods}
    for train in (False, True):
        calls = {name: _batch_call(model, dag, batch, device, train) for name, model in models.items()}
        compiled = frozenset({"fourward"} & calls.keys())
        for name, timing in time_batches(
            calls, clock_for(device), batches=batches, limit=limit, compiled=compiled, grad=train
        ):
            medians[name][train] = timing.values["median"]
            if timing.status in (CUT_OFF, FAILED):
                notes[name] = timing.note
    return [
        MethodTiming(name, medians[name].get(False), medians[name].get(True), notes.get(name, "")) for name in methods
    ]


def _build(
    dag: Dag, methods: Sequence[str], device: str, limit: float, notes: dict[str, str]
) -> Iterator[tuple[str, nn.Module]]:
    for name in methods:
        try:
            with time_limit(math.inf if name == "fourward" else limit):
                model = _make(name, dag, device)
            yield name, model
        except CutOff:
            notes[name] = f"cut off after {limit:.3g} s, while it was built"
        except (MemoryError, RuntimeError) as error:  # torch raises RuntimeError where memory is short
            notes[name] = f"building failed: {one_line(error)}"


def _make(name: str, dag: Dag, device: str) -> nn.Module:
    return make_mlp(dag.num_edges, device) if name == "mlp" else METHOD_CLASSES[name](dag, seed=0, device=device)


def _batch_call(model: nn.Module, dag: Dag, batch: int, device: str, train: bool) -> Callable[[], Any]:
    width = model[0].in_features if isinstance(model, nn.Sequential) else dag.num_inputs
    x: Tensor = torch.ones(batch, int(width), device=device)  # type: ignore[arg-type]
    return training_step(model, x) if train else partial(model, x)
