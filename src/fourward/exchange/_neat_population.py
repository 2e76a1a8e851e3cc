"""Populations of neat-python's genomes, and their evaluation in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fourward.errors import GraphError, OptionError
from fourward.exchange._flat_genomes import FlatGenomes, Flattened, flatten
from fourward.exchange._from_neurons import CustomActivations
from fourward.exchange._neat import ACTIVATIONS
from fourward.graph._members import starts
from fourward.nn._population import Population


class NeatPopulation(Population):
    """A `Population` of genomes, made by `neat_population`; gradients of its fixed parameters are 0.

    Fixed are weights and biases between the neurons into which an activation that clamps, such as sin, is split, and
    weights that a response of 0 makes 0.
    """

    _genomes: Sequence[Any]
    _config: Any
    _flattened: Flattened

    def write_back(self) -> None:
        """Write weights and biases to the genes, as Lamarckian evolution does, within the bounds of the config."""
        if self.edge is None:
            raise OptionError("expected the members that neat_population made, but some have been replaced.")
        flat, keys = self._flattened, self._config.genome_config
        place = np.empty(len(self.edge), np.int64)
        place[self.edge] = np.arange(len(self.edge))
        weight = self.weight.detach().double().cpu().numpy()[place[flat.edge]]
        with np.errstate(divide="ignore", invalid="ignore"):
            weights = np.clip(weight / flat.edge_factor, keys.weight_min_value, keys.weight_max_value).tolist()
        assert self.bias is not None
        bias = self.bias.detach().double().cpu().numpy()[flat.neuron] / flat.neuron_factor
        biases = np.clip(bias, keys.bias_min_value, keys.bias_max_value).tolist()
        connections = (c for genome in self._genomes for c in genome.connections.values() if c.enabled)
        for gene, value, factor in zip(connections, weights, flat.edge_factor.tolist(), strict=True):
            gene.weight = value if factor else gene.weight
        nodes = (node for genome in self._genomes for node in genome.nodes.values())
        for node, value in zip(nodes, biases, strict=True):
            node.bias = value


def neat_population(
    genomes: Sequence[Any], config: Any, *, activations: CustomActivations = None, **options: Any
) -> NeatPopulation:
    """A population with the outputs of neat-python's feed-forward networks, a member for each genome.

    All neurons of a genome are neurons of its member, with their keys as labels; those that no output depends on take
    no time. Aggregations and activations are as in `from_neat`.

    Args:
        genomes: Genomes, or pairs of an id and a genome, as `Population.run` of neat-python passes them.
        config: Their neat.Config.
        activations: Torch functions for activations that you added to neat-python, by name.
        options: Further keywords of Population.from_arrays.
    """
    listed = [genome[1] if isinstance(genome, tuple) else genome for genome in genomes]
    flattened = flatten(_flat_genomes(listed, config), ACTIVATIONS, activations)
    pop = NeatPopulation.from_arrays(**flattened.arrays, **options)
    pop._genomes, pop._config, pop._flattened = listed, config, flattened
    _fix_parameters(pop, flattened)
    return pop


def _flat_genomes(genomes: Sequence[Any], config: Any) -> FlatGenomes:
    """The genes as arrays; a few list comprehensions for each genome."""
    if not genomes:
        raise GraphError("a population needs at least one genome, got none.")
    inputs, outputs = config.genome_config.input_keys, config.genome_config.output_keys
    connections: list[list[tuple[int, int, float]]] = []
    ends: list[list[int]] = []
    for p, genome in enumerate(genomes):
        index = dict(zip(chain(inputs, genome.nodes), range(len(inputs) + len(genome.nodes)), strict=True))
        try:
            genes = genome.connections.items()
            connections.append([(index[u], index[v], gene.weight) for (u, v), gene in genes if gene.enabled])
            ends.append([index[key] for key in outputs])
        except KeyError as error:
            raise GraphError(f"member {p} has a connection or an output {error}, which is not a node.") from None
    nodes = [node for genome in genomes for node in genome.nodes.values()]
    counts = [len(own) for own in connections]
    numbers = chain.from_iterable(chain.from_iterable(connections))  # fromiter is far faster than array on tuples
    table = np.fromiter(numbers, np.float64, 3 * sum(counts)).reshape(-1, 3)
    activations, aggregations = _Index(), _Index()
    return FlatGenomes(
        inputs, starts([len(genome.nodes) for genome in genomes]),
        np.fromiter(chain.from_iterable(genome.nodes for genome in genomes), np.int64, len(nodes)),
        np.array([activations[node.activation] for node in nodes], np.int64),
        np.array([aggregations[node.aggregation] for node in nodes], np.int64),
        np.array([node.bias for node in nodes], np.float64), np.array([node.response for node in nodes], np.float64),
        starts(counts), table[:, :2].astype(np.int64), table[:, 2].copy(), np.array(ends),
        list(activations), list(aggregations),
    )  # fmt: skip


class _Index(dict[str, int]):
    """Numbers names in the order in which they are looked up first."""

    def __missing__(self, name: str) -> int:
        number = self[name] = len(self)
        return number


def _fix_parameters(pop: NeatPopulation, flat: Flattened) -> None:
    """Give parameters that no gene determines gradients of 0."""
    assert pop.edge is not None
    assert pop.bias is not None
    for parameter, genes, order in (
        (pop.weight, flat.edge[flat.edge_factor != 0], pop.edge),
        (pop.bias, flat.neuron, np.arange(len(pop.bias))),
    ):
        if len(genes) < len(parameter):
            fixed = np.ones(len(parameter), np.bool_)
            fixed[genes] = False
            mask = torch.from_numpy(fixed[order]).to(parameter.device)
            parameter.register_hook(lambda grad, mask=mask: grad.masked_fill(mask.to(grad.device), 0))


class NeatEvaluator:
    """A fitness function for `Population.run` of neat-python, which evaluates all genomes in one call.

    Args:
        x: (B, I) samples, or what torch.as_tensor makes a tensor of.
        fitness: A function of the outputs (P, B, O) that returns the fitness of each genome, (P,).
        activations: As in `neat_population`.
        options: Likewise; by default parameters have the dtype of x.

    Example:
        evaluate = fourward.exchange.NeatEvaluator(x, lambda y: 4 - (y[..., 0] - target).square().sum(1))
        winner = neat.Population(config).run(evaluate, 100)
    """

    def __init__(
        self, x: Any, fitness: Callable[[Tensor], Tensor], *, activations: CustomActivations = None, **options: Any
    ) -> None:
        self.x = torch.as_tensor(x)
        if not self.x.is_floating_point():
            self.x = self.x.to(torch.get_default_dtype())
        self.fitness, self.activations = fitness, activations
        self.options = {"dtype": self.x.dtype, "device": self.x.device} | options

    @torch.no_grad()
    def __call__(self, genomes: Sequence[Any], config: Any) -> None:
        """Set the fitness of each genome; `genomes` are pairs of an id and a genome."""
        pop = neat_population(genomes, config, activations=self.activations, **self.options)
        fitness = torch.as_tensor(self.fitness(pop(self.x)))
        if fitness.shape != (len(pop),):
            raise OptionError(
                f"expected a fitness of shape ({len(pop)},), one number for each genome, got {tuple(fitness.shape)}."
            )
        for (_, genome), value in zip(genomes, fitness.tolist(), strict=True):
            genome.fitness = value
