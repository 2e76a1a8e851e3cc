"""A campaign of mutated files through every reader: `make fuzz`, or `python tools/fuzz.py --seconds 60 --seed 0`.

A reader returns, or raises a FourwardError; anything else is a defect, and so are a crash of the process and a warning.
Each case is made from the seed, the name of its target and its number alone, so `--only NAME --case K` repeats it.
"""

from __future__ import annotations

import argparse
import faulthandler
import io
import json
import math
import random
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

import fourward as fw
from fourward import _serialization, exchange, files
from fourward.errors import FourwardError
from fourward.graph._io import read_npz
from fourward.train import Callback, RunConfig, TrainConfig, load_checkpoint, read_data, resume_run, start_run

#: Values that replace parts of JSON.
VALUES: list[Any] = [
    None, True, "", "a", "\ud800", "\n'\"\"\"#", "x" * 300, -1, 0, 1, 2**31, 2**63, -(2**63) - 1, 10**400, 0.5, 1e308,
    -0.0, math.nan, math.inf, [], {}, [[]], ["a"], {"a": 1}, "relu", "digits",
]  # fmt: skip
SNIPPETS = [
    b"-1",
    b"9" * 20,
    b"nan",
    b'"',
    b"\0",
    b"\r",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"1e999",
    b"\n",
    b",",
    b"[",
    b"<",
]
DTYPES = ["int8", "int32", "uint64", "float16", "float64", "complex64", "bool", "U3", "S2", "M8[s]"]
TORCH_DTYPES = [torch.int8, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool]
EXTREMES = [-1, 0, 1, 7, 2**31 - 1, -(2**31), 2**63 - 1, math.nan, math.inf, -math.inf]

Mutation = Callable[[random.Random, Path], None]


@dataclass
class Target:
    """A valid file, the mutations for it, and what reads it."""

    path: Path
    mutations: Sequence[Mutation]
    read: Callable[[Path], object]


@dataclass
class Report:
    """What a campaign tried: cases, files that were read, and defects, by target."""

    cases: dict[str, int] = field(default_factory=dict)
    read: dict[str, int] = field(default_factory=dict)
    defects: list[str] = field(default_factory=list)
    slowest: tuple[float, str] = (0.0, "")


def mutate_bytes(rng: random.Random, path: Path) -> None:
    """Replace, remove, repeat or cut off some bytes."""
    data = bytearray(path.read_bytes())
    for _ in range(rng.randint(1, 4)):
        start = rng.randrange(len(data) + 1)
        stop = min(start + rng.choice([0, 1, 1, 2, 8, 64]), len(data))
        choice = rng.random()
        if choice < 0.5:
            data[start:stop] = rng.choice([rng.randbytes(rng.randint(0, 4)), rng.choice(SNIPPETS)])
        elif choice < 0.7:
            data[start:start] = data[start:stop] * rng.randint(1, 50)
        elif choice < 0.9 and stop > start:
            data[start] ^= 1 << rng.randrange(8)
        else:
            del data[rng.randrange(len(data) + 1) :]
    path.write_bytes(bytes(data))


def mutate_value(rng: random.Random, value: Any) -> Any:
    """JSON with one part of it replaced, removed or repeated."""
    if not isinstance(value, dict | list) or not value or rng.random() < 0.1:
        return rng.choice(VALUES)
    key = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
    if rng.random() < 0.15:
        del value[key]
    elif isinstance(value, list) and rng.random() < 0.15:
        value.append(value[key])
    else:
        value[key] = mutate_value(rng, value[key])
    return value


def mutate_json(rng: random.Random, path: Path) -> None:
    """Mutate the value of a JSON file."""
    path.write_text(json.dumps(mutate_value(rng, json.loads(path.read_text()))))


