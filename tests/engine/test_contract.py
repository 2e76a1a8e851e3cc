"""One suite for every engine and every method of the paper: outputs, activations and all gradients.

A new engine adds a line to the registry and inherits every test here.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.cases import ZOO, case
from fourward import Dag, FourWard, generate, paper
from fourward.engine._registry import ENGINES
from fourward.errors import EngineError
from fourward.plan import _schedule
from fourward.plan.activations import ACTIVATIONS
from tests.tolerance import assert_near


def device(subject: str) -> str:
    """The gpu engine is tested on a GPU where there is one, and elsewhere in Triton's interpreter."""
    return "cuda" if subject == "gpu" and torch.cuda.is_available() else "cpu"


SUBJECTS = {name: partial(FourWard, engine=name, device=device(name)) for name in ENGINES}
SUBJECTS |= {cls.__name__: cls for cls in (paper.Masked4Ward, paper.SequentialBaseline, paper.DeepStruct)}
subjects = pytest.mark.parametrize("subject", SUBJECTS)
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


class Result(NamedTuple):
    outputs: Tensor
    activations: Tensor
    x: Tensor  # gradients of a weighted sum of outputs
    weight: Tensor
    bias: Tensor | None
    all_x: Tensor  # gradients of a weighted sum of all activations
    all_weight: Tensor
    all_bias: Tensor | None


def parameters(dag: Dag, bias: bool) -> tuple[Tensor, Tensor | None]:
    """Weights that neither let signals die nor explode, whatever the in-degree; the same in every dtype."""
    rng = np.random.default_rng(0)
    size = rng.uniform(0.98, 1.02, dag.num_edges) * rng.choice([-1, 1], dag.num_edges)
    weight = size / np.sqrt(np.maximum(dag.in_degree, 1))[dag.target]
    biases = rng.uniform(-0.3, 0.3, len(dag.neurons)) if bias else None
    return tuple(None if v is None else torch.tensor(v, dtype=torch.float32) for v in (weight, biases))


def run(subject: str, dag: Dag, dtype: torch.dtype, batch: int = 3, *, bias: bool = True, **options) -> Result:
    net = SUBJECTS[subject](dag, bias=bias, seed=1, dtype=dtype, **options)
    net.load_edge_weights(*parameters(dag, bias))
    rng = np.random.default_rng(1)
    x = torch.tensor(rng.standard_normal((batch, dag.num_inputs)), dtype=torch.float32).to(net.passes.device, dtype)
    gradient_list = []
    values = []
    for call, width in ((net.forward, dag.num_outputs), (net.activations, dag.num_nodes)):
        net.zero_grad(set_to_none=True)
        x = x.detach().requires_grad_()
        net.passes.zero_()
        result = call(x)
        (result * torch.tensor(rng.standard_normal((batch, width))).to(result)).sum().backward()
        values.append(result.detach())
        x_grad = torch.zeros_like(x) if x.grad is None else x.grad
        gradient_list += [x_grad, *gradients(net)]
    return Result(*(None if value is None else value.cpu() for value in (*values, *gradient_list)))


def gradients(net) -> tuple[Tensor, Tensor | None]:
    if not isinstance(net, FourWard):
        return net.edge_weights(grad=True)
    pair = (net.weight, net.bias)
    return tuple(None if p is None else torch.zeros_like(p) if p.grad is None else p.grad for p in pair)


_truths: dict[tuple[Dag, int, str], Result] = {}


def truth(dag: Dag, batch: int = 3, **options) -> Result:
    """The results of the reference, which are computed once for all engines and dtypes."""
    key = dag, batch, repr(sorted(options.items()))
    if key not in _truths:
        _truths[key] = run("reference", dag, torch.float64, batch, **options)
    return _truths[key]


def truth_for(name: str, batch: int = 3, **options) -> Result:
    return truth(case(name).dag, batch, activation=case(name).activation, **options)


def assert_equal_results(got: Result, want: Result, dtype: torch.dtype) -> None:
    for ours, theirs in zip(got, want, strict=True):
        if theirs is None:
            assert ours is None
        else:
            assert ours.dtype == dtype
            assert_near(ours, theirs)


