"""Networks run, and generated graphs are the same, without the packages that a network doesn't use."""

import subprocess
import sys

from fourward import connectomes, generate

WITHOUT = """
import sys
for name in ("rustworkx", "safetensors", "matplotlib", "rich", "sklearn"):
    sys.modules[name] = None
import fourward as fw, torch
"""
GRAPHS = """
dag = fw.generate.erdos_renyi(40, 0.08, seed=5)
worm = fw.connectomes.load("c-elegans").dag
"""
RUN = """
for graph in graphs:
    net, x = fw.FourWard(graph, seed=0), torch.ones(3, graph.num_inputs)
    net(x).sum().backward()
    for method in (fw.paper.Masked4Ward, fw.paper.SequentialBaseline, fw.paper.DeepStruct):
        torch.testing.assert_close(method(graph, seed=0)(x), net(x))
"""


def run_python(code):
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_networks_run_without_packages_for_other_tasks():
    run_python(WITHOUT + GRAPHS + "graphs = dag, worm" + RUN)


def test_graphs_that_need_no_components_do_without_scipy():
    code = WITHOUT.replace('"rustworkx"', '"rustworkx", "scipy"')
    graphs = "graphs = fw.generate.complete(9), fw.generate.layered_mlp([3, 4, 2]), fw.Dag.from_mask([[False]])"
    run_python(code + graphs + RUN)


def test_the_same_graphs_without_them():
    printed = run_python(WITHOUT + GRAPHS + "print(dag.edges.tolist(), worm.edges.tolist())")
    here = generate.erdos_renyi(40, 0.08, seed=5), connectomes.load("c-elegans").dag
    assert printed.strip() == " ".join(str(dag.edges.tolist()) for dag in here)
