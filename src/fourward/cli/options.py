"""Options that several commands share: how a graph is read."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fourward.errors import FileError

if TYPE_CHECKING:
    from fourward.graph.weighted import Loaded


class Orient(StrEnum):
    """Ways to direct an undirected graph."""

    RANDOM = "random"


GraphWord = Annotated[
    str,
    typer.Argument(
        metavar="GRAPH",
        help="A graph file (.graphml, .gexf, .json, .mtx, .npz, .csv, .tsv, .txt; also .gz), a family such as "
        "er:64:0.2:0, ws:64:4:0.1:0, ba:64:2:0, mlp:64-32-10, or c-elegans, mushroom-body.",
    ),
]
OrientOption = Annotated[
    Orient | None, typer.Option("--orient", help="Direct an undirected graph along a random order of its nodes.")
]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Of that order.")]
FeedbackOption = Annotated[
    bool, typer.Option("--remove-feedback", help="Remove a small set of edges that makes a cyclic graph acyclic.")
]
MergeOption = Annotated[bool, typer.Option("--merge", help="Add up the weights of edges between the same nodes.")]
InputsOption = Annotated[
    str | None, typer.Option("--inputs", help="Labels of the inputs, in order: a,b,c, or @FILE with one a line.")
]
OutputsOption = Annotated[str | None, typer.Option("--outputs", help="The same for the outputs.")]
FormatOption = Annotated[str | None, typer.Option("--format", help="Of a file whose ending doesn't say it.")]
HeaderOption = Annotated[
    bool | None,
    typer.Option(
        "--header/--no-header",
        help="Whether an edge list has a header; default: whether its first line looks like one.",
    ),
]
ColumnsOption = Annotated[
    str | None, typer.Option("--columns", help="Of an edge list: source,target or source,target,weight.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dataclass(frozen=True)
class Reading:
    """How a graph is to be read."""

    orient: Orient | None = None
    seed: int = 0
    remove_feedback: bool = False
    merge: bool = False
    inputs: str | None = None
    outputs: str | None = None
    format: str | None = None
    header: bool | None = None
    columns: str | None = None
    bare: bool = False

    def find(self, word: str) -> Loaded:
        """The graph, with what came along with it."""
        from fourward.graph.named import find

        return find(
            word,
            orient=None if self.orient is None else "random",
            seed=self.seed,
            remove_feedback=self.remove_feedback,
            merge=self.merge,
            inputs=_labels(self.inputs),
            outputs=_labels(self.outputs),
            format=self.format,
            header=self.header,
            columns=None if self.columns is None else self.columns.split(","),
            bare=self.bare,
        )


def _labels(words: str | None) -> list[str] | None:
    if words is None:
        return None
    if not words.startswith("@"):
        return words.split(",")
    path = Path(words[1:])
    if not path.is_file():
        raise FileError(f"there is no file {path}, which was to list labels, one a line.")
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line]


def report_changes(loaded: Loaded) -> None:
    """Say on standard error what a graph lost on its way to a Dag."""
    if loaded.removed:
        shown = ", ".join(f"{u} -> {v}" for u, v in loaded.removed[:3])
        more = ", ..." if len(loaded.removed) > 3 else ""
        print(f"{len(loaded.removed):,} feedback edges were removed: {shown}{more}", file=sys.stderr)
    if loaded.merged:
        print(f"{loaded.merged:,} edges were added to others between the same nodes", file=sys.stderr)


def print_json(value: Any) -> None:
    """One line of JSON on standard output."""
    print(json.dumps(value, ensure_ascii=False))
