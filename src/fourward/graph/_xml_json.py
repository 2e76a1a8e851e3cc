"""GraphML, GEXF and node-link JSON."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from xml.parsers import expat

from fourward.errors import FileError, FourwardError, GraphError
from fourward.graph import _annotated, _convert, _io
from fourward.graph._annotated import CONSTRAINT_ATTRIBUTES, AnnotatedDag, AnnotatedDigraph, AnnotatedGraph
from fourward.graph._convert import FEEDBACK_ATTRIBUTE
from fourward.graph._io import Bytes

if TYPE_CHECKING:
    import networkx as nx

#: Node attribute for integer labels, in formats whose ids are text.
LABEL_ATTRIBUTE = "fourward_label"
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def read_graphml(path: Path, topology_only: bool, labels: str | None = None) -> AnnotatedGraph:
    """GraphML, by networkx."""
    import networkx as nx

    return _read_xml(path, "GraphML", nx.read_graphml, topology_only, labels)


def read_gexf(path: Path, topology_only: bool, labels: str | None = None) -> AnnotatedGraph:
    """GEXF, by networkx; `label`, which every node must have there, is an attribute where it isn't the id.

    The position of a node in a drawing, as Gephi writes it, becomes the attributes x, y and z.
    """
    import networkx as nx

    def read(file: BinaryIO) -> nx.Graph:
        graph = nx.read_gexf(file)
        if all(values.get("label") == str(node) for node, values in graph.nodes(data=True)):
            for _, values in graph.nodes(data=True):
                del values["label"]
        for _, values in graph.nodes(data=True):
            position = values.pop("viz", {}).get("position", {})
            values |= {name: value for name, value in position.items() if name not in values}
        return graph

    return _read_xml(path, "GEXF", read, topology_only, labels)


def write_graphml(annotated: AnnotatedDag | AnnotatedDigraph, file: BinaryIO) -> None:
    """GraphML, by networkx."""
    import networkx as nx

    nx.write_graphml(_with_text_labels(annotated), file)


def write_gexf(annotated: AnnotatedDag | AnnotatedDigraph, file: BinaryIO) -> None:
    """GEXF, by networkx."""
    import networkx as nx

    nx.write_gexf(_with_text_labels(annotated), file)


def read_json(path: Path, topology_only: bool, labels: str | None = None) -> AnnotatedGraph:
    """Node-link JSON: {"directed": true, "nodes": [{"id": ...}], "edges": [{"source": ..., "target": ...}]}."""
    import networkx as nx

    data = _load_json(path)
    try:
        graph = nx.MultiDiGraph() if data.get("directed", False) else nx.MultiGraph()
        graph.add_nodes_from((_json_label(node.pop("id")), node) for node in data["nodes"])
        nodes = set(graph)
        for edge in data["edges"] if "edges" in data else data["links"]:
            ends = _json_label(edge["source"]), _json_label(edge["target"])
            if not nodes.issuperset(ends):
                raise FileError(f"{path}: an edge leads from {ends[0]!r} to {ends[1]!r}, which aren't both in 'nodes'.")
            values = {name: edge[name] for name in (*CONSTRAINT_ATTRIBUTES, FEEDBACK_ATTRIBUTE) if name in edge}
            graph.add_edge(*ends, weight=edge.get("weight"), **values)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, FourwardError):
            raise
        raise FileError(
            f"{path}: expected node-link JSON, with 'directed', 'nodes' with an 'id' each, and 'edges' (or 'links') "
            f"with 'source' and 'target' each ({type(error).__name__}: {error})."
        ) from None
    return _from_networkx(path, graph, topology_only, labels)


def _load_json(path: Path) -> Any:
    text = _io.decode_text(path, _io.read_bytes(path, _io.PARSE_GROWTH))
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise FileError(f"{path}, line {error.lineno}: invalid JSON: {error.msg}.") from None
    except ValueError as error:  # a number with thousands of digits
        raise FileError(f"{path}: unreadable JSON: {error}.") from None
    except RecursionError:
        raise FileError(f"{path}: JSON is nested too deeply for a graph.") from None


def write_json(annotated: AnnotatedDag | AnnotatedDigraph, file: BinaryIO) -> None:
    """Node-link JSON, as networkx reads it."""
    graph = _annotated.to_networkx(annotated)
    data = {
        "directed": True,
        "multigraph": False,
        "graph": {},
        "nodes": [{"id": label, **values} for label, values in graph.nodes(data=True)],
        "edges": [{"source": u, "target": v, **values} for u, v, values in graph.edges(data=True)],
    }
    file.write(json.dumps(data, ensure_ascii=False, allow_nan=False, default=int).encode())


def check_xml(path: Path, data: Bytes) -> None:
    """Raise for invalid XML, and for document types, whose entities may grow without bound or name other files."""

    def refuse(*_: object) -> None:
        raise FileError(
            f"{path}, line {parser.CurrentLineNumber}: the file declares a document type or entities, with which a "
            "small file can fill all memory. No graph needs them: remove the DOCTYPE."
        )

    def check(name: str, attributes: dict[str, str]) -> None:
        if name.rpartition(":")[2] == "edge" and not {"source", "target"} <= attributes.keys():
            raise FileError(f"{path}, line {parser.CurrentLineNumber}: an edge has no source or no target.")

    parser = expat.ParserCreate()
    parser.StartElementHandler = check  # networkx would add a node 'None' for a missing end
    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(data[:], True)
    except (expat.ExpatError, ValueError, LookupError) as error:
        if isinstance(error, FourwardError):
            raise
        raise FileError(f"{path}, line {parser.CurrentLineNumber}: invalid XML: {error}.") from None


def _read_xml(
    path: Path, kind: str, reader: Callable[[BinaryIO], nx.Graph], topology_only: bool, labels: str | None
) -> AnnotatedGraph:
    import networkx as nx

    data = _io.read_bytes(path, _io.PARSE_GROWTH)
    check_xml(path, data)
    try:
        graph = reader(BytesIO(data[:]))
    except Exception as error:  # networkx doesn't catch the KeyError of a missing attribute
        raise FileError(f"{path} is XML, but networkx can't read it as {kind}: {error}") from None
    integers = {node: label for node, label in graph.nodes(data=LABEL_ATTRIBUTE) if _convert.is_integer(label)}
    return _from_networkx(path, nx.relabel_nodes(graph, integers) if integers else graph, topology_only, labels)


def _relabel(path: Path, graph: nx.Graph, attribute: str) -> nx.Graph:
    """The graph with the values of an attribute as labels."""
    import networkx as nx

    labels = dict(graph.nodes(data=attribute))
    if without := [node for node, label in labels.items() if not isinstance(label, str | int)]:
        names = sorted({name for _, values in graph.nodes(data=True) for name in values})
        attributes = f"Its nodes have {', '.join(names)}" if names else "Its nodes have no attributes at all"
        raise FileError(f"{path}: node {without[0]!r} has no text or integer {attribute!r}. {attributes}.")
    counts = Counter(labels.values())
    if repeated := [label for label, count in counts.items() if count > 1]:
        raise FileError(
            f"{path}: labels must be distinct, but {counts[repeated[0]]} nodes have {repeated[0]!r} as {attribute!r}."
        )
    return nx.relabel_nodes(graph, labels)


def _from_networkx(path: Path, graph: nx.Graph, topology_only: bool, labels: str | None) -> AnnotatedGraph:
    graph = graph if labels is None else _relabel(path, graph, labels)
    try:
        return _annotated.from_networkx(graph, topology_only)
    except FourwardError as error:
        error.prepend(str(path))
        raise
    except (TypeError, OverflowError) as error:  # ranks of inputs that can't be compared, numbers beyond floats
        raise FileError(f"{path}: unusable attribute of a node or an edge: {error}.") from None


def _with_text_labels(annotated: AnnotatedDag | AnnotatedDigraph) -> nx.DiGraph:
    """The graph with text as labels, and integer labels as attributes."""
    import networkx as nx

    graph = _annotated.to_networkx(annotated)
    for label, values in graph.nodes(data=True):
        for text in (label, *values, *values.values()):
            if isinstance(text, str) and _NOT_XML.search(text):
                what = "label" if text is label else "attribute"
                raise GraphError(f"the {what} {text!r} has characters that XML doesn't allow. Write JSON or npz.")
        if not isinstance(label, str):
            values[LABEL_ATTRIBUTE] = int(label)
    return nx.relabel_nodes(graph, str)


def _json_label(value: Any) -> Any:
    return tuple(map(_json_label, value)) if isinstance(value, list) else value
