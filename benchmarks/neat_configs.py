"""Configurations of neat-python for benchmarks, and genomes made without evolution."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import neat
import numpy as np

_PARTS = (neat.DefaultGenome, neat.DefaultReproduction, neat.DefaultSpeciesSet, neat.DefaultStagnation)
_TEXT = """
[NEAT]
fitness_criterion = max
fitness_threshold = {threshold}
no_fitness_termination = False
pop_size = {size}
reset_on_extinction = True
[DefaultGenome]
activation_default = tanh
activation_mutate_rate = 0.0
activation_options = tanh
aggregation_default = sum
aggregation_mutate_rate = 0.0
aggregation_options = sum
bias_init_mean = 0.0
bias_init_stdev = 1.0
bias_init_type = gaussian
bias_max_value = 30.0
bias_min_value = -30.0
bias_mutate_power = 0.5
bias_mutate_rate = 0.7
bias_replace_rate = 0.1
compatibility_disjoint_coefficient = 1.0
compatibility_weight_coefficient = 0.5
conn_add_prob = {conn_add}
conn_delete_prob = {conn_delete}
enabled_default = True
enabled_mutate_rate = 0.01
enabled_rate_to_false_add = 0.0
enabled_rate_to_true_add = 0.0
feed_forward = True
initial_connection = full_direct
node_add_prob = {node_add}
node_delete_prob = {node_delete}
num_hidden = 0
num_inputs = {inputs}
num_outputs = {outputs}
response_init_mean = 1.0
response_init_stdev = 0.0
response_init_type = gaussian
response_max_value = 30.0
response_min_value = -30.0
response_mutate_power = 0.0
response_mutate_rate = 0.0
response_replace_rate = 0.0
single_structural_mutation = False
structural_mutation_surer = default
weight_init_mean = 0.0
weight_init_stdev = 1.0
weight_init_type = gaussian
weight_max_value = 30
weight_min_value = -30
weight_mutate_power = 0.5
weight_mutate_rate = 0.8
weight_replace_rate = 0.1
[DefaultSpeciesSet]
compatibility_threshold = 3.0
[DefaultStagnation]
species_fitness_func = max
max_stagnation = 20
species_elitism = 2
[DefaultReproduction]
elitism = 2
survival_threshold = 0.2
min_species_size = 2
"""


#: Probabilities of structural mutations under which genomes stay small, and those of docs/howto/populations.md.
SMALL = {"conn_add": 0.5, "conn_delete": 0.3, "node_add": 0.2, "node_delete": 0.2}
GROWING = {"conn_add": 0.6, "conn_delete": 0.2, "node_add": 0.5, "node_delete": 0.1}


def neat_config(
    inputs: int, outputs: int, size: int = 150, threshold: float = 1e9, rates: Mapping[str, float] = SMALL
) -> Any:
    """A neat.Config; evolution ends when a fitness reaches the threshold."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.ini"
        path.write_text(_TEXT.format(inputs=inputs, outputs=outputs, size=size, threshold=threshold, **rates))
        return neat.Config(*_PARTS, str(path))


def random_genomes(count: int, nodes: int, edges: int, config: Any, seed: int = 0) -> list[Any]:
    """Genomes of `nodes` nodes, inputs included, whose connections are drawn from all that a random order allows."""
    rng, state = np.random.default_rng(seed), random.getstate()
    random.seed(seed)  # genes draw from Python's generator
    keys = config.genome_config
    hidden = range(len(keys.output_keys), nodes - len(keys.input_keys))
    order = [*keys.input_keys, *hidden, *keys.output_keys]
    pairs = [(u, v) for j, v in enumerate(order) if v >= 0 for u in order[:j]]
    genomes = []
    for k in range(count):
        genome = neat.DefaultGenome(k)
        for key in (*keys.output_keys, *hidden):
            genome.nodes[key] = genome.create_node(keys, key)
        for number, k in enumerate(rng.choice(len(pairs), edges, replace=False).tolist()):
            connection = genome.create_connection(keys, *pairs[k], number)
            connection.weight /= 2
            genome.connections[pairs[k]] = connection
        genomes.append(genome)
    random.setstate(state)
    return genomes
