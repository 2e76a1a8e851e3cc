"""GraphML, GEXF and node-link JSON."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO
from xml.parsers import expat

import networkx as nx

from fourward.errors import FileError, FourwardError, GraphError
from fourward.graph import _annotated, _convert, _io
from fourward.graph._annotated import AnnotatedDag, AnnotatedGraph
from fourward.graph._io import Bytes

#: Node attribute that keeps a whole number as label where a format knows text alone.
LABEL = "fourward_label"
_GROWTH = 20  # bytes of memory for each of a file; with 10^5 edges 21 were seen for GraphML, 16 for GEXF, 12 for JSON
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def read_graphml(path: Path, bare: bool, labels: str | None = None) -> AnnotatedGraph:
    """GraphML, by networkx."""
    return _read_xml(path, "GraphML", nx.read_graphml, bare, labels)


def read_gexf(path: Path, bare: bool, labels: str | None = None) -> AnnotatedGraph:
    """GEXF, by networkx."""
    return _read_xml(path, "GEXF", nx.read_gexf, bare, labels)


def write_graphml(loaded: AnnotatedDag, file: BinaryIO) -> None:
    """GraphML, by networkx."""
    nx.write_graphml(_for_xml(loaded), file)


def write_gexf(loaded: AnnotatedDag, file: BinaryIO) -> None:
    """GEXF, by networkx."""
    nx.write_gexf(_for_xml(loaded), file)


def read_json(path: Path, bare: bool, labels: str | None = None) -> AnnotatedGraph:
    """Node-link JSON: {"directed": true, "nodes": [{"id": ...}], "edges": [{"source": ..., "target": ...}]}."""
    words = _io.text(path, _io.load(path))
    _io.check_memory(path, _GROWTH * len(words), f"it has {len(words):,} characters of JSON")
    try:
        data = json.loads(words)
    except json.JSONDecodeError as error:
        raise FileError(f"{path}, line {error.lineno}: this is no JSON: {error.msg}.") from None
    except ValueError as error:  # a number with thousands of digits
        raise FileError(f"{path}: this JSON can't be read: {error}.") from None
    except RecursionError:
        raise FileError(f"{path}: this JSON is nested too deep for a graph.") from None
    try:
        graph = nx.MultiDiGraph() if data.get("directed", False) else nx.MultiGraph()
        graph.add_nodes_from((_json_label(node.pop("id")), node) for node in data["nodes"])
        known = set(graph)
        for edge in data["edges"] if "edges" in data else data["links"]:
            ends = _json_label(edge["source"]), _json_label(edge["target"])
            if not known.issuperset(ends):
                raise FileError(f"{path}: an edge leads from {ends[0]!r} to {ends[1]!r}, but these aren't both nodes.")
            graph.add_edge(*ends, weight=edge.get("weight"))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, FourwardError):
            raise
        raise FileError(
            f"{path}: node-link JSON has 'directed', 'nodes' with an 'id' each, and 'edges' (or 'links') with 'source' "
            f"and 'target' each; this file lacks some of it ({type(error).__name__}: {error})."
        ) from None
    return _from_networkx(path, graph, bare, labels)


def write_json(loaded: AnnotatedDag, file: BinaryIO) -> None:
    """Node-link JSON, as networkx reads it."""
    graph = _annotated.to_networkx(loaded)
    data = {
        "directed": True,
        "multigraph": False,
        "graph": {},
        "nodes": [{"id": label, **values} for label, values in graph.nodes(data=True)],
        "edges": [{"source": u, "target": v, **values} for u, v, values in graph.edges(data=True)],
    }
    file.write(json.dumps(data, ensure_ascii=False, allow_nan=False, default=int).encode())


def guard_xml(path: Path, data: Bytes) -> None:
    """Refuse document types, whose entities may grow without bound or name other files; and XML that is none."""

    def refuse(*_: object) -> None:
        raise FileError(
            f"{path}, line {parser.CurrentLineNumber}: the file declares a document type or entities, which can make a "
            "small file fill all memory. No graph needs them: remove the DOCTYPE."
        )

    def check(name: str, attributes: dict[str, str]) -> None:
        if name.rpartition(":")[2] == "edge" and not {"source", "target"} <= attributes.keys():
            raise FileError(f"{path}, line {parser.CurrentLineNumber}: an edge has no source or no target.")

    parser = expat.ParserCreate()
    parser.StartElementHandler = check  # networkx would make a node 'None' of it
    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(data[:], True)
    except (expat.ExpatError, ValueError, LookupError) as error:
        if isinstance(error, FourwardError):
            raise
        raise FileError(f"{path}, line {parser.CurrentLineNumber}: this is no XML: {error}.") from None


def _read_xml(
    path: Path, kind: str, reader: Callable[[BinaryIO], nx.Graph], bare: bool, labels: str | None
) -> AnnotatedGraph:
    data = _io.load(path)
    _io.check_memory(path, _GROWTH * len(data), f"it has {len(data):,} bytes of XML")
    guard_xml(path, data)
    try:
        graph = reader(BytesIO(data[:]))
    except Exception as error:  # networkx raises whatever a missing attribute leads to
        raise FileError(f"{path} is XML, but no {kind} that networkx can read: {error}") from None
    numbers = {label: number for label, number in graph.nodes(data=LABEL) if _convert.is_integer(number)}
    return _from_networkx(path, nx.relabel_nodes(graph, numbers) if numbers else graph, bare, labels)


def _relabelled(path: Path, graph: nx.Graph, attribute: str) -> nx.Graph:
    """The graph with the values of an attribute as labels."""
    new = dict(graph.nodes(data=attribute))
    if without := [node for node, label in new.items() if not isinstance(label, str | int)]:
        known = sorted({name for _, values in graph.nodes(data=True) for name in values})
        has = f"Its nodes have {', '.join(known)}" if known else "Its nodes have no attributes at all"
        raise FileError(f"{path}: the node {without[0]!r} has no text or whole number as {attribute!r}. {has}.")
    counts = Counter(new.values())
    if twice := [label for label, count in counts.items() if count > 1]:
        raise FileError(
            f"{path}: {counts[twice[0]]} nodes have {twice[0]!r} as {attribute!r}, but labels must tell nodes apart."
        )
    return nx.relabel_nodes(graph, new)


def _from_networkx(path: Path, graph: nx.Graph, bare: bool, labels: str | None) -> AnnotatedGraph:
    graph = graph if labels is None else _relabelled(path, graph, labels)
    try:
        return _annotated.from_networkx(graph, bare)
    except FourwardError as error:
        raise type(error)(f"{path}: {error}") from None
    except (TypeError, OverflowError) as error:  # places of inputs that can't be compared, numbers beyond floats
        raise FileError(f"{path}: an attribute of a node or an edge can't be used: {error}.") from None


def _for_xml(loaded: AnnotatedDag) -> nx.DiGraph:
    """The graph with text for labels, and the numbers among them as attributes."""
    graph = _annotated.to_networkx(loaded)
    for label, values in graph.nodes(data=True):
        if isinstance(label, str):
            if _NOT_XML.search(label):
                raise GraphError(f"the label {label!r} has characters that XML can't hold. Write JSON or npz.")
        else:
            values[LABEL] = int(label)
    return nx.relabel_nodes(graph, str)


def _json_label(value: Any) -> Any:
    return tuple(map(_json_label, value)) if isinstance(value, list) else value
