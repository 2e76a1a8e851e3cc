"""What a page shows of a network: which nodes and edges, where they stand, what they hold; and what it leaves out."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np
import torch

from fourward._arrays import IntArray
from fourward.errors import InputError, pluralize
from fourward.graph._dag import Dag
from fourward.layering import Layering, longest_path, push_sources, reassign
from fourward.nn._fourward import FourWard
from fourward.view._layout import FloatArray, place
from fourward.view._subject import Subject, activations_of, all_of, kind_names, kinds, limit_of

MOST_EDGES, MOST_NODES = 20_000, 4_000  #: that a page shows; of a graph with more nodes it shows
NEAREST = 1_500  #: of them, round one
MOST_SAMPLES = 8
REASSIGNED = 3  #: layerings by stochastic reassignment


class Part(NamedTuple):
    """The part of a graph that is shown."""

    nodes: IntArray  #: ascending
    edges: IntArray  #: ascending
    words: str  #: what is shown, and what is left out


def build_scene(
    subject: Subject, title: str, samples: torch.Tensor | None, around: Hashable | None
) -> dict[str, Any]:  # fmt: skip
    """Everything that the page's script reads, ready for JSON; arrays travel as base64, see `pack`."""
    dag = subject.dag
    part = choose_part(dag, subject.weight, around)
    number = np.full(dag.num_nodes, -1, np.int32)
    number[part.nodes] = np.arange(len(part.nodes))
    source, target = number[dag.source[part.edges]], number[dag.target[part.edges]]
    named, x = _samples(subject.net, samples)
    return {
        "title": title,
        "shown": part.words,
        "whole": len(part.edges) == dag.num_edges,
        "allNeurons": len(part.nodes) == dag.num_nodes,
        "kinds": kind_names(dag),
        "labels": [str(dag.labels[v]) for v in part.nodes.tolist()],
        "inDegree": pack(dag.in_degree[part.nodes], "i4"),
        "outDegree": pack(dag.out_degree[part.nodes], "i4"),
        "input": pack(_places(dag.inputs, dag.num_nodes)[part.nodes], "i4"),
        "output": pack(_places(dag.outputs, dag.num_nodes)[part.nodes], "i4"),
        "bias": _biases(subject, part.nodes),
        "source": pack(source, "i4"),
        "target": pack(target, "i4"),
        "weight": None if subject.weight is None else pack(subject.weight[part.edges], "f4"),
        "weightLimit": 1.0 if subject.weight is None else limit_of(subject.weight),
        "layerings": [_layering(name, lay, part, source, target) for name, lay in layerings(subject).items()],
        **_activations(subject.net, named, x, part.nodes),
    }


def pack(values: Any, kind: str) -> str:
    """An array as base64 of little-endian numbers: i4, f4 or u1."""
    return b64encode(np.ascontiguousarray(values, f"<{kind}").tobytes()).decode("ascii")


def layerings(subject: Subject) -> dict[str, Layering]:
    """The layerings to switch between, by name, each of them once; the subject's own first."""
    dag = subject.dag
    sinkward = longest_path(dag)
    paper = push_sources(dag, sinkward)
    every = {"the network's own": subject.layering} if subject.layering != paper else {}
    every |= {"longest path, sources pushed": paper, "longest path": sinkward}
    every |= {f"reassigned, seed {seed}": reassign(dag, paper, seed=seed) for seed in range(REASSIGNED)}
    first_names: dict[bytes, str] = {}
    for name, layering in every.items():
        first_names.setdefault(layering.level.tobytes(), name)
    return {name: every[name] for name in first_names.values()}


def choose_part(dag: Dag, weight: FloatArray | None, around: Hashable | None = None) -> Part:
    """All of a graph that is small enough; else neurons round one of them, and the strongest edges among those."""
    centre = int(np.argmax(dag.in_degree + dag.out_degree)) if around is None else dag.index(around)
    if dag.num_nodes <= MOST_NODES:
        nodes: IntArray = np.arange(dag.num_nodes)
        words = all_of(dag.num_nodes, "neuron")
    else:
        nodes = nearest(dag, centre)
        why = ", which has the most edges" if around is None else ""
        words = f"{len(nodes):,} of {pluralize(dag.num_nodes, 'neuron')}, those nearest to {dag.labels[centre]}{why}"
    inside = np.zeros(dag.num_nodes, np.bool_)
    inside[nodes] = True
    edges = np.flatnonzero(inside[dag.source] & inside[dag.target])
    if len(edges) == dag.num_edges <= MOST_EDGES:
        return Part(nodes, edges, f"Shown: {words} and {all_of(dag.num_edges, 'edge')}.")
    kept, which = _strongest(edges, weight)
    return Part(nodes, kept, f"Shown: {words}, and {len(kept):,} of {pluralize(dag.num_edges, 'edge')}, {which}.")


