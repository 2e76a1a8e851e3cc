"""The history of a run's edits, as a safetensors file in its folder.

initial                   (E, 2) int32, node indices: the edges at the start
steps, added, removed     the EditHistory, with num_added and num_removed pairs for each edit
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from fourward._arrays import IntArray
from fourward._files import EDITS
from fourward._serialization import corrupt_file_errors, read_safetensors, write_safetensors
from fourward.errors import FileError
from fourward.graph._base import BaseGraph
from fourward.graph._validation import check_indices
from fourward.sparse import EditHistory


class Edits(NamedTuple):
    """The wiring of a run at its start, and what became of it."""

    initial: IntArray  #: (E, 2) node indices of the edges at the start
    history: EditHistory


def save_edits(path: Path, graph: BaseGraph, history: EditHistory) -> None:
    """Write a history, of which `graph` is the last, atomically."""
    change = history.net_change()
    grown, edges = _code(change.grown), graph.edges
    initial = np.concatenate((edges[~np.isin(_code(edges), grown)], change.gone)).astype(np.int32)
    arrays = {"initial": initial} | history.to_arrays()
    write_safetensors(
        path, {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}, {"nodes": graph.num_nodes}
    )


def read_edits(path: str | Path) -> Edits:
    """Read the history of a run's edits.

    Args:
        path: The folder of a run, or its edits.safetensors.
    """
    path = Path(path)
    path = path / EDITS if path.is_dir() else path
    tensors, metadata = read_safetensors(path)
    with corrupt_file_errors(path):
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        initial, nodes = arrays["initial"], metadata["nodes"]
        if initial.ndim != 2 or initial.shape[1] != 2 or initial.dtype.kind != "i":
            raise FileError(f"expected initial edges of shape (E, 2), got {initial.dtype} of shape {initial.shape}.")
        check_indices(initial, nodes, "initial")
        return Edits(initial, EditHistory.from_arrays(arrays, nodes))


def _code(pairs: IntArray) -> IntArray:
    return pairs[:, 0].astype(np.int64) << 32 | pairs[:, 1]
