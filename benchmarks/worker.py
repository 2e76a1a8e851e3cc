"""What the benchmark of real graphs also runs in another checkout: networks, calls to time, graphs to build.

As a script it answers requests, a line of JSON each, from stdin on stdout. `benchmarks.checkout` starts it so that
`import fourward` is the other checkout's. So it imports nothing else of ours, and uses only names that both have.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fourward import Dag, FourWard

Call = Callable[[], object]
FIRST_ID = 720575940600000000  #: where the ids of a connectome start
SMALL = 100  #: networks of a turn, of 50 nodes and 100 edges


def training_step(model: nn.Module, x: Tensor) -> Call:
    """Forward, backward and Adam, with a learning rate too small to change anything."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-12)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def make_call(model: nn.Module, kind: str, x: Tensor) -> Call:
    """A "forward" pass, for which the caller turns off gradients, or a training step."""
    return (lambda: model(x)) if kind == "forward" else training_step(model, x)


def draw_inputs(batch: int, features: int) -> Tensor:
    """The batch that all versions compute."""
    return torch.randn(batch, features, generator=torch.Generator().manual_seed(0))


def building_calls(edges: np.ndarray[Any, Any], nodes: int) -> dict[str, Call]:
    """Graphs to build from these edges, with labels 0 to N-1 and with ids; and `SMALL` networks."""
    rng = np.random.default_rng(0)
    ids = FIRST_ID + rng.permutation(100 * nodes)[:nodes]
    labelled = ids[edges]
    pairs = np.stack(np.triu_indices(50, 1), -1)
    small = [rng.permutation(pairs)[:100] for _ in range(SMALL)]
    small_lists = [[tuple(pair) for pair in array.tolist()] for array in small]

    def build_networks(listed: list[Any]) -> None:
        for seed, some in enumerate(listed):
            FourWard(Dag.from_edges(some), activation="tanh", seed=seed)

    return {
        "nodes=n": lambda: Dag.from_edges(edges, nodes=nodes),
        "nodes=range(n)": lambda: Dag.from_edges(edges, nodes=range(nodes)),
        "ids": lambda: Dag.from_edges(labelled),
        "ids, nodes=array": lambda: Dag.from_edges(labelled, nodes=ids),
        "networks from arrays": lambda: build_networks(small),
        "networks from lists": lambda: build_networks(small_lists),
    }


class Worker:
    """Answers requests: a method each."""

    def __init__(self) -> None:
        self.calls: dict[str, Call] = {}

    def start(self, threads: int) -> str:
        """Set the number of threads; where fourward was imported from."""
        import fourward

        torch.set_num_threads(threads)
        return str(fourward.__file__)

    def load(self, path: str, nodes: int, activation: str) -> None:
        """Build a network from edges in a file."""
        self.calls.clear()
        self.net = FourWard(Dag.from_edges(np.load(path), nodes=nodes), activation=activation, seed=0)

    def prepare(self, kind: str, batch: int) -> float:
        """Make the call that is timed as `kind`; the mean absolute output."""
        x = draw_inputs(batch, self.net.dag.num_inputs)
        torch.set_grad_enabled(kind != "forward")
        self.calls[kind] = make_call(self.net, kind, x)
        with torch.no_grad():
            return float(self.net(x).double().abs().mean())

    def prepare_building(self, path: str, nodes: int) -> None:
        """Make the calls of `building_calls`."""
        torch.set_grad_enabled(True)
        self.calls = building_calls(np.load(path), nodes)

    def time(self, name: str, calls: int, warmup: int) -> float:
        """Seconds of consecutive calls."""
        call = self.calls[name]
        for _ in range(warmup):
            call()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        return time.perf_counter() - start

    def collect(self) -> None:
        """Collect garbage, which is off while calls are timed."""
        gc.collect()


def main() -> None:
    """Answer until stdin ends."""
    replies, sys.stdout = sys.stdout, sys.stderr
    gc.disable()
    worker = Worker()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            reply = {"value": getattr(worker, request.pop("do"))(**request)}
        except Exception as error:  # the parent raises it
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    main()
