"""Advice in errors is right: every repair that an error names is tried, and the call then works."""

import ast
from functools import partial
from pathlib import Path

import networkx as nx
import pytest
import torch
from torch import nn

import fourward
from fourward import Digraph, FourWard, FourWardClassifier, Recurrent, exchange, generate
from fourward._cli import app
from fourward.errors import FourwardError, GraphError
from fourward.graph.files import read_dag
from fourward.paper import Masked4Ward
from fourward.study import _grid
from fourward.train import RunConfig, TrainConfig, evaluate, fit, read_data, resume_run, start_run
from fourward.train._devices import _check_count

ROWS = "a,b,y\n" + "".join(f"{k},{k % 7},{'yes' if k % 3 else 'no'}\n" for k in range(60))
CONFIG = RunConfig("rows.csv", "y", train=TrainConfig(epochs=1))
NET = FourWard(generate.layered_mlp([2, 3, 2]), output_activation="identity", seed=0)
TRANSMITTERS = generate.chain(3).with_attributes({"nt": ["ACh", "novel", "other"]})
RING = Digraph.from_edges([(0, 1), (1, 2), (2, 0)], inputs=[0], outputs=[2])
X, Y = torch.zeros(8, 2), torch.arange(8) % 2


def write(name, text):
    Path(name).write_text(text)
    return name


def graph_file(text, name="graph.csv", **kwargs):
    return lambda: partial(read_dag, write(name, text), **kwargs)


def command_line(*words):
    write("cyclic.csv", "a,b\nb,c\nc,b\nc,d\n")

    def call(**flags):
        args = [*words, "cyclic.csv", *(f"--{name.replace('_', '-')}" for name, value in flags.items() if value)]
        assert app._run(args) == 0

    return call


def networkx(*edges, make=nx.DiGraph, **kwargs):
    def prepare():
        graph = make()
        graph.add_edges_from(edges, weight=1.0)
        return partial(exchange.from_networkx, graph, activation="relu", **kwargs)

    return prepare


def table(text, *args, **kwargs):
    return lambda: partial(read_data, write("table.csv", text), *args, **kwargs)


def evaluation(**changed):
    def prepare():
        write("rows.csv", ROWS)
        start_run(generate.chain(4), RunConfig(**vars(CONFIG) | changed), "run", device="cpu")
        return partial(evaluate, "run")

    return prepare


def changed_data():
    call = evaluation()()
    write("rows.csv", ROWS + "99,1,no\n")
    return call


def moved_data():
    evaluation()()
    Path("rows.csv").rename("moved.csv")
    return partial(resume_run, "run", device="cpu")


def run(graph, config, **kwargs):
    def prepare():
        write("rows.csv", ROWS)
        return partial(start_run, graph, config, "run", device="cpu", **kwargs)

    return prepare


def patient_run():
    write("rows.csv", ROWS)

    def call(validation=0.0):
        config = RunConfig("rows.csv", "y", validation=validation, train=TrainConfig(epochs=1, patience=1))
        return start_run(generate.chain(4), config, "run", device="cpu")

    return call


def idle_rewiring():
    def call(rewire=None):
        return TrainConfig(epochs=1, rewire_fraction=0.2, rewire=rewire)

    return call


def paper_method():
    path = write("graph.csv", "a,b\nb,c\n")
    return lambda **options: Masked4Ward(read_dag(path, inputs=["a", "b"], **options).dag)


def count_devices(device, devices):
    return _check_count(torch.device(device), devices)


