"""Exported Python source computes what the network computes."""

import math

import numpy as np
import pytest
import torch

from fourward import Dag, FourWard, generate
from fourward.exchange import to_python
from fourward.exchange._formulas import HELPERS, PythonTranslator
from fourward.plan.activations import ACTIVATIONS, VOCABULARY
from tests.exchange.helpers import run_python
from tests.tolerance import assert_near


def test_overflow_gives_inf_or_nan_as_in_torch():
    dag = Dag.from_edges([("x", name) for name in ACTIVATIONS])
    net = FourWard(dag, {name: name for name in ACTIVATIONS}, bias=False, init=1.0, dtype=torch.float64)
    x = torch.tensor([[-1e4], [1e4], [0.0], [math.inf], [-math.inf]], dtype=torch.float64)
    torch.testing.assert_close(run_python(net, x), net(x).detach(), equal_nan=True)


def test_source_imports_only_math():
    net = FourWard(generate.erdos_renyi(20, 0.2, seed=0), "gelu", seed=0)
    imports = [line for line in to_python(net).splitlines() if "import" in line]
    assert imports == ["import math"]


def test_sums_of_many_terms_compile():
    dag = Dag.from_edges([(u, 5000) for u in range(5000)])
    net = FourWard(dag, "identity", seed=0, dtype=torch.float64)
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(2, 5000)))
    assert_near(run_python(net, x), net(x).detach())


def test_nan_propagates():
    net = FourWard(generate.chain(2), "gaussian", seed=0, dtype=torch.float64)
    assert run_python(net, torch.tensor([[math.nan]], dtype=torch.float64)).isnan().all()
    namespace = {"math": math}
    exec(HELPERS["exp"], namespace)
    assert math.isnan(namespace["exp"](math.nan))
    assert namespace["exp"](1e6) == math.inf


class Hostile:
    """A label whose repr has line breaks of every kind."""

    def __repr__(self):
        return "#\nraise SystemExit\r\x0braise SystemExit\u2028raise SystemExit\x00\x85'''\"\"\""


def test_no_label_leaves_its_comment():
    labels = [Hostile(), "\nraise SystemExit\n", "'''\"\"\"\\", "\u2028raise SystemExit\u2029", ("\r\n", "\x0c")]
    edges = [[k, k + 1] for k in range(4)]
    source = to_python(FourWard(Dag.from_arrays(edges, labels=labels), "relu", seed=0))
    comments = [line.partition("#")[2] for line in source.splitlines() if "  # " in line]
    assert len(comments) == 4
    assert not any(line.lstrip().startswith("raise") for line in source.splitlines())
    namespace: dict = {}
    exec(source, namespace)
    assert len(namespace["network"]([1.0])) == 1


@pytest.mark.parametrize("name", [name for name in VOCABULARY if name != "where"])
def test_functions_of_formulas_return_what_torch_returns(name):
    names = {"math": math}
    exec("\n".join(HELPERS.values()), names)
    for z in (0.3, -0.3, -1.0, -2.0, 1000.0, -1000.0, math.inf, -math.inf, math.nan):
        got = eval(PythonTranslator().translate(f"{name}(z)", "z"), names, {"z": z})
        expected = getattr(torch, name)(torch.tensor(z, dtype=torch.float64)).item()
        assert got == pytest.approx(expected, rel=1e-12, nan_ok=True), z
