"""Where to train: a device, several of them, several machines."""

from __future__ import annotations

import os
from typing import Any

import torch
from lightning.pytorch.strategies import DDPStrategy

from fourward.errors import OptionError


def places(device: str, devices: int = 1, machines: int = 1) -> dict[str, Any]:
    """The words for Lightning's Trainer; under torchrun its counts of processes and machines hold.

    Args:
        device: "cpu", "cuda", "cuda:1", or "auto" for a card where there is one.
        devices: How many of this machine; each has a process of its own.
        machines: How many machines, each with as many devices.
    """
    if torch.distributed.is_torchelastic_launched():
        devices = int(os.environ["LOCAL_WORLD_SIZE"])
        machines = int(os.environ["WORLD_SIZE"]) // devices
    where = _device(device)
    if where.index is not None and where.type != "cpu":
        if devices * machines > 1:
            raise OptionError(f"device={device!r} is one card, but {devices * machines} devices were asked for.")
        return {"accelerator": where.type, "devices": [where.index]}
    if where.type == "cuda" and devices > torch.cuda.device_count():
        raise OptionError(f"{devices} devices were asked for, but torch finds {torch.cuda.device_count()} cards here.")
    words: dict[str, Any] = {"accelerator": where.type, "devices": devices, "num_nodes": machines}
    if devices * machines > 1:
        words["strategy"] = DDPStrategy(broadcast_buffers=False)  # these are the graph: equal everywhere, never change
    return words


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
