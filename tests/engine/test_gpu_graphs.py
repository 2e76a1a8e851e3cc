"""When launches become a CUDA graph, and what outlives what: the book-keeping, with a card that is only pretended."""

import gc

import pytest
import torch

from fourward.engine._gpu import cuda_graphs
from fourward.engine._gpu.launcher import Launch

CARD = torch.device("cuda", 0)


class Card:
    """Counts what is launched, captured and replayed on its current stream."""

    def __init__(self, monkeypatch):
        self.stream, self.rows, self.done = 0, 0, []
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
        monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: self.stream, raising=False)
        monkeypatch.setattr(cuda_graphs, "zeros_row", self.row)
        monkeypatch.setattr(cuda_graphs, "_captured", self.capture)

    def row(self, device):
        self.rows += 1
        return torch.zeros(16, dtype=torch.int64)

    def capture(self, device, launches):
        self.done.append("capture")
        return self

    def replay(self):
        self.done.append("replay")

    def run(self, owner, made="a pass"):
        self.done.clear()
        owner.run(made, CARD, lambda table: self.done.append("first"), lambda table: self.done.append("others"))
        return self.done


@pytest.fixture
def card(monkeypatch):
    return Card(monkeypatch)


def test_a_pass_is_captured_when_it_comes_again(card):
    owner = cuda_graphs.Graphs()
    assert card.run(owner) == ["first", "others"]
    assert card.run(owner) == ["capture", "first", "replay"]
    assert card.run(owner) == ["first", "replay"]
    assert card.run(owner, "another") == ["first", "others"]
    card.stream = 1
    assert card.run(owner) == ["first", "others"]


def test_a_pass_that_was_interrupted_is_not_captured_next(card):
    """What it launches may not be compiled yet, and can't be while a graph is captured."""
    owner = cuda_graphs.Graphs()

    def interrupt(table):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        owner.run("a pass", CARD, lambda table: None, interrupt)
    assert card.run(owner) == ["first", "others"]


def test_ever_new_shapes_take_no_ever_new_memory(card):
    owner = cuda_graphs.Graphs()
    for made in range(3 * cuda_graphs.GRAPHS):
        card.run(owner, made)
    assert len(owner.graphs) == card.rows == cuda_graphs.GRAPHS
    card.stream = 1  # of which nobody knows whether it is behind the other
    card.run(owner, "another")
    assert card.rows == cuda_graphs.GRAPHS + 1


def test_graphs_die_with_their_program():
    program = torch.zeros(1)
    place = id(program)
    assert cuda_graphs.graphs_of(program) is cuda_graphs.graphs_of(program)
    assert place in cuda_graphs._known
    del program
    gc.collect()
    assert place not in cuda_graphs._known


class Kernel:
    """What Triton makes of a function: studies arguments, and hands out what it compiled."""

    def __init__(self):
        self.studied, self.quick = [], []

    def __getitem__(self, grid):
        return lambda *given, **options: self.studied.append((grid, given[1:], options)) or self.compiled

    @property
    def compiled(self):
        return {(2, 1, 1): lambda *given: self.quick.append(given)}


def test_what_is_compiled_is_kept_for_aligned_tensors(monkeypatch):
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: -1, raising=False)
    kernel, room = Kernel(), torch.zeros(9)
    launch = Launch(kernel, (2,), (5,), ("word",), 4)
    launch(room[1:])
    assert len(kernel.studied) == 1  # for tensors that lie anywhere: not to be kept
    launch(room)
    assert kernel.studied[1:] == [((2,), (5, "word"), {"num_warps": 4, "num_stages": 1})]
    launch(room)
    launch(room[4:])
    assert kernel.quick == [(room.data_ptr(), 5, "word"), (room.data_ptr() + 16, 5, "word")]
    launch(room[1:])
    assert len(kernel.studied) == 3
