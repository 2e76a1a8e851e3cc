"""`fourward study topologies`, `figures` and `report`."""

import pytest

from fourward._cli.app import main
from fourward.study._store import FILE, Store
from tests.study import made


@pytest.fixture
def folder(tmp_path):
    with Store(tmp_path / FILE, facts=made.FACTS) as store:
        made.attributes(store)
    return tmp_path


def test_figures_are_written_beside_the_results(folder, capsys):
    assert main(["study", "figures", "--out", str(folder)]) == 0
    said = capsys.readouterr().out.split()
    assert str(folder / "figures" / "attributes.svg") in said
    assert {str(path) for path in (folder / "figures").iterdir()} == set(said)


def test_the_report_goes_where_it_is_wanted(folder, capsys, monkeypatch):
    monkeypatch.setattr("fourward.study._report.pictures", lambda found: [])
    assert main(["study", "report", "--out", str(folder), "--to", str(folder / "pages")]) == 0
    assert capsys.readouterr().out.strip() == str(folder / "pages" / "report.html")
    assert (folder / "pages" / "report.html").read_text().startswith("<!doctype html>")


@pytest.mark.parametrize("command", ["figures", "report"])
def test_no_results_no_pages(tmp_path, command, capsys):
    assert main(["study", command, "--out", str(tmp_path)]) == 2
    assert "there is no results file" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--topologies", "mlp,torus"], "topology torus: choose from"),
        (["--data", "imagenet"], "data imagenet: choose from"),
        (["--epochs", "0"], "epochs=0"),
    ],
)
def test_what_is_unknown_is_said(tmp_path, words, message, capsys):
    assert main(["study", "topologies", "--out", str(tmp_path), *words]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
