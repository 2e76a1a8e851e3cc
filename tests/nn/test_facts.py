"""What is told of a network."""

import json

import torch

from fourward import Dag, FourWard
from fourward.nn._summary import facts


def test_facts_of_a_small_network():
    net = FourWard(Dag.from_edges([("a", "c"), ("b", "c"), ("c", "d"), ("a", "d")]), seed=0)
    found = facts(net, batch=10)
    assert json.loads(json.dumps(found)) == found
    assert {key: found[key] for key in ("nodes", "edges", "inputs", "outputs", "height", "widest_layer", "batch")} == {
        "nodes": 4, "edges": 4, "inputs": 2, "outputs": 1, "height": 3, "widest_layer": 2, "batch": 10,
    }  # fmt: skip
    assert found["attenuation"] == 4 / 3
    assert found["degrees"] == {"in": {"least": 0, "mean": 1.0, "most": 2}, "out": {"least": 0, "mean": 1.0, "most": 2}}
    assert found["engine"] == net.engine
    assert "\n".join(found["why"]) == net.explain()
    assert found["cost"]["forward_operations"] == 10 * (2 * 4 + 2)


def test_bytes_follow_the_type():
    net = FourWard(Dag.from_edges([("a", "b")]), seed=0, dtype=torch.float64)
    assert facts(net)["cost"]["parameter_bytes"] == 16
