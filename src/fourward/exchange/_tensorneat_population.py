"""Populations of TensorNEAT's arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fourward.errors import FileError
from fourward.exchange._flat_genomes import FlatGenomes, flatten
from fourward.exchange._from_neurons import CustomActivations
from fourward.exchange._tensorneat import ACTIVATIONS
from fourward.graph._members import starts
from fourward.nn._population import Population


def tensorneat_population(
    nodes: Any,
    conns: Any,
    inputs: int,
    outputs: int,
    *,
    activation_options: Sequence[str] = ("sigmoid",),
    aggregation_options: Sequence[str] = ("sum",),
    output_transform: str = "identity",
    activations: CustomActivations = None,
    **options: Any,
) -> Population:
    """A population with the outputs of TensorNEAT's feed-forward networks, from the arrays of its state.

    These are what `algorithm.ask(state)` returns: arrays padded with NaN, of genomes with TensorNEAT's default genes.
    Neurons have their keys as labels.

    Args:
        nodes: (P, N, 5) key, bias, response, aggregation and activation of each node.
        conns: (P, C, 3) source, target and weight of each connection.
        inputs: Number of inputs, which have the keys 0 to I-1.
        outputs: Number of outputs, which have the keys behind these.
        activation_options: The names of the node gene's activation_options.
        aggregation_options: The names of its aggregation_options.
        output_transform: As in `from_tensorneat`.
        activations: As in `from_tensorneat`.
        options: Further keywords of Population.from_arrays.
    """
    nodes, conns = _genes(nodes, 5, "nodes"), _genes(conns, 3, "conns")
    if len(nodes) != len(conns):
        raise FileError(f"expected nodes and conns of as many genomes, got {len(nodes):,} and {len(conns):,}.")
    known = ~np.isnan(nodes[..., 0])
    keys = np.where(known, nodes[..., 0], np.inf)
    order = np.argsort(keys, axis=1, kind="stable")
    nodes, keys = np.take_along_axis(nodes, order[..., None], 1), np.take_along_axis(keys, order, 1)
    ends = inputs + outputs
    if not (inputs >= 1 <= outputs and ends <= keys.shape[1] and (keys[:, :ends] == np.arange(ends)).all()):
        raise FileError(
            f"expected the nodes 0 to {ends - 1} in each genome, {inputs} inputs and then {outputs} outputs. inputs= "
            "and outputs= are these numbers."
        )
    member, place = np.nonzero(np.isfinite(keys))
    member, place = member[place >= inputs], place[place >= inputs]
    genes = nodes[member, place]  # (M, 5), of all neurons
    is_output = place < ends
    names = ["identity", *activation_options, output_transform]
    activation = np.where(is_output, len(names) - 1, _index(genes[:, 4], -1, len(activation_options), "activation") + 1)
    edges, weight, edge_start = _connections(keys, conns)
    used, number = np.unique(activation, return_inverse=True)
    genomes = FlatGenomes(
        range(inputs), starts(np.bincount(member, minlength=len(nodes))), genes[:, 0].astype(np.int64), number,
        _index(genes[:, 3], 0, len(aggregation_options), "aggregation"), genes[:, 1], genes[:, 2], edge_start, edges,
        weight, np.arange(inputs, ends)[None], [names[k].rstrip("_") for k in used.tolist()],
        [name.rstrip("_") for name in aggregation_options],
    )  # fmt: skip
    arrays = flatten(genomes, ACTIVATIONS, activations).arrays
    return Population.from_arrays(**arrays, **options)


def _genes(values: Any, columns: int, name: str) -> Any:
    array = np.asarray(values, np.float64)
    if array.ndim != 3 or array.shape[2] != columns:
        raise FileError(
            f"expected {name} of shape (P, N, {columns}), those of TensorNEAT's default genes, got {array.shape}."
        )
    return array


def _index(values: Any, least: int, count: int, name: str) -> Any:
    """Indices among options, from floats."""
    if not ((values >= least) & (values < count) & (values == np.floor(values))).all():
        raise FileError(
            f"expected each {name} among the {count} of {name}_options, got {values.min()} to {values.max()}."
        )
    return values.astype(np.int64)


def _connections(keys: Any, conns: Any) -> tuple[Any, Any, Any]:
    """(E, 2) node indices, weights, and where the edges of each genome start; keys are sorted, inf where none is."""
    member, slot = np.nonzero(~np.isnan(conns[..., 0]))
    genes = conns[member, slot]
    # One sorted vector of the keys of all genomes; keys are below 2**24, as float32 holds them, so no two genomes meet.
    step = 2.0**25
    flat = np.where(np.isfinite(keys), keys, step - 1) + step * np.arange(len(keys))[:, None]
    wanted = genes[:, :2] + step * member[:, None]
    index = np.searchsorted(flat.reshape(-1), wanted).clip(max=flat.size - 1)
    unknown = (flat.reshape(-1)[index] != wanted).any(1)
    if unknown.any():
        k = int(np.flatnonzero(unknown)[0])
        raise FileError(
            f"member {member[k]} has the connection {genes[k, 0]:g} to {genes[k, 1]:g}; both must be keys of its nodes."
        )
    edges = index - keys.shape[1] * member[:, None]
    return edges, genes[:, 2], starts(np.bincount(member, minlength=len(conns)))
