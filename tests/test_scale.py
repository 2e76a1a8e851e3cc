"""The formulas of docs/scale.md against the arrays of a network, and against what was measured."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import memory
from benchmarks.fresh import random_edges
from fourward import Dag, FourWard
from tools.docs_outputs import ROOT, find_blocks

RESULTS = ROOT / "benchmarks" / "results"


def array_bytes(*things: object) -> int:
    """The size of all arrays that these hold, each counted once."""
    sizes = {id(v): v.nbytes for thing in things for v in vars(thing).values() if isinstance(v, np.ndarray)}
    return sum(sizes.values())


def test_bytes_for_each_edge_and_node():
    """Two graphs of one size, one with twice the edges: what they differ by belongs to the edges."""
    totals = []
    for edges in (200_000, 400_000):
        dag = Dag.from_edges(random_edges(20_000, edges), nodes=20_000)
        net = FourWard(dag, seed=0)
        totals.append(array_bytes(dag, net.layering, net.plan) + net.runner.packed_plan.nbytes)
    for_edge = (totals[1] - totals[0]) / 200_000
    for_node = (totals[0] - for_edge * 200_000) / 20_000
    assert for_edge == pytest.approx(8 + 8 + 12, rel=0.01)
    assert for_node == pytest.approx(100, rel=0.05)


def test_the_page_and_the_benchmark_have_one_formula():
    (block,) = (block for block in find_blocks(ROOT / "docs" / "scale.md", "python") if "def cpu_bytes" in block.code)
    names: dict = {}
    exec(block.code, names)
    for size in ((10, 1, 1), (1, 10, 1), (1, 1, 10), (10**6, 10**7, 128)):
        assert names["cpu_bytes"](*size) == memory.cpu_bytes(*size)
        assert names["gpu_bytes"](*size) == memory.gpu_bytes(*size)


def test_formulas_against_measurements():
    for graph in json.loads((RESULTS / "memory.json").read_text())["graphs"]:
        expected = memory.cpu_bytes(graph["nodes"], graph["edges"], graph["batch"])
        assert 1.0 < graph["peaks"]["training"] / expected < 1.12
    cells = [cell for cell in json.loads((RESULTS / "gpu.json").read_text())["large"] if cell["nodes"] >= 10_000]
    assert len(cells) == 5
    for cell in cells:
        expected = memory.gpu_bytes(cell["nodes"], cell["edges"], cell["batch"])
        if cell["nodes"] == 10_000:  # nearly all of their levels are narrow, and fused
            assert "28 bytes for each edge into them" in (ROOT / "docs/scale.md").read_text()
            expected += 28 * cell["edges"]
        assert cell["memory"]["peak"] == pytest.approx(expected, rel=0.04)


def test_a_measurement(tmp_path):
    memory.main(["--edges", "2000", "--out", str(tmp_path)])
    (graph,) = json.loads((tmp_path / "memory.json").read_text())["graphs"]
    assert (graph["nodes"], graph["edges"]) == (200, 2000)
    assert list(graph["peaks"].values()) == sorted(graph["peaks"].values())
    assert "| 200 | 2,000 |" in Path(tmp_path / "memory.md").read_text()
