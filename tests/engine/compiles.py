"""Run as a script: first passes of small networks for a GPU that isn't there: kernels are compiled, but not run.

Prints which kernels were compiled in parallel, which alone, and which were launched while precompiling.
"""

import json
import threading

import pytest
import torch
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from fourward import FourWard, Population, Recurrent, generate
from fourward.engine._gpu import engine, kernel_launch, launch, recurrent_launch
from tests.engine.gpu import force
from tests.engine.test_gpu_recurrent import STRATEGIES, graph

in_parallel: list[str] = []
alone: list[str] = []
launched: list[str] = []


def compiled(src, cache_hit, **_) -> None:
    if not cache_hit:
        (alone if threading.current_thread() is threading.main_thread() else in_parallel).append(src.name)


class Launcher:
    """Launches nothing, and mustn't be called while precompiling."""

    def __init__(self, src, _metadata) -> None:
        self.name = src.name

    def __call__(self, *_) -> None:
        launched.extend([self.name] * kernel_launch.precompiling())


class Utils:
    def get_device_properties(self, _device):
        return {"max_shared_mem": 232_448}

    def load_binary(self, *_):
        return None, None, 32, 0, 1024


class Card:
    """As Triton sees an H100 or H200."""

    utils, launcher_cls = Utils(), Launcher

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return device

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)


def passes(net: FourWard, x_grad: bool = False) -> None:
    for _ in range(2):
        x = torch.randn(3, net.dag.num_inputs, dtype=net.weight.dtype, requires_grad=x_grad)
        net(x).sum().backward()


def recurrent_passes() -> None:
    for name, options in (("persistent", {"tau": 2.0, "dropout": 0.3}), ("per level", {"dtype": torch.bfloat16})):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(recurrent_launch, "choose_recurrent_config", lambda *_, config=STRATEGIES[name]: config)
            net = Recurrent(graph(), engine="gpu", seed=0, dynamics="voltage", **options)
            y, h = net(torch.randn(3, 4, graph().num_inputs, dtype=net.weight.dtype, requires_grad=True))
            (y.sum() + h.sum()).backward()


def population_passes() -> None:
    dags = [generate.chain(nodes) for nodes in (6, 9)]
    for dtype, activation in ((torch.float32, "tanh"), (torch.bfloat16, "gelu")):
        pop = Population(dags, activation=activation, engine="gpu", seed=0, dtype=dtype)
        pop(torch.randn(50, 1, dtype=dtype, requires_grad=True)).sum().backward()


def main() -> None:
    driver.set_active(Card())
    knobs.compilation.listener = compiled
    with pytest.MonkeyPatch.context() as patch:
        for module in (engine, launch):
            patch.setattr(module, "interpreting", lambda: True)  # so that it takes tensors of the CPU
        patch.setattr(torch._C, "_cuda_getDevice", lambda: -1, raising=False)
        several = generate.erdos_renyi(300, 0.2, seed=0)  # two segments
        passes(FourWard(several, engine="gpu", seed=0), x_grad=True)
        direct = generate.erdos_renyi(60, 0.5, seed=3)  # Triton once compared its sums for minutes
        passes(FourWard(direct, engine="gpu", seed=0, activation="tanh"))
        for name in ("csr persistent", "csr per level"):
            with pytest.MonkeyPatch.context() as forced:
                force(name, forced)
                for dtype in (torch.float32, torch.bfloat16):
                    passes(
                        FourWard(generate.erdos_renyi(70, 0.2, seed=0), engine="gpu", seed=0, dtype=dtype),
                        x_grad=dtype == torch.bfloat16,
                    )
        recurrent_passes()
        population_passes()
        for _ in range(20):  # all kernels are compiled by now, and threads share the first pass of a network
            launch.clear_passes()
            net = FourWard(several, engine="gpu", seed=0)
            threads = [threading.Thread(target=passes, args=(net, True)) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    print(json.dumps([in_parallel, alone, launched]))


if __name__ == "__main__":
    main()