#: For each case: what makes the call, and the options that its error must name; `...`: with the value that it names.
CASES = {
    "unknown suffix": (graph_file("a,b\nb,c\n", "graph.table"), {"format": "csv"}),
    "row numbers": (graph_file(",x,y\n0,a,b\n1,b,c\n"), {"columns": ["x", "y"]}),
    "text as weight": (graph_file("a,b,much\nb,c,little\n", header=False), {"columns": [1, 2]}),
    "limit of memory": (graph_file("a,b\nb,c\n", max_bytes=10), {"max_bytes": 2**30}),
    "cycle": (graph_file("a,b\nb,c\nc,a\nc,d\n"), {"remove_feedback": ...}),
    "cycle in a graph to convert": (
        lambda: command_line("graph", "--out", "g.csv"),
        {"remove_feedback": ..., "recurrent": ...},
    ),
    "cycle on the command line": (lambda: command_line("info"), {"remove_feedback": ..., "recurrent": ...}),
    "cycle of a command without feedback": (
        lambda: command_line("bench", "--methods", "fourward", "--batches", "1"),
        {"remove_feedback": ...},
    ),
    "no inputs": (lambda: partial(Digraph.from_edges, [(0, 1), (1, 0), (1, 2)]), {"inputs": ...}),
    "no outputs": (lambda: partial(Digraph.from_edges, [(0, 1), (1, 2), (2, 1)]), {"outputs": ...}),
    "self-loop": (graph_file("a,b\nb,b\n"), {"self_loops": ...}),
    "driven inputs": (paper_method, {"into_inputs": ...}),
    "missing weight": (graph_file("a,b,1\nb,c,\nb,d,2\n"), {"missing": ...}),
    "duplicates": (graph_file("a,b,1\na,b,2\n"), {"merge": ...}),
    "undirected": (lambda: partial(read_dag, write("g.mtx", SYMMETRIC)), {"orient": ...}),
    "some weights": (lambda: partial(read_dag, write("g.json", SOME_WEIGHTS)), {"topology_only": ...}),
    "text weights": (lambda: partial(read_dag, write("g.json", TEXT_WEIGHTS)), {"topology_only": ...}),
    "infinite weights": (lambda: partial(read_dag, write("g.json", INFINITE_WEIGHTS)), {"topology_only": ...}),
    "networkx: cycle": (networkx(("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")), {"remove_feedback": ...}),
    "networkx: self-loop": (networkx(("a", "b"), ("b", "b")), {"self_loops": ...}),
    "networkx: undirected": (networkx(("a", "b"), ("b", "c"), make=nx.Graph), {"orient": ...}),
    "networkx: duplicates": (networkx(("a", "b"), ("a", "b"), make=nx.MultiDiGraph), {"merge": ...}),
    "networkx: activation": (
        lambda: partial(exchange.from_networkx, nx.DiGraph([("a", "b", {"weight": 1.0})])),
        {"activation": "tanh"},
    ),
    "signs": (lambda: partial(FourWard, TRANSMITTERS, sign="nt"), {"sign": ...}),
    "more signs": (lambda: partial(FourWard, TRANSMITTERS, sign=("nt", {"other": 0})), {"sign": ...}),
    "engine": (lambda: partial(FourWard, generate.chain(3), dtype=torch.bfloat16, engine="cpu"), {"engine": ...}),
    "module": (lambda: partial(exchange.export, nn.Sequential(NET), "m.pt2"), {"example": X}),
    "no target": (table("a,b,y\n1,2,0\n3,4,1\n"), {"target": "y"}),
    "unnamed column": (table(",a,y\n0,1,0\n1,3,1\n", "y"), {"drop": ...}),
    "text in a feature": (table("a,b,y\n1,2,0\n3,four,1\n", "y"), {"drop": ...}),
    "stray text in the target": (
        table("a,y\n" + "".join(f"{k},{k}\n" for k in range(30)) + "9,none\n", "y"),
        {"task": ...},
    ),
    "patience": (lambda: partial(fit, NET, X, Y, epochs=1, patience=2), {"validation": (X, Y)}),
    "validation": (lambda: partial(fit, NET, X, Y, epochs=1, validation=X), {"validation": (X, Y)}),
    "targets as classes": (lambda: partial(fit, NET, X, torch.randn(8, 2), epochs=1), {"task": ...}),
    "device of fit": (lambda: partial(fit, NET, X, Y, epochs=1, device="cuda:99"), {"device": ...}),
    "device with an index": (lambda: partial(count_devices, device="cpu:0", devices=2), {"device": ...}),
    "device of a study": (lambda: partial(_grid.check_device, device="cuda"), {"device": ...}),
    "rewiring of a run": (idle_rewiring, {"rewire": ...}),
    "patience of a run": (patient_run, {"validation": 0.2}),
    "adapters of a run": (run(generate.chain(4), CONFIG, adapters=False), {"adapters": ...}),
    "adapters of an estimator": (
        lambda: lambda adapters=False: FourWardClassifier("chain:4", epochs=1, adapters=adapters).fit(X, Y),
        {"adapters": ...},
    ),
    "steps of a table": (run(RING, CONFIG), {"steps": 2}),
    "steps of a file": (lambda: partial(exchange.export, Recurrent(RING, seed=0), "net.onnx"), {"steps": 2}),
    "data has moved": (moved_data, {"data": "moved.csv"}),
    "data has changed": (changed_data, {"data": "rows.csv"}),
    "no test rows": (evaluation(test=0.0), {"data": "rows.csv"}),
}
SYMMETRIC = "%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n2 1\n3 2\n"
DIRECTED = (
    '{"directed": true, "nodes": [{"id": "a"}, {"id": "b"}, {"id": "c"}], '
    '"links": [{"source": "a", "target": "b"}, {"source": "b", "target": "c"}]}'
)
SOME_WEIGHTS = DIRECTED.replace('"b"}, {"so', '"b", "weight": 1}, {"so')
TEXT_WEIGHTS = SOME_WEIGHTS.replace("1", '"much"')
INFINITE_WEIGHTS = SOME_WEIGHTS.replace("1", "1e999").replace('"c"}]}', '"c", "weight": 1}]}')


@pytest.mark.filterwarnings("ignore:no CUDA:UserWarning")
@pytest.mark.parametrize("name", CASES)
def test_every_repair_helps(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    prepare, options = CASES[name]
    call = prepare()
    with pytest.raises(FourwardError) as caught:
        call()
    assert {repair.option for repair in caught.value.repairs} == set(options)
    for repair in caught.value.repairs:
        value = options[repair.option] if repair.value is ... else repair.value
        assert value is not ...
        call(**{repair.option: value})


def test_every_option_that_an_error_may_name_is_tried():
    named = set()
    for path in Path(fourward.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Repair":
                named |= {"inputs", "outputs"} if isinstance(node.args[0], ast.JoinedStr) else {node.args[0].value}
    assert named == {option for _, options in CASES.values() for option in options}


@pytest.mark.parametrize("edges", [[("a", "b"), ("b", "c")], [("a", "b"), ("b", "c"), ("c", "b")]])
def test_orient_of_a_directed_graph_names_no_option(edges):
    """Only omitting it helps; a graph with cycles then says what repairs those."""
    graph = nx.DiGraph(edges)
    nx.set_edge_attributes(graph, 1.0, "weight")
    with pytest.raises(GraphError, match=r"needs an undirected graph.* Omit it\.$"):
        exchange.from_networkx(graph, activation="relu", orient="random")
    exchange.from_networkx(graph, activation="relu", remove_feedback=True)
