"""Torch's tracers and transforms on the CPU engine."""

import pytest
import torch

from fourward import FourWard, generate
from fourward.engine._cpu import launch
from fourward.errors import EngineError
from tests.engine.cpu import x_for
from tests.tolerance import assert_near


def operator_arguments(dag, batch=5, dtype=torch.float32, key=None, **options):
    net = FourWard(dag, seed=0, dtype=dtype, **options)
    packed_plan, shape = launch.pack(net.plan)
    x = x_for(dag, batch, dtype).requires_grad_()
    return (x, net.weight, net.bias, packed_plan, list(shape), key, 0.4 if key is not None else 0.0, False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_opcheck(dtype, activation):
    dag = generate.erdos_renyi(14, 0.3, seed=0)
    arguments = operator_arguments(dag, dtype=dtype, activation=activation)
    torch.library.opcheck(torch.ops.fourward.cpu_forward.default, arguments)
    torch.library.opcheck(
        torch.ops.fourward.cpu_forward.default, operator_arguments(dag, dtype=dtype, key=torch.tensor(5))
    )
    out, saved = torch.ops.fourward.cpu_forward(*arguments)
    _, weight, _, packed_plan, shape, key, p, all_nodes = arguments
    backward = (torch.ones_like(out), weight.detach(), packed_plan, shape, saved.detach(), key, p, all_nodes)
    for needs_x_grad in (True, False):
        torch.library.opcheck(torch.ops.fourward.cpu_backward.default, (*backward, needs_x_grad, True))


@pytest.mark.parametrize("activation", ["tanh", "gelu"])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_compile_is_one_graph(activation, dropout):
    torch._dynamo.reset()
    dag = generate.erdos_renyi(40, 0.3, seed=0)
    net, twin = (FourWard(dag, activation=activation, dropout=dropout, seed=0, engine="cpu") for _ in range(2))
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    for batch in (5, 8, 21):
        x = x_for(dag, batch)
        got, want = compiled(x), twin(x)
        assert_near(got, want)
        got.sum().backward()
        want.sum().backward()
        assert_near(net.weight.grad, twin.weight.grad)


def test_export_with_any_batch():
    dag = generate.erdos_renyi(40, 0.3, seed=0)
    net = FourWard(dag, seed=0, engine="cpu").eval()
    exported = torch.export.export(net, (x_for(dag, 5),), dynamic_shapes=({0: torch.export.Dim("batch")},))
    assert "fourward.cpu_forward" in str(exported.graph)
    assert_near(exported.module()(x_for(dag, 33)), net(x_for(dag, 33)))


def test_second_derivatives_come_from_the_torch_engine():
    dag = generate.erdos_renyi(10, 0.4, seed=0)
    net = FourWard(dag, activation="tanh", engine="cpu", seed=3, dtype=torch.float64)
    x = x_for(dag, 2, torch.float64).requires_grad_()

    def outputs(x, weight, bias):
        return torch.func.functional_call(net, {"weight": weight, "bias": bias}, (x,))

    assert torch.autograd.gradgradcheck(outputs, (x, net.weight, net.bias))


def test_second_derivatives_where_x_is_a_parameter():
    dag = generate.erdos_renyi(20, 0.3, seed=0)
    weight_grads = []
    for engine in ("cpu", "torch"):
        net = FourWard(dag, activation="tanh", engine=engine, seed=0, dtype=torch.float64)
        x = torch.nn.Parameter(x_for(dag, 4, torch.float64))
        (x_grad,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
        x_grad.square().sum().backward()
        weight_grads.append(net.weight.grad)
    assert_near(*weight_grads)


def test_first_derivatives_with_create_graph_follow_no_path_twice():
    """The input of the second pass depends on the weights, too."""
    net = FourWard(generate.chain(4), activation="tanh", seed=0, dtype=torch.float64)
    y = net(net(torch.ones(2, 1, dtype=torch.float64))).sum()
    plain, created = (torch.autograd.grad(y, net.weight, create_graph=c, retain_graph=True)[0] for c in (False, True))
    assert_near(created.detach(), plain)


def test_second_derivatives_of_a_traced_network_are_refused():
    arguments = operator_arguments(generate.erdos_renyi(14, 0.3, seed=0))
    out = torch.ops.fourward.cpu_forward(*arguments)[0]
    (x_grad,) = torch.autograd.grad(out.sum(), arguments[0], create_graph=True)
    with pytest.raises(EngineError, match=r"double backward.*eager mode"):
        x_grad.sum().backward()


@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")  # torch's own, at its first use
def test_forward_mode():
    dag = generate.erdos_renyi(20, 0.3, seed=0)
    nets = [FourWard(dag, activation="tanh", seed=0, engine=engine, dtype=torch.float64) for engine in ("cpu", "torch")]
    x, direction = x_for(dag, 3, torch.float64), x_for(dag, 3, torch.float64, seed=1)
    for grad in (True, False):
        with torch.set_grad_enabled(grad), torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, direction)
            tangents = [torch.autograd.forward_ad.unpack_dual(net(dual)).tangent for net in nets]
        assert_near(*(tangent.detach() for tangent in tangents))


def test_an_exported_program_of_another_layout_is_refused():
    arguments = list(operator_arguments(generate.erdos_renyi(14, 0.3, seed=0)))
    arguments[3] = arguments[3].clone()
    arguments[3][-1] += 1
    with pytest.raises(EngineError, match="another version"):
        torch.ops.fourward.cpu_forward(*arguments)
