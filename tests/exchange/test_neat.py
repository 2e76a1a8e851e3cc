"""Genomes of neat-python and networks of TensorNEAT give the same outputs here, and train."""

import contextlib
import json
import math
import pickle
import random

import neat
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from neat.export import export_network_json

from fourward import load, save
from fourward.errors import ActivationError, CycleError, FileError, FourwardError, GraphError
from fourward.exchange import from_neat, from_tensorneat, read_neat, read_tensorneat
from fourward.exchange._neat import ACTIVATIONS, aggregation_factor

ALL = sorted(neat.activations.ActivationFunctionSet().functions)
SAVED = sorted(name for name, stages in ACTIVATIONS.items() if all(isinstance(one, str) for _, one in stages))

NEAT = {
    "network_type": "feedforward",
    "topology": {"input_keys": [-1], "output_keys": [0]},
    "nodes": [
        {
            "id": 0,
            "type": "output",
            "activation": {"name": "tanh"},
            "aggregation": {"name": "sum"},
            "bias": 1,
            "response": 1,
        }
        | {"idx": 1, "agg": "sum", "act": "tanh"},
        {"id": -1, "type": "input", "idx": 0, "bias": 0, "agg": "sum", "act": "tanh"},
    ],
    "connections": [{"from": -1, "to": 0, "weight": 2, "enabled": True}],
    "conns": [{"in": 0, "out": 1, "weight": 2}],
}
KEYS = ("nodes", "conns", "idx", "bias", "act", "agg", "in", "out", "weight", "network_type", "topology", "connections")
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


def assert_same(net, want, x):
    got = net(x)
    assert want.isfinite().all()
    assert (got - want).abs().max() <= 1e-6 * max(1, want.abs().max())


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_genomes_evolved_on_xor(seed, tmp_path):
    random.seed(seed)
    config = config_for(tmp_path, ["sigmoid", "tanh", "sin", "gauss", "relu", "softplus"])
    x = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]], dtype=torch.float64)
    wanted = [0, 1, 1, 0]

    def judge(genomes, config):
        for _, genome in genomes:
            network = neat.nn.FeedForwardNetwork.create(genome, config)
            genome.fitness = 4 - sum((network.activate(r)[0] - w) ** 2 for r, w in zip(x.tolist(), wanted, strict=True))

    population = neat.Population(config)
    best = population.run(judge, 12)
    assert best.fitness > 2.9  # better than no idea
    assert max(len(genome.nodes) for genome in population.population.values()) > 2
    for genome in (best, *population.population.values()):
        want = outputs(genome, config, x)
        net = from_neat(genome, config, dtype=torch.float64)
        assert_same(net, want, x)
    train(from_neat(best, config, dtype=torch.float64, seed=0), x, outputs(best, config, x) * 0.9)


def train(net, x, y):
    """Its loss goes down: all its parts have gradients that point the right way."""
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
    """Grown far beyond what evolution would keep: disabled connections, dead ends, outputs without inputs."""
    random.seed(seed)
    config = config_for(tmp_path, activations, inputs=3, outputs=2)
    genome = genome_of(config)
    for _ in range(40):
        genome.mutate(config.genome_config)
    if seed == 0:
        for key in [key for key in genome.connections if key[1] == 0]:
            genome.connections[key].enabled = False
    x = torch.from_numpy(np.random.default_rng(seed).normal(size=(20, 3)) * 3)
    want = outputs(genome, config, x)
    usable = want.isfinite().all(1) & (want.abs() < 1e6).all(1)
    assert usable.sum() > 5
    net = from_neat(genome, config, dtype=torch.float64)
    assert_same(net, want[usable], x[usable])
    assert {-1, -2, -3} == {net.dag.labels[v] for v in net.dag.inputs.tolist()}
    assert [net.dag.labels[v] for v in net.dag.outputs.tolist()] == [0, 1]


@pytest.mark.parametrize("name", ALL)
def test_every_activation(name, tmp_path):
    config = config_for(tmp_path, [name], inputs=1)
    genome = genome_of(config, bias=0.3, response=-1.7)
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


def genome_of(config, **changes):
    genome = neat.DefaultGenome(1)
    config.genome_config.innovation_tracker = neat.innovation.InnovationTracker()
    genome.configure_new(config.genome_config)
    for name, value in changes.items():
        setattr(genome.nodes[0], name, value)
    return genome


