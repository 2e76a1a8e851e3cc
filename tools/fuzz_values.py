"""A campaign of infinities and NaN through every engine: `make fuzz`, or `python tools/fuzz_values.py --engine cpu`.

They and huge numbers are put into x, weights, biases and the gradient of the result of random networks. The result and
all gradients must be inf, -inf and NaN where the reference's are, and nowhere else. Each case is made from the seed and
its number alone, so `--engine NAME --case K` repeats it.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before the gpu engine is imported

import fourward as fw
from fourward import layering
from fourward.plan.activations import ACTIVATIONS

ENGINES = ("torch", "cpu", "gpu")
INFINITE = (float("inf"), float("-inf"), float("nan"))
HUGE = (1e30, -1e30)
#: sin(1e30) differs with the last bit of its argument.
NAMES = [name for name in ACTIVATIONS if name != "sin"]
#: Torch's own gradients of these at NaN differ with the position in the tensor: other activations for the torch engine.
REPLACED = {"elu": "tanh", "selu": "leaky_relu", "hardtanh": "relu"}


@dataclass
class Case:
    """A network as the keywords of FourWard, and tensors for one pass of it."""

    options: dict[str, object]
    x: Tensor
    weight: Tensor
    bias: Tensor | None
    out_grad: Tensor
    all_nodes: bool

    def __str__(self) -> str:
        tensors = {"x": self.x, "weight": self.weight, "bias": self.bias, "out_grad": self.out_grad}
        shown = {name: "all finite" if t is None or t.isfinite().all() else t.tolist() for name, t in tensors.items()}
        return f"{self.options}, all_nodes={self.all_nodes}, {shown}"


def make_case(seed: int, number: int, engine: str) -> Case:
    """A random graph, of which some neurons reach no output, and tensors with a few values that aren't finite."""
    rng = random.Random(f"{seed}:{number}")
    dag = _make_dag(rng)
    names = [REPLACED.get(name, name) for name in NAMES] if engine == "torch" else NAMES
    activation: object = rng.choice([*names, "relu", "relu"])
    if rng.random() < 0.5:
        activation = {"default": "relu"} | {dag.labels[v]: rng.choice(names) for v in dag.neurons.tolist()}
    lay = layering.push_sources(dag, layering.longest_path(dag))
    if rng.random() < 0.25:
        lay = layering.reassign(dag, lay, seed=rng.randrange(100))
    has_bias, all_nodes = rng.random() < 0.8, rng.random() < 0.15
    dropout = 0.3 if rng.random() < 0.15 else 0.0
    batch = rng.choice([1, 2, 3, 7, 8, 9, 20])
    draw = np.random.default_rng(rng.randrange(2**32))
    shapes = [(batch, dag.num_inputs), (dag.num_edges,), (len(dag.neurons),)]
    shapes.append((batch, dag.num_nodes if all_nodes else dag.num_outputs))
    tensors = [_poison(rng, torch.from_numpy(draw.standard_normal(shape))) for shape in shapes]
    options = {"dag": dag, "activation": activation, "layering": lay, "dropout": dropout, "bias": has_bias, "seed": 0}
    return Case(options, tensors[0], tensors[1], tensors[2] if has_bias else None, tensors[3], all_nodes)


def _make_dag(rng: random.Random) -> fw.Dag:
    num_nodes = rng.choice([2, 3, 5, 8, 12, 20, 40, 70])
    pairs = [(u, v) for v in range(num_nodes) for u in range(v)]
    edges = rng.sample(pairs, min(len(pairs), rng.randrange(1, 3 * num_nodes)))
    outputs = rng.sample(range(num_nodes), rng.randrange(1, max(2, num_nodes // 3))) if rng.random() < 0.7 else None
    return fw.Dag.from_edges(edges, nodes=num_nodes, outputs=outputs)


def _poison(rng: random.Random, tensor: Tensor) -> Tensor:
    """Replace up to two values, in two of three tensors; often those of the last sample."""
    if tensor.numel() and rng.random() < 0.67:
        for _ in range(rng.choice([1, 1, 2])):
            index = rng.randrange(tensor.numel())
            if tensor.ndim == 2 and rng.random() < 0.3:
                index = tensor.numel() - 1 - index % tensor.shape[1]
            tensor.view(-1)[index] = rng.choice([*INFINITE, *HUGE, 0.0])
    return tensor


def run_case(case: Case, engine: str, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """The result of an engine, and the gradients of x, weights and biases."""
    device = "cuda" if engine == "gpu" and torch.cuda.is_available() else "cpu"
    net = fw.FourWard(engine=engine, dtype=dtype, device=device, **case.options)  # type: ignore[arg-type]
    with torch.no_grad():
        net.weight.copy_(case.weight)
        if net.bias is not None and case.bias is not None:
            net.bias.copy_(case.bias)
    x = case.x.to(device, dtype).requires_grad_()
    out = (net.activations if case.all_nodes else net)(x)
    if out.requires_grad:
        out.backward(case.out_grad.to(out))
    grads = {"x": x, "weight": net.weight} | ({} if net.bias is None else {"bias": net.bias})
    zeros = {name: torch.zeros_like(t) if t.grad is None else t.grad for name, t in grads.items()}
    return {name: t.detach().cpu() for name, t in ({"result": out} | zeros).items()}


def pattern(tensor: Tensor) -> Tensor:
    """1 for inf, -1 for -inf, 2 for NaN, 0 for finite values."""
    return torch.where(tensor.isnan(), 2.0, torch.where(tensor.isinf(), tensor.sign(), 0.0))


def find_mismatch(case: Case, engine: str) -> str | None:
    """The first tensor whose pattern isn't the reference's, in words."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # NumPy's of overflows, in Triton's interpreter
        want, got = run_case(case, "reference"), run_case(case, engine)
    for name, tensor in want.items():
        if not torch.equal(pattern(tensor), pattern(got[name])):
            kind = "result" if name == "result" else f"gradient of {name}"
            return f"{kind}: expected {tensor.tolist()}, got {got[name].tolist()}"
    return None


def run_campaign(engines: Sequence[str], seed: int, seconds: float, first: int = 0, cases: int | None = None) -> int:
    """Run cases on each engine until its share of the time is up; print and count those with a mismatch."""
    mismatches = 0
    for engine in engines:
        end, number, before = time.perf_counter() + seconds / len(engines), first, mismatches
        while time.perf_counter() < end and (cases is None or number < first + cases):
            case = make_case(seed, number, engine)
            mismatch = find_mismatch(case, engine)
            if mismatch is not None:
                mismatches += 1
                print(f"\nDEFECT --engine {engine} --case {number} --seed {seed}\n{case}\n{mismatch}")
            number += 1
        print(
            f"{engine:<10}{number - first:>7,} networks with values that aren't finite, {mismatches - before:,} defects"
        )
    return mismatches


def main() -> int:
    """Run the campaign."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="time to spend, after the start")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine", choices=ENGINES, help="the only engine")
    parser.add_argument("--case", type=int, help="number of the only case")
    options = parser.parse_args()
    torch.set_num_threads(1)
    first, cases = (0, None) if options.case is None else (options.case, 1)
    engines = ENGINES if options.engine is None else (options.engine,)
    return int(run_campaign(engines, options.seed, options.seconds, first, cases) > 0)


if __name__ == "__main__":
    sys.exit(main())
