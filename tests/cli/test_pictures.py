"""`fourward draw` and `fourward view`, from arguments to files."""

import webbrowser

import pytest
import torch

import fourward as fw
from fourward._cli import app
from fourward._cli.drawable import load_drawable, read_samples
from fourward._cli.options import GraphOptions
from fourward.train import _checkpoint
from fourward.train._model import Model, Scaling


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or True)
    return tmp_path, opened


@pytest.fixture
def net():
    dag = fw.Dag.from_edges([("a", "c"), ("b", "c"), ("c", "d"), ("b", "d")])
    return fw.FourWard(dag, activation="tanh", seed=0)


def test_draw_writes_a_picture(here, capsys):
    assert app.main(["draw", "er:30:0.1:0", "--out", "graph.svg", "--title", "A graph"]) == 0
    assert capsys.readouterr().out == "graph.svg\n"
    assert "A graph" in (here[0] / "graph.svg").read_text()
    assert app.main(["draw", "er:30:0.1:0", "--kind", "density"]) == 0
    assert (here[0] / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_draw_warns_of_missing_glyphs(here, capsys):
    (here[0] / "names.csv").write_text("source,target\n日本,b\n", encoding="utf-8")
    assert app.main(["draw", "names.csv"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "picture.png\n"
    assert captured.err.startswith("fourward: the font of the picture has no glyphs for 日 本, ")
    assert captured.err.count("\n") == 1


def test_view_writes_a_page_and_opens_it(here, capsys):
    folder, opened = here
    assert app.main(["view", "chain:4"]) == 0
    assert capsys.readouterr().out == "page.html\nShown: all 4 neurons and all 3 edges.\n"
    assert opened == [(folder / "page.html").as_uri()]
    assert "<title>chain:4: 4 nodes, 3 edges, 1 input, 1 output</title>" in (folder / "page.html").read_text()
    assert app.main(["view", "chain:4", "--no-open", "--around", "2", "--out", "other.html"]) == 0
    assert len(opened) == 1
    assert (folder / "other.html").exists()


def test_a_machine_without_a_browser_is_told(here, capsys, monkeypatch):
    monkeypatch.setattr(webbrowser, "open", lambda url: False)
    assert app.main(["view", "chain:4"]) == 0
    assert "No browser found" in capsys.readouterr().out


def test_a_connectome_has_its_strengths_as_weights():
    drawable = load_drawable("c-elegans", GraphOptions(), None)
    worm = fw.connectomes.load("c-elegans")
    strength = dict(zip(worm.edges, worm.strength.tolist(), strict=True))
    labels = drawable.net_or_dag.labels
    assert drawable.weight.tolist() == [strength[labels[u], labels[v]] for u, v in drawable.net_or_dag.edges.tolist()]


@pytest.mark.parametrize("command", ["draw", "view"])
def test_saved_networks_and_runs_are_found(command, here, net):
    folder, _ = here
    (folder / "run").mkdir()
    for name in ("net.safetensors", "run/best.safetensors"):
        fw.save(net, folder / name)
    for word in ("net.safetensors", "run"):
        assert app.main([command, word, "--out", f"{word}.{'svg' if command == 'draw' else 'html'}"]) == 0
    assert torch.equal(load_drawable("run", GraphOptions(), None).net_or_dag.weight, net.weight)


def test_samples_of_a_network_are_columns_named_as_its_inputs(here, net):
    fw.save(net, "net.safetensors")
    (here[0] / "rows.csv").write_text("b,other,a\n1,x,2\n3,y,4\n")
    assert read_samples("net.safetensors", "rows.csv").tolist() == [[2, 1], [4, 3]]
    assert app.main(["view", "net.safetensors", "--samples", "rows.csv"]) == 0
    assert "sample 2 of 2" in (here[0] / "page.html").read_text()


def test_samples_of_a_model_go_through_its_input_layer(here, net):
    scaling = Scaling(torch.tensor([1.0, 2.0, 3.0]).numpy(), torch.tensor([2.0, 2.0, 2.0]).numpy())
    model = Model(net, ["p", "q", "r"], ["y"], ["no", "yes"], scaling, None)
    _checkpoint.save_checkpoint("model.safetensors", model)
    (here[0] / "rows.csv").write_text("p,q,r\n1,2,3\n5,6,7\n")
    expected = model.input_adapter(torch.tensor([[0.0, 0.0, 0.0], [2.0, 2.0, 2.0]]))
    torch.testing.assert_close(read_samples("model.safetensors", "rows.csv"), expected.detach())


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["draw", "nothing.graphml"], "neither a file nor the specification of a graph"),
        (["draw", "chain:3", "--out", "x.gif"], "to end in .png, .svg, .pdf"),
        (["view", "chain:3", "--samples", "rows.csv"], "is a graph without weights"),
        (["view", "chain:3", "--around", "9"], "unknown label '9'"),
        (["view", "missing.safetensors"], "missing.safetensors"),
        (["draw", "net.safetensors", "--merge"], "--merge has no effect here: net.safetensors is a network"),
    ],
)
def test_bad_arguments_are_bad_input(words, wrong, here, capsys):
    assert app.main(words) == 2
    err = capsys.readouterr().err
    assert wrong in err
    assert "Traceback" not in err
    assert list(here[0].iterdir()) == []
