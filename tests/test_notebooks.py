"""The notebooks run as they stand, and are kept with outputs that are small enough for git."""

import re

import nbformat
import pytest

from tools.run_notebooks import NOTEBOOKS, run


def outputs(notebook) -> list[list[str]]:
    """The kinds of what each cell of code shows."""
    return [[one.output_type for one in cell.outputs] for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:zmq")  # of Jupyter's own
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_and_shows_what_is_kept(path, tmp_path):
    kept = nbformat.read(path, as_version=4)
    found = run(path, tmp_path)
    assert outputs(found) == outputs(kept)
    assert not any(one.get("name") == "stderr" for cell in found.cells for one in cell.get("outputs", []))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_small_and_say_nothing_of_the_machine(path):
    text = path.read_text()
    assert len(text) < 450_000
    assert not re.search(r"""[\s"'(]/(\w[\w.-]*/)+""", text)  # no path that starts at a root


def test_there_are_two():
    assert [path.stem for path in NOTEBOOKS] == ["topologies", "worm"]
