"""Where to train: a device, several of them, several machines."""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch.strategies import DDPStrategy

from fourward.errors import OptionError


def places(device: str, devices: int = 1, machines: int = 1) -> dict[str, Any]:
    """The words for Lightning's Trainer.

    Args:
        device: "cpu", "cuda", "cuda:1", or "auto" for a card where there is one.
        devices: How many of this machine; each has a process of its own.
        machines: How many machines, each with as many devices.
    """
    where = _device(device)
    if devices * machines == 1:
        chosen = 1 if where.index is None or where.type == "cpu" else [where.index]
        # A process of its own, whatever a cluster's environment says of others beside it.
        return {"accelerator": where.type, "devices": chosen, "plugins": [LightningEnvironment()]}
    if where.index is not None:
        raise OptionError(f"device={device!r} is one device, but {devices * machines} were asked for.")
    if where.type == "cuda" and devices > torch.cuda.device_count():
        raise OptionError(f"{devices} devices were asked for, but torch finds {torch.cuda.device_count()} cards here.")
    together = DDPStrategy(broadcast_buffers=False)  # buffers are the graph: equal everywhere, and never change
    return {"accelerator": where.type, "devices": devices, "num_nodes": machines, "strategy": together}


def launched(devices: int, machines: int) -> tuple[int, int]:
    """Devices of this machine and machines: those of torchrun, where it started this process, else as given."""
    if not torch.distributed.is_torchelastic_launched():
        return devices, machines
    here = int(os.environ["LOCAL_WORLD_SIZE"])
    return here, int(os.environ["WORLD_SIZE"]) // here


def leave() -> None:
    """End a process that trained with others, once all is written.

    The threads of torch's gloo may abort a Python that closes in the usual way (pytorch#190489); whoever started the
    processes would then kill the others, which may be busy with the result.
    """
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _device(device: str) -> torch.device:
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        where = torch.device(device)
    except RuntimeError:
        raise OptionError(f"device={device!r} came. Known are cpu, cuda, cuda:1 and the like, and auto.") from None
    if where.type == "cuda" and (where.index or 0) >= torch.cuda.device_count():
        raise OptionError(f"device={device!r} came, but torch finds no such card here. Take device='cpu'.")
    return where
