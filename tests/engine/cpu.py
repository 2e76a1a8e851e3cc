"""What tests of the CPU engine share."""

import numpy as np
import torch

from fourward import FourWard
from fourward.engine._cpu import launch
from fourward.engine._kernel_engine import KernelRunner
from fourward.graph._algorithms import random_ranks
from tests.tolerance import assert_near


def x_for(dag, batch, dtype=torch.float32, seed=0):
    return torch.tensor(np.random.default_rng(seed).standard_normal((batch, dag.num_inputs))).to(dtype)


def take_in_order(net, position):
    """Let the CPU engine take the nodes of a network in a given order, and reuse rows."""
    net.runner = KernelRunner(net.plan, *launch.pack(net.plan, position), net.choice.engine.ops)


def random_order(plan, seed):
    """Positions of a plan in an order drawn among all topological ones."""
    draw = np.random.default_rng(seed).random(plan.dag.num_nodes)
    rank = random_ranks(plan.source.astype(np.int64), plan.target.astype(np.int64), plan.dag.num_nodes, draw)
    return np.argsort(rank)


def assert_matches_torch(dag, batch, dtype=torch.float32, order=None, all_nodes=False, **options):
    """Compare outputs and gradients of the CPU engine with the torch engine in float64."""
    ours = FourWard(dag, engine="cpu", seed=0, dtype=dtype, **options)
    theirs = FourWard(dag, engine="torch", seed=0, dtype=torch.float64, **options)
    theirs.load_edge_weights(ours.weight, ours.bias)
    if order is not None:
        take_in_order(ours, order(ours.plan))
    x = x_for(dag, batch, dtype).requires_grad_()
    x64 = x.detach().double().requires_grad_()
    call = "activations" if all_nodes else "forward"
    out, want = getattr(ours, call)(x), getattr(theirs, call)(x64)
    assert_near(out, want)
    if not options.get("dropout"):
        with torch.no_grad():
            assert_near(getattr(ours, call)(x), want)
    weights = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).reshape(out.shape)
    (out * weights.to(dtype)).sum().backward()
    (want * weights).sum().backward()
    for got, expected in ((x, x64), (ours.weight, theirs.weight), (ours.bias, theirs.bias)):
        if expected.grad is None:  # no output depends on it
            assert got.grad is None or not got.grad.any()
        else:
            assert_near(got.grad, expected.grad)
