"""`fourward study topologies`, `figures` and `report`."""

import pytest

from fourward._cli.app import main
from fourward.study._store import FILE, Store
from tests.study import synthetic


@pytest.fixture
def folder(tmp_path):
    with Store(tmp_path / FILE, environment=synthetic.ENVIRONMENT) as store:
        synthetic.add_attributes(store)
    return tmp_path


def test_figures_are_written_beside_the_results(folder, capsys):
    assert main(["study", "figures", "--out", str(folder)]) == 0
    printed = capsys.readouterr().out.split()
    assert str(folder / "figures" / "attributes.svg") in printed
    assert {str(path) for path in (folder / "figures").iterdir()} == set(printed)


def test_the_report_is_written_to_the_chosen_folder(folder, capsys, monkeypatch):
    monkeypatch.setattr("fourward.study._report.available_figures", lambda rows: [])
    assert main(["study", "report", "--out", str(folder), "--to", str(folder / "pages")]) == 0
    assert capsys.readouterr().out.strip() == str(folder / "pages" / "report.html")
    assert (folder / "pages" / "report.html").read_text().startswith("<!doctype html>")


@pytest.mark.parametrize("command", ["figures", "report"])
def test_no_results_no_pages(tmp_path, command, capsys):
    assert main(["study", command, "--out", str(tmp_path)]) == 2
    assert "results.sqlite not found. Run an experiment" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    (tmp_path / "results.sqlite.xz").touch()
    assert main(["study", command, "--out", str(tmp_path)]) == 2
    assert "results.sqlite.xz (xz -dk)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--topologies", "mlp,torus"], "topologies: unknown 'torus'. Choose from"),
        (["--data", "imagenet"], "data: unknown 'imagenet'. Choose from"),
        (["--epochs", "0"], "epochs must be at least 1, got 0"),
    ],
)
def test_unknown_names_are_bad_input(tmp_path, words, message, capsys):
    assert main(["study", "topologies", "--out", str(tmp_path), *words]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