def test_aggregations(tmp_path):
    config = config_for(tmp_path, ["tanh"])
    genome = genome_of(config, aggregation="mean")
    x = torch.randn(5, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert_same(from_neat(genome, config, dtype=torch.float64), outputs(genome, config, x), x)
    genome.nodes[0].aggregation = "max"
    with pytest.raises(GraphError, match="neuron 0 takes the max of what 2 connections bring"):
        from_neat(genome, config)
    genome.connections[-1, 0].enabled = False
    assert_same(from_neat(genome, config, dtype=torch.float64), outputs(genome, config, x), x)


def test_activations_of_the_users_own(tmp_path):
    config = config_for(tmp_path, ["tanh"])
    config.genome_config.add_activation("wave", lambda z: math.cos(z) + z)
    genome = genome_of(config, activation="wave")
    with pytest.raises(ActivationError, match=r"neuron 0 has the activation 'wave'.*activations="):
        from_neat(genome, config)
    x = torch.randn(5, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    net = from_neat(genome, config, activations={"wave": lambda z: z.cos() + z}, dtype=torch.float64)
    assert_same(net, outputs(genome, config, x), x)


def test_a_genome_with_feedback_is_refused(tmp_path):
    config = config_for(tmp_path, ["tanh"], feed_forward=False)
    genome = genome_of(config)
    genome.connections[0, 0] = genome.connections[-1, 0]
    with pytest.raises(GraphError, match="itself"):
        from_neat(genome, config)
    genome.nodes[7] = genome.nodes[0]
    genome.connections = {(-1, 0): genome.connections[-1, 0]} | {
        pair: genome.connections[-1, 0] for pair in ((0, 7), (7, 0))
    }
    with pytest.raises(CycleError):
        from_neat(genome, config)


def exported(folder, seed=0):
    random.seed(seed)
    config = config_for(folder, SAVED, inputs=3, outputs=2)
    genome = genome_of(config)
    for _ in range(15):
        genome.mutate(config.genome_config)
    network = neat.nn.FeedForwardNetwork.create(genome, config)
    path = folder / "network.json"
    export_network_json(network, str(path))
    return genome, config, path


@pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow:DeprecationWarning")
def test_the_json_of_neat_python(tmp_path):
    genome, config, path = exported(tmp_path)
    x = torch.randn(20, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert_same(read_neat(path, dtype=torch.float64), outputs(genome, config, x), x)
    data = json.loads(path.read_text())
    for change, match in (
        (data | {"network_type": "recurrent"}, "recurrent network"),
        ({k: v for k, v in data.items() if k != "nodes"}, "KeyError"),
        (data | {"connections": [{"from": 99, "to": 0, "weight": 1, "enabled": True}]}, "fed by 99"),
        (data | {"nodes": 5}, "isn't what neat-python"),
        ([], "isn't what neat-python"),
    ):
        path.write_text(json.dumps(change))
        with pytest.raises(FourwardError, match=match):
            read_neat(path)


def test_pickled_genomes_are_refused(tmp_path):
    path = tmp_path / "winner"
    path.write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(FileError, match=r"is a pickle.*export_network_json"):
        read_neat(path)


def tensorneat_outputs(network, x, inputs, outputs, transform):
    """By the definition, one neuron at a time."""
    functions = {
        "sigmoid": lambda z: 1 / (1 + math.exp(-z)),
        "scaled_sigmoid": lambda z: 3 / (1 + math.exp(-z)),
        "tanh": math.tanh,
        "scaled_tanh": lambda z: 3 * math.tanh(z),
        "sin": math.sin,
        "relu": lambda z: max(z, 0),
        "lelu": lambda z: z if z > 0 else 0.005 * z,
        "identity": lambda z: z,
        "inv": lambda z: 1 / (max(z, 1e-7) if z > 0 else min(z, -1e-7)),
        "log": lambda z: math.log(max(z, 1e-7)),
        "exp": math.exp,
        "abs": abs,
    }
    values = dict(zip(inputs, x, strict=True))
    for i in network["topo_order"]:
        if i not in values:
            node = network["nodes"][i]
            arrived = [c["weight"] * values[c["in"]] for c in network["conns"].values() if c["out"] == i]
            total = sum(arrived) / (len(arrived) if node["agg"] == "mean" else 1)
            z = node["bias"] + node.get("res", 1) * total
            values[i] = functions[transform if i in outputs else node["act"]](z)
    return [values[i] for i in outputs]


def tensorneat_network(act, with_response):
    """Laid out as TensorNEAT's network_dict: three inputs, two outputs, then hidden nodes."""
    rng = np.random.default_rng(0)
    order, outs = [0, 1, 2, 5, 6, 7, 3, 4], (3, 4)
    nodes = {
        i: {"idx": i, "bias": np.float32(rng.normal()), "agg": "mean" if i == 6 else "sum", "act": act}
        | ({"res": np.float32(rng.normal())} if with_response else {})
        for i in range(8)
    }
    pairs = [
        (u, v) for k, u in enumerate(order) for v in order[k + 1 :] if v > 2 and u not in outs and rng.random() < 0.7
    ]
    conns = {(u, v): {"in": u, "out": v, "weight": np.float32(rng.normal())} for u, v in pairs}
    return {"nodes": nodes, "conns": conns, "topo_order": order, "topo_layers": []}


@pytest.mark.parametrize("act", ["sigmoid", "scaled_sigmoid", "tanh", "scaled_tanh", "sin", "relu", "lelu", "identity",
                                 "inv", "log", "abs", "exp"])  # fmt: skip
def test_tensorneat_networks(act, tmp_path):
    network = tensorneat_network(act, with_response=act in ("tanh", "sin"))
    transform = "tanh" if act != "sigmoid" else "scaled_sigmoid"
    x = np.random.default_rng(1).normal(size=(20, 3)) * 0.5
    want = torch.tensor([tensorneat_outputs(network, row, (0, 1, 2), (3, 4), transform) for row in x.tolist()])
    net = from_tensorneat(network, 3, 2, output_transform=transform, dtype=torch.float64)
    assert_same(net, want.double(), torch.from_numpy(x))
    assert_same(
        from_tensorneat(network, [0, 1, 2], [3, 4], output_transform=transform, dtype=torch.float64),
        want,
        torch.from_numpy(x),
    )
    plain = {"nodes": list(network["nodes"].values()), "conns": {str(k): v for k, v in network["conns"].items()}}
    path = tmp_path / "network.json"
    path.write_text(json.dumps(plain, default=float))
    again = read_tensorneat(path, 3, 2, output_transform=transform, dtype=torch.float64)
    assert torch.equal(again(torch.from_numpy(x)), net(torch.from_numpy(x)))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"nodes": None}, "lacks some of it"),
        ({"conns": [{"in": 0}]}, "lacks some of it"),
        ({"conns": [{"in": 99, "out": 6, "weight": 1}]}, "fed by 99"),
        ({"nodes": [{"idx": 0, "bias": 0, "agg": "sum", "act": "tanh"}]}, "input or output 1 is none of the 1 nodes"),
    ],
)
def test_tensorneat_networks_that_are_wrong(change, match):
    with pytest.raises(FourwardError, match=match):
        from_tensorneat(tensorneat_network("tanh", False) | change, 3, 2)


