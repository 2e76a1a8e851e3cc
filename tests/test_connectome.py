"""The whole way, on 100,000 rows of 5,000 neurons with every defect: table, graph, constrained training, importance."""

import numpy as np
import pandas as pd
import pytest
import torch

import fourward as fw
from fourward import exchange
from fourward.errors import FileError
from fourward.graph._feedback import find_reached

NEURONS, ROWS = 5000, 100_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with synapses.csv and neurons.csv."""
    folder, rng = tmp_path_factory.mktemp("connectome"), np.random.default_rng(0)
    ids = 720575940600000000 + rng.choice(10**9, NEURONS, replace=False)
    position = np.sort(rng.random(NEURONS))
    source = rng.integers(0, NEURONS, ROWS)
    target = np.clip(source + rng.normal(150, 400, ROWS).astype(int), 0, NEURONS - 1)  # mostly forwards
    target[::997] = source[::997]  # self-loops
    source[1::50], target[1::50] = source[::50], target[::50]  # several rows for a pair
    table = pd.DataFrame({"pre_id": ids[source], "post_id": ids[target]}).astype(str)
    table["count"] = rng.lognormal(2, 1, ROWS).round() + 1
    table.loc[::1501, "count"] = np.nan
    table.loc[7::3001, "post_id"] = None
    table.to_csv(folder / "synapses.csv", index=False)
    kinds = np.repeat(["sensory", "inter", "motor"], [300, NEURONS - 600, 300])
    neurons = pd.DataFrame({"root_id": ids, "class": kinds, "x": position, "type": rng.integers(0, 40, NEURONS)})
    neurons["transmitter"] = rng.choice(["ACh", "GABA", "glutamate", "dopamine"], NEURONS, p=[0.57, 0.2, 0.2, 0.03])
    neurons.sample(frac=1, random_state=0).to_csv(folder / "neurons.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def loaded(folder):
    return fw.files.read_dag(
        folder / "synapses.csv", nodes=folder / "neurons.csv", missing="skip", merge="sum", self_loops="drop",
        min_weight=3, inputs="class=sensory", outputs="class=motor", into_inputs="cut", remove_feedback=True,
        only="paths",
    )  # fmt: skip


def test_the_graph_and_what_was_changed(loaded):
    dag, changes = loaded.dag, loaded.changes
    assert 4000 < dag.num_nodes <= NEURONS
    assert changes.skipped == len(set(range(0, ROWS, 1501)) | set(range(7, ROWS, 3001)))
    assert min(changes.self_loops, changes.merged, changes.weak, changes.cut, changes.feedback) > 50
    assert changes.feedback_weight < 0.4 * changes.total_weight
    assert (changes.constants, changes.lost_outputs) == ((), ())
    reached = find_reached(dag.source, dag.target, dag.num_nodes, dag.inputs)
    assert reached.all()
    assert {dag.attributes["class"][v] for v in dag.inputs} == {"sensory"}
    assert loaded.weight.min() >= 3
    assert len(repr(loaded).splitlines()) < 15


def test_rounded_ids_are_refused(folder, tmp_path):
    table = pd.read_csv(folder / "synapses.csv")  # the missing ids make floats of a column
    assert table["post_id"].dtype == float
    table.to_csv(tmp_path / "rounded.csv", index=False)
    with pytest.raises(FileError, match="Ids of 16 digits"):
        fw.files.read_dag(tmp_path / "rounded.csv", missing="skip")


@pytest.fixture(scope="module")
def trained(loaded):
    """The network after 100 steps of AdamW, and its weights before them."""
    dag = loaded.dag
    net = fw.FourWard(
        dag, "relu", "identity", sign=("transmitter", {"glutamate": -1}), frozen=np.arange(dag.num_edges) % 10 == 0,
        init=fw.nn.scale_by_in_degree(dag, loaded.weight), seed=0,
    )  # fmt: skip
    before = net.weight.detach().clone()
    x = torch.randn(64, dag.num_inputs, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()
    optimiser = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.1)
    losses = []
    for _ in range(100):
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x)[:, :2], y)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    return net, before, x, y


def test_signs_and_frozen_weights_hold(trained):
    net, before, _, _ = trained
    weight, arrays = net.weight.detach(), net.constraints.arrays
    assert (weight.numpy() * arrays.sign >= 0).all()
    frozen = torch.from_numpy(arrays.frozen)
    assert torch.equal(weight[frozen].view(torch.int32), before[frozen].view(torch.int32))
    assert (weight[~frozen] != before[~frozen]).float().mean() > 0.9


@pytest.mark.parametrize("suffix", [".safetensors", ".npz"])
def test_files_keep_all_of_it(trained, tmp_path, suffix):
    net, path = trained[0], tmp_path / f"net{suffix}"
    exchange.export(net, path)
    same = fw.load(path) if suffix == ".safetensors" else exchange.read_network(path)
    assert torch.equal(same.weight, net.weight)
    assert dict(same.dag.attributes) == dict(net.dag.attributes)
    for got, want in zip(same.constraints.arrays, net.constraints.arrays, strict=True):
        assert np.array_equal(got, want)


def test_importance_of_every_neuron(trained):
    net, _, x, y = trained
    score = fw.importance(net, x[:32], y[:32], loss=lambda out, y: torch.nn.functional.cross_entropy(out[:, :2], y))
    assert score.shape == (net.dag.num_nodes,)
    assert score.isfinite().all()
    first = int(score.argmax())
    silenced = net.silenced([net.dag.labels[first]])
    losses = [torch.nn.functional.cross_entropy(each(x[:32])[:, :2], y[:32]).item() for each in (silenced, net)]
    assert losses[0] - losses[1] == pytest.approx(score[first].item(), rel=1e-3)
    page = fw.view(net, colour=score, colour_label="importance", only="paths")
    assert page.shown.startswith("Shown: ")
