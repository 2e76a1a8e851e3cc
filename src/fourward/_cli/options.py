"""Arguments and options that several commands share, above all those that say how to read a graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from fourward.errors import CycleError, FileError, GraphError, OptionError, Repair

if TYPE_CHECKING:
    from fourward.graph._annotated import AnnotatedDag, AnnotatedDigraph
    from fourward.graph._choose import NodeChoice


class Orient(StrEnum):
    """How to direct an undirected graph."""

    RANDOM = "random"


class MergeBy(StrEnum):
    """How to merge the weights of duplicate edges."""

    SUM = "sum"
    MEAN = "mean"
    MAX = "max"
    MIN = "min"
    FIRST = "first"


class SelfLoops(StrEnum):
    """What to do with edges from a neuron to itself."""

    DROP = "drop"


class Missing(StrEnum):
    """What to do with rows that lack a value."""

    SKIP = "skip"


class IntoInputs(StrEnum):
    """What to do with edges into inputs."""

    DRIVE = "drive"
    CUT = "cut"


class Only(StrEnum):
    """Which neurons to keep."""

    PATHS = "paths"


GraphArgument = Annotated[
    str,
    typer.Argument(
        metavar="GRAPH",
        help="A graph file (.graphml, .gexf, .json, .mtx, .npz, .csv, .tsv or .txt; all but .npz also with .gz), a "
        "random or regular graph such as er:64:0.2:0, ws:64:4:0.1:0, ba:64:2:0 or mlp:64-32-10, or a bundled "
        "connectome: c-elegans or mushroom-body.",
    ),
]
GraphOrNetworkArgument = Annotated[
    str,
    typer.Argument(
        metavar="GRAPH|NETWORK",
        help="A graph as in `fourward graph`; or a network: a .safetensors file or the folder of a run.",
    ),
]
RunArgument = Annotated[
    Path, typer.Argument(metavar="RUN", help="A checkpoint, or the folder of a run, for its best checkpoint.")
]
TitleOption = Annotated[
    str | None, typer.Option(help="Title of the picture or page. Default: the graph's name and size.")
]
ColourOption = Annotated[
    str | None,
    typer.Option(
        metavar="ATTRIBUTE|FILE",
        help="What colours the neurons: an attribute such as class, or a .csv file as `fourward importance` writes it.",
    ),
]
RecurrentOption = Annotated[
    bool,
    typer.Option("--recurrent", help="Keep the feedback of a graph: its edges carry the value of the step before."),
]
KEEP_FEEDBACK = Repair("recurrent", True, "keep them as feedback, which carries the value of the step before")
ChangesOption = Annotated[
    bool,
    typer.Option(
        "--changes", help="Show the edges that grew and those that are gone in a run that changed its wiring."
    ),
]
FORMAT_HELP = "Format of the graph file. Default: inferred from its suffix."
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def _graph_option(*flags: str, **settings: Any) -> Any:
    return typer.Option(*flags, rich_help_panel="Reading the graph", **settings)


MaxBytesOption = Annotated[
    int | None,
    _graph_option(
        "--max-bytes",
        min=1,
        metavar="INT",
        help="Refuse a graph that would take more memory than this, by an estimate made before it is read. Default: "
        "the available memory.",
    ),
]


@dataclass(frozen=True)
class GraphOptions:
    """How to read a graph; each field is an option of every command that reads one."""

    orient: Annotated[
        Orient | None, _graph_option("--orient", help="Direct an undirected graph along a random order of its nodes.")
    ] = None
    seed: Annotated[int, _graph_option("--seed", min=0, metavar="INT", help="Seed of the random order.")] = 0
    remove_feedback: Annotated[
        bool,
        _graph_option(
            "--remove-feedback",
            help="Make a cyclic graph acyclic by removing light edges; neurons that the inputs reach stay reached.",
        ),
    ] = False
    merge: Annotated[bool, _graph_option("--merge", help="Add up duplicate edges: --merge-by sum.")] = False
    merge_by: Annotated[
        MergeBy | None,
        _graph_option("--merge-by", help="Merge duplicate edges to the sum, mean, max, min or first of their weights."),
    ] = None
    self_loops: Annotated[
        SelfLoops | None, _graph_option("--self-loops", help="drop: remove edges from a neuron to itself.")
    ] = None
    min_weight: Annotated[
        float | None,
        _graph_option(
            "--min-weight",
            min=0,
            metavar="NUMBER",
            help="Drop edges whose weight, after merging, is smaller in absolute value.",
        ),
    ] = None
    missing: Annotated[
        Missing | None,
        _graph_option("--missing", help="skip: omit rows of an edge list that lack a label or a weight."),
    ] = None
    nodes: Annotated[
        Path | None,
        _graph_option(
            "--nodes",
            metavar="FILE",
            help="A .csv, .tsv or .parquet table with a row for each neuron, whose columns become attributes.",
        ),
    ] = None
    inputs: Annotated[
        str | None,
        _graph_option(
            "--inputs",
            metavar="LABELS",
            help="Inputs in order: labels a,b,c, an attribute and its value class=sensory (or class=a|b), or @FILE "
            "with one label per line, or sources. Default: those of the file or connectome, else all sources.",
        ),
    ] = None
    outputs: Annotated[
        str | None,
        _graph_option(
            "--outputs",
            metavar="LABELS",
            help="Outputs, in the same form, or sinks. Default: those of the file or connectome, else all sinks.",
        ),
    ] = None
    into_inputs: Annotated[
        IntoInputs | None,
        _graph_option(
            "--into-inputs",
            help="What becomes of edges into inputs: drive (the default but for bundled connectomes) or cut.",
        ),
    ] = None
    only: Annotated[
        Only | None,
        _graph_option(
            "--only",
            help="paths: drop neurons on no path from an input to an output; draw and view hide those of a network.",
        ),
    ] = None
    format: Annotated[str | None, _graph_option("--format", help=FORMAT_HELP)] = None
    header: Annotated[
        bool | None,
        _graph_option(
            "--header/--no-header", help="Whether the first line of an edge list is a header. Default: detect it."
        ),
    ] = None
    columns: Annotated[
        str | None,
        _graph_option(
            "--columns",
            metavar="NAMES",
            help="Columns of an edge list that hold source, target and optionally weight, by name or by number from "
            "1: pre,post or pre,post,count.",
        ),
    ] = None
    labels: Annotated[
        str | None,
        _graph_option(
            "--labels",
            metavar="NAME",
            help="Node attribute of a GraphML, GEXF or JSON file to use as label. Default: the node's id.",
        ),
    ] = None

    max_bytes: MaxBytesOption = None

    def load(self, spec: str, *, topology_only: bool = False) -> AnnotatedDag:
        """Load the graph that `spec` names, without its weights, biases and activations if `topology_only`."""
        from fourward.graph._spec import resolve_graph

        options = self._resolve_options(spec)
        return resolve_graph(spec, topology_only=topology_only, remove_feedback=self.remove_feedback, **options)

    def load_digraph(self, spec: str, *, topology_only: bool = False) -> AnnotatedDigraph:
        """Load the graph that `spec` names with its feedback."""
        from fourward.graph._spec import resolve_digraph

        if self.remove_feedback:
            raise OptionError("--remove-feedback has no effect here: --recurrent keeps feedback. Omit one of them.")
        return resolve_digraph(spec, topology_only=topology_only, **self._resolve_options(spec))

    def _resolve_options(self, spec: str) -> dict[str, Any]:
        if network_path(spec) is not None:
            raise FileError(
                f"expected a graph, got {spec!r}. If it is a network or the folder of a run, "
                f"`fourward export {spec} --out graph.graphml` writes its graph."
            )
        chosen = {} if self.into_inputs is None else {"into_inputs": self.into_inputs.value}
        return dict(
            chosen,
            orient=None if self.orient is None else "random",
            seed=self.seed,
            merge=self.merge if self.merge_by is None else self.merge_by.value,
            self_loops=None if self.self_loops is None else "drop",
            min_weight=self.min_weight,
            missing=None if self.missing is None else "skip",
            nodes=self.nodes,
            inputs=_parse_choice(self.inputs),
            outputs=_parse_choice(self.outputs),
            only=None if self.only is None else "paths",
            format=self.format,
            header=self.header,
            columns=None if self.columns is None else self.columns.split(","),
            labels=self.labels,
            max_bytes=self.max_bytes,
        )

    def check_unset(self, reason: str, *, used: str = "") -> None:
        """Raise an OptionError if an option was set that has no effect because of `reason`.

        `seed` is let through: most commands have another use for it; and so is the one that is `used`.
        """
        for field in fields(self):
            if field.name not in ("seed", used) and getattr(self, field.name) != field.default:
                raise OptionError(f"--{field.name.replace('_', '-')} has no effect here: {reason}. Omit it.")


def takes_graph_options(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command that takes `graph_options`: it gets one command-line option per field of GraphOptions.

    A command with a `seed` of its own shares it with the graph.
    """
    declared = signature(command, eval_str=True).parameters
    annotations = get_type_hints(GraphOptions, include_extras=True)
    options = {
        field.name: Parameter(
            field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=annotations[field.name]
        )
        for field in fields(GraphOptions)
    }

    @wraps(command)
    def run(**values: Any) -> None:
        graph_options = GraphOptions(**{name: values[name] for name in options})
        try:
            command(**{name: value for name, value in values.items() if name in declared}, graph_options=graph_options)
        except GraphError as error:
            if "recurrent" in declared:
                offer_recurrent(error)
            raise

    parameters = [
        parameter.replace(kind=Parameter.KEYWORD_ONLY)
        for name, parameter in declared.items()
        if name != "graph_options"
    ]
    parameters += [option for name, option in options.items() if name not in declared]
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return run


