"""The formulas of cost against the sizes of real tensors and torch's own count of operations."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from fourward import FourWard, generate
from fourward.exchange import from_mlp
from fourward.plan._cost import cost

BATCH = 48
GRAPHS = {
    "dense": generate.erdos_renyi(60, 0.3, seed=0),
    "sparse": generate.erdos_renyi(200, 0.02, seed=0),
    "mlp": generate.layered_mlp([6, 9, 4]),
    "one node": generate.chain(1),
}


def kept(net, x):
    """Bytes that autograd keeps of a pass, beside parameters, buffers and x."""
    known = {t.untyped_storage().data_ptr() for t in (*net.parameters(), *net.buffers(), x)}
    seen = {}

    def note(t):
        seen[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
        out = net(x)
    assert out.requires_grad
    return sum(size for pointer, size in seen.items() if pointer not in known)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", GRAPHS)
def test_bytes(name, bias, dtype):
    net = FourWard(GRAPHS[name], "tanh", bias=bias, seed=0, dtype=dtype)
    found = cost(net.plan, BATCH, bias=bias, itemsize=dtype.itemsize)
    assert found.parameters == sum(p.numel() for p in net.parameters())
    assert found.parameter_bytes == sum(p.nbytes for p in net.parameters())
    x = torch.zeros(BATCH, net.dag.num_inputs, dtype=dtype)
    assert found.activation_bytes == net.activations(x).nbytes
    plan, dag = net.plan, net.dag
    arrays = [plan.order, plan.position, plan.level_start, plan.code, plan.source, plan.edge_start, plan.neuron]
    arrays += [plan.outputs, dag.edges, dag.inputs, dag.outputs, dag.order, dag.in_start, dag.longest_path_to_sink]
    assert found.plan_bytes == sum(array.nbytes for array in arrays)


@pytest.mark.parametrize("activation", ["tanh", "relu", "silu", "sin"])
@pytest.mark.parametrize("name", ["dense", "sparse", "mlp"])
def test_what_a_training_step_keeps(name, activation):
    dag = GRAPHS[name]
    x = torch.ones(BATCH, dag.num_inputs)
    ours = FourWard(dag, activation, seed=0, engine="cpu")
    found = cost(ours.plan, BATCH)
    assert found.kept_bytes <= kept(ours, x) < found.kept_bytes + 64  # the seconds that a pass took, and the like
    plain = kept(FourWard(dag, activation, seed=0, engine="torch"), x)
    assert 0.7 * found.torch_kept_bytes < plain <= found.torch_kept_bytes


def test_operations_are_those_torch_counts_in_an_mlp():
    mlp = torch.nn.Sequential(torch.nn.Linear(6, 9), torch.nn.Tanh(), torch.nn.Linear(9, 4))
    x = torch.ones(BATCH, 6)
    with FlopCounterMode(display=False) as forward:
        out = mlp(x)
    with FlopCounterMode(display=False) as backward:
        out.sum().backward()
    net = from_mlp(mlp)
    found, bare = cost(net.plan, BATCH), cost(net.plan, BATCH, bias=False)
    assert bare.forward_operations == forward.get_total_flops()
    assert bare.backward_operations == backward.get_total_flops()
    assert found.forward_operations - bare.forward_operations == 13 * BATCH
