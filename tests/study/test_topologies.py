import numpy as np
import pytest
import torch

from fourward import generate
from fourward.errors import OptionError
from fourward.study import _topologies
from fourward.study._datasets import PROBLEMS, split
from fourward.study._store import Store
from fourward.study._topologies import Topologies, accuracy, build, damage, removed, run_topologies


@pytest.mark.parametrize("name", PROBLEMS)
def test_problems_are_standardised_and_seeded(name):
    found = split(name, 1)
    assert found.classes == found.y.max() + 1 == found.held_y.max() + 1
    assert found.x.mean(0).abs().max() < 1e-4
    assert len(found.held_y) / (len(found.y) + len(found.held_y)) == pytest.approx(0.25, abs=0.01)
    assert torch.equal(found.x, split(name, 1).x)
    assert not torch.equal(found.held_x, split(name, 2).held_x)


def test_generated_classes_rise_in_difficulty():
    from sklearn.neighbors import KNeighborsClassifier

    scores = []
    for name in ("classes-1", "classes-2", "classes-3", "classes-4"):
        found = split(name, 0)
        near = KNeighborsClassifier(9).fit(found.x.numpy(), found.y.numpy())
        scores.append(near.score(found.held_x.numpy(), found.held_y.numpy()))
    assert scores == sorted(scores, reverse=True)


@pytest.fixture(scope="module")
def learned():
    samples = split("wine", 0)
    model, net = build(generate.layered_mlp([8, 16, 8]), samples, 0)
    from fourward.train import fit

    fit(model, samples.x, samples.y, epochs=15, batch_size=16, learning_rate=2e-2)
    return samples, model, net


@pytest.mark.parametrize("kind", ["edges", "neurons"])
def test_damage_starts_at_the_accuracy_and_ends_at_a_constant(learned, kind):
    samples, model, net = learned
    before = net.weight.detach().clone()
    whole = accuracy(model, samples.held_x, samples.held_y)
    curve = damage(model, net, samples, kind, 3, np.random.default_rng(0), (0.0, 0.5, 1.0))
    assert curve[0] == whole > 0.9
    counts = torch.bincount(samples.held_y).double() / len(samples.held_y)
    assert min(abs(curve[2] - count) for count in counts.tolist()) < 1e-9, "one class for every sample"
    assert curve[2] < curve[1] < curve[0]
    assert torch.equal(net.weight, before), "the network is left as it was"


def test_a_removed_neuron_loses_all_its_edges():
    dag = generate.complete(10)
    gone = removed(dag, "neurons", 0.1, np.random.default_rng(0))
    assert gone.sum() == 9
    touched = dag.edges[gone]
    assert any((touched == v).any(1).all() for v in range(10))
    assert removed(dag, "edges", 0.2, np.random.default_rng(0)).sum() == 9
    with pytest.raises(OptionError, match="edges or neurons"):
        removed(dag, "hubs", 0.2, np.random.default_rng(0))


def test_a_run_gives_all_that_figures_need():
    (key,) = Topologies(topologies=("shuffled",), data=("wine",), seeds=1, epochs=3, draws=1).keys()
    found = _topologies.run(key)
    assert (found["neurons"], found["edges"], found["edges_missed"], found["parameters"]) == (302, 2542, 0, 2828)
    assert found["adaptor_parameters"] == 13 * 16 + 16 + 30 * 3 + 3
    assert found["damage"]["edges"][0] == found["damage"]["neurons"][0] == found["accuracy"]
    assert len(found["damage"]["edges"]) == len(found["damage"]["shares"]) == 10
    assert len(found["train_loss"]) == len(found["held_loss"]) == 3
    assert found == _topologies.run(key), "the same key gives the same numbers"


def test_keys_have_whole_seeds_first():
    keys = list(Topologies(topologies=("mlp", "connectome"), data=("wine", "digits"), seeds=2).keys())
    assert [key["seed"] for key in keys] == [0] * 4 + [1] * 4
    assert len({tuple(key.items()) for key in keys}) == 8


def test_names_are_taken_once_and_without_blanks():
    wanted = Topologies(topologies=("mlp", " connectome", "mlp"), data=["wine ", "wine"], seeds=1)
    assert (wanted.topologies, wanted.data) == (("mlp", "connectome"), ("wine",))
    assert len(list(wanted.keys())) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"topologies": ("torus",)}, "topology torus: choose from erdos-renyi"),
        ({"data": ()}, "data is empty: choose from digits"),
        ({"seeds": 0}, "seeds=0"),
    ],
)
def test_what_is_asked_for_is_checked(words, message):
    with pytest.raises(OptionError, match=message):
        Topologies(**words)


def test_runs_go_into_the_store(fake, tmp_path):
    wanted = Topologies(topologies=("mlp", "dense-mlp"), data=("wine",), seeds=1, epochs=2, draws=1)
    with Store(tmp_path / "results.sqlite", facts={"commit": "abc"}) as store:
        assert run_topologies(store, wanted).ended["done"] == 2
        rows = store.rows("topologies")
        assert [row.key["topology"] for row in rows] == ["mlp", "dense-mlp"]
        assert [row.values["neurons_missed"] for row in rows] == [0, -192]
        assert store.protocols()["topologies"]["wanted"] == 2
        assert len(store.to_frame("topologies")) == 2
        assert run_topologies(store, wanted).skipped == 2
