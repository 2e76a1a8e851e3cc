"""The notebooks run, and are stored with outputs that are small enough for git."""

import re

import nbformat
import pytest

from tools.run_notebooks import NOTEBOOKS, run

#: Every cell runs, with fewer epochs and seeds than in the stored run.
SHORTER = {
    "feedback": {"EPOCHS = 25": "EPOCHS = 2"},
    "rewiring": {"EPOCHS = 40": "EPOCHS = 4"},
    "topologies": {"SEEDS = 3": "SEEDS = 2", '"epochs": 20, "draws": 3': '"epochs": 2, "draws": 2'},
    "worm": {'"epochs": 40': '"epochs": 4', "range(dag.num_nodes)": "range(0, dag.num_nodes, 4)"},
}


def outputs(notebook) -> list[list[str]]:
    """The types of the outputs of each code cell."""
    return [[output.output_type for output in cell.outputs] for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:zmq")  # raised within Jupyter
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_and_has_the_stored_outputs(path, tmp_path):
    stored = nbformat.read(path, as_version=4)
    executed = run(path, tmp_path, SHORTER[path.stem])
    assert outputs(executed) == outputs(stored)
    assert not any(output.get("name") == "stderr" for cell in executed.cells for output in cell.get("outputs", []))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_small_and_contain_no_paths(path):
    text = path.read_text()
    assert len(text) < 450_000
    assert not re.search(r"""[\s"'(]/(\w[\w.-]*/)+""", text)  # no path that starts at a root


def test_there_are_four():
    assert [path.stem for path in NOTEBOOKS] == ["feedback", "rewiring", "topologies", "worm"]
