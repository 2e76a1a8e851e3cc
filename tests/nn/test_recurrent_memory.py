"""Memory of networks with feedback, counted: O(E + T N B), nothing of B x E, and less with checkpoints."""

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fourward import Digraph, Recurrent
from fourward.engine._cpu import buffers

NODES, BATCH, BYTES = 200, 256, 4


class CountBytes(TorchDispatchMode):
    """Bytes of all tensors that are made, whether they live at the same time or not."""

    def __init__(self):
        super().__init__()
        self.total, self.seen = 0, []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **kwargs or {})
        inputs = {t.untyped_storage().data_ptr() for t in args if isinstance(t, torch.Tensor)}
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage().data_ptr() not in inputs:
                self.total += tensor.untyped_storage().nbytes()
        return result


def network(num_edges: int, **options) -> Recurrent:
    chosen = np.random.default_rng(0).permutation(NODES**2)[:num_edges]
    pairs = np.stack(np.divmod(chosen, NODES), -1)
    g = Digraph.from_edges(pairs, nodes=NODES, inputs=range(4), outputs=range(NODES - 4, NODES))
    return Recurrent(g, "tanh", engine="cpu", seed=0, **options)


@pytest.fixture
def blocks(monkeypatch):
    """The sizes of the blocks that are allocated beside torch's tensors."""
    buffers.BUFFERS.release()
    sizes, allocate = [], buffers._allocate
    monkeypatch.setattr(buffers, "_allocate", lambda size: sizes.append(size) or allocate(size))
    yield sizes
    buffers.BUFFERS.release()


def allocated(net: Recurrent, steps: int, blocks: list[int], **options) -> int:
    """Bytes of everything that a pass forward and backward allocates."""
    x = torch.ones(steps, BATCH, 4)
    buffers.BUFFERS.release()
    blocks.clear()
    with CountBytes() as count:
        net(x, **options)[0].sum().backward()
    return count.total + sum(blocks)


@pytest.mark.parametrize("options", [{}, {"tau": 2.0}, {"tau": 2.0, "dynamics": "voltage"}], ids=str)
def test_edges_take_no_memory_for_each_sample(options, blocks):
    of_1000, of_9000 = (allocated(network(count, **options), 4, blocks) for count in (1_000, 9_000))
    edges = (of_9000 - of_1000) / (8_000 * BYTES)
    assert edges < 20, "numbers for each edge: copies of weights in several orders, and their gradients"
    assert BATCH > 10 * 20, "a product for each edge and sample would be seen"


@pytest.mark.parametrize("options", [{}, {"tau": 2.0}, {"tau": 2.0, "dynamics": "voltage"}], ids=str)
def test_steps_take_rows_of_nodes(options, blocks):
    net = network(2_000, **options)
    short, long = (allocated(net, steps, blocks) for steps in (10, 30))
    rows = (long - short) / (20 * NODES * BATCH * BYTES)
    assert 0.9 < rows < 3.5, "activations and, with time constants, sums and voltages; x and y have few columns"


def test_checkpoints_take_less(blocks):
    net = network(2_000)
    step = NODES * BATCH * BYTES
    assert allocated(net, 60, blocks) > 60 * step
    peaks = {}
    for k in (5, 10):
        allocated(net, 60, blocks, checkpoint=k)
        peaks[k] = sum(blocks) / step  # apart from the states: 60 / k
        assert k < peaks[k] < 2 * (k + 1) + 5
