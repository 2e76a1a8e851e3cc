"""neat-python: a genome with its config, or the JSON that its `neat.export` writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fourward.errors import FileError, GraphError
from fourward.exchange._builder import Neuron, Stages, build, stages_of
from fourward.graph import _io
from fourward.nn._fourward import FourWard


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


#: neat-python's activations, which scale and clamp z. Where a clamp is far beyond all digits, as in its sigmoid, it is
#: left away. Those given as callables can't be saved.
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
Own = Mapping[str, Callable[[Tensor], Tensor]] | None


def from_neat(genome: Any, config: Any, *, activations: Own = None, **options: Any) -> FourWard:
    """A feed-forward genome as a network with the same outputs, which trains.

    Neurons keep their keys as labels; those that no output needs are left away, as neat-python does. A neuron's
    response goes into its weights. Activations that clamp z (sin, softplus) take two or three neurons; cube, lelu,
    inv, log and exp are torch callables, so a network with one of them can be trained, but not saved.

    Args:
        genome: A neat.DefaultGenome.
        config: Its neat.Config.
        activations: Torch functions for activations that were added to neat-python, by name.
        options: As in FourWard.
    """
    keys = config.genome_config
    expressed = {pair: gene.weight for pair, gene in genome.connections.items() if gene.enabled}
    found = []
    for key in _needed(keys.output_keys, expressed, set(keys.input_keys)):
        gene = genome.nodes[key]
        links = [(source, weight) for (source, target), weight in expressed.items() if target == key]
        found.append(_neuron(key, gene.activation, gene.aggregation, gene.bias, gene.response, links, activations))
    return build(list(keys.input_keys), list(keys.output_keys), found, **options)


def read_neat(path: str | Path, *, activations: Own = None, **options: Any) -> FourWard:
    """A network from the JSON that neat-python's `neat.export.export_network_json` writes; see `from_neat`.

    Genomes that were pickled aren't read: a pickle can run any code.
    """
    path = Path(path)
    data = _io.load(path)
    if data[:1] == b"\x80" or path.suffix in (".pkl", ".pickle"):
        raise FileError(
            f"{path} is a pickle, which can run any code when it is read. Write the network with neat-python's "
            "neat.export.export_network_json, or call fourward.exchange.from_neat(genome, config) in Python."
        )
    try:
        said = json.loads(_io.text(path, data))
        kind, topology = said["network_type"], said["topology"]
        if kind != "feedforward":
            raise GraphError(f"{path} holds a {kind} network. A network without feedback was wanted.")
        links: dict[Any, list[tuple[Any, float]]] = {}
        for one in said["connections"]:
            if one["enabled"]:
                links.setdefault(one["to"], []).append((one["from"], float(one["weight"])))
        found = [
            _neuron(
                node["id"],
                node["activation"]["name"],
                node["aggregation"]["name"],
                float(node["bias"]),
                float(node["response"]),
                links.get(node["id"], []),
                activations,
            )
            for node in said["nodes"]
            if node["type"] != "input"
        ]
        return build(topology["input_keys"], topology["output_keys"], found, **options)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise _wrong(path, error) from None


def _wrong(path: Path, error: Exception) -> Exception:
    if isinstance(error, GraphError | FileError) or hasattr(error, "exit_code"):
        return error
    return FileError(
        f"{path} isn't what neat-python's neat.export.export_network_json writes ({type(error).__name__}: {error})."
    )


def _neuron(
    key: int,
    activation: str,
    aggregation: str,
    bias: float,
    response: float,
    links: list[tuple[int, float]],
    own: Own,
) -> Neuron:
    factor = response * aggregation_factor(key, aggregation, len(links))
    fed = [(source, factor * weight) for source, weight in links]
    return Neuron(key, stages_of(activation, key, ACTIVATIONS, own), bias, fed)


def aggregation_factor(key: int, aggregation: str, count: int) -> float:
    """What a sum must be multiplied with to be this aggregation; others than sums and means are refused."""
    if aggregation == "sum" or count == 1:  # of one number all aggregations are the number itself
        return 1.0
    if aggregation == "mean":
        return 1 / max(count, 1)  # the mean of nothing is 0, as is the sum
    raise GraphError(
        f"neuron {key} takes the {aggregation} of what {count} connections bring. A network here takes sums; "
        "evolve with the aggregation 'sum' or 'mean'."
    )


def _needed(outputs: list[int], links: Mapping[tuple[int, int], float], inputs: set[int]) -> list[int]:
    """The neurons that an output depends on, outputs first."""
    feeds: dict[int, list[int]] = {}
    for source, target in links:
        feeds.setdefault(target, []).append(source)
    found, left = dict.fromkeys(outputs), list(outputs)
    while left:
        for source in feeds.get(left.pop(), []):
            if source not in found and source not in inputs:
                found[source] = None
                left.append(source)
    return list(found)
