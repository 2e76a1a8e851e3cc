"""The devices of a run: one, or several with a process each, which Lightning's Fabric starts and connects."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from fourward.errors import OptionError, Repair, require

if TYPE_CHECKING:
    from lightning.fabric import Fabric


class Devices:
    """The device of this process, and the processes that share its batches.

    torch alone handles one device. Fabric handles several: it starts the processes (or finds those of torchrun or
    SLURM), gives each its device and averages their gradients. Importing it takes seconds.

    Args:
        device: "cpu", "cuda", "cuda:1", or "auto" for a GPU if there is one.
        devices: Devices of this machine, each with a process.
        num_nodes: Machines, each with as many devices.
    """

    def __init__(self, device: str = "auto", devices: int = 1, num_nodes: int = 1) -> None:
        self.device, self._fabric = _parse_device(device), None
        if devices * num_nodes > 1:
            _check_count(self.device, devices)
            self._fabric = _make_fabric(self.device.type, devices, num_nodes)
            self.device = self._fabric.device

    @property
    def rank(self) -> int:
        """Index of this process; known after `launch`."""
        return 0 if self._fabric is None else self._fabric.global_rank

    @property
    def world_size(self) -> int:
        """Number of processes."""
        return 1 if self._fabric is None else self._fabric.world_size

    def launch(self, model: nn.Module) -> nn.Module:
        """Start the other processes, and wrap a model so that backward averages its gradients over all of them."""
        if self._fabric is None:
            return model
        with _quiet():
            self._fabric.launch()
            return self._fabric.setup_module(model)

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all processes; may overwrite `values`."""
        if self._fabric is None:
            return values
        total = self._fabric.all_reduce(values, reduce_op="sum")
        assert isinstance(total, Tensor)
        return total

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""
        return flag if self._fabric is None else bool(self.sum(torch.tensor(float(flag), device=self.device)))


def size_under_torchrun(devices: int, num_nodes: int) -> tuple[int, int]:
    """Devices of this machine and machines: those of torchrun if it started this process, else the arguments."""
    if not torch.distributed.is_torchelastic_launched():
        return devices, num_nodes
    local = int(os.environ["LOCAL_WORLD_SIZE"])
    return local, int(os.environ["WORLD_SIZE"]) // local


def is_first_process() -> bool:
    """Whether this is the process of rank 0, as far as the environment says; the only one without an environment."""
    names = ("RANK", "LOCAL_RANK", "SLURM_PROCID")
    return next((os.environ[name] for name in names if name in os.environ), "0") == "0"


def exit_if_distributed() -> None:
    """End a process of several, with exit code 0, once all is written.

    The threads of torch's gloo may abort a Python that shuts down normally (pytorch#190489); Fabric takes any other
    exit code for a failure and kills the remaining processes, which may still be writing the result.
    """
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _make_fabric(accelerator: str, devices: int, num_nodes: int) -> Fabric:
    require("lightning.fabric", "train")
    from lightning.fabric import Fabric
    from lightning.fabric.strategies.ddp import DDPStrategy

    ddp = DDPStrategy(broadcast_buffers=False)  # buffers are the graph: equal everywhere and constant
    with _quiet():
        return Fabric(accelerator=accelerator, devices=devices, num_nodes=num_nodes, strategy=ddp)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Fabric's log of what it connects, and torch's plan to rename broadcast_buffers."""
    loggers = [
        logging.getLogger(name) for name in ("lightning.fabric", "lightning.pytorch")
    ]  # Fabric may use either logger
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*broadcast_buffers", FutureWarning)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _parse_device(device: str) -> torch.device:
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        parsed = torch.device(device)
    except RuntimeError:
        raise OptionError(f"device must be 'cpu', 'cuda', 'cuda:1' (any index) or 'auto', got {device!r}.") from None
    count = torch.cuda.device_count()
    if parsed.type == "cuda" and (parsed.index or 0) >= count:
        raise OptionError(
            f"device={device!r} is not available: torch finds {count} CUDA devices.",
            Repair("device", "cpu", "train on the CPU"),
        )
    return parsed


def _check_count(device: torch.device, devices: int) -> None:
    if device.index is not None:
        raise OptionError(
            f"device={str(device)!r} is a single device, got devices={devices}.",
            Repair("device", device.type, "use several"),
        )
    if device.type == "cuda" and devices > torch.cuda.device_count():
        raise OptionError(f"devices={devices} is too many: torch finds {torch.cuda.device_count()} CUDA devices.")
