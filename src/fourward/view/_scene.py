"""The data of a page: which nodes and edges it shows and which it leaves out, their layout, weights and activations."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np
import torch

from fourward._arrays import IntArray
from fourward.errors import InputError, pluralize
from fourward.graph._algorithms import BoolArray
from fourward.graph._base import BaseGraph
from fourward.layering import Layering, longest_path, push_sources, reassign
from fourward.nn._fourward import FourWard
from fourward.nn._recurrent import Recurrent
from fourward.view._colours import CLASS_COLOURS, NodeColours, rank_values, read_colours
from fourward.view._layout import FloatArray, layout
from fourward.view._subject import Subject, colour_limit, compute_activations, format_all, kind_names, node_kinds

MAX_EDGES, MAX_NODES = 20_000, 5_000  #: most edges that a page shows; most nodes of a graph that it shows completely
NEAREST = 1_500  #: nodes that it shows of a graph with more than MAX_NODES
MAX_SAMPLES = 8
NUM_REASSIGNED = 3  #: layerings by stochastic reassignment


class Part(NamedTuple):
    """The part of a graph that is shown."""

    nodes: IntArray  #: ascending
    edges: IntArray  #: ascending
    caption: str  #: what is shown, and what is left out


def build_scene(
    subject: Subject,
    title: str,
    samples: torch.Tensor | None,
    around: Hashable | None,
    colouring: NodeColours | None = None,
    nodes: IntArray | None = None,
) -> dict[str, Any]:
    """Everything that the page's script reads, ready for JSON, with arrays as base64 (see `encode`)."""
    graph = subject.graph
    part = select_part(graph, subject.weight, around, nodes)
    new_index = np.full(graph.num_nodes, -1, np.int32)
    new_index[part.nodes] = np.arange(len(part.nodes))
    source, target = new_index[graph.source[part.edges]], new_index[graph.target[part.edges]]
    first_feedback = int(np.searchsorted(part.edges, subject.dag.num_edges))
    sample_names, x = _prepare_samples(subject.net, samples)
    return {
        "title": title,
        "shown": part.caption + _describe_changes(subject),
        "changes": subject.count_changes(),
        "allEdges": len(part.edges) == graph.num_edges,
        "allNeurons": len(part.nodes) == graph.num_nodes,
        "kinds": kind_names(subject.dag),
        "labels": [str(graph.labels[v]) for v in part.nodes.tolist()],
        "inDegree": encode(subject.present.in_degree[part.nodes], "i4"),
        "outDegree": encode(subject.present.out_degree[part.nodes], "i4"),
        "input": encode(_rank(graph.inputs, graph.num_nodes)[part.nodes], "i4"),
        "output": encode(_rank(graph.outputs, graph.num_nodes)[part.nodes], "i4"),
        "bias": _encode_bias(subject, part.nodes),
        "source": encode(source, "i4"),
        "target": encode(target, "i4"),
        "firstFeedback": first_feedback,  # edges from here on carry the value of the step before
        "weight": None if subject.weight is None else encode(subject.weight[part.edges], "f4"),
        "weightLimit": 1.0 if subject.weight is None else colour_limit(subject.weight),
        "layerings": [
            _encode_layering(name, layering, part, source[:first_feedback], target[:first_feedback])
            for name, layering in list_layerings(subject).items()
        ],
        "attributes": {
            name: [values[v] for v in part.nodes.tolist()] for name, values in _list_attributes(graph).items()
        },
        **_encode_colourings(graph, colouring, part.nodes),
        **_encode_activations(subject.net, sample_names, x, part.nodes),
    }


def _describe_changes(subject: Subject) -> str:
    changes = subject.count_changes()
    return "" if changes is None else f" {pluralize(changes[0], 'edge')} grew, {changes[1]:,} are gone."


def _list_attributes(dag: BaseGraph) -> dict[str, Any]:
    """Attributes that JSON can hold: finite numbers, text, bools."""
    return {
        name: [None if isinstance(value, float) and not np.isfinite(value) else value for value in values]
        for name, values in dag.attributes.items()
    }


