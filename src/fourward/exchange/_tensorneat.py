"""Import from TensorNEAT: the dict that a genome's `network_dict(state, nodes, conns)` returns."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fourward._memory import limit_memory
from fourward.errors import FileError, FourwardError
from fourward.exchange._aggregations import make_neurons
from fourward.exchange._from_neurons import CustomActivations, Neuron, Stages, build_network, lookup_stages
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
    activations: CustomActivations = None,
    **options: Any,
) -> FourWard:
    """Convert a feed-forward network of TensorNEAT to one with the same outputs.

    Args:
        network: The dict that the genome's `network_dict` returned.
        inputs: Number of inputs, which are the first nodes; or their indices.
        outputs: Number of outputs, which follow the inputs; or their indices.
        output_transform: TensorNEAT's name of the genome's output transform, which replaces the activation of outputs.
        activations: Torch functions for activations that you added to TensorNEAT, by name.
        options: Further keywords of FourWard.
    """
    try:
        nodes = {int(node["idx"]): node for node in _values(network["nodes"])}
        first = _indices(inputs, 0, len(nodes))
        last = _indices(outputs, len(first), len(nodes))
        incoming: dict[int, list[tuple[int, float]]] = {}
        for connection in _values(network["conns"]):
            source, weight = int(connection["in"]), float(connection["weight"])
            incoming.setdefault(int(connection["out"]), []).append((source, weight))
        missing = [key for key in (*first, *last) if key not in nodes]
        if missing:
            raise FileError(f"expected inputs and outputs among the {len(nodes)} nodes, got {missing[0]}.")
        neurons: list[Neuron] = []
        fresh = count(1 + max(nodes, default=0))
        for key, node in nodes.items():
            if key not in first:
                activation = output_transform if key in last else node["act"]
                neurons += _make_neurons(node, activation, incoming.get(key, []), activations, fresh)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        if isinstance(error, FourwardError):
            raise
        raise FileError(
            "expected a TensorNEAT network with 'nodes' (each with idx, bias, agg, act and optionally res) and 'conns' "
            f"(each with in, out and weight), got {type(error).__name__}: {error}."
        ) from None
    return build_network(first, last, neurons, **options)


def read_tensorneat(
    path: str | Path,
    inputs: int | Sequence[int],
    outputs: int | Sequence[int],
    *,
    max_bytes: int | None = None,
    **options: Any,
) -> FourWard:
    """Read the dict of `from_tensorneat` from JSON, with "nodes" and "conns" as lists, or as objects of any keys.

    Args:
        path: The file.
        inputs: As in `from_tensorneat`.
        outputs: As in `from_tensorneat`.
        max_bytes: As in `fourward.files.read`.
        options: Further keywords of `from_tensorneat`.
    """
    path = Path(path)
    with limit_memory(max_bytes):
        text = _io.decode_text(path, _io.read_bytes(path, _io.PARSE_GROWTH))
    try:
        network = json.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError also for an integer of thousands of digits
        raise FileError(f"{path}: expected JSON, got {type(error).__name__}: {error}.") from None
    try:
        return from_tensorneat(network, inputs, outputs, **options)
    except FourwardError as error:
        error.prepend(str(path))
        raise


def _make_neurons(
    node: Mapping[str, Any],
    activation: str,
    incoming: list[tuple[int, float]],
    custom: CustomActivations,
    fresh: Iterator[int],
) -> list[Neuron]:
    key, response = int(node["idx"]), float(node.get("res", 1.0))
    stages = lookup_stages(activation.rstrip("_"), key, ACTIVATIONS, custom)
    return make_neurons(key, stages, node["agg"].rstrip("_"), float(node["bias"]), response, incoming, fresh)


def _values(items: Any) -> Iterable[Any]:
    return items.values() if isinstance(items, Mapping) else list(items)


def _indices(nodes: int | Sequence[int], start: int, num_nodes: int) -> list[int]:
    """The indices of inputs or outputs; of a count, not more than show that there are too few nodes."""
    return list(range(start, start + min(nodes, num_nodes + 1))) if isinstance(nodes, int) else list(nodes)
