"""Run the notebooks of the documentation and store their outputs: `python tools/run_notebooks.py`."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from fourward._files import replacing

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def run(path: Path, folder: str | Path, replacements: Mapping[str, str] | None = None) -> Any:
    """Run a notebook in a folder and return it with new outputs; an error in a cell is raised.

    `replacements` of its source, old by new, make it shorter for the tests.
    """
    notebook = nbformat.read(path, as_version=4)
    for old, new in (replacements or {}).items():
        (cell,) = (cell for cell in notebook.cells if cell.cell_type == "code" and old in cell.source)
        cell.source = cell.source.replace(old, new)
    NotebookClient(
        notebook, timeout=600, kernel_name="python3", coalesce_streams=True,
        resources={"metadata": {"path": str(folder)}},
        shutdown_kernel="immediate",  # where all cells have run: a kernel takes 3 s to end by itself
    ).execute()  # fmt: skip
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata.clear()  # which holds the times of execution
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return notebook


def main() -> None:
    """Run all of them."""
    for path in NOTEBOOKS:
        with tempfile.TemporaryDirectory() as folder:
            notebook = run(path, folder)
        with replacing(path) as temporary:
            nbformat.write(notebook, temporary)
        print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
