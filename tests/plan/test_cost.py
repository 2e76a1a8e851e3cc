"""The formulas of cost against the sizes of real tensors and torch's FLOP counter."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from fourward import Digraph, FourWard, Recurrent, generate
from fourward.errors import OptionError
from fourward.exchange import from_mlp
from fourward.plan import cost

BATCH = 48
GRAPHS = {
    "dense": generate.erdos_renyi(60, 0.3, seed=0),
    "sparse": generate.erdos_renyi(200, 0.02, seed=0),
    "mlp": generate.layered_mlp([6, 9, 4]),
    "one node": generate.chain(1),
}


def count_saved_bytes(net, x):
    """Bytes that autograd saves in a forward pass, apart from parameters, buffers and x."""
    known = {t.untyped_storage().data_ptr() for t in (*net.parameters(), *net.buffers(), x)}
    seen = {}

    def record(t):
        seen[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(record, lambda t: t):
        out = net(x)
    assert (out[0] if isinstance(out, tuple) else out).requires_grad
    return sum(size for pointer, size in seen.items() if pointer not in known)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", GRAPHS)
def test_bytes(name, bias, dtype):
    net = FourWard(GRAPHS[name], "tanh", bias=bias, seed=0, dtype=dtype)
    costs = cost(net.plan, BATCH, bias=bias, itemsize=dtype.itemsize)
    assert costs.parameters == sum(p.numel() for p in net.parameters())
    assert costs.parameter_bytes == sum(p.nbytes for p in net.parameters())
    x = torch.zeros(BATCH, net.dag.num_inputs, dtype=dtype)
    assert costs.activation_bytes == net.activations(x).nbytes
    plan, dag = net.plan, net.dag
    arrays = [plan.order, plan.position, plan.level_start, plan.code, plan.source, plan.edge_start, plan.neuron]
    arrays += [plan.outputs, dag.edges, dag.inputs, dag.outputs, dag.order, dag.in_start, dag.longest_path_to_sink]
    assert costs.plan_bytes == sum(array.nbytes for array in arrays)


@pytest.mark.parametrize("activation", ["tanh", "relu", "silu", "sin"])
@pytest.mark.parametrize("name", ["dense", "sparse", "mlp"])
def test_saved_bytes(name, activation):
    dag = GRAPHS[name]
    x = torch.ones(BATCH, dag.num_inputs)
    ours = FourWard(dag, activation, seed=0, engine="cpu")
    costs = cost(ours.plan, BATCH)
    assert costs.saved_bytes <= count_saved_bytes(ours, x) < costs.saved_bytes + 64  # the number of threads
    torch_bytes = count_saved_bytes(FourWard(dag, activation, seed=0, engine="torch"), x)
    assert 0.7 * costs.torch_saved_bytes < torch_bytes <= costs.torch_saved_bytes


def test_flops_are_those_that_torch_counts_in_an_mlp():
    mlp = torch.nn.Sequential(torch.nn.Linear(6, 9), torch.nn.Tanh(), torch.nn.Linear(9, 4))
    x = torch.ones(BATCH, 6)
    with FlopCounterMode(display=False) as forward:
        out = mlp(x)
    with FlopCounterMode(display=False) as backward:
        out.sum().backward()
    net = from_mlp(mlp)
    costs, without_bias = cost(net.plan, BATCH), cost(net.plan, BATCH, bias=False)
    assert without_bias.forward_flops == forward.get_total_flops()
    assert without_bias.backward_flops == backward.get_total_flops()
    assert costs.forward_flops - without_bias.forward_flops == 13 * BATCH


@pytest.mark.parametrize("options", [{}, {"tau": 2.0}, {"tau": 2.0, "dynamics": "voltage"}], ids=str)
def test_networks_with_feedback(options):
    pairs = torch.randint(0, 60, (900, 2), generator=torch.Generator().manual_seed(0)).unique(dim=0).tolist()
    g = Digraph.from_edges(pairs, nodes=60, inputs=range(5), outputs=range(50, 60), driven=False)
    net, x = Recurrent(g, "silu", engine="cpu", seed=0, **options), torch.ones(7, BATCH, 5)
    costs = cost(net.recurrent_plan, BATCH, steps=7)
    assert costs.parameters == sum(p.numel() for p in net.parameters())
    assert costs.activation_bytes == net.activations(x).nbytes
    assert costs.forward_flops == 7 * (2 * g.num_edges + len(g.neurons)) * BATCH
    saved = count_saved_bytes(net, x)
    assert costs.saved_bytes <= saved < costs.saved_bytes + 1024  # h0's zeros, rates and the number of threads
    torch_net = Recurrent(g, "silu", engine="torch", seed=0, **options)
    assert 0.4 * costs.torch_saved_bytes < count_saved_bytes(torch_net, x) < 2 * costs.torch_saved_bytes
    assert cost(net.recurrent_plan, BATCH).activation_bytes == costs.activation_bytes / 7


@pytest.mark.parametrize("steps", [0, -1, 2.5, True])
def test_numbers_of_steps(steps):
    net = Recurrent(Digraph.from_edges([("x", "a"), ("a", "a")], outputs=["a"]), seed=0)
    with pytest.raises(OptionError, match=f"steps must be an int of at least 1.*got {steps}"):
        cost(net.recurrent_plan, BATCH, steps=steps)


def test_steps_are_for_networks_with_feedback():
    with pytest.raises(OptionError, match=r"plan of a network with feedback for steps=3, got Plan"):
        cost(FourWard(GRAPHS["mlp"], seed=0).plan, BATCH, steps=3)