def _strongest(edges: IntArray, weight: FloatArray | None) -> tuple[IntArray, str]:
    """As many edges as a page shows, and which they are."""
    if len(edges) <= MOST_EDGES:
        return edges, "all between these"
    if weight is None:
        return edges[np.linspace(0, len(edges) - 1, MOST_EDGES).astype(np.int64)], "picked evenly"
    size = np.abs(np.nan_to_num(weight[edges]))
    strong = np.argpartition(size, -MOST_EDGES)[-MOST_EDGES:]
    return np.sort(edges[strong]), "those with the largest weights"


def nearest(dag: Dag, centre: int) -> IntArray:
    """The nodes that are the fewest edges away from one, whatever their direction; those of high degree first."""
    inside = np.zeros(dag.num_nodes, np.bool_)
    inside[centre] = True
    degree = dag.in_degree + dag.out_degree
    while (room := NEAREST - np.count_nonzero(inside)) > 0:
        near = np.zeros(dag.num_nodes, np.bool_)
        near[dag.target[inside[dag.source]]] = True
        near[dag.source[inside[dag.target]]] = True
        found = np.flatnonzero(near & ~inside)
        if len(found) == 0:
            break
        inside[found[np.argsort(-degree[found], kind="stable")[:room]]] = True
    return np.flatnonzero(inside)


def _layering(name: str, layering: Layering, part: Part, source: IntArray, target: IntArray) -> dict[str, Any]:
    layers, place_of = np.unique(layering.level[part.nodes], return_inverse=True)
    return {
        "name": name,
        "height": layering.height,
        "layers": pack(layers, "i4"),  # the shown ones; a neuron's column is an index into them
        "column": pack(place_of, "i4"),
        "place": pack(place(source, target, place_of), "f4"),
        "kind": pack(kinds(layering)[part.nodes], "u1"),
    }


def _places(nodes: IntArray, num_nodes: int) -> IntArray:
    """(N,) which input or output each node is; -1 for none."""
    places = np.full(num_nodes, -1, np.int32)
    places[nodes] = np.arange(len(nodes))
    return places


def _biases(subject: Subject, nodes: IntArray) -> str | None:
    if subject.bias is None:
        return None
    bias = np.full(subject.dag.num_nodes, np.nan, np.float32)
    bias[subject.dag.neurons] = subject.bias
    return pack(bias[nodes], "f4")


def _samples(net: FourWard | None, samples: Any) -> tuple[list[str], torch.Tensor | None]:
    """The samples that the forward pass is shown for, with names; random ones where none came."""
    if net is None:
        if samples is not None:
            raise InputError("samples came, but a Dag has no weights to compute with. Give a network, or no samples.")
        return [], None
    like = net.weight
    if samples is None:
        x = torch.randn(3, net.dag.num_inputs, generator=torch.Generator().manual_seed(0)).to(like)
        return [f"random {i + 1}" for i in range(3)], x
    x = torch.as_tensor(samples).to(like)
    if x.dim() != 2 or x.shape[1] != net.dag.num_inputs or len(x) == 0:
        wanted = f"(samples, {net.dag.num_inputs})"
        raise InputError(f"samples have shape {tuple(x.shape)}, but {wanted} was wanted: a column for each input.")
    return [f"sample {i + 1} of {len(x)}" for i in range(min(len(x), MOST_SAMPLES))], x[:MOST_SAMPLES]


def _activations(net: FourWard | None, names: list[str], x: torch.Tensor | None, nodes: IntArray) -> dict[str, Any]:
    if net is None or x is None:
        return {"samples": [], "activationLimit": 1.0}
    values = activations_of(net, x).float().numpy()[:, nodes]
    listed = [{"name": name, "activation": pack(row, "f4")} for name, row in zip(names, values, strict=True)]
    return {"samples": listed, "activationLimit": limit_of(values)}