def test_tensorneat_files_that_are_wrong(tmp_path):
    path = tmp_path / "x.json"
    path.write_text("{")
    with pytest.raises(FileError, match="no JSON"):
        read_tensorneat(path, 3, 2)
    path.write_text(
        json.dumps(tensorneat_network("swish", False) | {"conns": []}, default=float).replace("mean", "sum")
    )
    with pytest.raises(ActivationError, match=r"x\.json: neuron 5 has the activation 'swish'"):
        read_tensorneat(path, 3, 2)


SHAPES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=3), inner),
    max_leaves=12,
)


@given(first=SHAPES, data=st.data())
def test_no_json_gives_a_traceback(first, data, tmp_path_factory):
    """Any JSON, and a right one with a part of it replaced."""
    path = tmp_path_factory.mktemp("fuzz") / "x.json"
    whole = json.loads(json.dumps(NEAT))
    part, keys = whole, list(whole)
    while keys:
        key = data.draw(st.sampled_from(keys))
        if not isinstance(part[key], dict | list) or not part[key] or data.draw(st.booleans()):
            part[key] = data.draw(SHAPES)
            break
        part = part[key]
        keys = list(part) if isinstance(part, dict) else list(range(len(part)))
    for said in (first, whole):
        path.write_text(json.dumps(said))
        for read in (read_neat, lambda path: read_tensorneat(path, 1, 1)):
            with contextlib.suppress(FourwardError):
                read(path)


@pytest.mark.parametrize("number", ["1e999", "1" + "0" * 400, "1" * 5000])
def test_numbers_beyond_all_bounds(number, tmp_path):
    path = tmp_path / "x.json"
    network = {"nodes": [{"idx": "N", "bias": 0, "agg": "sum", "act": "tanh"}], "conns": []}
    path.write_text(json.dumps(network).replace('"N"', number))
    with pytest.raises(FileError):
        read_tensorneat(path, 1, 1)
    links = [{"enabled": True, "from": 0, "to": 1, "weight": "N"}]
    said = {"network_type": "feedforward", "topology": {}, "connections": links}
    path.write_text(json.dumps(said).replace('"N"', number))
    with pytest.raises(FileError):
        read_neat(path)


def test_the_mean_of_nothing_is_0():
    assert aggregation_factor(1, "mean", 0) == 1
    with pytest.raises(GraphError, match="product"):
        aggregation_factor(1, "product", 0)