def mutate_npz(rng: random.Random, path: Path) -> None:
    """Change dtype, shape or values of an array, or remove it."""
    arrays = read_npz(path)
    name = rng.choice(list(arrays))
    array, choice = arrays[name], rng.random()
    if choice < 0.25:
        arrays[name] = array.astype(rng.choice(DTYPES))
    elif choice < 0.4:
        arrays[name] = array.reshape(rng.choice([(-1,), (1, -1), (-1, 1, 1)]))
    elif choice < 0.5:
        arrays[name] = np.repeat(array, rng.choice([0, 2, 3]), axis=0) if array.ndim else np.array([array] * 2)
    elif choice < 0.55:
        del arrays[name]
    elif array.dtype.kind == "U":
        arrays[name] = np.where(
            np.arange(array.size).reshape(array.shape) == 0, rng.choice(["", "\ud800", "zz"]), array
        )
    elif array.size:
        arrays[name] = array = array.copy()
        value = rng.choice(EXTREMES)
        fits = array.dtype.kind == "f" or (math.isfinite(value) and array.dtype.kind in "iu")
        array.flat[rng.randrange(array.size)] = np.array(value if fits else 1).astype(array.dtype)
    np.savez(path, **arrays)


def mutate_safetensors(rng: random.Random, path: Path) -> None:
    """Change dtype, shape or values of a tensor, remove it, or mutate the metadata."""
    tensors, metadata = _serialization.read_safetensors(path)
    name, choice = rng.choice(list(tensors)), rng.random()
    tensor = tensors[name]
    if choice < 0.5:
        metadata = mutate_value(rng, metadata)
    elif choice < 0.65:
        tensors[name] = tensor.to(rng.choice(TORCH_DTYPES))
    elif choice < 0.75:
        tensors[name] = tensor.reshape(rng.choice([(-1,), (1, -1), (-1, 1)]))
    elif choice < 0.8:
        del tensors[name]
    elif tensor.numel():
        value = rng.choice(EXTREMES)
        fits = tensor.is_floating_point() or (math.isfinite(value) and abs(value) < 128)
        tensors[name].view(-1)[rng.randrange(tensor.numel())] = value if fits else 1
    text = json.dumps(metadata)  # NaN as NaN, which Python reads
    from safetensors.torch import save_file

    save_file({key: value.contiguous() for key, value in tensors.items()}, path, {"fourward": text})


def use_graph(path: Path) -> None:
    """Read a graph, and write it in every format that takes it."""
    try:
        annotated = files.read_dag(path, max_bytes=2**30)
    except FourwardError:
        annotated = files.read_dag(path, max_bytes=2**30, remove_feedback=True, merge=True, topology_only=True)
    for suffix in ("json", "graphml", "csv", "mtx", "npz"):
        try:
            files.write(annotated.dag, path.parent / f"written.{suffix}", weight=annotated.weight)
        except FourwardError:
            continue


def use_network(net: fw.FourWard | fw.Recurrent | fw.Population) -> None:
    """Run a network, and export it as source."""
    if isinstance(net, fw.Population):
        net(torch.zeros(2, net.plan.num_inputs, dtype=net.weight.dtype))
        use_network(net[0])
        return
    if isinstance(net, fw.Recurrent):
        net.steps(torch.zeros(2, net.graph.num_inputs, dtype=net.weight.dtype), 3)
        return
    net(torch.zeros(2, net.dag.num_inputs, dtype=net.weight.dtype))
    compile(exchange.to_python(net), "network.py", "exec")
    exchange.to_latex(net).encode()


def use_checkpoint(path: Path) -> None:
    """Read a checkpoint, and predict."""
    model = load_checkpoint(path).model
    model.predict(np.zeros((2, len(model.features))))
    use_network(model.fold())


class StopAtOnce(Callback):
    """Ends a run after its first steps, however many its checkpoint asks for."""

    def on_steps_end(self, trainer: Any) -> None:
        """Request the stop."""
        trainer.stop_requested = True

    on_epoch_end = on_steps_end


def resume(path: Path) -> None:
    """Resume a run whose last checkpoint is this file."""
    out = path.parent / "run"
    out.mkdir(exist_ok=True)
    path.replace(out / "last.safetensors")
    shutil.copy(path.parent / "valid" / "run" / "best.safetensors", out)
    resume_run(out, callbacks=[StopAtOnce()])