@pytest.mark.parametrize("name", ZOO)
@subjects
@dtypes
def test_zoo(subject, name, dtype):
    if subject == "gpu" and device(subject) == "cpu" and "deep" in name:
        pytest.skip("takes Triton's interpreter half a minute; on a GPU it runs")
    got = run(subject, case(name).dag, dtype, activation=case(name).activation)
    assert_equal_results(got, truth_for(name), dtype)


ORDERS = {
    "by level": lambda plan: np.arange(plan.dag.num_nodes, dtype=np.int32),
    "depth first from the outputs": lambda plan: _schedule._from_outputs(plan.edge_start, plan.source, plan.outputs),
    "depth first from the inputs": lambda plan: _schedule._from_sources(plan.source, plan.target, plan.dag.num_nodes),
}


@pytest.mark.parametrize("name", ZOO)
@pytest.mark.parametrize("order", ORDERS)
@dtypes
def test_zoo_in_every_order_with_slots(order, name, dtype, monkeypatch):
    """On the cpu engine; `test_zoo` has no slots there, as its graphs are small."""
    monkeypatch.setattr(
        _schedule, "build_schedule", lambda plan, _=None: _schedule._with_slots(plan, order, ORDERS[order](plan))
    )
    graph, options = case(name).dag, {"activation": case(name).activation}
    assert FourWard(graph, engine="cpu", **options).plan.schedule.reuses_rows
    assert_equal_results(run("cpu", graph, dtype, **options), truth_for(name), dtype)
    if dtype == torch.float64:
        assert_equal_results(
            run("cpu", graph, dtype, 20, dropout=0.3, **options), truth_for(name, 20, dropout=0.3), dtype
        )


@pytest.mark.parametrize("name", ZOO)
def test_the_zoo_is_alive(name):
    """A gradient that is zero everywhere would make any engine pass."""
    result = truth_for(name)
    if case(name).dag.num_edges:
        assert (result.all_weight.abs() > 1e-6).double().mean() > 0.4
        assert (result.weight.abs() > 1e-9).double().mean() > 0.1


@pytest.mark.parametrize("subject", ENGINES)
@dtypes
def test_driven_inputs(subject, dtype):
    sparse = generate.erdos_renyi(40, 0.15, seed=4)
    inputs = [sparse.labels[v] for v in (*sparse.order[25:15:-1], *sparse.inputs[:2], sparse.outputs[0])]
    dag = Dag.from_edges(sparse.edges, nodes=40, inputs=inputs)
    assert len(dag.driven) == 11
    activation = {"default": "tanh", **dict(zip(inputs[:4], ("silu", "sin", "gelu", "softplus"), strict=True))}
    for options in ({"activation": activation}, {"activation": activation, "dropout": 0.5, "bias": False}):
        want = truth(dag, **options)
        assert_equal_results(run(subject, dag, dtype, **options), want, dtype)


@subjects
@dtypes
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation(subject, activation, dtype):
    dag = generate.erdos_renyi(24, 0.3, seed=2)
    want = truth(dag, activation=activation)
    assert_equal_results(run(subject, dag, dtype, activation=activation), want, dtype)


@subjects
@dtypes
def test_every_neuron_its_own_activation(subject, dtype):
    dag = generate.erdos_renyi(60, 0.15, seed=5)
    names = list(ACTIVATIONS)
    mixed = {dag.labels[v]: names[i % len(names)] for i, v in enumerate(dag.neurons.tolist())}
    want = truth(dag, activation=mixed)
    assert_equal_results(run(subject, dag, dtype, activation=mixed), want, dtype)


@subjects
def test_output_activation(subject):
    dag = generate.layered_mlp([3, 6, 2])
    options = {"activation": "relu", "output_activation": "tanh"}
    want = truth(dag, **options)
    got = run(subject, dag, torch.float64, **options)
    assert_equal_results(got, want, torch.float64)
    assert (got.outputs < 0).any(), "relu would have cut this off"


