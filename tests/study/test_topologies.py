import numpy as np
import pytest
import torch

from fourward import generate
from fourward.errors import OptionError
from fourward.study._datasets import DATASETS, load_split
from fourward.study._store import Store
from fourward.study._topologies import (
    Topologies,
    ablation_curve,
    accuracy,
    build,
    removed_edges,
    run_together,
    run_topologies,
    run_topology,
)
from fourward.train._joint_fit import fit_together


@pytest.mark.parametrize("name", DATASETS)
def test_data_sets_are_standardised_and_seeded(name):
    samples = load_split(name, 1)
    assert samples.classes == samples.y.max() + 1 == samples.validation_y.max() + 1
    assert samples.x.mean(0).abs().max() < 1e-4
    assert len(samples.validation_y) / (len(samples.y) + len(samples.validation_y)) == pytest.approx(0.25, abs=0.01)
    assert torch.equal(samples.x, load_split(name, 1).x)
    assert not torch.equal(samples.validation_x, load_split(name, 2).validation_x)


def test_generated_classes_rise_in_difficulty():
    from sklearn.neighbors import KNeighborsClassifier

    scores = []
    for name in ("classes-1", "classes-2", "classes-3", "classes-4"):
        samples = load_split(name, 0)
        neighbours = KNeighborsClassifier(9).fit(samples.x.numpy(), samples.y.numpy())
        scores.append(neighbours.score(samples.validation_x.numpy(), samples.validation_y.numpy()))
    assert scores == sorted(scores, reverse=True)


@pytest.fixture(scope="module")
def trained():
    samples = load_split("wine", 0)
    model, net = build(generate.layered_mlp([8, 16, 8]), samples, 0)
    from fourward.train import fit

    fit(model, samples.x, samples.y, epochs=15, batch_size=16, learning_rate=2e-2)
    return samples, model, net


@pytest.mark.parametrize("kind", ["edges", "neurons"])
def test_ablation_starts_at_the_accuracy_and_ends_at_a_constant(trained, kind):
    samples, model, net = trained
    before = net.weight.detach().clone()
    intact = accuracy(model, samples.validation_x, samples.validation_y)
    curve = ablation_curve(model, net, samples, kind, 3, np.random.default_rng(0), (0.0, 0.5, 1.0))
    assert curve[0] == intact > 0.9
    counts = torch.bincount(samples.validation_y).double() / len(samples.validation_y)
    assert min(abs(curve[2] - count) for count in counts.tolist()) < 1e-9, "one class for every sample"
    assert curve[2] < curve[1] < curve[0]
    assert torch.equal(net.weight, before), "the network is left as it was"


def test_a_removed_neuron_loses_all_its_edges():
    dag = generate.complete(10)
    removed = removed_edges(dag, "neurons", 0.1, np.random.default_rng(0))
    assert removed.sum() == 9
    touched = dag.edges[removed]
    assert any((touched == v).any(1).all() for v in range(10))
    assert removed_edges(dag, "edges", 0.2, np.random.default_rng(0)).sum() == 9
    with pytest.raises(OptionError, match="kind must be 'edges' or 'neurons', got 'hubs'"):
        removed_edges(dag, "hubs", 0.2, np.random.default_rng(0))


def test_a_run_gives_all_that_figures_need():
    (key,) = Topologies(topologies=("shuffled",), data=("wine",), seeds=1, epochs=3, draws=1).keys()
    values = run_topology(key)
    assert (values["neurons"], values["edges"], values["edges_missed"], values["parameters"]) == (302, 2542, 0, 2828)
    assert values["adaptor_parameters"] == 13 * 16 + 16 + 30 * 3 + 3
    assert values["damage"]["edges"][0] == values["damage"]["neurons"][0] == values["accuracy"]
    assert len(values["damage"]["edges"]) == len(values["damage"]["shares"]) == 10
    assert len(values["train_loss"]) == len(values["held_loss"]) == 3
    assert values == run_topology(key), "the same key gives the same numbers"


def test_topologies_that_are_trained_together_learn_what_each_learns_alone():
    keys = list(Topologies(data=("wine",), seeds=1, epochs=4, draws=2).keys())
    for key, values in zip(keys, run_together(keys), strict=True):
        alone = run_topology(key)
        for name in ("train_loss", "held_loss"):
            assert values[name] == pytest.approx(alone[name], rel=2e-3)
        for name in ("edges", "neurons"):
            assert values["damage"][name] == pytest.approx(alone["damage"][name], abs=0.05)
        unlike = ("accuracy", "damage", "train_loss", "held_loss")
        assert values["accuracy"] == pytest.approx(alone["accuracy"], abs=1 / 45 + 1e-9)
        assert {name: values[name] for name in values if name not in unlike} == {
            name: alone[name] for name in alone if name not in unlike
        }


def test_a_member_that_diverges_fails_alone():
    samples = load_split("wine", 0)
    models = [build(generate.layered_mlp([4, 6, 3]), samples, seed)[0] for seed in range(3)]
    with torch.no_grad():
        models[1][0].weight[0, 0] = torch.inf
    options = {"epochs": 2, "batch_size": 16, "learning_rate": 1e-2, "weight_decay": 0.0, "seed": 0}
    options["validation"] = samples.validation_x, samples.validation_y
    curves = fit_together(models, samples.x, samples.y, **options)
    assert [curve.error is None for curve in curves] == [True, False, True]
    assert "the loss became nan in epoch 1" in str(curves[1].error)
    alone = build(generate.layered_mlp([4, 6, 3]), samples, 2)[0]
    (own,) = fit_together([alone], samples.x, samples.y, **options)
    assert curves[2].train_loss == pytest.approx(own.train_loss, rel=1e-5)


def test_keys_complete_a_seed_before_the_next():
    keys = list(Topologies(topologies=("mlp", "connectome"), data=("wine", "digits"), seeds=2).keys())
    assert [key["seed"] for key in keys] == [0] * 4 + [1] * 4
    assert len({tuple(key.items()) for key in keys}) == 8


def test_names_are_distinct_and_stripped():
    protocol = Topologies(topologies=("mlp", " connectome", "mlp"), data=["wine ", "wine"], seeds=1)
    assert (protocol.topologies, protocol.data) == (("mlp", "connectome"), ("wine",))
    assert len(list(protocol.keys())) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"topologies": ("torus",)}, "topologies: unknown 'torus'. Choose from 'erdos-renyi'"),
        ({"data": ()}, "data: expected at least one, got none. Choose from 'digits'"),
        ({"seeds": 0}, "seeds must be at least 1, got 0"),
    ],
)
def test_protocols_are_checked(words, message):
    with pytest.raises(OptionError, match=message):
        Topologies(**words)


def test_runs_go_into_the_store(fake_cluster, tmp_path):
    protocol = Topologies(topologies=("mlp", "dense-mlp"), data=("wine",), seeds=1, epochs=2, draws=1)
    with Store(tmp_path / "results.sqlite", environment={"commit": "abc"}) as store:
        assert run_topologies(store, protocol).ended["done"] == 2
        rows = store.rows("topologies")
        assert [row.key["topology"] for row in rows] == ["mlp", "dense-mlp"]
        assert [row.values["neurons_missed"] for row in rows] == [0, -192]
        assert store.protocols()["topologies"]["wanted"] == 2
        assert len(store.to_frame("topologies")) == 2
        assert run_topologies(store, protocol).skipped == 2
