"""A graph, batches for it, and the modules that share a contract."""

import pytest
import torch

from fourward import FourWard, generate, paper

DAG = generate.erdos_renyi(30, 0.2, seed=1)
METHODS = (FourWard, paper.Masked4Ward, paper.SequentialBaseline, paper.DeepStruct)
methods = pytest.mark.parametrize("cls", METHODS)


def batch(dag=DAG, size=5, dtype=torch.float32):
    return torch.randn(size, dag.num_inputs, generator=torch.Generator().manual_seed(0)).to(dtype)
