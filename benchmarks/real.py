"""The benchmark of real graphs, a part of `make bench-cpu`: `python -m benchmarks.cpu --only real [--quick]`.

The protocol, fixed before anything was measured:

- For each graph, activation and batch size, all contestants take turns in rounds, and medians count. A turn is about
  2 ms of calls, or one call; short calls warm up. Forward passes run without gradients, training steps with Adam.
- Contestants: fourward; with `--before`, fourward of another checkout, in another process that has its turn in the same
  rounds; torch's CSR products level by level (forward only); an MLP with as many weights; copying N B float32 from one
  kept buffer to another. All have the same number of threads. Results of fourward, of the other checkout and of CSR
  levels are compared before they are timed.
- Left out by rule: cells of more than `MOST_ROWS` activations N B; CSR levels and the MLP where three turns take more
  than `LIMIT` seconds. The others take their three turns in any case.
- Building is measured in three rounds. Calls of the other checkout that take more than `SLOW` seconds have one.
- Latencies at batch 1 have one thread each and contestants that alternate in rounds of 0.2 ms (`benchmarks.latency`);
  graphs of more than `MOST_ONNX_EDGES` edges are left out.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import baselines, worker
from benchmarks.checkout import Checkout, RemoteCall, TurnClock
from benchmarks.contest import MIN_ROUNDS, Maker, Outcome, as_is, contest
from benchmarks.real_graphs import Case, cases
from benchmarks.real_report import write_real_report
from benchmarks.storage import describe_environment, write_results
from fourward import Dag, FourWard
from fourward.study._environment import versions
from fourward.study._timing import Call, Turn, alternate

ACTIVATIONS = ("relu", "tanh")
BATCHES = (1, 32, 256)
MOST_ROWS = 10**8
LIMIT = 1.0
ROUNDS = 11
SLOW = 3.0
MOST_ONNX_EDGES = 10**6
ALWAYS = ("fourward", "before", "copy")  #: contestants that are never cut off
#: The outputs of two checkouts may differ by rounding, relative to their mean.
TOLERANCE = 1e-3


def main(options: argparse.Namespace) -> None:
    """Measure everything, and write real.json and real.md; with `--quick` small graphs, and only with `--out`."""
    with Checkout(options.before, options.threads) if options.before else nullcontext() as other:
        data = run(options.graphs, other, options.quick)
    if options.out is not None:
        print(write_results("real", data, options.out))
        write_real_report(data, options.out)


def run(graphs: Path | None, other: Checkout | None, quick: bool) -> dict[str, Any]:
    """All results of the section."""
    environment = describe_environment() | {"before": None if other is None else other.commit}
    cells, latency = [], []
    with tempfile.TemporaryDirectory() as folder:
        for case in cases(graphs, quick):
            dag = Dag.from_edges(case.edges, nodes=case.nodes)
            cells += measure_graph(case, dag, other, Path(folder), quick)
            latency += measure_latency(case.name, dag, Path(folder), quick)
        building = measure_building(other, Path(folder), quick)
    environment["versions"] |= versions("onnx", "onnxruntime")
    return {"facts": environment, "real": cells, "latency": latency, "building": building}


def measure_graph(case: Case, dag: Dag, other: Checkout | None, folder: Path, quick: bool) -> list[dict[str, Any]]:
    """The cells of a graph."""
    cells = []
    np.save(folder / "edges.npy", case.edges)
    for activation in ACTIVATIONS:
        net = FourWard(dag, activation=activation, seed=0)
        if other is not None:
            other.request("load", path=str(folder / "edges.npy"), nodes=case.nodes, activation=activation)
        csr = baselines.sparse_levels(net, activation)
        for batch in (2,) if quick else BATCHES:
            if case.nodes * batch <= MOST_ROWS:
                outcomes = {
                    kind: _compete(net, csr, kind, batch, other, 0.05 if quick else LIMIT)
                    for kind in ("forward", "train")
                }
                label = {"graph": case.name, "activation": activation, "batch": batch, "nodes": dag.num_nodes}
                cells.append(_cell(label | {"edges": dag.num_edges, "height": net.layering.height}, outcomes))
        gc.collect()
    return cells


def _compete(
    net: FourWard, csr: Callable[[torch.Tensor], object], kind: str, batch: int, other: Checkout | None, limit: float
) -> Outcome:
    x = worker.draw_inputs(batch, net.dag.num_inputs)
    mlp, width = baselines.mlp(net.dag.num_edges)
    with torch.set_grad_enabled(kind == "train"):
        makers: dict[str, Maker] = {
            "fourward": lambda: worker.make_call(net, kind, x),
            "mlp": lambda: worker.make_call(mlp, kind, torch.ones(batch, width)),
            "copy": lambda: baselines.copying(net.dag.num_nodes * batch),
        }
        with torch.no_grad():
            result = net(x)
        if kind == "forward":
            makers["csr"] = as_is(partial(csr, x))
        if other is not None:
            makers["before"] = partial(_prepare, other, kind, batch, float(result.double().abs().mean()))
            other.request("collect")
        expected = {"fourward": result, "csr": result} if kind == "forward" else {}
        return contest(makers, TurnClock(), expected=expected, rounds=ROUNDS, limit=limit, always=ALWAYS)


def _prepare(other: Checkout, kind: str, batch: int, expected: float) -> Call:
    """The call of the other checkout, whose outputs must have the same mean."""
    got = other.request("prepare", kind=kind, batch=batch)
    if not abs(got - expected) <= TOLERANCE * abs(expected):
        raise ValueError(f"wrong result, mean {got:.4g} instead of {expected:.4g}")
    return RemoteCall(other, kind)


def _cell(label: dict[str, Any], outcomes: dict[str, Outcome]) -> dict[str, Any]:
    times = {kind: outcome.times for kind, outcome in outcomes.items()}
    missing = {kind: outcome.missing for kind, outcome in outcomes.items()}
    cell = {**label, **times, "missing": missing, "errors": outcomes["forward"].errors}
    shown = [
        f"{kind}: " + ", ".join(f"{name} {1e3 * seconds:.3f}" for name, seconds in times[kind].items())
        for kind in times
    ]
    print(", ".join(map(str, label.values())), "| ms", " | ".join(shown), flush=True)
    return cell


def measure_building(other: Checkout | None, folder: Path, quick: bool) -> dict[str, Any]:
    """Seconds to build large graphs with several labels, and a small network, here and in the other checkout."""
    from benchmarks.fresh import random_edges

    nodes, edges = (1000, 5000) if quick else (10**6, 10**7)
    pairs = random_edges(nodes, edges)
    np.save(folder / "edges.npy", pairs)
    clock, turns = TurnClock(), {}
    calls: dict[tuple[str, str], Call] = {
        ("fourward", name): call for name, call in worker.building_calls(pairs, nodes).items()
    }
    if other is not None:
        other.request("prepare_building", path=str(folder / "edges.npy"), nodes=nodes)
        calls |= {("before", name): RemoteCall(other, name) for _, name in list(calls)}
    for (who, name), call in calls.items():
        slow = clock.time(call) > SLOW  # the first call compiles, too
        turns[f"{who}: {name}"] = Turn(call, 1, 0, 1 if slow and who == "before" else MIN_ROUNDS)
    seconds = alternate(turns, clock)
    times: dict[str, dict[str, float]] = {name: {} for _, name in calls}
    for who, name in calls:
        each = worker.SMALL if name.startswith("networks") else 1
        times[name][who] = seconds[f"{who}: {name}"] / each
    print("building", times, flush=True)
    return {"nodes": nodes, "edges": edges, "seconds": times}


def measure_latency(name: str, dag: Dag, folder: Path, quick: bool) -> list[dict[str, Any]]:
    """Microseconds of a sample, of fourward and of onnxruntime on the exported model, with one thread each."""
    try:
        from benchmarks import latency
    except ImportError as error:
        print(f"no latencies: {error}")
        return []
    if dag.num_edges > MOST_ONNX_EDGES:
        return []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings of torch.onnx
            cell = latency.measure(dag, folder, seconds=0.0 if quick else 2.0, columns=("fourward", "onnx"))
    finally:
        torch.set_num_threads(threads)
    print(name, cell["microseconds"], flush=True)
    return [{"graph": name, **cell}]
