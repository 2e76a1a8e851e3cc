"""The summary of a network."""

import json

import numpy as np
import torch

from fourward import Dag, FourWard, generate
from fourward.nn import summary


def test_a_small_network():
    net = FourWard(Dag.from_edges([("a", "c"), ("b", "c"), ("c", "d"), ("a", "d")]), seed=0)
    info = summary(net, batch=10)
    assert json.loads(json.dumps(info)) == info
    assert {key: info[key] for key in ("nodes", "edges", "inputs", "outputs", "height", "widest_layer", "batch")} == {
        "nodes": 4, "edges": 4, "inputs": 2, "outputs": 1, "height": 3, "widest_layer": 2, "batch": 10,
    }  # fmt: skip
    assert info["attenuation"] == 4 / 3
    assert info["degrees"] == {"in": {"min": 0, "mean": 1.0, "max": 2}, "out": {"min": 0, "mean": 1.0, "max": 2}}
    assert info["engine"] == net.engine
    assert "\n".join(info["explanation"]) == net.explain()
    assert info["cost"]["forward_flops"] == 10 * (2 * 4 + 2)


def test_bytes_follow_the_type():
    net = FourWard(Dag.from_edges([("a", "b")]), seed=0, dtype=torch.float64)
    assert summary(net)["cost"]["parameter_bytes"] == 16


def test_constraints_leave_fewer_parameters():
    dag = generate.erdos_renyi(20, 0.4, seed=0)
    edge = np.arange(dag.num_edges)
    net = FourWard(dag, tied=edge % 5, frozen=edge < 7, sign=np.ones(dag.num_edges), init=1.0)
    info = summary(net)
    assert info["cost"]["parameters"] == sum(parameter.numel() for parameter in net.parameters())
    assert info["cost"]["parameter_bytes"] == 4 * info["cost"]["parameters"]
    assert info["constraints"] == net.constraints.extra_repr()
    assert json.loads(json.dumps(info)) == info