def make_targets(folder: Path) -> dict[str, Target]:
    """Valid files of every kind, in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    labels = ["a", "b c", "ü", "d", "default"]
    dag = fw.Dag.from_arrays([[0, 2], [1, 2], [2, 3], [0, 3], [2, 4]], labels=labels, outputs=[3, 4, 2])
    net = fw.FourWard(dag, {"default": "relu", "d": "tanh"}, seed=0)
    targets: dict[str, Target] = {}
    structured: dict[str, list[Mutation]] = {"json": [mutate_json], "npz": [mutate_npz]}
    for suffix in ("csv", "tsv", "edges", "mtx", "json", "graphml", "gexf", "npz", "csv.gz", "json.gz"):
        path = folder / f"graph.{suffix}"
        extra: dict[str, Any] = {}
        if suffix.partition(".")[0] in ("json", "graphml", "gexf", "npz"):
            extra = {"bias": net.bias, "activation": net.neuron_activations()}
        files.write(dag, path, weight=net.weight, **extra)
        targets[path.name] = Target(path, [mutate_bytes, *structured.get(suffix, [])], use_graph)
    for form in ("csr", "csc", "coo", "bsr", "dia"):
        path = folder / f"matrix-{form}.npz"
        sp.save_npz(path, dag.to_scipy(np.arange(1.0, 6)).asformat(form))
        targets[path.name] = Target(path, [mutate_npz, mutate_npz, mutate_bytes], use_graph)
    _add_networks(folder, net, targets)
    _add_tables(folder, targets)
    return targets


def _add_networks(folder: Path, net: fw.FourWard, targets: dict[str, Target]) -> None:
    fw.save(net, folder / "network.safetensors")
    mutations = [mutate_safetensors, mutate_safetensors, mutate_bytes]
    targets["network.safetensors"] = Target(
        folder / "network.safetensors", mutations, lambda path: use_network(fw.load(path))
    )
    digraph = fw.Digraph.from_edges([("x", "a"), ("a", "b"), ("b", "a"), ("b", "b"), ("b", "y")])
    fw.save(fw.Recurrent(digraph, seed=0, tau=2.0), folder / "recurrent.safetensors")
    targets["recurrent.safetensors"] = Target(
        folder / "recurrent.safetensors", mutations, lambda path: use_network(fw.load(path))
    )
    fw.save(fw.Population([net, net.dag], "relu", seed=0), folder / "population.safetensors")
    targets["population.safetensors"] = Target(
        folder / "population.safetensors", mutations, lambda path: use_network(fw.load(path))
    )
    x = np.random.default_rng(0).normal(size=(60, 2))
    table = folder / "train.csv"
    table.write_text("a,b,y\n" + "".join(f"{a},{b},{'up' if a > b else 'down'}\n" for a, b in x.tolist()))
    start_run(net, RunConfig(str(table), "y", train=TrainConfig(epochs=2, batch_size=20)), folder / "run")
    targets["best.safetensors"] = Target(folder / "run" / "best.safetensors", mutations, use_checkpoint)
    targets["last.safetensors"] = Target(folder / "run" / "last.safetensors", mutations[:2], resume)
    nodes = [{"idx": k, "bias": 0.5, "agg": "sum", "act": "tanh", "res": 1.0} for k in range(4)]
    conns = [{"in": 0, "out": 2, "weight": 0.5}, {"in": 1, "out": 3, "weight": 2.0}, {"in": 3, "out": 2, "weight": 1.0}]
    tensorneat = folder / "tensorneat.json"
    tensorneat.write_text(json.dumps({"nodes": nodes, "conns": conns}))
    targets[tensorneat.name] = Target(
        tensorneat, [mutate_json, mutate_bytes], lambda path: use_network(exchange.read_tensorneat(path, 2, 1))
    )
    node = {"type": "output", "activation": {"name": "tanh"}, "aggregation": {"name": "sum"}, "bias": 1, "response": 1}
    neat = folder / "neat.json"
    neat.write_text(
        json.dumps(
            {
                "network_type": "feedforward",
                "topology": {"input_keys": [-1, -2], "output_keys": [0]},
                "nodes": [{"id": 0} | node, {"id": 5} | node | {"type": "hidden"}],
                "connections": [
                    {"from": u, "to": v, "weight": 0.5, "enabled": True} for u, v in ((-1, 0), (-2, 5), (5, 0))
                ],
            }
        )
    )
    targets[neat.name] = Target(neat, [mutate_json, mutate_bytes], lambda path: use_network(exchange.read_neat(path)))


def _add_tables(folder: Path, targets: dict[str, Target]) -> None:
    table, arrays = folder / "table.csv", folder / "table.npz"
    table.write_text("a,b,y\n" + "".join(f"{k},{k * 0.5},{'pq'[k % 2]}\n" for k in range(8)))
    targets[table.name] = Target(table, [mutate_bytes], lambda path: read_data(path, "y"))
    np.savez(arrays, x=np.eye(6), y=np.array(list("pqpqpq")))
    targets[arrays.name] = Target(arrays, [mutate_npz, mutate_bytes], lambda path: read_data(path))


def run_case(seed: int, name: str, case: int, target: Target, folder: Path, report: Report) -> None:
    """Mutate a copy of the target's file, and read it."""
    rng = random.Random(f"{seed}:{name}:{case}")
    path = folder / target.path.name
    path.write_bytes(target.path.read_bytes())
    for _ in range(rng.choice([1, 1, 2])):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a cast of NaN to an integer
                rng.choice(target.mutations)(rng, path)
        except Exception:  # a mutation of what a mutation broke
            mutate_bytes(rng, path)
    (folder / "current").write_text(f"--only {name} --case {case} --seed {seed}")
    report.cases[name] = report.cases.get(name, 0) + 1
    start = time.perf_counter()
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("error")
            target.read(path)
        report.read[name] = report.read.get(name, 0) + 1
    except FourwardError as error:
        str(error)
    except Exception:
        report.defects.append(f"--only {name} --case {case} --seed {seed}\n{traceback.format_exc()}")
    report.slowest = max(report.slowest, (time.perf_counter() - start, f"{name} {case}"))


