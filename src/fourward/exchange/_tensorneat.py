"""TensorNEAT: the dict that a genome's `network_dict(state, nodes, conns)` returns."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fourward.errors import FileError, FourwardError
from fourward.exchange._builder import Neuron, Stages, build, stages_of
from fourward.exchange._neat import Own, aggregation_factor
from fourward.graph import _io
from fourward.nn._fourward import FourWard


def _lelu(z: Tensor) -> Tensor:
    return torch.nn.functional.leaky_relu(z, 0.005)


def _inv(z: Tensor) -> Tensor:
    return 1 / torch.where(z > 0, z.clamp(min=1e-7), z.clamp(max=-1e-7))


def _log(z: Tensor) -> Tensor:
    return z.clamp(min=1e-7).log()


#: TensorNEAT's activations, by name.
ACTIVATIONS: Mapping[str, Stages] = {
    "identity": ((1, "identity"),),
    "sigmoid": ((1, "sigmoid"),),
    "tanh": ((1, "tanh"),),
    "scaled_sigmoid": ((1, "sigmoid"), (3, "identity")),
    "scaled_tanh": ((1, "tanh"), (3, "identity")),
    "sin": ((1, "sin"),),
    "relu": ((1, "relu"),),
    "abs": ((1, "abs"),),
    "lelu": ((1, _lelu),),
    "inv": ((1, _inv),),
    "log": ((1, _log),),
    "exp": ((1, torch.exp),),
}


def from_tensorneat(
    network: Mapping[str, Any],
    inputs: int | Sequence[int],
    outputs: int | Sequence[int],
    *,
    output_transform: str = "identity",
    activations: Own = None,
    **options: Any,
) -> FourWard:
    """A feed-forward network of TensorNEAT with the same outputs, which trains.

    Args:
        network: What the genome's `network_dict` returned.
        inputs: How many inputs there are, or their indices.
        outputs: How many outputs there are, which then follow the inputs; or their indices.
        output_transform: The genome's own, by its TensorNEAT name: output neurons apply it in place of an activation.
        activations: Torch functions for activations that were added to TensorNEAT, by name.
        options: As in FourWard.
    """
    first = _indices(inputs, 0)
    last = _indices(outputs, len(first))
    try:
        nodes = {int(node["idx"]): node for node in _values(network["nodes"])}
        links: dict[int, list[tuple[int, float]]] = {}
        for one in _values(network["conns"]):
            links.setdefault(int(one["out"]), []).append((int(one["in"]), float(one["weight"])))
        missing = [key for key in (*first, *last) if key not in nodes]
        if missing:
            raise FileError(f"input or output {missing[0]} is none of the {len(nodes)} nodes.")
        found = [
            _neuron(node, output_transform if key in last else node["act"], links.get(key, []), activations)
            for key, node in nodes.items()
            if key not in first
        ]
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        if isinstance(error, FourwardError):
            raise
        raise FileError(
            "a TensorNEAT network has 'nodes' (each with idx, bias, agg, act and, maybe, res) and 'conns' (each with "
            f"in, out and weight); this one lacks some of it ({type(error).__name__}: {error})."
        ) from None
    return build(first, last, found, **options)


def read_tensorneat(
    path: str | Path, inputs: int | Sequence[int], outputs: int | Sequence[int], **more: Any
) -> FourWard:
    """The same from a JSON file of that dict; its "nodes" and "conns" may be lists, or have any keys."""
    path = Path(path)
    words = _io.text(path, _io.load(path))
    try:
        network = json.loads(words)
    except (ValueError, RecursionError) as error:  # also of a number with thousands of digits
        raise FileError(f"{path}: this is no JSON: {error}.") from None
    try:
        return from_tensorneat(network, inputs, outputs, **more)
    except FourwardError as error:
        error.prepend(str(path))
        raise


def _neuron(node: Mapping[str, Any], activation: str, links: list[tuple[int, float]], own: Own) -> Neuron:
    key = int(node["idx"])
    factor = float(node.get("res", 1.0)) * aggregation_factor(key, node["agg"].rstrip("_"), len(links))
    fed = [(source, factor * weight) for source, weight in links]
    return Neuron(key, stages_of(activation.rstrip("_"), key, ACTIVATIONS, own), float(node["bias"]), fed)


def _values(things: Any) -> Iterable[Any]:
    return things.values() if isinstance(things, Mapping) else list(things)


def _indices(wanted: int | Sequence[int], start: int) -> list[int]:
    return list(range(start, start + wanted)) if isinstance(wanted, int) else list(wanted)