@subjects
@dtypes
def test_without_bias(subject, dtype):
    for name in ("Erdos-Renyi", "source neurons"):
        dag, activation = case(name)
        want = truth(dag, bias=False, activation=activation)
        assert_equal_results(run(subject, dag, dtype, bias=False, activation=activation), want, dtype)


@subjects
def test_custom_activation(subject):
    dag = generate.erdos_renyi(30, 0.2, seed=1)
    options = {"activation": {"default": torch.atan, dag.labels[int(dag.neurons[3])]: "relu"}}
    if subject not in ("reference", "torch") and subject in ENGINES:
        with pytest.raises(EngineError, match=rf"{subject}.*can't run this network.*callable"):
            run(subject, dag, torch.float64, **options)
        assert FourWard(dag, **options).engine == "torch"
        return
    want = truth(dag, **options)
    assert_equal_results(run(subject, dag, torch.float64, **options), want, torch.float64)


@subjects
@pytest.mark.parametrize("batch", [0, 1, 2, 63, 130])
def test_batch_sizes(subject, batch):
    dag = case("Erdos-Renyi").dag
    want = truth(dag, batch)
    assert_equal_results(run(subject, dag, torch.float64, batch), want, torch.float64)


@subjects
@dtypes
def test_dropout_draws_alike(subject, dtype):
    dag = case("source neurons").dag
    names = list(ACTIVATIONS)
    activation = {dag.labels[v]: names[i % len(names)] for i, v in enumerate(dag.neurons.tolist())}
    want = truth(dag, 16, dropout=0.4, activation=activation)
    got = run(subject, dag, dtype, 16, dropout=0.4, activation=activation)
    assert_equal_results(got, want, dtype)
    undropped = truth(dag, 16, activation=activation)
    assert not torch.allclose(undropped.activations, want.activations), "nothing was dropped"


@subjects
def test_leading_shapes(subject):
    dag = case("Erdos-Renyi").dag
    net = SUBJECTS[subject](dag, seed=0, dtype=torch.float64)
    x = torch.randn(2, 3, 4, dag.num_inputs, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x = x.to(device(subject))
    flat = net(x.reshape(24, -1))
    assert_near(net(x), flat.reshape(2, 3, 4, -1))
    assert_near(net(x[0, 0, 0]), flat[0])
    assert net(x[:, :0]).shape == (2, 0, 4, dag.num_outputs)
    assert net.activations(x).shape == (2, 3, 4, dag.num_nodes)


@subjects
def test_nan_passes_through(subject):
    dag = Dag.from_edges([("a", "b"), ("c", "d")], outputs=["b", "d"])
    for activation in ACTIVATIONS:
        net = SUBJECTS[subject](dag, activation=activation, seed=0, dtype=torch.float64)
        x = torch.tensor([[float("nan"), 1.0], [2.0, 3.0]], dtype=torch.float64, device=device(subject))
        out = net(x)
        assert out[0, 0].isnan(), activation
        assert not out[1].isnan().any(), activation
        if subject in ENGINES:  # the paper's masks multiply NaN by 0, which is NaN, within a sample
            assert not out[0, 1].isnan(), activation


@subjects
def test_gradcheck(subject):
    dag = generate.erdos_renyi(12, 0.4, seed=0)
    mixed = {v: name for v, name in zip(dag.neurons.tolist(), ("tanh", "gelu", "sin", "softplus") * 3, strict=False)}
    net = SUBJECTS[subject](dag, activation={"default": "silu", **mixed}, seed=3, dtype=torch.float64)
    x = torch.randn(2, dag.num_inputs, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x = x.to(device(subject))
    names, values = zip(*net.named_parameters(), strict=True)

    def outputs(x, *values):
        return torch.func.functional_call(net, dict(zip(names, values, strict=True)), (x,))

    interpreted = subject == "gpu" and device(subject) == "cpu"  # where every one of hundreds of passes takes seconds
    assert torch.autograd.gradcheck(outputs, (x.requires_grad_(), *values), fast_mode=interpreted)