def run_campaign(
    seed: int, seconds: float, *, only: str | None = None, first: int = 0, cases: int | None = None, folder: Path
) -> Report:
    """Run cases of all targets, or of one, in turn until the time is up or each has had so many."""
    targets = make_targets(folder / "valid")
    report = Report()
    end = time.perf_counter() + seconds
    case = first
    while time.perf_counter() < end and (cases is None or case < first + cases):
        for name, target in targets.items():
            if only in (None, name) and time.perf_counter() < end:
                run_case(seed, name, case, target, folder, report)
        case += 1
    return report


def print_report(report: Report) -> None:
    """A line for each target, and the defects."""
    for name, count in report.cases.items():
        print(f"{name:<22}{count:>7,} mutated, {report.read.get(name, 0):>7,} read, the others refused")
    print(f"slowest: {report.slowest[0]:.2f} s, {report.slowest[1]}")
    for defect in report.defects:
        print(f"\nDEFECT {defect}")
    print(f"{sum(report.cases.values()):,} mutated files, {len(report.defects)} defects")


def main() -> int:
    """Run the campaign in a child process, so that a crash of it is reported, too."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="time to spend, after the start")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="name of the only target")
    parser.add_argument("--case", type=int, help="number of the only case")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.folder is not None:
        faulthandler.enable()
        first, cases = (0, None) if options.case is None else (options.case, 1)
        report = run_campaign(
            options.seed, options.seconds, only=options.only, first=first, cases=cases, folder=options.folder
        )
        print_report(report)
        return int(bool(report.defects))
    with tempfile.TemporaryDirectory() as folder:
        print(f"seed {options.seed}, {options.seconds:g} s", flush=True)
        code = subprocess.run([sys.executable, __file__, *sys.argv[1:], "--folder", folder], check=False).returncode
        if code not in (0, 1):
            print(f"\nDEFECT the process died (exit code {code}): {(Path(folder) / 'current').read_text()}")
    return int(code != 0)


if __name__ == "__main__":
    sys.exit(main())