def _encode_colourings(dag: BaseGraph, colouring: NodeColours | None, nodes: IntArray) -> dict[str, Any]:
    """What may colour the nodes: the attributes, and before them what the user passed, which is shown first."""
    listed = [read_colours(name, dag) for name in dag.attributes]
    if colouring is not None:
        listed = [colouring, *(each for each in listed if each.label != colouring.label)]
    return {
        "colourings": [_encode_colouring(each, nodes) for each in listed],
        "colouring": -1 if colouring is None else 0,
    }


def _encode_colouring(colouring: NodeColours, nodes: IntArray) -> dict[str, Any]:
    name = colouring.label
    if colouring.codes is not None:
        codes, colours = encode(colouring.codes[nodes], "i4"), CLASS_COLOURS[: len(colouring.names) - 1]
        return {"name": name, "codes": codes, "names": colouring.names, "colours": colours}
    assert colouring.values is not None
    finite = colouring.values[np.isfinite(colouring.values)]
    quantiles = np.quantile(finite, np.linspace(0, 1, 5)).tolist() if len(finite) else [0.0] * 5
    return {"name": name, "values": encode(rank_values(colouring.values)[nodes], "f4"), "quantiles": quantiles}


def encode(values: Any, dtype: str) -> str:
    """An array as base64 of little-endian numbers of dtype i4, f4 or u1."""
    return b64encode(np.ascontiguousarray(values, f"<{dtype}").tobytes()).decode("ascii")


def list_layerings(subject: Subject) -> dict[str, Layering]:
    """The layerings to switch between, by name and without duplicates; the subject's own first."""
    dag = subject.dag
    by_longest_path = longest_path(dag)
    paper = push_sources(dag, by_longest_path)
    named = {"the network's own": subject.layering} if subject.layering != paper else {}
    named |= {"longest path, sources pushed": paper, "longest path": by_longest_path}
    named |= {f"reassigned, seed {seed}": reassign(dag, paper, seed=seed) for seed in range(NUM_REASSIGNED)}
    first_names: dict[bytes, str] = {}
    for name, layering in named.items():
        first_names.setdefault(layering.level.tobytes(), name)
    return {name: named[name] for name in first_names.values()}


def select_part(
    graph: BaseGraph, weight: FloatArray | None, around: Hashable | None = None, chosen: IntArray | None = None
) -> Part:
    """All of a small graph; else the neurons nearest to one of them, and the strongest edges among those.

    Of `chosen` nodes, those on paths from inputs to outputs, all are shown if they are few enough. All edges of a
    neuron in the centre are among those shown: by weight alone, a hub scaled by its in-degree would have none.
    """
    has_centre = around is not None
    centre = int(np.argmax(graph.in_degree + graph.out_degree)) if around is None else graph.index(around)
    if chosen is not None and len(chosen) <= MAX_NODES:
        nodes = chosen
        text = f"{len(nodes):,} of {pluralize(graph.num_nodes, 'neuron')}, those on paths from inputs to outputs"
    elif graph.num_nodes <= MAX_NODES:
        nodes = np.arange(graph.num_nodes)
        text = format_all(graph.num_nodes, "neuron")
    else:
        nodes, has_centre = find_nearest(graph, centre), True
        nodes = nodes if chosen is None else np.intersect1d(nodes, chosen)
        reason = ", which has the most edges" if around is None else ""
        text = (
            f"{len(nodes):,} of {pluralize(graph.num_nodes, 'neuron')}, those nearest to {graph.labels[centre]}{reason}"
        )
    inside = np.zeros(graph.num_nodes, np.bool_)
    inside[nodes] = True
    edges = np.flatnonzero(inside[graph.source] & inside[graph.target])
    if len(edges) == graph.num_edges <= MAX_EDGES:
        return Part(nodes, edges, f"Shown: {text} and {format_all(graph.num_edges, 'edge')}.")
    of_centre = has_centre & ((graph.source[edges] == centre) | (graph.target[edges] == centre))
    selected, description = _select_edges(edges, weight, of_centre)
    if has_centre and len(selected) < len(edges):
        description = f"those of {graph.labels[centre]} and others, {description}"
    return Part(
        nodes, selected, f"Shown: {text}, and {len(selected):,} of {pluralize(graph.num_edges, 'edge')}, {description}."
    )


