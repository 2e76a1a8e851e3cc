"""Saved networks: round trips, errors for files that can't be read, and what a crash leaves."""

import json
import os
import resource

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import fourward as fw
from fourward import _serialization
from fourward.errors import ActivationError, EngineError, FileError, GraphError, OptionError

LABELS = ["a", 7, 2.5, True, None, ("x", 3, ("y",)), "default", "é\n"]


def odd_dag():
    edges = [(LABELS[i], LABELS[j]) for i, j in [(0, 3), (1, 3), (0, 2), (3, 4), (2, 4), (4, 5), (2, 5), (1, 6)]]
    return fw.Dag.from_edges(edges, nodes=LABELS, inputs=[7, "a"], outputs=["default", ("x", 3, ("y",)), 2.5])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_round_trip(tmp_path, dtype, bias):
    activation = {"default": "tanh", None: "sin", ("x", 3, ("y",)): "identity"}
    net = fw.FourWard(odd_dag(), activation, bias=bias, dropout=0.25, dtype=dtype, seed=3)
    fw.save(net, tmp_path / "net.safetensors")
    loaded = fw.load(tmp_path / "net.safetensors")
    assert loaded.dag == net.dag
    assert [type(label) for label in loaded.dag.labels] == [type(label) for label in LABELS]
    assert loaded.layering.level.tolist() == net.layering.level.tolist()
    assert (loaded.dropout, loaded.seed) == (0.25, net.seed)
    x = torch.randn(5, 2, generator=torch.Generator().manual_seed(0)).to(dtype)
    assert torch.equal(loaded(x), net(x)), "dropout too"
    assert torch.equal(loaded.eval()(x), net.eval()(x))


def test_integer_labels_and_custom_layerings(tmp_path):
    dag = fw.generate.erdos_renyi(60, 0.1, seed=0)
    dag = fw.Dag.from_edges(dag.edges, nodes=dag.num_nodes)
    layering = fw.layering.longest_path(dag)
    net = fw.FourWard(dag, output_activation="identity", layering=layering, seed=0)
    fw.save(net, tmp_path / "net.safetensors")
    loaded = fw.load(str(tmp_path / "net.safetensors"), engine="reference")
    assert "network.labels" not in _serialization.read_safetensors(tmp_path / "net.safetensors")[0]
    assert loaded.engine == "reference"
    assert loaded.layering.level.tolist() == layering.level.tolist()
    x = torch.randn(4, dag.num_inputs)
    torch.testing.assert_close(loaded(x), net(x))


def test_edges_may_stand_in_any_order(tmp_path):
    net = fw.FourWard(odd_dag(), seed=0)
    tensors, metadata = _serialization.serialize_network(net)
    order = torch.randperm(net.dag.num_edges, generator=torch.Generator().manual_seed(0))
    tensors |= {name: tensors[name][order] for name in ("network.edges", "network.weight")}
    _serialization.write_safetensors(tmp_path / "net.safetensors", tensors, {"network": metadata})
    assert torch.equal(fw.load(tmp_path / "net.safetensors").weight, net.weight)


def test_networks_that_cant_be_saved(tmp_path):
    path = tmp_path / "net.safetensors"
    with pytest.raises(ActivationError, match=r"neuron 'b' has the activation cos, a callable"):
        fw.save(fw.FourWard(fw.Dag.from_edges([("a", "b")]), torch.cos), path)
    with pytest.raises(GraphError, match=r"frozenset"):
        fw.save(fw.FourWard(fw.Dag.from_edges([("a", frozenset())])), path)
    inside = torch.nn.Sequential(fw.FourWard(odd_dag()))
    writers = [(write, other) for write in (fw.save, fw.exchange.export) for other in (odd_dag(), {"weight": 3})]
    for write, other in [*writers, (fw.save, inside)]:
        with pytest.raises(OptionError, match=r"expected a FourWard, got a (Dag|Sequential|dict)"):
            write(other, path)
    with pytest.raises(FileError, match=r"suffixes \.onnx, \.pt2 for a Sequential, got \.safetensors"):
        fw.exchange.export(inside, path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "corrupt",
    [
        lambda t, s: t.pop("network.edges"),
        lambda t, s: t.pop("network.weight"),
        lambda t, s: s.pop("network"),
        lambda t, s: s["network"].update(activations=[]),
        lambda t, s: s["network"].update(activations=["tangens"] * 3),
        lambda t, s: s["network"].update(nodes=3),
        lambda t, s: (s["network"].update(nodes=10**12), t.pop("network.labels")),
        lambda t, s: s["network"].update(dropout="half"),
        lambda t, s: t["network.edges"].fill_(99),
        lambda t, s: t["network.edges"].fill_(-1),
        lambda t, s: t["network.edges"].copy_(t["network.edges"].flip(1)),
        lambda t, s: t["network.level"].fill_(0),
        lambda t, s: t.update({"network.labels": torch.zeros(3, dtype=torch.uint8)}),
        lambda t, s: t.update({"network.weight": torch.zeros(3)}),
        lambda t, s: t.update({"network.weight": torch.zeros(8, dtype=torch.int64)}),
        *(
            (lambda t, s, name=name, dtype=dtype: t.update({f"network.{name}": t[f"network.{name}"].to(dtype)}))
            for name in ("edges", "inputs", "outputs", "level", "activation", "labels", "weight")
            for dtype in (torch.bool, torch.complex64, torch.float8_e4m3fn)
        ),
        lambda t, s: t.update({"network.bias": t["network.bias"].to(torch.complex64)}),
        lambda t, s: s["network"].update(seed="\ud800"),
        lambda t, s: s["network"].update(seed=None),
        lambda t, s: s["network"].update(activations=["\ud800"]),
        lambda t, s: t.update(
            {"network.labels": torch.frombuffer(bytearray(b'["\\ud800",1,2,3,4,5]'), dtype=torch.uint8)}
        ),
    ],
)
def test_corrupt_files(tmp_path, corrupt):
    tensors, metadata = _serialization.serialize_network(fw.FourWard(odd_dag(), seed=0))
    metadata = {"network": metadata}
    corrupt(tensors, metadata)
    _serialization.write_safetensors(tmp_path / "net.safetensors", tensors, metadata)
    with pytest.raises(FileError, match=r"net.safetensors is corrupt"):
        fw.load(tmp_path / "net.safetensors")


