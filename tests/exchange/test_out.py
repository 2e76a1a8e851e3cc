"""Networks go out with the outputs they have: ONNX, pt2, Python source, LaTeX."""

import math
import re
import resource

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from matplotlib import mathtext

from benchmarks.cases import ZOO, case
from fourward import Dag, FourWard, generate, load
from fourward.errors import ActivationError, FileError, OptionError, WeightError
from fourward.exchange import ENDINGS, check_onnx, export, to_latex, to_onnx, to_python
from fourward.exchange._formulas import HELPERS
from fourward.plan.activations import ACTIVATIONS
from tests.tolerance import assert_near


def run_onnx(path, x):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(None, {"x": x.float().numpy()})[0])


def run_python(net, x):
    names = {}
    exec(compile(to_python(net), "<network>", "exec"), names)
    return torch.tensor([names["network"](row) for row in x.tolist()], dtype=torch.float64)


def batch(net, rows=5):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(rows, net.dag.num_inputs, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation(name, tmp_path):
    net = FourWard(generate.erdos_renyi(24, 0.3, seed=2), name, seed=0, dtype=torch.float64)
    x = batch(net)
    want = net(x).detach()
    to_onnx(net, tmp_path / "net.onnx")
    assert_near(run_onnx(tmp_path / "net.onnx", x), want)
    assert_near(run_python(net, x), want)


@pytest.mark.parametrize("name", [name for name in ZOO if name != "chain 2000 deep"])  # loads for seconds
def test_every_graph(name, tmp_path):
    """One node, no edges, several activations, hidden outputs, long chains: whatever the engines are tested on."""
    net = FourWard(case(name).dag, case(name).activation, seed=0)
    to_onnx(net, tmp_path / "net.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "net.onnx"), providers=["CPUExecutionProvider"])
    for rows in (0, 1, 4):
        x = batch(net, rows)
        (got,) = session.run(None, {"x": x.float().numpy()})
        assert_near(torch.from_numpy(got), net(x.float()).detach())
    assert_near(run_python(net, x.float().double()), net.double()(x.float().double()).detach())


def test_onnx_of_wide_sparse_and_deep_graphs(tmp_path):
    sparse = FourWard(generate.erdos_renyi(800, 0.004, seed=0), "tanh", seed=0, bias=False)
    deep = FourWard(generate.chain(400), "tanh", seed=0, init=1.0)
    for net in (sparse, deep):
        path = tmp_path / "net.onnx"
        export(net, path)
        assert check_onnx(net, path) < 1e-5
        model = onnx.load(path)
        assert model.opset_import[0].version == 18
        assert [d.dim_param for d in model.graph.input[0].type.tensor_type.shape.dim] == ["batch", ""]
    used = {node.op_type for node in model.graph.node}
    export(sparse, path)
    assert "ScatterND" in {node.op_type for node in onnx.load(path).graph.node}
    assert "ScatterND" not in used
    assert path.stat().st_size < 20 * sparse.dag.num_edges + 1000 * sparse.layering.height + 20 * sparse.dag.num_nodes


def test_onnx_with_another_layering(tmp_path):
    from fourward.layering import longest_path, reassign

    dag = generate.erdos_renyi(60, 0.1, seed=0)
    net = FourWard(dag, "tanh", seed=0, layering=reassign(dag, longest_path(dag), seed=3))
    assert net.plan.edge is not None
    export(net, tmp_path / "net.onnx")
    assert check_onnx(net, tmp_path / "net.onnx") < 1e-5


def test_the_check_of_onnx_can_fail(tmp_path):
    net = FourWard(generate.erdos_renyi(30, 0.2, seed=0), "tanh", seed=0)
    export(net, tmp_path / "net.onnx")
    with torch.no_grad():
        net.bias += 0.5
    with pytest.raises(Exception, match="gives other outputs in onnxruntime"):
        check_onnx(net, tmp_path / "net.onnx")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_pt2_runs_in_plain_torch(tmp_path):
    dag = generate.erdos_renyi(20, 0.2, seed=0)
    net = FourWard(dag, {"default": "tanh", dag.labels[int(dag.neurons[0])]: torch.cos}, seed=0, dropout=0.5)
    export(net, tmp_path / "net.pt2")
    program = torch.export.load(tmp_path / "net.pt2")
    for rows in (1, 7):
        x = batch(net, rows).float()
        torch.testing.assert_close(program.module()(x), net.eval()(x))
    assert not any("fourward" in str(node.target) for node in program.graph.nodes)


def test_pt2_on_a_full_disk_is_an_error_and_leaves_the_old_file(tmp_path):
    path = tmp_path / "net.pt2"
    path.write_bytes(b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            export(FourWard(generate.chain(3), seed=0), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.filename == str(path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_safetensors(tmp_path):
    net = FourWard(generate.erdos_renyi(20, 0.2, seed=0), "tanh", seed=0)
    export(net, tmp_path / "net.safetensors")
    assert torch.equal(load(tmp_path / "net.safetensors")(batch(net).float()), net(batch(net).float()))


@pytest.mark.parametrize("ending", [ending for ending in ENDINGS if ending != ".pt2"])
def test_a_custom_activation_is_refused_and_nothing_is_written(ending, tmp_path):
    dag = Dag.from_edges([("a", "b"), ("b", "c")])
    net = FourWard(dag, {"b": torch.cos, "c": "relu"}, seed=0)
    with pytest.raises(ActivationError, match=r"neuron 'b' has the activation cos, a callable") as caught:
        export(net, tmp_path / f"net{ending}")
    assert caught.value.exit_code == 2
    assert not list(tmp_path.iterdir())


def test_an_unknown_ending(tmp_path):
    net = FourWard(generate.chain(2), seed=0)
    with pytest.raises(FileError, match=r"to \.h5. Known are \.onnx"):
        export(net, tmp_path / "net.h5")


def test_large_networks_arent_written_down(tmp_path):
    net = FourWard(generate.complete(40), seed=0)
    with pytest.raises(OptionError, match=r"LaTeX is for networks of up to 500 edges, and this one has 780"):
        export(net, tmp_path / "net.tex")
    with pytest.raises(OptionError, match="Python source is for networks of up to 20,000 edges"):
        to_python(FourWard(generate.complete(210), seed=0))
    with torch.no_grad():
        net.weight[3] = math.nan
    with pytest.raises(WeightError, match="finite"):
        to_python(net)
    assert not list(tmp_path.iterdir())


def test_python_source_goes_on_where_math_would_stop():
    dag = Dag.from_edges([("x", name) for name in ACTIVATIONS])
    net = FourWard(dag, {name: name for name in ACTIVATIONS}, bias=False, init=1.0, dtype=torch.float64)
    x = torch.tensor([[-1e4], [1e4], [0.0], [math.inf], [-math.inf]], dtype=torch.float64)
    torch.testing.assert_close(run_python(net, x), net(x).detach(), equal_nan=True)


def test_python_source_imports_math_alone():
    net = FourWard(generate.erdos_renyi(20, 0.2, seed=0), "gelu", seed=0)
    imports = [line for line in to_python(net).splitlines() if "import" in line]
    assert imports == ["import math"]


TERM = re.compile(r"([+-]?) ?([\d.]+)(?: \\cdot 10\^\{(-?\d+)\})?(?:\\, (a_\{\\text\{.*?\}\}))?(?= [+\\-]|$)")


def read_latex(text, inputs, x, functions):
    """The values of all neurons, from the equations alone."""
    values = dict(zip(inputs, x, strict=True))
    body = text.replace(" \\\\\n&\\quad", "").removeprefix("\\begin{align*}\n").removesuffix("\n\\end{align*}\n")
    for row in body.split(" \\\\\n"):
        left, right = row.split(" &= ", 1)
        if "(z)" not in left:
            found = re.fullmatch(r"\\operatorname\{(.*?)\}\\bigl\( (.*) \\bigr\)", right)
            name, inner = found.groups() if found else ("identity", right)
            total = 0.0
            for sign, digits, exponent, symbol in TERM.findall(inner):
                number = float(digits) * 10 ** int(exponent or 0) * (-1 if sign == "-" else 1)
                total += number * (values[symbol] if symbol else 1)
            values[left] = functions[name.replace("\\_", "_")](total)
    return values


@pytest.mark.parametrize("bias", [True, False])
def test_latex_says_what_the_network_computes(bias):
    dag = generate.erdos_renyi(16, 0.4, seed=1)
    names = ["tanh", "leaky_relu", "identity", "sigmoid"]
    chosen = {dag.labels[v]: names[k % 4] for k, v in enumerate(dag.neurons.tolist())}
    net = FourWard(dag, chosen, seed=0, bias=bias, dtype=torch.float64, init="kaiming_normal")
    with torch.no_grad():
        net.weight[0] = 1.5e-7
    text = to_latex(net, digits=17)
    symbols = [f"a_{{\\text{{{dag.labels[v]}}}}}" for v in range(dag.num_nodes)]
    functions = {
        "tanh": math.tanh,
        "leaky_relu": lambda z: z if z > 0 else 0.01 * z,
        "identity": lambda z: z,
        "sigmoid": lambda z: 1 / (1 + math.exp(-z)),
    }
    x = batch(net, 1)
    values = read_latex(text, [symbols[v] for v in dag.inputs.tolist()], x[0].tolist(), functions)
    got = torch.tensor([[values[symbol] for symbol in symbols]], dtype=torch.float64)
    assert_near(got, net.activations(x).detach())


def test_latex_is_well_formed():
    dag = Dag.from_edges(
        [("50%_of {it}", "\\alpha^2"), ("#1 & ~", "\\alpha^2"), *(("#1 & ~", name) for name in ACTIVATIONS)]
    )
    net = FourWard(dag, {name: name for name in ACTIVATIONS} | {"default": "relu"}, seed=0)
    text = to_latex(net)
    plain = re.sub(r"\\[{}&%$#_]", "", text)
    assert plain.count("{") == plain.count("}")
    for one, other in ((r"\left", r"\right"), (r"\bigl", r"\bigr"), (r"\begin{", r"\end{")):
        assert text.count(one) == text.count(other) > 0
    for line in text.splitlines():
        assert len(re.findall(r"(?<!\\)&", line)) in ((0,) if "align" in line else (1, 3, 5, 7))
    for name in ACTIVATIONS:
        assert name == "identity" or rf"\operatorname{{{name.replace('_', chr(92) + '_')}}}(z) &=" in text
    parser = mathtext.MathTextParser("agg")
    for line in text.splitlines():
        if "align" not in line and "cases" not in line:  # which matplotlib doesn't know, as it doesn't \\big
            known = (
                re.sub(r"a_\{\\text\{.*?\}\}(?= |$)", "a", line)
                .replace("&", "")
                .replace(r"\bigl", "")
                .replace(r"\bigr", "")
            )
            parser.parse(f"${known.removesuffix(chr(92) * 2)}$")


def test_latex_digits():
    net = FourWard(generate.chain(2), seed=0, init=1 / 3)
    assert r"0.33\," in to_latex(net, digits=2)
    with pytest.raises(OptionError, match="from 1 to 17"):
        to_latex(net, digits=0)


def test_python_of_many_terms_compiles():
    dag = Dag.from_edges([(u, 5000) for u in range(5000)])
    net = FourWard(dag, "identity", seed=0, dtype=torch.float64)
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(2, 5000)))
    assert_near(run_python(net, x), net(x).detach())


def test_exported_functions_keep_what_is_no_number():
    net = FourWard(generate.chain(2), "gaussian", seed=0, dtype=torch.float64)
    assert run_python(net, torch.tensor([[math.nan]], dtype=torch.float64)).isnan().all()
    names = {"math": math}
    exec(HELPERS["exp"], names)
    assert math.isnan(names["exp"](math.nan))
    assert names["exp"](1e6) == math.inf
