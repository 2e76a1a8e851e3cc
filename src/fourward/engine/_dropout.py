"""Dropout: which hidden neurons are dropped, decided by hashing so that all engines drop the same ones.

A draw depends on the key of the pass, the node index and the index of the sample in the batch alone:

    draw = hash32(hash32(node * NODE_FACTOR + key) * SAMPLE_FACTOR + sample)        32 bits, in 64-bit arithmetic
    a neuron is dropped for a sample if draw < threshold(p), else its activation is multiplied by 1 / (1 - p)

`hash32` is written in operations that torch tensors, Numba and Triton share; each engine's kernels use this function.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

NODE_FACTOR = 0x9E3779B1
SAMPLE_FACTOR = 0x85EBCA6B


class Dropout(NamedTuple):
    """The draw of one pass."""

    p: float  #: probability that a hidden neuron is dropped for a sample
    key: Tensor  #: () int64 below 2**32, different for each pass


def hash32(x):  # type: ignore[no-untyped-def]
    """Mix the lower 32 bits of a 64-bit integer, each into all of them."""
    x = x & 0xFFFFFFFF
    x = ((x ^ (x >> 16)) * 0x21F0AAAD) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 0x735A2D97) & 0xFFFFFFFF
    return x ^ (x >> 15)


def threshold(p: float) -> int:
    """The smallest draw that keeps a neuron."""
    return round(p * 2**32)


def float64_bits(p: float) -> int:
    """The bits of a float64 as an int64, for kernels whose arguments are integers."""
    return int(np.float64(p).view(np.int64))


def pass_key(seed: int, passes: Tensor) -> Tensor:
    """The key of a pass, from the seed of the network and the number of passes before it."""
    key: Tensor = hash32(hash32(passes + (seed >> 32)) + (seed & 0xFFFFFFFF))
    return key


def dropout_scale(dropout: Dropout, node: Tensor, batch: int, dtype: torch.dtype) -> Tensor:
    """(len(node), B): 0 where a neuron is dropped for a sample, else 1 / (1 - p)."""
    sample = torch.arange(batch, device=node.device)
    node_draw = hash32(node.long() * NODE_FACTOR + dropout.key) * SAMPLE_FACTOR
    draw: Tensor = hash32(node_draw.unsqueeze(1) + sample)
    return (draw >= threshold(dropout.p)).to(dtype) / (1 - dropout.p)
