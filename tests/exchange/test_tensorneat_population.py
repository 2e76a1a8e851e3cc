"""TensorNEAT's arrays as a population: the same as each genome's dict."""

import numpy as np
import pytest
import torch

from fourward.errors import FileError, GraphError
from fourward.exchange import from_tensorneat, tensorneat_population
from tests.tolerance import assert_near

ACTIVATIONS = ("tanh", "scaled_sigmoid", "relu_", "sin")
AGGREGATIONS = ("sum", "mean", "max", "product", "min")


def state(members=6, inputs=3, outputs=2, rows=12, seed=0):
    """Arrays as TensorNEAT's state has them, with rows in any order, padded with NaN; and the dict of each genome."""
    rng = np.random.default_rng(seed)
    nodes, conns = np.full((members, rows, 5), np.nan), np.full((members, 40, 3), np.nan)
    dicts = []
    for p in range(members):
        hidden = np.sort(rng.permutation(np.arange(inputs + outputs, 40))[: rng.integers(0, rows - inputs - outputs)])
        keys = [*range(inputs + outputs), *hidden.tolist()]
        order = [*range(inputs), *rng.permutation(hidden).tolist(), *range(inputs, inputs + outputs)]
        genes = [(key, *rng.normal(size=2), rng.integers(0, 5), rng.integers(-1 if key > 4 else 0, 4)) for key in keys]
        pairs = [(u, v) for j, v in enumerate(order) for u in order[:j] if v >= inputs and rng.random() < 0.3][:40]
        links = [(u, v, w) for (u, v), w in zip(pairs, rng.normal(size=len(pairs)), strict=True)]
        nodes[p, rng.permutation(rows)[: len(keys)]] = genes
        if links:
            conns[p, rng.permutation(40)[: len(links)]] = links
        names = [(ACTIVATIONS[a] if a >= 0 else "identity") for *_, a in genes]
        dicts.append(
            {
                "nodes": [
                    {"idx": key, "bias": b, "res": r, "agg": AGGREGATIONS[g], "act": name}
                    for (key, b, r, g, _), name in zip(genes, names, strict=True)
                ],
                "conns": [{"in": u, "out": v, "weight": w} for u, v, w in links],
            }
        )
    return nodes, conns, dicts


OPTIONS = {"activation_options": ACTIVATIONS, "aggregation_options": AGGREGATIONS, "dtype": torch.float64}


@pytest.mark.parametrize("transform", ["identity", "scaled_tanh"])
def test_arrays_equal_dicts(transform):
    nodes, conns, dicts = state()
    pop = tensorneat_population(nodes, conns, 3, 2, output_transform=transform, **OPTIONS)
    x = torch.randn(7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = pop(x)
    for p, network in enumerate(dicts):
        net = from_tensorneat(network, 3, 2, output_transform=transform, dtype=torch.float64)
        assert_near(y[p].detach(), net(x).detach())
        keys = {node["idx"] for node in network["nodes"]}
        assert keys <= set(pop.dag(p).labels)
    float32 = tensorneat_population(nodes.astype(np.float32), conns.astype(np.float32), 3, 2, **OPTIONS)
    assert len(float32) == 6


def test_what_is_refused():
    nodes, conns, _ = state()
    for change, error, message in (
        ({"nodes": nodes[..., :4]}, FileError, r"nodes of shape \(P, N, 5\)"),
        ({"conns": conns[:2]}, FileError, "as many genomes, got 6 and 2"),
        ({"inputs": 9}, FileError, "expected the nodes 0 to 10 in each genome"),
        ({"inputs": 0}, FileError, "expected the nodes"),
        ({"activation_options": ("tanh",)}, FileError, "among the 1 of activation_options"),
        ({"aggregation_options": ("sum", "maxabs", "sum", "sum", "sum")}, GraphError, "the aggregation 'maxabs'"),
    ):
        arguments = {"nodes": nodes, "conns": conns, "inputs": 3, "outputs": 2} | OPTIONS | change
        with pytest.raises(error, match=message):
            tensorneat_population(**arguments)
    broken = conns.copy()
    broken[2, 0] = (0, 99, 1.0)
    with pytest.raises(FileError, match="member 2 has the connection 0 to 99"):
        tensorneat_population(nodes, broken, 3, 2, **OPTIONS)