def _select_edges(edges: IntArray, weight: FloatArray | None, is_preferred: BoolArray) -> tuple[IntArray, str]:
    """At most MAX_EDGES edges, the preferred ones first, and which the remaining are."""
    if len(edges) <= MAX_EDGES:
        return edges, "all between these"
    if weight is None:
        preferred, remaining = np.flatnonzero(is_preferred)[:MAX_EDGES], np.flatnonzero(~is_preferred)
        evenly = np.linspace(0, len(remaining) - 1, MAX_EDGES - len(preferred)).astype(np.int64)
        return np.sort(edges[np.concatenate((preferred, remaining[evenly]))]), "picked evenly"
    size = np.abs(np.nan_to_num(weight[edges]))
    order = np.lexsort((size, is_preferred))
    return np.sort(edges[order[-MAX_EDGES:]]), "those with the largest weights"


def find_nearest(graph: BaseGraph, centre: int) -> IntArray:
    """The nodes that are the fewest edges away from a node, in any direction; those of high degree first."""
    inside = np.zeros(graph.num_nodes, np.bool_)
    inside[centre] = True
    degree = graph.in_degree + graph.out_degree
    while (remaining := NEAREST - np.count_nonzero(inside)) > 0:
        near = np.zeros(graph.num_nodes, np.bool_)
        near[graph.target[inside[graph.source]]] = True
        near[graph.source[inside[graph.target]]] = True
        new = np.flatnonzero(near & ~inside)
        if len(new) == 0:
            break
        inside[new[np.argsort(-degree[new], kind="stable")[:remaining]]] = True
    return np.flatnonzero(inside)


def _encode_layering(name: str, layering: Layering, part: Part, source: IntArray, target: IntArray) -> dict[str, Any]:
    layers, column = np.unique(layering.level[part.nodes], return_inverse=True)
    return {
        "name": name,
        "height": layering.height,
        "layers": encode(layers, "i4"),  # the shown ones; a neuron's column is an index into them
        "column": encode(column, "i4"),
        "y": encode(layout(source, target, column), "f4"),
        "kind": encode(node_kinds(layering)[part.nodes], "u1"),
    }


def _rank(nodes: IntArray, num_nodes: int) -> IntArray:
    """(N,) the index of each node in `nodes`; -1 for the others."""
    rank = np.full(num_nodes, -1, np.int32)
    rank[nodes] = np.arange(len(nodes))
    return rank


def _encode_bias(subject: Subject, nodes: IntArray) -> str | None:
    if subject.bias is None:
        return None
    bias = np.full(subject.graph.num_nodes, np.nan, np.float32)
    bias[subject.present.neurons] = subject.bias
    return encode(bias[nodes], "f4")


def _prepare_samples(net: FourWard | Recurrent | None, samples: Any) -> tuple[list[str], torch.Tensor | None]:
    """The samples that the page steps through, with names; three random ones by default."""
    if net is None:
        if samples is not None:
            raise InputError("samples needs a network, but a Dag has no weights. Pass a FourWard, or omit samples.")
        return [], None
    like = net.weight
    if samples is None:
        x = torch.randn(3, net.dag.num_inputs, generator=torch.Generator().manual_seed(0)).to(like)
        return [f"random {i + 1}" for i in range(3)], x
    x = torch.as_tensor(samples).to(like)
    if x.dim() != 2 or x.shape[1] != net.dag.num_inputs or len(x) == 0:
        raise InputError(
            f"expected samples of shape (samples, {net.dag.num_inputs}), one column per input, got {tuple(x.shape)}."
        )
    return [f"sample {i + 1} of {len(x)}" for i in range(min(len(x), MAX_SAMPLES))], x[:MAX_SAMPLES]


def _encode_activations(
    net: FourWard | Recurrent | None, names: list[str], x: torch.Tensor | None, nodes: IntArray
) -> dict[str, Any]:
    if net is None or x is None:
        return {"samples": [], "activationLimit": 1.0}
    values = compute_activations(net, x).float().numpy()[:, nodes]
    encoded = [{"name": name, "activation": encode(row, "f4")} for name, row in zip(names, values, strict=True)]
    return {"samples": encoded, "activationLimit": colour_limit(values)}
