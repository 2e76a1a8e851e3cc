"""Every engine's version of the draw against the formula in Python's integers; draws that are fair and independent."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from fourward.engine._cpu.activations import apply_dropout
from fourward.engine._dropout import Dropout, dropout_scale, float64_bits, pass_key, threshold
from fourward.engine._gpu.activations import dropout_factor, hash_node

RNG = np.random.default_rng(0)
KEYS = [0, 1, 2**32 - 1, *RNG.integers(0, 2**32, 3).tolist()]
NODES = [0, 1, 2**26 - 1, *RNG.integers(0, 2**26, 13).tolist()]
BATCH = 64
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def hash_by_hand(x):
    x %= 2**32
    x = (x ^ x >> 16) * 0x21F0AAAD % 2**32
    x = (x ^ x >> 15) * 0x735A2D97 % 2**32
    return x ^ x >> 15


def scale_by_hand(p, key):
    """(nodes, batch), from the formula of `fourward.engine._dropout` in integers of any size."""
    node_hashs = [hash_by_hand(node * 0x9E3779B1 + key) * 0x85EBCA6B for node in NODES]
    draws = [[hash_by_hand(node_hash + sample) for sample in range(BATCH)] for node_hash in node_hashs]
    return (torch.tensor(draws) >= round(p * 2**32)).double() / (1 - p)


def torch_scale(p, key):
    return dropout_scale(Dropout(p, torch.tensor(key)), torch.tensor(NODES), BATCH, torch.float64)


def numba_scale(p, key):
    rows = np.ones((len(NODES), BATCH))
    for row, node in zip(rows, NODES, strict=True):
        for sample in range(0, BATCH, 16):  # a slice at a time, as the kernels do
            apply_dropout(row[sample : sample + 16], 16, node, sample, key, threshold(p), 1 / (1 - p), 0.0)
    return torch.from_numpy(rows)


@triton.jit
def scale_kernel(out, key, node, threshold, p_bits, BATCH: tl.constexpr, NODES: tl.constexpr):
    sample = tl.arange(0, BATCH)
    row = tl.arange(0, NODES)
    node_hash = hash_node(tl.load(key), tl.load(node + row))
    scale = dropout_factor(node_hash[:, None], sample[None, :], threshold, p_bits, row[:, None] >= 0, tl.float64)
    tl.store(out + row[:, None] * BATCH + sample[None, :], scale)


def triton_scale(p, key):
    out = torch.empty(len(NODES), BATCH, dtype=torch.float64, device=DEVICE)
    tensors = out, torch.tensor(key, device=DEVICE), torch.tensor(NODES, dtype=torch.int32, device=DEVICE)
    scale_kernel[(1,)](*tensors, threshold(p), float64_bits(p), BATCH, len(NODES))
    return out.cpu()


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")  # NumPy's under Triton's interpreter: it wraps around
@pytest.mark.parametrize("p", [0.25, 0.5, 0.9])
@pytest.mark.parametrize("version", [torch_scale, numba_scale, triton_scale])
def test_every_version_draws_as_the_formula_says(version, p):
    for key in KEYS:
        assert torch.equal(version(p, key), scale_by_hand(p, key))


def test_dropout_is_fair_and_independent():
    node = torch.arange(500)
    keys = [pass_key(7, torch.tensor(i)) for i in range(4)]
    draws = torch.stack([dropout_scale(Dropout(0.3, key), node, 400, torch.float64) for key in keys])
    assert set(draws.unique().tolist()) == {0.0, 1 / 0.7}
    dropped = (draws == 0).double() - 0.3
    deviation = (0.3 * 0.7 / dropped.numel()) ** 0.5
    assert abs(dropped.mean()) < 5 * deviation
    for shifted in (dropped.roll(1, 0), dropped.roll(1, 1), dropped.roll(1, 2), dropped.roll((1, 1), (1, 2))):
        correlation = (dropped * shifted).mean() / (0.3 * 0.7)
        assert abs(correlation) < 5 / dropped.numel() ** 0.5
    assert abs(dropped.mean((0, 1))).max() < 6 * (0.21 / 2000) ** 0.5
    assert abs(dropped.mean((0, 2))).max() < 6 * (0.21 / 1600) ** 0.5
