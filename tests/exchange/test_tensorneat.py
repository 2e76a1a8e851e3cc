"""Networks of TensorNEAT give the same outputs; no JSON file makes a reader fail with anything but our errors."""

import contextlib
import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fourward.errors import ActivationError, FileError, FourwardError
from fourward.exchange import from_tensorneat, read_neat, read_tensorneat
from tests.exchange.helpers import assert_same

NEAT = {
    "network_type": "feedforward",
    "topology": {"input_keys": [-1], "output_keys": [0]},
    "nodes": [
        {
            "id": 0,
            "type": "output",
            "activation": {"name": "tanh"},
            "aggregation": {"name": "sum"},
            "bias": 1,
            "response": 1,
        }
        | {"idx": 1, "agg": "sum", "act": "tanh"},
        {"id": -1, "type": "input", "idx": 0, "bias": 0, "agg": "sum", "act": "tanh"},
    ],
    "connections": [{"from": -1, "to": 0, "weight": 2, "enabled": True}],
    "conns": [{"in": 0, "out": 1, "weight": 2}],
}
KEYS = ("nodes", "conns", "idx", "bias", "act", "agg", "in", "out", "weight", "network_type", "topology", "connections")


def reference_outputs(network, x, inputs, outputs, transform):
    """The definition, one neuron at a time."""
    functions = {
        "sigmoid": lambda z: 1 / (1 + math.exp(-z)),
        "scaled_sigmoid": lambda z: 3 / (1 + math.exp(-z)),
        "tanh": math.tanh,
        "scaled_tanh": lambda z: 3 * math.tanh(z),
        "sin": math.sin,
        "relu": lambda z: max(z, 0),
        "lelu": lambda z: z if z > 0 else 0.005 * z,
        "identity": lambda z: z,
        "inv": lambda z: 1 / (max(z, 1e-7) if z > 0 else min(z, -1e-7)),
        "log": lambda z: math.log(max(z, 1e-7)),
        "exp": math.exp,
        "abs": abs,
    }
    values = dict(zip(inputs, x, strict=True))
    for i in network["topo_order"]:
        if i not in values:
            node = network["nodes"][i]
            terms = [c["weight"] * values[c["in"]] for c in network["conns"].values() if c["out"] == i]
            total = sum(terms) / (len(terms) if node["agg"] == "mean" else 1)
            z = node["bias"] + node.get("res", 1) * total
            values[i] = functions[transform if i in outputs else node["act"]](z)
    return [values[i] for i in outputs]


def make_network(act, with_response):
    """Laid out as TensorNEAT's network_dict: three inputs, two outputs, then hidden nodes."""
    rng = np.random.default_rng(0)
    order, outs = [0, 1, 2, 5, 6, 7, 3, 4], (3, 4)
    nodes = {
        i: {"idx": i, "bias": np.float32(rng.normal()), "agg": "mean" if i == 6 else "sum", "act": act}
        | ({"res": np.float32(rng.normal())} if with_response else {})
        for i in range(8)
    }
    pairs = [
        (u, v) for k, u in enumerate(order) for v in order[k + 1 :] if v > 2 and u not in outs and rng.random() < 0.7
    ]
    conns = {(u, v): {"in": u, "out": v, "weight": np.float32(rng.normal())} for u, v in pairs}
    return {"nodes": nodes, "conns": conns, "topo_order": order, "topo_layers": []}


@pytest.mark.parametrize("act", ["sigmoid", "scaled_sigmoid", "tanh", "scaled_tanh", "sin", "relu", "lelu", "identity",
                                 "inv", "log", "abs", "exp"])  # fmt: skip
def test_networks(act, tmp_path):
    network = make_network(act, with_response=act in ("tanh", "sin"))
    transform = "tanh" if act != "sigmoid" else "scaled_sigmoid"
    x = np.random.default_rng(1).normal(size=(20, 3)) * 0.5
    expected = torch.tensor([reference_outputs(network, row, (0, 1, 2), (3, 4), transform) for row in x.tolist()])
    net = from_tensorneat(network, 3, 2, output_transform=transform, dtype=torch.float64)
    assert_same(net, expected.double(), torch.from_numpy(x))
    assert_same(
        from_tensorneat(network, [0, 1, 2], [3, 4], output_transform=transform, dtype=torch.float64),
        expected,
        torch.from_numpy(x),
    )
    plain = {"nodes": list(network["nodes"].values()), "conns": {str(k): v for k, v in network["conns"].items()}}
    path = tmp_path / "network.json"
    path.write_text(json.dumps(plain, default=float))
    restored = read_tensorneat(path, 3, 2, output_transform=transform, dtype=torch.float64)
    assert torch.equal(restored(torch.from_numpy(x)), net(torch.from_numpy(x)))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"nodes": None}, "expected a TensorNEAT network with 'nodes'"),
        ({"conns": [{"in": 0}]}, "expected a TensorNEAT network with 'nodes'"),
        ({"conns": [{"in": 99, "out": 6, "weight": 1}]}, "has a connection from 99, which is not a node"),
        (
            {"nodes": [{"idx": 0, "bias": 0, "agg": "sum", "act": "tanh"}]},
            "expected inputs and outputs among the 1 nodes, got 1",
        ),
    ],
)
def test_invalid_networks(change, match):
    with pytest.raises(FourwardError, match=match):
        from_tensorneat(make_network("tanh", False) | change, 3, 2)


def test_invalid_files(tmp_path):
    path = tmp_path / "x.json"
    path.write_text("{")
    with pytest.raises(FileError, match="expected JSON, got JSONDecodeError"):
        read_tensorneat(path, 3, 2)
    path.write_text(json.dumps(make_network("swish", False) | {"conns": []}, default=float).replace("mean", "sum"))
    with pytest.raises(ActivationError, match=r"x\.json: neuron 5 has the unknown activation 'swish'"):
        read_tensorneat(path, 3, 2)


SHAPES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=3), inner),
    max_leaves=12,
)


@given(first=SHAPES, data=st.data())
def test_any_json_is_read_or_refused(first, data, tmp_path_factory):
    """Any JSON, and valid JSON with a part of it replaced."""
    path = tmp_path_factory.mktemp("fuzz") / "x.json"
    network = json.loads(json.dumps(NEAT))
    part, keys = network, list(network)
    while keys:
        key = data.draw(st.sampled_from(keys))
        if not isinstance(part[key], dict | list) or not part[key] or data.draw(st.booleans()):
            part[key] = data.draw(SHAPES)
            break
        part = part[key]
        keys = list(part) if isinstance(part, dict) else list(range(len(part)))
    for content in (first, network):
        path.write_text(json.dumps(content))
        for read in (read_neat, lambda path: read_tensorneat(path, 1, 1)):
            with contextlib.suppress(FourwardError):
                read(path)


@pytest.mark.parametrize("number", ["1e999", "1" + "0" * 400, "1" * 5000])
def test_huge_numbers(number, tmp_path):
    path = tmp_path / "x.json"
    network = {"nodes": [{"idx": "N", "bias": 0, "agg": "sum", "act": "tanh"}], "conns": []}
    path.write_text(json.dumps(network).replace('"N"', number))
    with pytest.raises(FileError):
        read_tensorneat(path, 1, 1)
    connections = [{"enabled": True, "from": 0, "to": 1, "weight": "N"}]
    network = {"network_type": "feedforward", "topology": {}, "connections": connections}
    path.write_text(json.dumps(network).replace('"N"', number))
    with pytest.raises(FileError):
        read_neat(path)
