"""Which engine is chosen and why, and engines that are registered from outside."""

import pickle
import subprocess
import sys

import pytest
import torch

from fourward import FourWard, generate
from fourward.engine import ENGINES, Engine, KernelEngine, register
from fourward.errors import EngineError


@pytest.fixture
def registry():
    """The engines, restored after the test."""
    before = dict(ENGINES)
    yield ENGINES
    ENGINES.clear()
    ENGINES.update(before)


class Delegate(Engine):
    """The torch engine by another name."""

    name = "delegate"
    summary = "an example"

    def supports(self, request):
        return None

    def prepare(self, plan):
        return ENGINES["torch"].prepare(plan)


def test_unknown_engine_lists_the_known():
    with pytest.raises(EngineError, match=r"unknown engine 'warp'.*auto.*torch.*reference"):
        FourWard(generate.chain(3), engine="warp")


def test_explain_says_what_runs_and_why():
    net = FourWard(generate.chain(3))
    assert net.engine in ENGINES
    assert net.engine != "reference"
    assert net.engine in net.explain()
    requested = FourWard(generate.chain(3), engine="reference")
    assert "engine='reference' was requested" in requested.explain()


def test_a_registered_engine_runs_by_name(registry):
    register(Delegate())
    assert list(registry)[-1] == "delegate"
    assert FourWard(generate.chain(3), engine="delegate").engine == "delegate"
    assert FourWard(generate.chain(3)).engine != "delegate"


def test_auto_tries_an_engine_that_is_registered_before_another(registry):
    names = list(registry)
    register(Delegate(), before="cpu")
    assert list(registry) == ["delegate", *names]
    assert FourWard(generate.chain(3)).engine == "delegate"


def test_names_of_engines_are_unique(registry):
    register(Delegate())
    with pytest.raises(EngineError, match="'delegate' is taken"):
        register(Delegate())
    with pytest.raises(EngineError, match="unknown engine 'warp'"):
        register(type("Other", (Delegate,), {"name": "other"})(), before="warp")
    assert "other" not in registry


def test_registering_an_engine_with_kernels_creates_its_operators(registry):
    names = {"name": "twin", "launch_module": "fourward.engine._cpu.launch", "dispatch_keys": ("CPU",)}
    twin = type("Twin", (type(ENGINES["cpu"]),), names)
    assert issubclass(twin, KernelEngine)
    assert not hasattr(torch.ops.fourward, "twin_forward")
    register(twin())
    assert hasattr(torch.ops.fourward, "twin_forward")
    net = FourWard(generate.erdos_renyi(14, 0.3, seed=0), engine="twin", seed=0)
    program = torch.export.export(net.eval(), (torch.ones(2, net.dag.num_inputs),))
    assert "fourward.twin_forward" in str(program.graph)


def test_exported_and_pickled_networks_find_their_operators(tmp_path):
    net = FourWard(generate.erdos_renyi(14, 0.3, seed=0), engine="cpu", seed=0).eval()
    x = torch.linspace(-1, 1, 3 * net.dag.num_inputs).reshape(3, -1)
    torch.export.save(torch.export.export(net, (x,)), tmp_path / "net.pt2")
    (tmp_path / "runner.pickle").write_bytes(pickle.dumps(net.runner))
    torch.save((x, net(x).detach(), net.weight.detach(), net.bias.detach()), tmp_path / "values.pt")
    code = (
        "import pickle, torch, fourward.engine\n"
        "x, want, weight, bias = torch.load('values.pt')\n"
        "assert torch.equal(torch.export.load('net.pt2').module()(x), want)\n"
        "runner = pickle.load(open('runner.pickle', 'rb'))\n"
        "assert torch.equal(runner(x, weight, bias, None, None, False), want)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
