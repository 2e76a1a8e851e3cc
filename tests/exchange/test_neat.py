"""Genomes of neat-python give the same outputs as networks, and train."""

import json
import math
import pickle
import random

import neat
import numpy as np
import pytest
import torch
from neat.export import export_network_json

from fourward import load, save
from fourward.errors import ActivationError, CycleError, FileError, FourwardError, GraphError
from fourward.exchange import from_neat, from_neat_recurrent, read_neat
from fourward.exchange._aggregations import aggregation_factor
from fourward.exchange._neat import ACTIVATIONS
from tests.exchange.helpers import assert_same
from tests.tolerance import assert_near

ALL = sorted(neat.activations.ActivationFunctionSet().functions)
SAVED = sorted(name for name, stages in ACTIVATIONS.items() if all(isinstance(function, str) for _, function in stages))
CONFIG = """
[NEAT]
fitness_criterion = max
fitness_threshold = 9
no_fitness_termination = False
pop_size = 40
reset_on_extinction = False
[DefaultGenome]
activation_default = random
activation_mutate_rate = 0.3
activation_options = {activations}
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
conn_add_prob = 0.6
conn_delete_prob = 0.2
enabled_default = True
enabled_mutate_rate = 0.1
enabled_rate_to_false_add = 0.0
enabled_rate_to_true_add = 0.0
feed_forward = {feed_forward}
initial_connection = full_direct
node_add_prob = 0.5
node_delete_prob = 0.1
num_hidden = 0
num_inputs = {inputs}
num_outputs = {outputs}
response_init_mean = 1.0
response_init_stdev = 0.3
response_init_type = gaussian
response_max_value = 30.0
response_min_value = -30.0
response_mutate_power = 0.3
response_mutate_rate = 0.3
response_replace_rate = 0.1
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


def config_for(folder, activations, inputs=2, outputs=1, feed_forward=True):
    text = CONFIG.format(activations=" ".join(activations), inputs=inputs, outputs=outputs, feed_forward=feed_forward)
    path = folder / "config.ini"
    path.write_text(text)
    parts = (neat.DefaultGenome, neat.DefaultReproduction, neat.DefaultSpeciesSet, neat.DefaultStagnation)
    return neat.Config(*parts, str(path))


@pytest.fixture(autouse=True)
def _python_randomness():
    """neat-python draws from Python's global generator."""
    state = random.getstate()
    yield
    random.setstate(state)


def outputs(genome, config, x):
    network = neat.nn.FeedForwardNetwork.create(genome, config)
    return torch.tensor([network.activate(row) for row in x.tolist()], dtype=torch.float64)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_genomes_evolved_on_xor(seed, tmp_path):
    random.seed(seed)
    config = config_for(tmp_path, ["sigmoid", "tanh", "sin", "gauss", "relu", "softplus"])
    x = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]], dtype=torch.float64)
    targets = [0, 1, 1, 0]

    def evaluate(genomes, config):
        for _, genome in genomes:
            network = neat.nn.FeedForwardNetwork.create(genome, config)
            genome.fitness = 4 - sum(
                (network.activate(r)[0] - w) ** 2 for r, w in zip(x.tolist(), targets, strict=True)
            )

    population = neat.Population(config)
    best = population.run(evaluate, 12)
    assert best.fitness > 2.9  # better than a constant output
    assert max(len(genome.nodes) for genome in population.population.values()) > 2
    for genome in (best, *population.population.values()):
        expected = outputs(genome, config, x)
        net = from_neat(genome, config, dtype=torch.float64)
        assert_same(net, expected, x)
    train(from_neat(best, config, dtype=torch.float64, seed=0), x, outputs(best, config, x) * 0.9)


def train(net, x, y):
    """Check that training lowers the loss."""
    optimiser = torch.optim.Adam(net.parameters(), 1e-3)
    losses = []
    for _ in range(30):
        loss = (net(x) - y).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert min(losses) < losses[0]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("activations", [SAVED, ALL], ids=["saved", "all"])
def test_genomes_mutated_at_random(activations, seed, tmp_path):
    """Grown far beyond what evolution would select: disabled connections, dead ends, outputs without inputs."""
    random.seed(seed)
    config = config_for(tmp_path, activations, inputs=3, outputs=2)
    genome = make_genome(config)
    for _ in range(40):
        genome.mutate(config.genome_config)
    if seed == 0:
        for key in [key for key in genome.connections if key[1] == 0]:
            genome.connections[key].enabled = False
    x = torch.from_numpy(np.random.default_rng(seed).normal(size=(20, 3)) * 3)
    expected = outputs(genome, config, x)
    usable = expected.isfinite().all(1) & (expected.abs() < 1e6).all(1)
    assert usable.sum() > 5
    net = from_neat(genome, config, dtype=torch.float64)
    assert_same(net, expected[usable], x[usable])
    assert {-1, -2, -3} == {net.dag.labels[v] for v in net.dag.inputs.tolist()}
    assert [net.dag.labels[v] for v in net.dag.outputs.tolist()] == [0, 1]


@pytest.mark.parametrize("name", ALL)
def test_every_activation(name, tmp_path):
    config = config_for(tmp_path, [name], inputs=1)
    genome = make_genome(config, bias=0.3, response=-1.7)
    genome.connections[-1, 0].weight = 2.5
    x = torch.cat((torch.linspace(-30, 30, 61), torch.tensor([0.3 / 4.25]))).double().unsqueeze(1)
    net = from_neat(genome, config, dtype=torch.float64)
    assert_same(net, outputs(genome, config, x), x)
    if name in SAVED:
        save(net, tmp_path / "net.safetensors")
        assert torch.equal(load(tmp_path / "net.safetensors")(x), net(x))
    else:
        with pytest.raises(ActivationError, match="can't store"):
            save(net, tmp_path / "net.safetensors")


