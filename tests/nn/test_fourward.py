"""FourWard works with everything that torch does to modules."""

import copy
import io
import pickle
import random
import shutil

import networkx as nx
import numpy as np
import pytest
import torch
import torch.utils.checkpoint
from torch.nn.utils import parametrizations, prune

from fourward import Dag, FourWard, connectomes, generate, paper, save
from fourward.errors import GraphError, InputError, OptionError, WeightError
from fourward.nn import summary
from tests.nn.helpers import DAG, batch, methods
from tests.tolerance import assert_near


def test_driven_inputs_are_neurons_that_dropout_spares():
    dag = Dag.from_edges([("a", "b"), ("b", "c"), ("c", "d")], inputs=["b", "a"])
    net = FourWard(dag, activation={"b": "identity", "default": "relu"}, dropout=0.9, seed=0, init=1.0)
    x = torch.ones(200, 2)
    a = net.activations(x)
    assert net.bias.shape == (3,)
    assert (a[:, dag.index("b")] == 2).all()
    assert (a[:, dag.index("c")] == 0).any()
    counts = summary(net)
    assert (counts["nodes"], counts["edges"], counts["inputs"]) == (4, 3, 2)
    with pytest.raises(GraphError, match=r"no incoming edges, got Dag\(.*driven=False"):
        paper.Masked4Ward(dag)


def test_state_dict_is_weight_and_bias():
    net = FourWard(DAG, dropout=0.5)
    state = net.state_dict()
    assert {name: tuple(value.shape) for name, value in state.items()} == {
        "weight": (DAG.num_edges,),
        "bias": (DAG.num_nodes - DAG.num_inputs,),
    }
    other = FourWard(DAG, seed=9)
    other.load_state_dict(state)
    assert torch.equal(other(batch()), net.eval()(batch()))
    assert FourWard(DAG, bias=False).bias is None
    assert list(FourWard(DAG, bias=False).state_dict()) == ["weight"]


@methods
def test_state_dict_has_only_parameters(cls):
    net = cls(DAG)
    count = sum(value.numel() for value in net.state_dict().values())
    assert count == sum(p.numel() for p in net.parameters())


@methods
def test_copy_and_pickle(cls):
    net = cls(DAG, activation={"default": "tanh", DAG.labels[DAG.neurons[0]]: torch.sin}, seed=0)
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert torch.equal(twin(batch()), net(batch()))
        with torch.no_grad():
            next(twin.parameters()).add_(1)
        assert not torch.equal(twin(batch()), net(batch()))
    stream = io.BytesIO()
    torch.save(net, stream)
    stream.seek(0)
    assert torch.equal(torch.load(stream, weights_only=False)(batch()), net(batch()))


