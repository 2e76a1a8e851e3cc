"""When launches are captured in a CUDA graph, and how long graphs live, with a fake GPU."""

import gc

import pytest
import torch

from fourward.engine._gpu import cuda_graphs

CARD = torch.device("cuda", 0)


class Card:
    """Counts what is launched, captured and replayed on its current stream."""

    def __init__(self, monkeypatch):
        self.stream, self.rows, self.done = 0, 0, []
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
        monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: self.stream, raising=False)
        monkeypatch.setattr(cuda_graphs, "take_row", self.row)
        monkeypatch.setattr(cuda_graphs, "_capture", self.capture)

    def row(self, device):
        self.rows += 1
        return torch.zeros(16, dtype=torch.int64)

    def capture(self, device, launches):
        self.done.append("capture")
        return self

    def replay(self):
        self.done.append("replay")

    def run(self, graphs, owner="a pass"):
        self.done.clear()
        graphs.run(owner, CARD, lambda table: self.done.append("first"), lambda table: self.done.append("rest"))
        return self.done


@pytest.fixture
def card(monkeypatch):
    return Card(monkeypatch)


def test_a_pass_is_captured_when_it_is_repeated(card):
    graphs = cuda_graphs.Graphs()
    assert card.run(graphs) == ["first", "rest"]
    assert card.run(graphs) == ["capture", "first", "replay"]
    assert card.run(graphs) == ["first", "replay"]
    assert card.run(graphs, "another") == ["first", "rest"]
    card.stream = 1
    assert card.run(graphs) == ["first", "rest"]


def test_a_pass_that_was_interrupted_is_not_captured_next(card):
    """What it launches may not be compiled yet, and can't be while a graph is captured."""
    graphs = cuda_graphs.Graphs()

    def interrupt(table):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        graphs.run("a pass", CARD, lambda table: None, interrupt)
    assert card.run(graphs) == ["first", "rest"]


def test_the_number_of_graphs_is_bounded(card):
    graphs = cuda_graphs.Graphs()
    for owner in range(3 * cuda_graphs.MAX_GRAPHS):
        card.run(graphs, owner)
    assert len(graphs.graphs) == card.rows == cuda_graphs.MAX_GRAPHS
    card.stream = 1  # on which an evicted table may still be in use
    card.run(graphs, "another")
    assert card.rows == cuda_graphs.MAX_GRAPHS + 1


def test_graphs_die_with_their_program():
    packed_plan = torch.zeros(1)
    key = id(packed_plan)
    assert cuda_graphs.find_graphs(packed_plan) is cuda_graphs.find_graphs(packed_plan)
    assert key in cuda_graphs._graphs
    del packed_plan
    gc.collect()
    assert key not in cuda_graphs._graphs
