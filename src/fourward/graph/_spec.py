"""Graphs by specification: a file, a family such as er:64:0.2:0, or the name of a connectome."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from fourward._memory import check_memory, limit_memory
from fourward.errors import FileError, FourwardError, OptionError
from fourward.graph import connectomes, files, generate
from fourward.graph._annotated import AnnotatedDag, AnnotatedDigraph, AnnotatedGraph
from fourward.graph._convert import EdgeList
from fourward.graph._dag import Dag
from fourward.graph._node_table import read_node_table
from fourward.graph._to_dag import Options


def _parse_sizes(text: str) -> list[int]:
    return [int(size) for size in text.split("-")]


class _Family(NamedTuple):
    make: Callable[..., Dag]
    arguments: tuple[tuple[str, Callable[[str], Any]], ...]
    seeded: bool
    estimate_edges: Callable[..., float]  # expected number of edges, from the same arguments

    def usage(self, name: str) -> str:
        arguments = [argument.upper() for argument, _ in self.arguments]
        return ":".join([name, *arguments]) + "[:SEED]" * self.seeded


def _count_mlp_edges(sizes: list[int], *_: float) -> int:
    return sum(a * b for a, b in pairwise(sizes))


_N = ("n", int)
_EDGE_BYTES = 75  # peak memory per edge until it is a Dag, of the family that takes least: er
_FAMILIES = {
    "er": _Family(generate.erdos_renyi, (_N, ("p", float)), True, lambda n, p: p * n * n / 2),
    "ws": _Family(generate.watts_strogatz, (_N, ("k", int), ("p", float)), True, lambda n, k, p: n * k / 2),
    "ba": _Family(generate.barabasi_albert, (_N, ("m", int)), True, lambda n, m: n * m),
    "mlp": _Family(generate.layered_mlp, (("sizes", _parse_sizes),), False, _count_mlp_edges),
    "rewired": _Family(generate.rewired_mlp, (("sizes", _parse_sizes), ("fraction", float)), True, _count_mlp_edges),
    "chain": _Family(generate.chain, (_N,), False, lambda n: n),
    "complete": _Family(generate.complete, (_N,), False, lambda n: n * n / 2),
}

#: Syntax of each family, for help texts.
USAGE = tuple(family.usage(name) for name, family in _FAMILIES.items())


def resolve_graph(
    spec: str | Path,
    *,
    topology_only: bool = False,
    max_bytes: int | None = None,
    **options: Any,
) -> AnnotatedDag:
    """The Dag that a specification describes, with its weights, biases and activations.

    Args:
        spec: A family and its arguments ("er:64:0.2:0"; see `USAGE`; the default seed is 0), a bundled connectome
            ("c-elegans", as its `dag` unless options say otherwise), or a graph file.
        topology_only: Without weights, biases and activations.
        max_bytes: As in `fourward.files.read`.
        options: As in `fourward.files.read_dag`; those on how to read a file are for files only, but nodes= for any
            graph.

    >>> resolve_graph("er:64:0.2:0").dag
    Dag(64 nodes, 413 edges, 4 inputs, 5 outputs)
    >>> resolve_graph("c-elegans", outputs=["AVAL", "AVAR"]).dag.num_outputs
    2
    >>> resolve_graph("c-elegans", inputs="sources", outputs="sinks").dag
    Dag(302 nodes, 2,542 edges, 16 inputs, 30 outputs)
    """
    changes = {name: options.pop(name) for name in Options._fields if name in options}
    uses_weights = changes.get("min_weight") is not None or changes.get("remove_feedback")
    with limit_memory(max_bytes):
        annotated, is_connectome = _load(str(spec), topology_only and not uses_weights, options)
    if is_connectome:
        default = connectomes.acyclic_options(changes.get("inputs"))
        changes["remove_feedback"] = changes.get("remove_feedback") or default["remove_feedback"]
        changes.setdefault("into_inputs", default["into_inputs"])
    try:
        made = annotated.to_dag(**changes)
    except FourwardError as error:
        error.prepend(str(spec))
        raise
    return made._replace(weight=None) if topology_only else made


def resolve_digraph(
    spec: str | Path, *, topology_only: bool = False, max_bytes: int | None = None, **options: Any
) -> AnnotatedDigraph:
    """The Digraph that a specification describes, feedback included; arguments as in `resolve_graph`.

    Inputs and outputs of a bundled connectome are by default those of its `graph`.

    >>> resolve_digraph("c-elegans").graph.num_inputs
    83
    """
    changes = {name: options.pop(name) for name in Options._fields if name in options}
    uses_weights = changes.get("min_weight") is not None
    with limit_memory(max_bytes):
        annotated, _ = _load(str(spec), topology_only and not uses_weights, options)
    try:
        made = annotated.to_digraph(**changes)
    except FourwardError as error:
        error.prepend(str(spec))
        raise
    return made._replace(weight=None) if topology_only else made


def _load(spec: str, topology_only: bool, options: dict[str, Any]) -> tuple[AnnotatedGraph, bool]:
    """The graph, and whether it is a bundled connectome, which has cycles."""
    name, *arguments = spec.split(":")
    nodes = options.pop("nodes", None) if spec in connectomes.NAMES or name in _FAMILIES else None
    annotated, is_connectome = _load_graph(spec, name, arguments, topology_only, options)
    if nodes is not None:
        attributes = read_node_table(nodes, annotated.graph.labels)
        annotated = annotated._replace(attributes={**annotated.attributes, **attributes})
    return annotated, is_connectome


def _load_graph(
    spec: str, name: str, arguments: list[str], topology_only: bool, options: dict[str, Any]
) -> tuple[AnnotatedGraph, bool]:
    file_options = [key for key, value in options.items() if value is not None]
    if (name in _FAMILIES and arguments) or spec in connectomes.NAMES:
        if file_options:
            raise OptionError(f"{file_options[0]}= is an option of graph files, but {spec!r} is not a file.")
        return (
            (connectomes.load(spec).annotated, True)
            if spec in connectomes.NAMES
            else (_generate(name, arguments), False)
        )
    if Path(spec).is_dir() or Path(spec).suffix.lower() == ".safetensors":
        raise FileError(f"expected a graph, got {spec!r}. If it is a network, its graph is fourward.load(path).dag.")
    if not Path(spec).is_file():
        raise FileError(
            f"{spec!r} is neither a file nor the specification of a graph. Choose from {', '.join(USAGE)}, "
            f"or the connectomes {', '.join(connectomes.NAMES)}."
        )
    return files.read(spec, topology_only=topology_only, **options), False


def _generate(name: str, arguments: list[str]) -> AnnotatedGraph:
    family, spec = _FAMILIES[name], ":".join((name, *arguments))
    required = len(family.arguments)
    if not required <= len(arguments) <= required + family.seeded:
        raise OptionError(f"expected {family.usage(name)}, got {spec!r}.")
    seed = {"seed": arguments[required] if len(arguments) > required else "0"} if family.seeded else {}
    try:
        values = [parse(text) for (_, parse), text in zip(family.arguments, arguments, strict=False)]
        num_edges = family.estimate_edges(*values)
        check_memory(spec, _EDGE_BYTES * num_edges, f"it has about {num_edges:,.0f} edges")
        dag = family.make(*values, **{key: int(value) for key, value in seed.items()})
    except ValueError as error:
        if isinstance(error, FourwardError):
            raise
        raise OptionError(f"expected {family.usage(name)} with numbers, got {spec!r}.") from error
    ends = ([dag.labels[v] for v in nodes.tolist()] for nodes in (dag.inputs, dag.outputs))
    return AnnotatedGraph(EdgeList(dag.source, dag.target, dag.labels, True, *ends))