@methods
def test_to_dtype(cls):
    net = cls(DAG, seed=0)
    expected = net(batch())
    net.to(torch.float64)
    out = net(batch(dtype=torch.float64))
    assert out.dtype == torch.float64
    assert_near(expected, out)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision(dtype):
    net = FourWard(DAG, seed=0).to(dtype)
    exact = copy.deepcopy(net).double()
    out = net(batch(dtype=dtype))
    assert out.dtype == dtype
    assert_near(out, exact(batch(dtype=dtype).double()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("outputs", [1, 2])
def test_low_precision_accumulates_in_float32(dtype, outputs):
    """4,096 terms of 1: a sum in bfloat16 stops growing at 256, one in float16 at 2,048."""
    dag = generate.layered_mlp([4096, outputs])
    net = FourWard(dag, activation="identity", init=1.0, dtype=dtype)
    assert net(torch.ones(1, 4096, dtype=dtype)).tolist() == [[4096] * outputs]


def test_autocast():
    net = FourWard(DAG, seed=0)
    with torch.autocast("cpu", torch.bfloat16):
        out = net(batch())
        mixed = net(batch(dtype=torch.bfloat16))
    assert out.dtype == mixed.dtype == torch.bfloat16
    assert_near(out, net(batch()))
    out.float().sum().backward()
    assert net.weight.grad.dtype == torch.float32


def test_gradgradcheck():
    dag = generate.erdos_renyi(10, 0.4, seed=0)
    net = FourWard(dag, activation="tanh", engine="torch", seed=3, dtype=torch.float64)
    x = batch(dag, 2, torch.float64).requires_grad_()

    def outputs(x, weight, bias):
        return torch.func.functional_call(net, {"weight": weight, "bias": bias}, (x,))

    assert torch.autograd.gradgradcheck(outputs, (x, net.weight, net.bias))


def test_functional_call_vmap_and_jacobian():
    nets = [FourWard(DAG, activation="tanh", seed=s) for s in range(3)]
    stacked = torch.func.stack_module_state(nets)

    def outputs(parameters, x):
        return torch.func.functional_call(nets[0], parameters, (x,))

    out = torch.func.vmap(outputs, (0, None))(stacked[0], batch())
    for i, net in enumerate(nets):
        assert_near(out[i], net(batch()))
    jacobian = torch.func.jacrev(outputs)(dict(nets[0].named_parameters()), batch(size=2))
    assert jacobian["weight"].shape == (2, DAG.num_outputs, DAG.num_edges)


@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")  # inductor's own, at its import
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compile(backend):
    if backend == "inductor" and not (shutil.which("g++") or shutil.which("clang++")):
        pytest.skip("inductor needs a C++ compiler, and this machine has none")
    torch._dynamo.reset()
    dag = generate.erdos_renyi(14, 0.3, seed=0)
    net = FourWard(dag, activation="tanh", seed=0)
    compiled = torch.compile(net, backend=backend, fullgraph=True)
    x, x2 = (batch(dag).requires_grad_() for _ in range(2))
    assert_near(compiled(x), net(x2))
    (first,) = torch.autograd.grad(compiled(x).sum(), net.weight)
    (second,) = torch.autograd.grad(net(x2).sum(), net.weight)
    assert_near(first, second)


def test_compile_with_dropout():
    torch._dynamo.reset()
    dag = generate.erdos_renyi(14, 0.3, seed=0)
    net = FourWard(dag, dropout=0.5, activation="tanh", seed=0)
    compiled = torch.compile(copy.deepcopy(net), backend="aot_eager", fullgraph=True)
    for _ in range(3):
        assert_near(compiled(batch(dag)), net(batch(dag)))


def test_export():
    dag = generate.erdos_renyi(14, 0.3, seed=0)
    net = FourWard(dag, engine="torch", seed=0).eval()
    size = torch.export.Dim("batch")
    program = torch.export.export(net, (batch(dag),), dynamic_shapes=({0: size},))
    assert_near(program.module()(batch(dag, 11)), net(batch(dag, 11)))


@pytest.mark.parametrize(
    "optimiser",
    ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop", "LBFGS"],
)
def test_optimisers(optimiser):
    net = FourWard(DAG, activation="tanh", seed=0)
    optimise = getattr(torch.optim, optimiser)(net.parameters())
    target = torch.zeros(5, DAG.num_outputs)
    before = [p.detach().clone() for p in net.parameters()]

    def loss():
        optimise.zero_grad()
        value = (net(batch()) - target).square().mean()
        value.backward()
        return value

    optimise.step(loss)
    assert all((p != q).any() for p, q in zip(net.parameters(), before, strict=True))


@methods
def test_no_global_random_state_is_touched(cls):
    states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    net = cls(DAG, dropout=0.5)
    net(batch()).sum().backward()
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (np.random.get_state()[1] == states[1]).all()
    assert random.getstate() == states[2]


def test_seeds():
    first, same, other, unseeded = (FourWard(DAG, seed=s) for s in (0, 0, 1, None))
    assert torch.equal(first.weight, same.weight)
    assert not torch.equal(first.weight, other.weight)
    assert not torch.equal(unseeded.weight, FourWard(DAG).weight)


def test_dropout_masks():
    dag = Dag.from_edges([("x", "h"), ("h", "a"), ("h", "b"), ("h", "deep"), ("deep", "c")])
    net = FourWard(dag, activation="identity", bias=False, init=1.0, dropout=0.5, seed=0)
    passes = [net.activations(torch.ones(200, 1)) for _ in range(2)]
    x, h, a, b = (passes[0][:, dag.index(label)] for label in "xhab")
    assert (x == 1).all(), "inputs are never dropped"
    assert set(h.unique().tolist()) == {0.0, 2.0}
    assert torch.equal(a, h), "all successors see one mask; outputs are never dropped"
    assert torch.equal(b, h)
    assert not torch.equal(passes[0], passes[1]), "each pass has its own mask"
    assert (net.eval().activations(torch.ones(3, 1)) == 1).all()


def test_to_networkx_of_a_connectome():
    worm = connectomes.load("c-elegans")
    net = FourWard(worm.dag, seed=0)
    graph = net.to_networkx()
    assert set(graph.nodes) == set(worm.classes)
    k = int(worm.dag.find_edges([("AVAL", "DA2")])[0])
    assert graph["AVAL"]["DA2"]["weight"] == net.weight[k].item()
    neuron = worm.dag.neurons.tolist().index(worm.dag.index("DA2"))
    assert graph.nodes["DA2"]["bias"] == net.bias[neuron].item()
    assert graph.nodes["DA2"]["activation"] == "relu"
    assert Dag.from_networkx(graph) == worm.dag
    assert nx.is_directed_acyclic_graph(graph)


def test_repr_and_default_device():
    assert repr(FourWard(DAG)).startswith("FourWard(Dag(30 nodes, ")
    label = DAG.labels[DAG.neurons[0]]
    net = FourWard(DAG, activation={"default": torch.sin, label: "tanh"}, bias=False, dropout=0.5, engine="torch")
    assert repr(net).endswith("activation=tanh, sin, bias=False, dropout=0.5, engine='torch')")
    with torch.device("meta"):
        assert FourWard(DAG).weight.device.type == "meta"


def test_autocast_does_not_apply_to_float64():
    net = FourWard(DAG, seed=0, dtype=torch.float64)
    with torch.autocast("cpu", torch.bfloat16):
        assert net(batch(dtype=torch.float64)).dtype == torch.float64
        with pytest.raises(InputError, match="float64"):
            FourWard(DAG, seed=0)(batch(dtype=torch.float64))


def test_autocast_accumulates_in_the_dtype_of_the_weights():
    net = FourWard(DAG, seed=0)
    with torch.autocast("cpu", torch.bfloat16):
        out = net(batch())
    assert torch.equal(out, net(batch()).to(torch.bfloat16))


def test_dropout_follows_the_seed():
    first, same, other = (FourWard(DAG, dropout=0.5, init=0.1, seed=s).activations(batch()) for s in (1, 1, 2))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


def test_dropout_rejects_checkpoint_and_vmap():
    net = FourWard(DAG, dropout=0.5, seed=0)
    with pytest.raises(OptionError, match="vmap"):
        torch.func.vmap(net)(batch())
    x = batch().requires_grad_()
    out = torch.utils.checkpoint.checkpoint(net, x, use_reentrant=False)
    with pytest.raises(OptionError, match="checkpoint"):
        out.sum().backward()
    net.eval()
    torch.utils.checkpoint.checkpoint(net, x, use_reentrant=False).sum().backward()
    assert torch.func.vmap(net)(batch()).shape == (5, DAG.num_outputs)


@pytest.mark.parametrize("engine", ["reference", "torch", "cpu"])
def test_torch_func(engine):
    net = FourWard(DAG, activation="tanh", seed=0, engine=engine)

    def loss(weight, x):
        return torch.func.functional_call(net, {"weight": weight}, (x,)).square().sum()

    actual = torch.func.grad(loss)(net.weight.detach(), batch())
    (expected,) = torch.autograd.grad(loss(net.weight, batch()), net.weight)
    assert_near(actual, expected)
    each = torch.func.vmap(torch.func.grad(loss), (None, 0))(net.weight.detach(), batch())
    assert_near(each.sum(0), expected)


@pytest.mark.parametrize("engine", ["torch", "cpu"])
def test_torch_func_leaves_no_state(engine):
    net = FourWard(DAG, activation="tanh", seed=0, engine=engine)
    torch.func.grad(lambda x: net(x).sum())(batch())
    assert torch.equal(copy.deepcopy(net)(batch()), net(batch()))
    net = FourWard(DAG, activation="tanh", seed=0, engine=engine)
    with torch.inference_mode():
        torch.func.vmap(net)(batch())
    grads = torch.func.grad(lambda p: torch.func.functional_call(net, p, (batch(),)).sum())(
        dict(net.named_parameters())
    )
    assert_near(grads["weight"], torch.autograd.grad(net(batch()).sum(), net.weight)[0])


@pytest.mark.parametrize("engine", ["reference", "torch", "cpu"])
def test_pruned(engine, tmp_path):
    net = FourWard(DAG, activation="tanh", seed=0, engine=engine)
    prune.random_unstructured(net, "weight", amount=0.5)
    prune.random_unstructured(net, "bias", amount=2)
    net(batch()).sum().backward()
    mask, gradient = net.weight_mask.bool(), net.weight_orig.grad
    assert gradient[mask].any()
    assert not gradient[~mask].any()
    assert net.double()(batch(dtype=torch.float64)).dtype == torch.float64
    for call in (
        lambda: net.load_edge_weights(net.weight, net.bias),
        lambda: save(net, tmp_path / "net.safetensors"),
    ):
        with pytest.raises(WeightError, match=r"net.weight is pruned.*prune.remove\(net, 'weight'\)"):
            call()
    out = net(batch(dtype=torch.float64))
    for name in ("weight", "bias"):
        prune.remove(net, name)
    save(net, tmp_path / "net.safetensors")
    assert_near(net(batch(dtype=torch.float64)), out)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_parametrised():
    net = FourWard(DAG, activation="tanh", seed=0)
    out = net(batch())
    parametrizations.weight_norm(net)
    assert_near(net(batch()), out)
    net(batch()).sum().backward()
    assert net.parametrizations.weight.original1.grad.any()


def test_to_chooses_another_engine():
    net = FourWard(DAG)
    assert net.engine == "cpu"
    assert net.to(torch.bfloat16).engine == "torch"
    assert "float32 and float64, not torch.bfloat16" in net.explain()
    assert net.float().engine == "cpu"
    assert net(batch()).shape == (5, DAG.num_outputs)


@pytest.mark.parametrize("engine", ["auto", "torch", "reference"])
def test_ensemble_by_stacked_state_and_a_skeleton_on_meta(engine):
    nets = [FourWard(DAG, "tanh", engine=engine, seed=seed) for seed in range(3)]
    parameters, buffers = torch.func.stack_module_state(nets)
    skeleton, x = copy.deepcopy(nets[0]).to("meta"), batch()

    def run(parameters, buffers):
        return torch.func.functional_call(skeleton, (parameters, buffers), (x,))

    assert_near(torch.vmap(run)(parameters, buffers).detach(), torch.stack([net(x) for net in nets]).detach())
    assert skeleton(x.to("meta")).shape == nets[0](x).shape
    filled = skeleton.to_empty(device="cpu")
    filled.load_state_dict(nets[1].state_dict())
    assert filled.engine == nets[1].engine
    assert torch.equal(filled(x), nets[1](x))


def test_indexing_by_a_copy_of_the_outputs():
    net = FourWard(DAG, seed=0)
    assert torch.equal(net.activations(batch())[:, torch.tensor(DAG.outputs)], net(batch()))


def test_the_documented_index_of_outputs_is_quiet():
    """Torch warns about read-only arrays, and warnings are errors here."""
    dag = generate.erdos_renyi(20, 0.3, seed=0)
    net, x = FourWard(dag, seed=0), torch.ones(2, dag.num_inputs)
    assert torch.equal(net.activations(x)[:, torch.tensor(dag.outputs)], net(x))
