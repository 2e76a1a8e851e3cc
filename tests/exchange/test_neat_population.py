"""A population of genomes gives neat-python's outputs, trains, and writes its parameters back to the genes."""

import random

import neat
import numpy as np
import pytest
import torch

from fourward import load, save
from fourward.errors import ActivationError, GraphError, OptionError
from fourward.exchange import NeatEvaluator, from_neat, neat_population
from tests.exchange.test_neat import ALL, SAVED, _python_randomness, config_for, make_genome, outputs
from tests.tolerance import assert_near

__all__ = ["_python_randomness"]  # a fixture of all tests here


def evolved(folder, activations, count=12, **options):
    """Genomes mutated at random, each more often than the one before."""
    random.seed(3)
    config = config_for(folder, activations, **{"inputs": 3, "outputs": 2} | options)
    genomes = []
    for k in range(count):
        genome = make_genome(config)
        for _ in range(3 * k):
            genome.mutate(config.genome_config)
        genomes.append(genome)
    for key in [key for key in genomes[-1].connections if key[1] == 0]:
        genomes[-1].connections[key].enabled = False
    return genomes, config


@pytest.mark.parametrize("activations", [SAVED, ALL], ids=["saved", "all"])
def test_members_give_the_outputs_of_their_genomes(activations, tmp_path):
    genomes, config = evolved(tmp_path, activations)
    pop = neat_population(genomes, config, dtype=torch.float64)
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(20, 3)))
    y = pop(x)
    for p, genome in enumerate(genomes):
        want = outputs(genome, config, x)
        usable = want.isfinite().all(1) & (want.abs() < 1e6).all(1)
        assert usable.sum() > 5
        assert_near(y[p][usable].detach(), want[usable])
        one_by_one = from_neat(genome, config, dtype=torch.float64)
        assert_near(pop[p](x)[usable].detach(), one_by_one(x)[usable].detach())
        assert set(one_by_one.dag.labels) & set(genome.nodes) <= set(pop.dag(p).labels)
        assert [pop.dag(p).labels[v] for v in pop.dag(p).outputs] == [0, 1]
    if activations == SAVED:
        save(pop, tmp_path / "genomes.safetensors")
        loaded = load(tmp_path / "genomes.safetensors")
        assert torch.equal(loaded(x), y)
        assert loaded.dag(5) == pop.dag(5)


def test_means(tmp_path):
    config = config_for(tmp_path, ["tanh"])
    genomes = [make_genome(config, aggregation=name, response=0.7) for name in ("mean", "sum")]
    x = torch.randn(5, 2, dtype=torch.float64)
    want = torch.stack([outputs(genome, config, x) for genome in genomes])
    assert_near(neat_population(genomes, config, dtype=torch.float64)(x).detach(), want)


def test_aggregations_that_are_no_sums(tmp_path):
    """Genomes mutated at random, whose neurons have any aggregation; training changes their genes alone."""
    genomes, config = evolved(tmp_path, ["tanh", "sin"])
    names = ("sum", "mean", "max", "min", "product")
    for genome in genomes:
        for node in genome.nodes.values():
            node.aggregation = random.choice(names)
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(20, 3)))
    pop = neat_population(genomes, config, dtype=torch.float64)
    y = pop(x)
    for p, genome in enumerate(genomes):
        assert_near(y[p].detach(), outputs(genome, config, x))
        assert_near(from_neat(genome, config, dtype=torch.float64)(x).detach(), y[p].detach())
        assert set(genome.nodes) <= set(pop.dag(p).labels)
    optimizer = torch.optim.SGD(pop.parameters(), lr=1e-3)
    for _ in range(3):
        optimizer.zero_grad()
        (pop(x) - 0.3).square().mean((1, 2)).sum().backward()
        optimizer.step()
    pop.write_back()
    y = pop(x).detach()
    assert not torch.equal(y, neat_population(evolved(tmp_path, ["tanh", "sin"])[0], config, dtype=torch.float64)(x))
    for p, genome in enumerate(genomes):
        assert_near(outputs(genome, config, x), y[p])


def test_trained_parameters_go_back_to_the_genes(tmp_path):
    """Also where activations are split into several neurons, whose parameters training leaves alone."""
    genomes, config = evolved(tmp_path, ["tanh", "sin", "sigmoid", "softplus"])
    genomes[0].nodes[0].response = 0.0
    before = [[c.weight for c in g.connections.values()] + [n.bias for n in g.nodes.values()] for g in genomes]
    pop = neat_population(genomes, config, dtype=torch.float64)
    pop.write_back()
    after = [[c.weight for c in g.connections.values()] + [n.bias for n in g.nodes.values()] for g in genomes]
    for one_before, one_after in zip(before, after, strict=True):
        assert one_after == pytest.approx(one_before)
    x = torch.randn(16, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    optimizer, first = torch.optim.Adam(pop.parameters(), lr=0.01), None
    for _ in range(10):
        optimizer.zero_grad()
        loss = (pop(x) - 0.3).square().mean((1, 2))
        first = loss.detach() if first is None else first
        loss.sum().backward()
        optimizer.step()
    assert loss.sum() < first.sum()
    pop.write_back()
    y = pop(x).detach()
    for p, genome in enumerate(genomes):
        assert_near(outputs(genome, config, x), y[p])
    with torch.no_grad():
        pop.weight.fill_(1e9)
    pop.write_back()
    assert max(abs(c.weight) for c in genomes[0].connections.values()) <= config.genome_config.weight_max_value


def test_an_evaluator_evolves_the_same_winner(tmp_path):
    x = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]], dtype=torch.float64)
    target = torch.tensor([0, 1, 1, 0])
    winners = []

    def one_by_one(genomes, config):
        for _, genome in genomes:
            genome.fitness = 4 - float((outputs(genome, config, x)[:, 0] - target).square().sum())

    for evaluate in (one_by_one, NeatEvaluator(x, lambda y: 4 - (y[..., 0] - target).square().sum(1))):
        random.seed(1)
        config = config_for(tmp_path, ["sigmoid", "tanh"])
        winners.append(neat.Population(config).run(evaluate, 8))
    assert winners[0].fitness == pytest.approx(winners[1].fitness)
    assert str(winners[0]) == str(winners[1])


def test_what_is_refused(tmp_path):
    genomes, config = evolved(tmp_path, ["tanh"], count=3)
    with pytest.raises(GraphError, match="at least one genome"):
        neat_population([], config)
    genomes[1].connections[-1, 99] = genomes[1].connections[-1, 0]
    with pytest.raises(GraphError, match="member 1 has a connection or an output 99, which is not a node"):
        neat_population(genomes, config)
    del genomes[1].connections[-1, 99]
    genomes[2].nodes[0].activation = "wave"
    with pytest.raises(ActivationError, match="neuron 0 has the unknown activation 'wave'"):
        neat_population(genomes, config)
    pop = neat_population(genomes, config, activations={"wave": torch.cos})
    assert pop(torch.zeros(2, 3)).shape == (3, 2, 2)
    pop.replace({0: pop[1]})
    with pytest.raises(OptionError, match="have been replaced"):
        pop.write_back()
    genomes[2].nodes[0].activation = "tanh"
    evaluate = NeatEvaluator([[0, 0, 0]], lambda y: y)
    with pytest.raises(OptionError, match=r"expected a fitness of shape \(3,\)"):
        evaluate([(k, genome) for k, genome in enumerate(genomes)], config)
    loop = make_genome(config)
    loop.connections[0, 0] = loop.connections[-1, 0]
    with pytest.raises(GraphError, match=r"member 0: .*self-loop"):
        neat_population([loop], config)
