"""Layouts and launch configurations of the gpu engine are those that were measured fastest."""

import numpy as np
import pytest

from benchmarks.gpu_configs import wide_input_graph
from benchmarks.real_graphs import deep_circuit
from fourward import Dag, Digraph, Recurrent, generate
from fourward.engine._gpu import heuristics, packing
from fourward.layering import longest_path
from fourward.plan._plan import build_plan
from tests.engine.gpu import DEVICE, random_dag


@pytest.mark.parametrize(
    ("tiles", "slices", "want"),
    [(7, 4, (7, False)), (560, 4, (260, False)), (560, 64, (200, False)), (560, 133, (132, True)), (7, 300, (7, True))],
)
def test_tickets_are_for_more_programs_than_are_resident(tiles, slices, want):
    assert heuristics.choose_packers(tiles, slices, 264) == want


@pytest.mark.parametrize(
    ("shape", "batch", "want"),
    [
        ((packing.TILED, 128, 4, 8128, 0), 512, ("tiled", 8, 32, 4, 0, True)),
        ((packing.TILED, 256, 8, 32640, 0), 512, ("tiled", 8, 32, 4, 0, True)),
        ((packing.TILED, 256, 8, 32640, 0), 1056, ("tiled", 8, 32, 4, 0, True)),
        ((packing.TILED, 256, 8, 32640, 0), 1057, ("tiled", 8, 16, 2, 0, False)),
        ((packing.TILED, 256, 8, 32640, 0), 8192, ("tiled", 8, 16, 2, 0, False)),
        ((packing.TILED, 320, 9, 2542, 0), 32, ("tiled_segments", 8, 32, 4, 0, True)),
        ((packing.TILED, 384, 12, 73536, 0), 32, ("tiled_segments", 8, 32, 4, 0, True)),
        ((packing.TILED, 384, 12, 73536, 0), 8192, ("tiled_segments", 8, 16, 2, 0, False)),
        ((packing.CSR, 5000, 0, 4999, 4999), 512, ("csr_persistent", 32, 8, 4, 8, False)),
        ((packing.CSR, 10**4, 0, 10**5, 47), 32, ("csr_per_level", 32, 32, 4, 4, False)),
        ((packing.CSR, 10**4, 0, 10**5, 47), 512, ("csr_per_level", 32, 8, 4, 16, False)),
        ((packing.CSR, 10**5, 0, 10**6, 55), 512, ("csr_per_level", 32, 8, 4, 16, False)),
        ((packing.CSR, 10**4, 0, 10**6, 410), 512, ("csr_per_level", 32, 32, 4, 4, False)),
    ],
)
def test_configs_are_those_that_were_measured_fastest(shape, batch, want):
    """The tables of docs/gpu.md."""
    assert heuristics.tuned_config(*shape, batch) == want


@pytest.mark.parametrize(
    ("dag", "layout"),
    [
        (lambda: generate.erdos_renyi(200, 0.01, seed=0), packing.TILED),  # one launch
        (lambda: generate.erdos_renyi(1024, 0.2, seed=0), packing.TILED),  # many levels
        (lambda: random_dag(2000, 8000), packing.CSR),  # few levels
        (lambda: random_dag(4000, 256_000), packing.TILED),
        (lambda: random_dag(10**4, 10**5), packing.CSR),  # too much memory
        (lambda: wide_input_graph(800, 200, 50), packing.TILED),
        (lambda: wide_input_graph(4000, 200, 50), packing.CSR),  # many inputs, few for each
        (lambda: wide_input_graph(4000, 200, 1000), packing.TILED),
        (lambda: generate.chain(5000), packing.TILED),
        (lambda: generate.chain(70_000), packing.CSR),  # too much memory
    ],
)
def test_layouts_are_those_that_were_measured_fastest(dag, layout):
    dag = dag()
    assert heuristics.choose_layout(build_plan(dag, longest_path(dag), np.ones(dag.num_nodes, np.int32))) == layout


@pytest.mark.parametrize(
    ("levels", "width", "want"),
    [(400, 120, [(8, 2, 2)]), (400, 8, []), (60, 120, [])],
    ids=["deep", "narrow", "flat"],
)
def test_small_batches_have_blocks_of_two_samples_where_that_is_faster(monkeypatch, levels, width, want):
    monkeypatch.setattr(heuristics.cuda_kernels, "why_unavailable", lambda: None)
    dag = Dag.from_edges(deep_circuit(levels, levels * width, seed=0), nodes=levels * width)
    plan = build_plan(dag, longest_path(dag), np.ones(dag.num_nodes, np.int32))
    large, *small = heuristics.choose_fused(plan, packing.CSR)
    assert large.block.lanes == 8
    assert [config.block for config in small] == want


@pytest.mark.parametrize(("feedback", "advises"), [("fewest", True), ("all", False)])
def test_networks_with_feedback_say_what_takes_one_launch_a_step(monkeypatch, feedback, advises):
    config = heuristics.LaunchConfig("recurrent_per_level", 32, 8, 4, 16)
    monkeypatch.setattr(heuristics, "choose_recurrent_config", lambda *_: config)
    graph = Digraph.from_edges([(0, 1), (1, 2), (2, 1), (2, 3)], nodes=4, feedback=feedback)
    net = Recurrent(graph, engine="gpu", device=DEVICE, seed=0)
    assert ('with every edge delayed (feedback="all") it would be one' in net.explain()) is advises