def test_foreign_and_broken_files(tmp_path):
    path = tmp_path / "net.safetensors"
    with pytest.raises(FileError, match="file not found"):
        fw.load(path)
    with pytest.raises(FileError, match=r"is a folder without best.safetensors"):
        fw.load(tmp_path)
    fw.save(fw.FourWard(odd_dag(), seed=0), path)
    data = path.read_bytes()
    with pytest.raises(EngineError, match="warp"):
        fw.load(path, engine="warp")
    for length in (0, 5, 100, len(data) - 1):
        path.write_bytes(data[:length])
        with pytest.raises(FileError, match="truncated"):
            fw.load(path)
    torch.save({"weight": torch.zeros(3)}, path)
    with pytest.raises(FileError, match="not a safetensors file"):
        fw.load(path)
    save_file({"weight": torch.zeros(3)}, path)
    with pytest.raises(FileError, match="fourward didn't write"):
        fw.load(path)
    save_file({"weight": torch.zeros(3)}, path, {"fourward": json.dumps({"format": 99, "version": "9.0"})})
    with pytest.raises(FileError, match=r"written by fourward 9\.0"):
        fw.load(path)
    save_file({"weight": torch.zeros(3)}, path, {"fourward": "{"})
    with pytest.raises(FileError, match="corrupt"):
        fw.load(path)


def test_a_full_disk_leaves_the_old_file(tmp_path):
    path = tmp_path / "net.safetensors"
    fw.save(fw.FourWard(odd_dag(), seed=0), path)
    old = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(OSError, match=os.strerror(27)) as caught:
            fw.save(fw.FourWard(fw.generate.complete(200), seed=0), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.filename == str(path)
    assert path.read_bytes() == old
    assert list(tmp_path.iterdir()) == [path]


def test_loading_draws_no_global_random_numbers(tmp_path):
    fw.save(fw.FourWard(odd_dag(), seed=0), tmp_path / "net.safetensors")
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()
    fw.load(tmp_path / "net.safetensors")
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]


@pytest.mark.parametrize("options", [{}, {"tau": 2.5}, {"tau": "learned", "dynamics": "voltage", "batch_first": True}])
def test_networks_with_feedback(tmp_path, options):
    pairs = [("x", "a"), ("a", "b"), ("b", "a"), ("b", "b"), ("b", "y"), ("y", "x2"), ("x2", "a")]
    g = fw.Digraph.from_edges(pairs, inputs=["x", "x2"], outputs=["y", "a"])
    g = g.with_attributes({"class": {"x": "s", "a": "i", "b": "i", "y": "m"}})
    if options.get("tau") == "learned":
        options = options | {"tau": torch.nn.Parameter(torch.tensor([1.0, 2.0, 3.0, 4.0]))}
    net = fw.Recurrent(g, {"b": "relu", "default": "tanh"}, seed=3, dropout=0.25, **options)
    fw.save(net, tmp_path / "net.safetensors")
    loaded = fw.load(tmp_path / "net.safetensors", engine=net.engine)
    assert loaded.graph == g
    assert dict(loaded.graph.attributes) == {"class": ("s", "i", "i", "m", None)}
    assert (loaded.dynamics, loaded.batch_first, loaded.dropout, loaded.seed) == (
        net.dynamics, net.batch_first, net.dropout, net.seed,
    )  # fmt: skip
    assert {name for name, _ in loaded.named_parameters()} == {name for name, _ in net.named_parameters()}
    x = torch.randn(4, 4, 2)
    for got, want in zip(loaded.eval()(x), net.eval()(x), strict=True):
        assert torch.equal(got, want)


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors, info: tensors.pop("network.feedback"),
        lambda tensors, info: tensors["network.feedback"].fill_(7),
        lambda tensors, info: tensors["network.feedback"].fill_(-1),
        lambda tensors, info: tensors.update({"network.feedback": torch.zeros(3, dtype=torch.int32)}),
        lambda tensors, info: tensors.update({"network.tau": torch.ones(9)}),
        lambda tensors, info: tensors["network.tau"].fill_(torch.nan),
        lambda tensors, info: info["recurrent"].update(dynamics="spikes"),
        lambda tensors, info: info["recurrent"].update(batch_first="no"),
        lambda tensors, info: info["recurrent"].pop("learned_tau"),
        lambda tensors, info: info.update(recurrent=None),
    ],
)
def test_corrupt_feedback(tmp_path, change):
    g = fw.Digraph.from_edges([("x", "a"), ("a", "b"), ("b", "a"), ("b", "y")])
    tensors, info = _serialization.serialize_network(fw.Recurrent(g, seed=0, tau=2.0))
    change(tensors, info)
    _serialization.write_safetensors(tmp_path / "net.safetensors", tensors, {"network": info})
    with pytest.raises(FileError, match="is corrupt"):
        fw.load(tmp_path / "net.safetensors")