def offer_recurrent(error: GraphError) -> None:
    """Add the flag that keeps feedback to the repairs of an error about cycles or self-loops."""
    if isinstance(error, CycleError) or any(repair.option == "self_loops" for repair in error.repairs):
        error.repairs = (*error.repairs, KEEP_FEEDBACK)


def _parse_choice(text: str | None) -> NodeChoice:
    """Inputs or outputs as Python takes them, from a comma-separated list, an attribute and its value, or @FILE."""
    from fourward.graph._choose import ALL_ENDS

    if text is None or "=" in text or text in ALL_ENDS.values():
        return text
    return Path(text[1:]) if text.startswith("@") else text.split(",")


def check_network_file(path: Path) -> None:
    """Raise a FileError if the path names a graph where a network is needed."""
    from fourward.graph.files import SUFFIXES

    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    if path.is_file() and suffixes and suffixes[-1] in SUFFIXES:
        raise FileError(
            f"expected a network (.safetensors) or the folder of a run, got {path}, a graph. `fourward import {path} "
            "--activation relu --out network.safetensors` makes a network of a graph with weights, "
            f"`fourward train {path} --data TABLE --out run` trains one on it, and `fourward graph` writes graphs in "
            "other formats."
        )


def network_path(spec: str) -> Path | None:
    """The path if `spec` names a network: a .safetensors file or the folder of a run. None if it names a graph."""
    from fourward.graph.connectomes import NAMES

    path = Path(spec)
    is_run = path.is_dir() and spec not in NAMES
    return path if is_run or path.suffix.lower() == ".safetensors" else None
