"""Import from neat-python: a genome with its config, or the JSON that its `neat.export` writes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fourward._memory import limit_memory
from fourward.errors import FileError, FourwardError, GraphError
from fourward.exchange._aggregations import make_neurons
from fourward.exchange._from_neurons import (
    CustomActivations,
    Neuron,
    Stages,
    build_network,
    build_recurrent,
    lookup_stages,
)
from fourward.graph import _io
from fourward.nn._fourward import FourWard
from fourward.nn._recurrent import Recurrent


def _lelu(z: Tensor) -> Tensor:
    return torch.nn.functional.leaky_relu(z, 0.005)


def _inv(z: Tensor) -> Tensor:
    return torch.where(z == 0, 0.0, 1 / torch.where(z == 0, 1.0, z))


def _log(z: Tensor) -> Tensor:
    return z.clamp(min=1e-7).log()


def _exp(z: Tensor) -> Tensor:
    return z.clamp(-60, 60).exp()


def _cube(z: Tensor) -> Tensor:
    return z * z * z


#: neat-python's activations, which scale and clamp z. A clamp that changes no digit of the result, as in its sigmoid,
#: is omitted. Networks with the callables can't be saved.
ACTIVATIONS: Mapping[str, Stages] = {
    "identity": ((1, "identity"),),
    "sigmoid": ((5, "sigmoid"),),
    "tanh": ((2.5, "tanh"),),
    "sin": ((1 / 12, "hardtanh"), (60, "sin")),
    "gauss": ((5**0.5, "gaussian"),),
    "relu": ((1, "relu"),),
    "elu": ((1, "elu"),),
    "selu": ((1, "selu"),),
    "softplus": ((1 / 12, "hardtanh"), (60, "softplus"), (0.2, "identity")),
    "clamped": ((1, "hardtanh"),),
    "hat": ((1, "hat"),),
    "abs": ((1, "abs"),),
    "square": ((1, "square"),),
    "cube": ((1, _cube),),
    "lelu": ((1, _lelu),),
    "inv": ((1, _inv),),
    "log": ((1, _log),),
    "exp": ((1, _exp),),
}


def from_neat(genome: Any, config: Any, *, activations: CustomActivations = None, **options: Any) -> FourWard:
    """Convert a feed-forward genome to a network with the same outputs.

    Neurons keep their keys as labels; those that no output depends on are omitted, as in neat-python. A neuron's
    response is multiplied into its weights. The aggregations max, min and product take further neurons: a product is a
    difference of squares, with the rounding errors of these. Activations that clamp z (sin, softplus) become two or
    three neurons; cube, lelu, inv, log and exp become torch callables, so that a network with one of them can be
    trained, but not saved.

    Args:
        genome: A neat.DefaultGenome.
        config: Its neat.Config.
        activations: Torch functions for activations that you added to neat-python, by name.
        options: Further keywords of FourWard.
    """
    keys = config.genome_config
    neurons = [neuron for _, own in _express(genome, keys, activations) for neuron in own]
    return build_network(list(keys.input_keys), list(keys.output_keys), neurons, **options)


def from_neat_recurrent(
    genome: Any, config: Any, *, activations: CustomActivations = None, **options: Any
) -> Recurrent:
    """Convert a genome to a network with the outputs of neat-python's RecurrentNetwork, from its reset on.

    There a neuron sees the inputs of this step, and the values that all neurons had in the step before; neurons without
    enabled connections into them remain 0. Everything else is as in `from_neat`.

    Args:
        genome: A neat.DefaultGenome, which may have feedback.
        config: Its neat.Config.
        activations: As in `from_neat`.
        options: Further keywords of Recurrent.
    """
    keys, neurons = config.genome_config, list[Neuron]()
    expressed = _express(genome, keys, activations)
    for key, own in expressed:
        has_sources = any(gene.enabled and target == key for (_, target), gene in genome.connections.items())
        neurons += own if has_sources else [Neuron(key, ACTIVATIONS["identity"], 0.0, [])]
    delayed = {key for key, _ in expressed}
    return build_recurrent(list(keys.input_keys), list(keys.output_keys), neurons, delayed, **options)


def _express(genome: Any, keys: Any, activations: CustomActivations) -> list[tuple[int, list[Neuron]]]:
    """The neurons that an output depends on, and what each becomes."""
    expressed = {pair: gene.weight for pair, gene in genome.connections.items() if gene.enabled}
    neurons, nodes = [], count(1 + max(genome.nodes, default=0))
    for key in _required_neurons(keys.output_keys, expressed, set(keys.input_keys)):
        gene = genome.nodes[key]
        incoming = [(source, weight) for (source, target), weight in expressed.items() if target == key]
        stages = lookup_stages(gene.activation, key, ACTIVATIONS, activations)
        own = make_neurons(key, stages, gene.aggregation, gene.bias, gene.response, incoming, nodes)
        neurons.append((key, own))
    return neurons


def read_neat(
    path: str | Path, *, activations: CustomActivations = None, max_bytes: int | None = None, **options: Any
) -> FourWard:
    """Read a network from the JSON that neat-python's `neat.export.export_network_json` writes; see `from_neat`.

    Pickled genomes are refused: unpickling can run any code.

    Args:
        path: The file.
        activations: As in `from_neat`.
        max_bytes: As in `fourward.files.read`.
        options: As in `from_neat`.
    """
    path = Path(path)
    with limit_memory(max_bytes):
        data = _io.read_bytes(path, _io.PARSE_GROWTH)
    if data[:1] == b"\x80" or path.suffix in (".pkl", ".pickle"):
        raise FileError(
            f"{path} is a pickle, and unpickling can run any code. Write the network with neat-python's "
            "neat.export.export_network_json, or call fourward.exchange.from_neat(genome, config)."
        )
    try:
        network = json.loads(_io.decode_text(path, data))
        kind, topology = network["network_type"], network["topology"]
        if kind != "feedforward":
            raise GraphError(f"expected a feedforward network, got a {kind} network.")
        incoming: dict[Any, list[tuple[Any, float]]] = {}
        for connection in network["connections"]:
            if connection["enabled"]:
                incoming.setdefault(connection["to"], []).append((connection["from"], float(connection["weight"])))
        neurons: list[Neuron] = []
        nodes = count(1 + max((node["id"] for node in network["nodes"]), default=0))
        for node in network["nodes"]:
            if node["type"] == "input":
                continue
            key = node["id"]
            stages = lookup_stages(node["activation"]["name"], key, ACTIVATIONS, activations)
            numbers = float(node["bias"]), float(node["response"])
            neurons += make_neurons(key, stages, node["aggregation"]["name"], *numbers, incoming.get(key, []), nodes)
        return build_network(topology["input_keys"], topology["output_keys"], neurons, **options)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        if isinstance(error, FourwardError):
            if str(path) not in str(error):
                error.prepend(str(path))
            raise
        raise FileError(
            f"{path}: expected JSON of neat-python's neat.export.export_network_json, got {type(error).__name__}: "
            f"{error}."
        ) from None


def _required_neurons(outputs: list[int], pairs: Iterable[tuple[int, int]], inputs: set[int]) -> list[int]:
    """The neurons that an output depends on, outputs first."""
    predecessors: dict[int, list[int]] = {}
    for source, target in pairs:
        predecessors.setdefault(target, []).append(source)
    required, stack = dict.fromkeys(outputs), list(outputs)
    while stack:
        for source in predecessors.get(stack.pop(), []):
            if source not in required and source not in inputs:
                required[source] = None
                stack.append(source)
    return list(required)
