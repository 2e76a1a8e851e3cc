"""Enters: a Plan, weights, a batch. Leaves: activations, and gradients through autograd.

Never belongs here: graph algorithms, optimisers, files of graphs, networks or data.
"""

from fourward.engine._cpu.buffers import empty_cache
from fourward.engine._dropout import Dropout, dropout_scale
from fourward.engine._interface import Engine, RecurrentRunner, Request, Runner
from fourward.engine._kernel_engine import KernelEngine, KernelRunner
from fourward.engine._kernel_ops import Launch
from fourward.engine._registry import ENGINES, Choice, choose, register
from fourward.engine._torch_activations import TORCH_FUNCTIONS, apply_activation

__all__ = [
    "ENGINES",
    "TORCH_FUNCTIONS",
    "Choice",
    "Dropout",
    "Engine",
    "KernelEngine",
    "KernelRunner",
    "Launch",
    "RecurrentRunner",
    "Request",
    "Runner",
    "apply_activation",
    "choose",
    "dropout_scale",
    "empty_cache",
    "register",
]