def make_genome(config, **changes):
    genome = neat.DefaultGenome(1)
    config.genome_config.innovation_tracker = neat.innovation.InnovationTracker()
    genome.configure_new(config.genome_config)
    for name, value in changes.items():
        setattr(genome.nodes[0], name, value)
    return genome


def test_aggregations(tmp_path):
    config = config_for(tmp_path, ["tanh"])
    genome = make_genome(config, aggregation="mean")
    x = torch.randn(5, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert_same(from_neat(genome, config, dtype=torch.float64), outputs(genome, config, x), x)
    genome.nodes[0].aggregation = "median"
    with pytest.raises(GraphError, match="neuron 0 has the aggregation 'median' over 2 connections"):
        from_neat(genome, config)
    genome.connections[-1, 0].enabled = False
    assert_same(from_neat(genome, config, dtype=torch.float64), outputs(genome, config, x), x)


@pytest.mark.parametrize("name", ["max", "min", "product"])
@pytest.mark.parametrize("connections", [0, 1, 2, 5])
def test_aggregations_that_are_no_sums(name, connections, tmp_path):
    config = config_for(tmp_path, ["sin"], inputs=5)
    genome = make_genome(config, aggregation=name, bias=0.2, response=-0.6)
    for key in list(genome.connections)[connections:]:
        genome.connections[key].enabled = False
    x = torch.randn(20, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert_same(from_neat(genome, config, dtype=torch.float64), outputs(genome, config, x), x)


def test_custom_activations(tmp_path):
    config = config_for(tmp_path, ["tanh"])
    config.genome_config.add_activation("wave", lambda z: math.cos(z) + z)
    genome = make_genome(config, activation="wave")
    with pytest.raises(ActivationError, match=r"neuron 0 has the unknown activation 'wave'.*activations="):
        from_neat(genome, config)
    x = torch.randn(5, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    net = from_neat(genome, config, activations={"wave": lambda z: z.cos() + z}, dtype=torch.float64)
    assert_same(net, outputs(genome, config, x), x)


def test_a_genome_with_feedback_is_refused(tmp_path):
    config = config_for(tmp_path, ["tanh"], feed_forward=False)
    genome = make_genome(config)
    genome.connections[0, 0] = genome.connections[-1, 0]
    with pytest.raises(GraphError, match="self-loop"):
        from_neat(genome, config)
    genome.nodes[7] = genome.nodes[0]
    genome.connections = {(-1, 0): genome.connections[-1, 0]} | {
        pair: genome.connections[-1, 0] for pair in ((0, 7), (7, 0))
    }
    with pytest.raises(CycleError):
        from_neat(genome, config)


@pytest.mark.parametrize("seed", range(3))
def test_genomes_with_feedback(seed, tmp_path):
    """Loops, self-loops, aggregations, activations in several stages, neurons without connections into them."""
    random.seed(seed)
    config = config_for(tmp_path, ["tanh", "sin", "sigmoid"], inputs=3, outputs=2, feed_forward=False)
    genome = make_genome(config)
    for _ in range(30):
        genome.mutate(config.genome_config)
    genome.connections[0, 0] = genome.create_connection(config.genome_config, 0, 0, 10**6)
    for key, node in genome.nodes.items():
        node.aggregation = random.choice(["sum", "mean", "max", "min", "product"])
        if key == 1 and seed == 0:
            for connection in genome.connections.values():
                connection.enabled = connection.enabled and connection.key[1] != 1
    x = torch.from_numpy(np.random.default_rng(seed).normal(size=(12, 3)))
    theirs = neat.nn.RecurrentNetwork.create(genome, config)
    expected = torch.tensor([theirs.activate(row) for row in x.tolist()], dtype=torch.float64)
    net = from_neat_recurrent(genome, config, dtype=torch.float64)
    assert net.graph.num_feedback
    assert_near(net(x)[0].detach(), expected)


def export_genome(folder, seed=0):
    random.seed(seed)
    config = config_for(folder, SAVED, inputs=3, outputs=2)
    genome = make_genome(config)
    for _ in range(15):
        genome.mutate(config.genome_config)
    network = neat.nn.FeedForwardNetwork.create(genome, config)
    path = folder / "network.json"
    export_network_json(network, str(path))
    return genome, config, path


@pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow:DeprecationWarning")
def test_json_of_neat_python(tmp_path):
    genome, config, path = export_genome(tmp_path)
    x = torch.randn(20, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert_same(read_neat(path, dtype=torch.float64), outputs(genome, config, x), x)
    data = json.loads(path.read_text())
    for change, match in (
        (data | {"network_type": "recurrent"}, "expected a feedforward network, got a recurrent network"),
        ({k: v for k, v in data.items() if k != "nodes"}, "KeyError"),
        (
            data | {"connections": [{"from": 99, "to": 0, "weight": 1, "enabled": True}]},
            "has a connection from 99, which is not a node",
        ),
        (data | {"nodes": 5}, "expected JSON of neat-python's"),
        ([], "expected JSON of neat-python's"),
    ):
        path.write_text(json.dumps(change))
        with pytest.raises(FourwardError, match=f"network.json: .*{match}"):
            read_neat(path)


def test_pickled_genomes_are_refused(tmp_path):
    path = tmp_path / "winner"
    path.write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(FileError, match=r"is a pickle.*export_network_json"):
        read_neat(path)


def test_the_mean_of_no_terms_is_0():
    assert aggregation_factor(1, "mean", 0) == 1
    with pytest.raises(GraphError, match="median"):
        aggregation_factor(1, "median", 0)
