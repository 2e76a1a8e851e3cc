"""A quick race on one graph: ours, the paper's methods, and an MLP with as many weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fourward.errors import OptionError
from fourward.graph._dag import Dag
from fourward.nn._fourward import FourWard
from fourward.paper import DeepStruct, Masked4Ward, SequentialBaseline
from fourward.study._store import CUT_OFF, FAILED
from fourward.study._timing import CutOff, clock_for, one_line, take_turns, training_step, within

#: What can race, in the order of the report.
RACERS: Mapping[str, Callable[[Dag, str], nn.Module]] = {
    "fourward": lambda dag, device: FourWard(dag, seed=0, device=device),
    "4ward": lambda dag, device: Masked4Ward(dag, seed=0, device=device),
    "sequential": lambda dag, device: SequentialBaseline(dag, seed=0, device=device),
    "deepstruct": lambda dag, device: DeepStruct(dag, seed=0, device=device),
    "mlp": lambda dag, device: mlp(dag.num_edges, device),
}


class Place(NamedTuple):
    """What was seen of a racer: median seconds a batch, or why there are none."""

    name: str
    forward: float | None
    step: float | None
    note: str


def mlp(num_weights: int, device: str = "cpu") -> nn.Sequential:
    """An MLP of four equal layers with about as many weights, drawn from a seed of its own."""
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


def race(
    dag: Dag,
    batch: int = 64,
    *,
    names: Sequence[str] = ("fourward", "4ward", "mlp"),
    device: str = "cpu",
    batches: int = 50,
    limit: float = 10.0,
) -> list[Place]:
    """Time forward passes and training steps (forward, backward, Adam); racers take turns, medians are told.

    Args:
        dag: The graph.
        batch: Samples of a batch.
        names: Who races; see `RACERS`.
        device: "cpu" or "cuda".
        batches: How many are counted.
        limit: Seconds for each racer, at building and at each of the two, after which it is cut off.
    """
    unknown = [name for name in names if name not in RACERS]
    if unknown:
        raise OptionError(f"there is no method {unknown[0]!r}. Known are {', '.join(RACERS)}.")
    if device == "cuda" and not torch.cuda.is_available():
        raise OptionError("device 'cuda' came, but torch sees no CUDA device here. Try --device cpu.")
    notes: dict[str, str] = {}
    built = dict(_build(dag, names, device, limit, notes))
    found: dict[str, dict[bool, float | None]] = {name: {} for name in names}
    for train in (False, True):
        calls = {name: _call(model, dag, batch, device, train) for name, model in built.items()}
        compiled = frozenset({"fourward"} & calls.keys())
        for name, timed in take_turns(
            calls, clock_for(device), batches=batches, limit=limit, compiled=compiled, grad=train
        ):
            found[name][train] = timed.values["median"]
            if timed.status in (CUT_OFF, FAILED):
                notes[name] = timed.note
    return [Place(name, found[name].get(False), found[name].get(True), notes.get(name, "")) for name in names]


def _build(
    dag: Dag, names: Sequence[str], device: str, limit: float, notes: dict[str, str]
) -> Iterator[tuple[str, nn.Module]]:
    for name in names:
        try:
            with within(math.inf if name == "fourward" else limit):
                model = RACERS[name](dag, device)
            yield name, model
        except CutOff:
            notes[name] = f"cut off after {limit:.3g} s, while it was built"
        except (MemoryError, RuntimeError) as error:  # torch's word for too little memory
            notes[name] = f"building failed: {one_line(error)}"


def _call(model: nn.Module, dag: Dag, batch: int, device: str, train: bool) -> Callable[[], Any]:
    width = model[0].in_features if isinstance(model, nn.Sequential) else dag.num_inputs
    x: Tensor = torch.ones(batch, int(width), device=device)  # type: ignore[arg-type]
    return training_step(model, x) if train else partial(model, x)
