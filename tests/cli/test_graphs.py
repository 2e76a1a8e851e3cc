"""`fourward graph`, `info`, `export`, `import` and `bench`, as a user types them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import networkx as nx
import numpy as np
import pytest
import torch

from fourward import Dag, FourWard, _memory, connectomes, files, generate, load, nn, save
from fourward._cli import app, options
from fourward._cli.export import export
from fourward._cli.info import summarize_graph
from fourward.exchange import EXPORTERS, from_mlp


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def call(*words):
        code = app.main(list(map(str, words)))
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return call


@pytest.mark.parametrize("command", ["graph", "info", "export", "import", "bench"])
def test_help_has_an_example(command, run):
    code, out, _ = run(command, "--help")
    assert code == 0
    assert f"Example: fourward {command}" in out


def test_graphs_are_made_and_converted(run):
    code, out, _ = run("graph", "er:40:0.2:1", "--out", "a.graphml")
    assert (code, out) == (0, f"a.graphml: {generate.erdos_renyi(40, 0.2, seed=1)!r}\n")
    for ending in ("gexf", "json", "mtx", "npz", "tsv.gz", "csv"):
        assert run("graph", "a.graphml", "--out", f"b.{ending}")[0] == 0
        assert files.read_dag(f"b.{ending}").dag == generate.erdos_renyi(40, 0.2, seed=1)


def test_a_connectome_with_its_strengths(run):
    code, _, err = run("graph", "c-elegans", "--out", "worm.csv", "--report", "removed.csv")
    assert code == 0
    assert "cut 721 edges into inputs with 13.5% of all weight: ADAL -> ADLL" in err
    assert "removed 581 feedback edges with 8.5% of all weight: ADAL -> ADAL" in err
    worm = connectomes.load("c-elegans")
    got = files.read_dag("worm.csv")
    assert got.dag == worm.dag
    assert got.weight.sum() == worm.strength.sum() - removed_strength(worm)
    edges = files.read("removed.csv").graph
    assert [(edges.labels[u], edges.labels[v]) for u, v in zip(edges.source, edges.target, strict=True)] == worm.removed
    assert run("graph", "c-elegans", "--out", "topology.csv", "--topology-only")[0] == 0
    assert files.read_dag("topology.csv").weight is None


def removed_strength(worm):
    removed = set(worm.removed)
    return sum(s for pair, s in zip(worm.edges, worm.strength.tolist(), strict=True) if pair in removed)


def test_a_cyclic_file(run, tmp_path):
    (tmp_path / "x.csv").write_text("a,b\nb,c\nc,a\n")
    code, out, err = run("graph", "x.csv", "--out", "y.csv")
    assert (code, out) == (2, "")
    assert "fourward: x.csv: the graph has a directed cycle of 3 edges" in err
    assert "--remove-feedback" in err
    assert not (tmp_path / "y.csv").exists()
    code, out, err = run("graph", "x.csv", "--out", "y.csv", "--remove-feedback", "--json")
    made = json.loads(out)
    assert made.pop("changes")["feedback"] == 1
    assert made == {
        "out": "y.csv", "nodes": 3, "edges": 2, "inputs": 1, "outputs": 1, "removed": [["c", "a"]], "merged": 0,
    }  # fmt: skip
    assert run("info", "x.csv")[0] == 2
    code, out, err = run("info", "x.csv", "--remove-feedback")
    assert code == 0
    assert "removed 1 feedback edge: c -> a" in err


def test_an_undirected_file(run):
    nx.write_graphml(nx.karate_club_graph(), "k.graphml")
    code, _, err = run("graph", "k.graphml", "--out", "d.graphml")
    assert code == 2
    assert "expected a directed graph, got an undirected one with 34 nodes and 78 edges" in err
    assert "Pass --orient random to direct the edges" in err
    assert run("graph", "k.graphml", "--orient", "random", "--seed", "3", "--out", "d.graphml")[0] == 0
    want = files.read_dag("k.graphml", orient="random", seed=3).dag
    assert files.read_dag("d.graphml").dag == want


def test_inputs_and_outputs_are_chosen(run, tmp_path):
    (tmp_path / "x.csv").write_text("1,2,5\n2,3,6\n1,3,7\n1,3,1\n")
    (tmp_path / "outs.txt").write_text("2\n3\n")
    code, _, err = run("graph", "x.csv", "--merge", "--inputs", "1", "--outputs", "@outs.txt", "--out", "y.npz")
    assert code == 0
    assert "merged 1 duplicate edge" in err
    got = files.read_dag("y.npz")
    assert [got.dag.labels[v] for v in got.dag.outputs] == [2, 3]
    assert sorted(got.weight) == [5, 6, 8]
    assert run("graph", "x.csv", "--merge", "--inputs", "@none.txt", "--out", "z.npz")[0] == 2


@pytest.mark.parametrize(
    "words",
    [
        ["graph", "nothing.csv", "--out", "y.csv"],
        ["graph", "er:10", "--out", "y.csv"],
        ["graph", "er:10:0.5", "--out", "y.dot"],
        ["graph", "er:10:0.5", "--out", "y.data", "--to", "dot"],
        ["graph", "er:10:0.5"],
        ["graph", "er:10:0.5", "--out", "y.csv", "--orient", "left"],
        ["graph", "er:10:0.5", "--out", "y.csv", "--columns", "1,2"],
        ["info", "er:10:0.5", "--batch", "0"],
        ["info", "er:10:0.5", "--activation", "swish"],
        ["info", "nothing.safetensors"],
        ["export", "nothing.safetensors", "--out", "x.onnx"],
        ["import", "nothing.graphml", "--out", "x.safetensors"],
        ["import", "x.json", "--from", "elsewhere", "--out", "x.safetensors"],
        ["bench", "er:10:0.5", "--methods", "magic"],
        ["bench", "er:10"],
    ],
)
def test_bad_arguments_are_bad_input(words, run, tmp_path):
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("x.graphml", b'<!DOCTYPE g [<!ENTITY a "b">]><graphml/>', "document type"),
        ("x.csv", b"a,b,1\nb,c,much\n", "line 2: expected a finite weight in column 3, got 'much'"),
        ("x.csv", b"", "is empty"),
        ("x.gexf", b"\x00\x01\x02", "invalid XML"),
    ],
)
def test_bad_files(name, data, text, run, tmp_path):
    (tmp_path / name).write_bytes(data)
    for words in (["info", name], ["graph", name, "--out", "y.csv"], ["import", name, "--out", "y.safetensors"]):
        code, _, err = run(*words)
        assert code == 2
        assert text in err
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_an_npz_of_pickles(run, tmp_path):
    np.savez(tmp_path / "x.npz", edges=np.array([{}]))
    code, _, err = run("info", "x.npz")
    assert code == 2
    assert "could run code" in err


def test_an_edge_list_larger_than_memory(run, monkeypatch):
    files.write(generate.chain(10_000), "x.csv")
    monkeypatch.setattr(_memory, "available_memory", lambda: 2**18)
    code, _, err = run("info", "x.csv")
    assert code == 2
    assert "it has about 9,999 edges, which takes about 976.5 KiB of memory, but 256.0 KiB are available" in err


def test_a_full_disk(run, tmp_path, monkeypatch):
    monkeypatch.setitem(files._FORMATS, "csv", files._FORMATS["csv"]._replace(write=full))
    code, _, err = run("graph", "er:10:0.5", "--out", "y.csv")
    assert (code, err) == (1, "fourward: y.csv: No space left on device\n")
    assert not list(tmp_path.iterdir())


def full(loaded, file):
    file.write(b"source")
    raise OSError(28, "No space left on device")


def test_info_for_people_and_programs(run):
    code, out, _ = run("info", "c-elegans", "--batch", "512")
    assert code == 0
    for words in ("302", "2,407", "47 layers", "6.43 nodes per layer", "engine cpu", "batch of 512", "training"):
        assert words in out
    code, out, _ = run("info", "c-elegans", "--inputs", "sources", "--outputs", "sinks", "--json")
    summary = json.loads(out)
    assert [summary[name] for name in ("edges", "inputs", "outputs")] == [2542, 16, 30]
    code, out, _ = run("info", "er:40:0.2:0", "--json")
    summary = json.loads(out)
    assert summary["nodes"] == 40
    assert summary["engine"] == "cpu"
    assert summary["removed"] == 0


@pytest.mark.parametrize("name", ["relu", "gelu"])
@pytest.mark.parametrize("driven", [False, True])
def test_info_of_a_graph_is_the_summary_of_a_network(name, driven):
    dag = generate.erdos_renyi(60, 0.1, seed=0)
    if driven:
        dag = Dag.from_edges(dag.edges.tolist(), nodes=60, inputs=range(0, 60, 2), outputs=[59])
        assert len(dag.driven)
    assert summarize_graph(dag, name, batch=7) == nn.summary(FourWard(dag, name, seed=0), batch=7)


@pytest.mark.parametrize("words", [["--help"], ["info", "--help"], ["info", "er:20:0.2"], ["info", "g.csv", "--json"]])
def test_help_and_info_do_not_import_torch(words, tmp_path):
    (tmp_path / "g.csv").write_text("a,b\nb,c\n")
    code = (
        f"import sys; from fourward._cli.app import main; assert main({words}) == 0; assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_info_of_a_saved_network(run):
    net = FourWard(generate.erdos_renyi(30, 0.2, seed=0), "tanh", seed=0, bias=False)
    save(net, "net.safetensors")
    summary = json.loads(run("info", "net.safetensors", "--json")[1])
    assert summary["cost"]["parameters"] == net.dag.num_edges


def test_export_and_import_round_trip(run):
    net = FourWard(generate.erdos_renyi(20, 0.2, seed=0), "tanh", seed=0)
    save(net, "net.safetensors")
    x = torch.randn(3, net.dag.num_inputs, generator=torch.Generator().manual_seed(0))
    for ending in ("graphml", "gexf", "json", "npz", "safetensors"):
        assert run("export", "net.safetensors", "--out", f"out.{ending}")[0] == 0
        assert run("import", f"out.{ending}", "--out", "imported.safetensors")[0] == 0
        assert torch.equal(load("imported.safetensors")(x), net(x))
    code, out, _ = run("export", "net.safetensors", "--out", "net.onnx")
    assert code == 0
    assert "largest difference between onnxruntime and torch: " in out
    result = json.loads(run("export", "net.safetensors", "--out", "net.onnx", "--json")[1])
    assert result["largest_difference"] < 1e-5
    code, _, err = run("export", "net.safetensors", "--out", "net.h5")
    assert code == 2
    assert "expected a file with one of the suffixes .onnx" in err


def test_export_of_a_checkpoint(run):
    code, *_ = run("train", "er:30:0.15:0", "--data", "wine", "--epochs", "2", "--out", "run")
    assert code == 0
    result = json.loads(run("export", "run", "--out", "net.onnx", "--json")[1])
    assert (result["inputs"], result["outputs"]) == (13, 3)
    assert result["largest_difference"] < 1e-4
    assert result["difference_to_model"] < 1e-3
    result = json.loads(run("export", "run", "--out", "net.json", "--json")[1])
    assert result["difference_to_model"] < 1e-5
    assert "largest difference from the model" in run("export", "run", "--out", "net.py")[1]
    assert "largest difference from the model" in run("export", "run", "--out", "net.c")[1]
    result = json.loads(run("export", "run", "--out", "bare.safetensors", "--network-only", "--json")[1])
    assert result["inputs"] == load("run/best.safetensors").dag.num_inputs


def test_import_of_weighted_edges(run, tmp_path):
    (tmp_path / "x.csv").write_text("a,b,2\nb,c,3\n")
    code, _, err = run("import", "x.csv", "--out", "x.safetensors")
    assert code == 2
    assert "--activation" in err
    code, out, _ = run("import", "x.csv", "--activation", "relu", "--out", "x.safetensors", "--json")
    assert json.loads(out) == {"out": "x.safetensors", "nodes": 3, "edges": 2, "inputs": 1, "outputs": 1}
    assert load("x.safetensors")(torch.tensor([1.0])).item() == 6


def test_import_of_tensorneat(run, tmp_path):
    nodes = [{"idx": k, "bias": 0.5, "agg": "sum", "act": "tanh"} for k in range(3)]
    conns = [{"in": k, "out": 2, "weight": 1.0} for k in range(2)]
    (tmp_path / "t.json").write_text(json.dumps({"nodes": nodes, "conns": conns}))
    code, _, err = run("import", "t.json", "--from", "tensorneat", "--out", "t.safetensors")
    assert code == 2
    assert "--inputs and --outputs" in err
    words = ["--from", "tensorneat", "--inputs", 2, "--outputs", 1, "--output-transform", "sigmoid"]
    assert run("import", "t.json", *words, "--out", "t.safetensors")[0] == 0
    got = load("t.safetensors")(torch.tensor([1.0, 2.0]))
    assert got.item() == pytest.approx(1 / (1 + np.exp(-3.5)))


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["--inputs", 2], "--inputs"),
        (["--outputs", 2], "--outputs"),
        (["--output-transform", "tanh"], "--output-transform"),
        (["--from", "neat", "--activation", "relu"], "--activation"),
        (["--from", "neat", "--inputs", 2], "--inputs"),
    ],
)
def test_import_refuses_options_of_another_kind(run, tmp_path, words, option):
    (tmp_path / "x.csv").write_text("a,b,2\n")
    code, _, err = run("import", "x.csv", *words, "--out", "x.safetensors")
    assert code == 2
    assert f"{option} needs --from" in " ".join(err.split())


@pytest.mark.parametrize(
    "words",
    [
        ["import", "net.safetensors", "--activation", "relu", "--out", "x.safetensors"],
        ["import", "net.safetensors", "--format", "csv", "--out", "x.safetensors"],
        ["info", "net.safetensors", "--activation", "relu"],
        ["info", "net.safetensors", "--remove-feedback"],
        ["train", "net.safetensors", "--inputs", "a", "--data", "wine"],
    ],
)
def test_options_of_a_graph_are_refused_with_a_network(run, tmp_path, words):
    save(FourWard(generate.chain(3)), "net.safetensors")
    code, _, err = run(*words)
    assert code == 2
    assert f"{words[2]} has no effect here: net.safetensors is a network" in " ".join(err.split())
    assert [path.name for path in tmp_path.iterdir()] == ["net.safetensors"]


@pytest.mark.parametrize(
    "words",
    [
        ["info"],
        ["draw", "--out", "x.svg"],
        ["view", "--no-open"],
        ["bench", "--batches", 2, "--methods", "fourward"],
        ["train", "--data", "wine", "--epochs", 1, "--device", "cpu"],
    ],
)
def test_every_command_takes_the_options_that_read_a_graph(run, tmp_path, words):
    (tmp_path / "g.dat").write_text("1,a,b,x\n2,b,c,x\n3,c,b,x\n4,a,b,x\n")
    name, *rest = words
    options = ["--format", "csv", "--columns", "2,3", "--no-header", "--remove-feedback", "--merge"]
    code, _, err = run(name, "g.dat", *rest, *options)
    assert code == 0, err
    assert "removed 1 feedback edge: c -> b" in err
    assert "merged 1 duplicate edge" in err


@pytest.mark.parametrize("suffix", [".onnx", ".pt2", ".c", ".py", ".tex"])
def test_formats_that_are_only_exported_are_refused(run, tmp_path, suffix):
    (tmp_path / f"net{suffix}").write_text("x")
    code, _, err = run("import", f"net{suffix}", "--out", "x.safetensors")
    assert code == 2
    assert f"net{suffix}: {suffix} files can't be imported." in err
    assert "one of the formats .safetensors, .graphml, .gexf, .json, .npz." in err


def test_helps_name_every_format():
    (graph_help,) = (argument.help for argument in get_args(options.GraphArgument)[1:])
    for format in set(files.SUFFIXES.values()):
        assert any(suffix in graph_help for suffix in files.SUFFIXES if files.SUFFIXES[suffix] == format), format
    out_help = get_args(get_type_hints(export, include_extras=True)["out"])[1].help
    assert re.findall(r"\.\w+", out_help) == list(EXPORTERS)


def test_import_of_a_pickled_genome(run, tmp_path):
    (tmp_path / "winner.pkl").write_bytes(b"\x80\x04}.")
    code, _, err = run("import", "winner.pkl", "--from", "neat", "--out", "w.safetensors")
    assert code == 2
    assert "is a pickle" in err


def test_an_mlp_of_torch_through_the_command_line(run, tmp_path):
    mlp = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    save(from_mlp(mlp), "mlp.safetensors")
    assert run("export", "mlp.safetensors", "--out", "mlp.py")[0] == 0
    names = {}
    exec((tmp_path / "mlp.py").read_text(), names)
    assert names["network"]([1, 2, 3]) == pytest.approx(mlp(torch.tensor([1.0, 2, 3])).tolist(), abs=1e-6)


def test_bench(run):
    words = ["bench", "er:30:0.2:0", "--batch", 4, "--batches", 2]
    code, out, _ = run(*words)
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:]] == ["fourward", "4ward", "mlp"]
    summary = json.loads(run(*words, "--json")[1])
    assert [place["name"] for place in summary["methods"]] == ["fourward", "4ward", "mlp"]
    assert all(place["forward"] > 0 and place["step"] > 0 for place in summary["methods"])


def test_the_paper_has_no_driven_inputs(run, tmp_path):
    (tmp_path / "g.csv").write_text("a,b\nb,c\n")
    words = ["bench", "g.csv", "--inputs", "a,b", "--batches", 1]
    code, _, err = run(*words)
    assert (code, "--into-inputs cut" in err) == (2, True)
    for repaired in ([*words, "--into-inputs", "cut"], [*words, "--methods", "fourward"]):
        assert run(*repaired)[0] == 0


@pytest.mark.parametrize(
    "words",
    [
        ["bench", "er:10:0.5:0", "--batches", 1, "--methods", "fourward"],
        ["study", "times", "--sizes", "8", "--batch-sizes", "2", "--seeds", 1, "--batches", 1, "--methods", "fourward"],
    ],
)
def test_timings_on_a_busy_machine_come_with_a_warning(words, run, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    for busy in (3.14, 0.2):
        monkeypatch.setattr(os, "getloadavg", lambda busy=busy: (busy, 0.0, 0.0), raising=False)
        code, _, err = run(*words)
        assert code == 0
        assert ("this machine is busy (load 3.1 on 2 cores)" in err) == (busy > 1)


def test_a_limit_of_memory(run):
    files.write(generate.chain(10_000), "x.csv")
    for args in (("info", "x.csv"), ("info", "chain:10000"), ("import", "x.csv", "--out", "y.safetensors")):
        code, _, err = run(*args, "--max-bytes", "1000")
        assert code == 2
        assert "larger than the limit of 1000 bytes" in err
        assert "Pass --max-bytes ... to allow more." in err


def test_export_of_a_graph_says_how_to_make_a_network_of_it(run):
    Path("graph.csv").write_text("source,target,weight\na,b,1\n")
    code, _, err = run("export", "graph.csv", "--out", "net.onnx")
    assert code == 2
    assert "expected a network (.safetensors) or the folder of a run, got graph.csv, a graph" in err
    assert "`fourward import graph.csv --activation relu --out network.safetensors`" in err
    assert run("import", "graph.csv", "--activation", "relu", "--out", "network.safetensors")[0] == 0
    assert run("export", "network.safetensors", "--out", "net.c")[0] == 0


def test_from_a_table_of_synapses_with_defects(run, tmp_path):
    rows = ["pre_id,post_id,syn_count", "1,2,3", "1,2,4", "2,3,9", "3,2,6", "3,3,5", "2,4,", "4,5,1", "3,1,8"]
    (tmp_path / "synapses.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "neurons.csv").write_text("root_id,class\n1,sensory\n2,inter\n3,motor\n")
    code, _, err = run(
        "graph", "synapses.csv", "--nodes", "neurons.csv", "--missing", "skip", "--merge-by", "sum", "--self-loops",
        "drop", "--min-weight", "5", "--inputs", "class=sensory", "--outputs", "class=motor", "--into-inputs", "cut",
        "--remove-feedback", "--only", "paths", "--out", "brain.graphml", "--report", "removed.csv",
    )  # fmt: skip
    assert code == 0, err
    for line in (
        "skipped 1 row",
        "dropped 1 self-loop",
        "merged 1 duplicate",
        "dropped 1 edge",
        "cut 1 edge",
        "3 -> 2",
    ):
        assert line in err
    assert (tmp_path / "removed.csv").read_text().split() == [
        "source,target,weight,reason", "3,1,8.0,into", "input", "3,2,6.0,feedback",
    ]  # fmt: skip
    got = files.read_dag("brain.graphml")
    assert got.dag.attributes["class"] == ("sensory", "inter", "motor")
    assert got.weight.tolist() == [7, 9]
