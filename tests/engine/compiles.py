"""Run as a script: first passes of small networks for a card that isn't there. Prints which kernels were compiled.

Those that a rehearsal compiled come first, then those that were compiled only when they were to be launched.
"""

import json

import pytest
import torch
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from fourward import FourWard, generate
from fourward.engine.gpu import call, engine
from tests.engine.gpu import force

compiled: list[str] = []
late: list[str] = []
study = call.Launch._study


class Card:
    """As Triton sees an H100 or H200."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return device

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)


def only_compile(self, tensors, aligned):
    """What would be launched is compiled, if it hasn't been."""
    before, rehearsed = len(compiled), call.rehearsing()
    token = call._rehearsing.set(True)
    study(self, tensors, aligned)
    call._rehearsing.reset(token)
    late.extend(compiled[before:] if not rehearsed else ())


def main() -> None:
    driver.set_active(Card())
    knobs.compilation.listener = lambda src, **_: compiled.append(src.name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "interpreting", lambda: True)  # so that it takes tensors of the CPU
        patch.setattr(call.Launch, "_study", only_compile)
        for name in ("stretches", "lists", "levels"):
            force(name, patch)
            dag = generate.erdos_renyi(70, 0.2, seed=0)
            for dtype in (torch.float32, torch.bfloat16)[: 1 if name == "stretches" else 2]:
                net = FourWard(dag, engine="gpu", seed=0, dtype=dtype)
                net(torch.randn(3, dag.num_inputs, dtype=dtype)).sum().backward()
    print(json.dumps([compiled[: len(compiled) - len(late)], late]))


if __name__ == "__main__":
    main()
