"""The order of nodes, inputs and outputs, in a comment line of a format that has no place for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from fourward.errors import FileError
from fourward.graph import _convert
from fourward.graph._dag import Dag

#: A comment line that starts with this goes on with JSON.
MARK = "fourward "


def note(dag: Dag, usual_order: bool) -> str:
    """What a plain list of the Dag's edges wouldn't say, or nothing."""
    said: dict[str, Any] = {} if usual_order else {"nodes": list(dag.labels)}
    usual = (("inputs", dag.inputs, dag.in_degree == 0), ("outputs", dag.outputs, dag.out_degree == 0))
    for name, chosen, default in usual:
        if not np.array_equal(chosen, np.flatnonzero(default)):
            said[name] = [dag.labels[v] for v in chosen.tolist()]
    return MARK + json.dumps(said, default=int) if said else ""


def parse(path: Path, comment: str) -> dict[str, Any]:
    """What a comment line says, if it is one of ours."""
    if not comment.startswith(MARK):
        return {}
    try:
        said = json.loads(comment[len(MARK) :])
        lists = [said.get(name, []) for name in ("nodes", "inputs", "outputs")]
    except (ValueError, AttributeError, RecursionError):
        raise FileError(f"{path}: the comment after {MARK!r} should be JSON, but it can't be read.") from None
    for listed in lists:
        if not isinstance(listed, list) or not all(isinstance(x, str) or _convert.is_integer(x) for x in listed):
            raise FileError(f"{path}: the comment after {MARK!r} should list labels, but it holds {listed!r:.60}.")
    return dict(said)
