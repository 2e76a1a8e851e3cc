"""Options that several commands share: how a graph is read."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from fourward.errors import FileError, OptionError

if TYPE_CHECKING:
    from fourward.graph._annotated import AnnotatedDag


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
ThingWord = Annotated[
    str,
    typer.Argument(
        metavar="GRAPH|NETWORK", help="A graph as in `fourward graph`, a .safetensors file, or the folder of a run."
    ),
]
RunPath = Annotated[
    Path, typer.Argument(metavar="RUN", help="The folder of a run, for its best checkpoint, or a checkpoint.")
]
FORMAT_HELP = "Of a file whose ending doesn't say it."
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _option(*words: str, **said: Any) -> Any:
    return typer.Option(*words, rich_help_panel="How to read a graph", **said)


@dataclass(frozen=True)
class Reading:
    """How a graph is to be read; each field is an option of the commands that read one."""

    orient: Annotated[
        Orient | None, _option("--orient", help="Direct an undirected graph along a random order of its nodes.")
    ] = None
    seed: Annotated[int, _option("--seed", min=0, metavar="INT", help="Of that order.")] = 0
    remove_feedback: Annotated[
        bool, _option("--remove-feedback", help="Remove a small set of edges that makes a cyclic graph acyclic.")
    ] = False
    merge: Annotated[bool, _option("--merge", help="Add up the weights of edges between the same nodes.")] = False
    inputs: Annotated[
        str | None, _option("--inputs", help="Labels of the inputs, in order: a,b,c, or @FILE with one a line.")
    ] = None
    outputs: Annotated[str | None, _option("--outputs", help="The same for the outputs.")] = None
    format: Annotated[str | None, _option("--format", help=FORMAT_HELP)] = None
    header: Annotated[
        bool | None,
        _option(
            "--header/--no-header",
            help="Whether an edge list has a header; default: whether its first line looks like one.",
        ),
    ] = None
    columns: Annotated[
        str | None, _option("--columns", help="Of an edge list, by name or number: pre,post or pre,post,count.")
    ] = None
    labels: Annotated[
        str | None, _option("--labels", help="Of GraphML, GEXF and JSON: the attribute that names nodes; default: ids.")
    ] = None

    def find(self, word: str, *, bare: bool = False) -> AnnotatedDag:
        """The graph, with what came along with it unless `bare`."""
        from fourward.graph._spec import find

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
            labels=self.labels,
            bare=bare,
        )

    def refuse(self, why: str) -> None:
        """Say of the first option that was given that it would have no effect; seeds often have another one."""
        for field in fields(self):
            if field.name != "seed" and getattr(self, field.name) != field.default:
                raise OptionError(f"--{field.name.replace('_', '-')} was given, but {why}. Leave it away.")


def reads_graph(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a Reading, which it takes as `reading`; a `seed` of its own is also that of it."""
    own = signature(command, eval_str=True).parameters
    kinds = get_type_hints(Reading, include_extras=True)
    options = {
        field.name: Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=kinds[field.name])
        for field in fields(Reading)
    }

    @wraps(command)
    def read(**given: Any) -> None:
        reading = Reading(**{name: given[name] for name in options})
        command(**{name: value for name, value in given.items() if name in own}, reading=reading)

    kept = [one.replace(kind=Parameter.KEYWORD_ONLY) for name, one in own.items() if name != "reading"]
    added = [option for name, option in options.items() if name not in own]
    read.__signature__ = Signature([*kept, *added])  # type: ignore[attr-defined]
    return read


def _labels(words: str | None) -> list[str] | None:
    if words is None:
        return None
    if not words.startswith("@"):
        return words.split(",")
    path = Path(words[1:])
    if not path.is_file():
        raise FileError(f"there is no file {path}, which was to list labels, one a line.")
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line]


def network_file(word: str) -> Path | None:
    """The network that a word names: a .safetensors file, or the folder of a run."""
    from fourward.graph.connectomes import NAMES

    path = Path(word)
    folder = path.is_dir() and word not in NAMES
    return path if folder or path.suffix.lower() == ".safetensors" else None


def warn_if_busy() -> None:
    """Tell those who measure times that this machine has other work, where it can be asked."""
    load, cores = getattr(os, "getloadavg", lambda: [0.0])()[0], os.cpu_count() or 1
    if load > 0.4 * cores:
        text = f"this machine is busy (load {load:.1f} on {cores} cores): times won't be those of a quiet one"
        print(text, file=sys.stderr)


def report_changes(loaded: AnnotatedDag) -> None:
    """Say on standard error what a graph lost on its way to a Dag."""
    if loaded.removed:
        shown = ", ".join(f"{u} -> {v}" for u, v in loaded.removed[:3])
        more = ", ..." if len(loaded.removed) > 3 else ""
        print(f"{_edges_were(len(loaded.removed), 'feedback ')} removed: {shown}{more}", file=sys.stderr)
    if loaded.merged:
        print(f"{_edges_were(loaded.merged)} added to others between the same nodes", file=sys.stderr)


def _edges_were(number: int, kind: str = "") -> str:
    return f"{number:,} {kind}{'edge was' if number == 1 else 'edges were'}"


def print_json(value: Any) -> None:
    """One line of JSON on standard output."""
    print(json.dumps(value, ensure_ascii=False))
