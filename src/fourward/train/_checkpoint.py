"""Checkpoints: a model, how it was trained and, to resume it, the state of its training, as one safetensors file.

The file is that of `fourward._serialization`, so `fourward.load` reads the network in it. Beside the network it holds

    input_adapter.*, output_adapter.*   absent in models without adapters
    scale.x, scale.y                    (2, columns) float64: mean and standard deviation
    optimiser.<p>.<name>                AdamW's tensors of parameter p
    rewiring.<k>.<name>                 tensors of what changes the wiring of network k

and in its JSON "model" (features, targets, classes, adapters), "run" (the RunConfig and a digest of the data) and
"state" (history, step, schedule and so on).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from fourward import _serialization
from fourward._serialization import Metadata, Tensors
from fourward.errors import FileError
from fourward.graph._base import BaseGraph
from fourward.graph._validation import check_text
from fourward.nn._recurrent import Recurrent
from fourward.train._model import Model, Scaling

_ADAPTERS = ("input_adapter", "output_adapter")


class Checkpoint(NamedTuple):
    """The contents of a checkpoint file."""

    model: Model  #: the model, in eval mode
    run: Metadata | None  #: how its run was started; None if there was none
    state: Metadata | None  #: state of the trainer; None if the run can't be resumed


def save_checkpoint(path: str | Path, model: Model, run: Metadata | None = None, state: Metadata | None = None) -> None:
    """Write a checkpoint atomically: after a failure the old file is still there.

    Args:
        path: The file, which should end in .safetensors.
        model: The model.
        run: How its run was started.
        state: The state of its trainer, to resume from.
    """
    tensors, network = _serialization.serialize_network(model.net)
    for name in _ADAPTERS:
        weights = getattr(model, name).state_dict()
        tensors |= {f"{name}.{key}": value.cpu() for key, value in weights.items()}
    for name, scaling in (("scale.x", model.scale_x), ("scale.y", model.scale_y)):
        if scaling is not None:
            tensors[name] = torch.tensor(np.stack((scaling.mean, scaling.std)), dtype=torch.float64)
    about: Metadata = {
        "features": model.features,
        "targets": model.targets,
        "classes": None if model.classes is None else list(model.classes),
        "adapters": model.adapters,
    }
    if isinstance(model.net, Recurrent):
        about |= {"steps": model.steps, "per_step": model.per_step}
    metadata: Metadata = {"network": network, "model": about, "run": run}
    if state is not None:
        metadata["state"], state_tensors = _split_state(state)
        tensors |= state_tensors
    _serialization.write_safetensors(path, tensors, metadata)


def load_checkpoint(path: str | Path, *, device: str | None = None) -> Checkpoint:
    """Read a checkpoint, or the best one of a run's folder. Nothing in a file can run code.

    Args:
        path: A .safetensors file, or the folder of a run.
        device: Where to put the model; default: the CPU.
    """
    tensors, metadata = _serialization.read_safetensors(path)
    if "model" not in metadata:
        raise FileError(
            f"{path} holds a network without the model around it (adapters, scaling, classes). "
            "Read it with fourward.load, or train it to get a checkpoint."
        )
    net = _serialization.deserialize_network(path, tensors, metadata, device=device)
    with _serialization.corrupt_file_errors(path):
        about = metadata["model"]
        _check_names(about)
        model = Model(
            net,
            about["features"],
            about["targets"],
            about["classes"],
            _read_scaling(tensors["scale.x"], len(about["features"])),
            _read_scaling(tensors["scale.y"], len(about["targets"])) if about["classes"] is None else None,
            adapters=about["adapters"],
            steps=about.get("steps"),
            per_step=about.get("per_step") is True,
        )
        for name in _ADAPTERS:
            weights = {k.removeprefix(f"{name}."): v for k, v in tensors.items() if k.startswith(f"{name}.")}
            _load_adapter(getattr(model, name), weights)
        state = metadata.get("state")
        if state is not None:
            state = _join_state(state, tensors, model)
        return Checkpoint(model.to(net.weight.device).eval(), metadata.get("run"), state)


def check_graph(path: str | Path, model: Model, graph: BaseGraph) -> None:
    """Raise FileError if the model of a checkpoint has another graph."""
    if graph != model.net.graph:
        raise FileError(f"{path} is a checkpoint of another graph: expected {graph!r}, got {model.net.graph!r}.")


def _load_adapter(module: nn.Module, weights: Tensors) -> None:
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:  # what torch raises for wrong names or shapes
        raise FileError(f"the adapters don't fit the network: {error}") from None


def _split_state(state: Metadata) -> tuple[Metadata, Tensors]:
    """A trainer's state as JSON, and its tensors by name."""
    optimiser = state["optimiser"]
    tensors = {
        f"optimiser.{p}.{name}": value.detach().cpu()
        for p, values in optimiser["state"].items()
        for name, value in values.items()
    }
    rewirings = []
    for k, values in enumerate(state["rewirings"]):
        tensors |= {f"rewiring.{k}.{name}": value for name, value in values.items() if isinstance(value, torch.Tensor)}
        rewirings.append({name: value for name, value in values.items() if not isinstance(value, torch.Tensor)})
    return state | {"optimiser": optimiser["param_groups"], "rewirings": rewirings}, tensors


def _join_state(state: Metadata, tensors: Tensors, model: Model) -> Metadata:
    """The inverse of `_split_state`; shapes and dtypes are checked here since the optimiser trusts them."""
    moments: dict[int, dict[str, Any]] = {}
    for p, parameter in enumerate(model.parameters()):
        like = {"step": torch.zeros(()), "exp_avg": parameter, "exp_avg_sq": parameter}
        moments[p] = {name: _get_like(tensors, f"optimiser.{p}.{name}", tensor) for name, tensor in like.items()}
    rewirings = []
    for k, values in enumerate(state.get("rewirings", ())):
        prefix = f"rewiring.{k}."
        listed = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
        rewirings.append(values | listed)
    return state | {"optimiser": {"state": moments, "param_groups": state["optimiser"]}, "rewirings": rewirings}


def _get_like(tensors: Tensors, key: str, like: torch.Tensor) -> torch.Tensor:
    value = tensors[key]
    if value.shape != like.shape or value.dtype != like.dtype:
        raise FileError(
            f"expected {key} of shape {tuple(like.shape)} and {like.dtype}, got {tuple(value.shape)} and {value.dtype}."
        )
    return value


def _check_names(about: Metadata) -> None:
    for name in ("features", "targets"):
        if not about[name] or not all(isinstance(word, str) for word in about[name]):
            raise FileError(f"{name} must be a non-empty list of names, got {about[name]!r}.")
        for word in about[name]:
            check_text(word, name)
    for value in about["classes"] or ():
        if not isinstance(value, str | int | float):
            raise FileError(f"classes must be text or numbers, got {value!r}.")
        check_text(value, "classes")
    if about["classes"] is not None and (not isinstance(about["classes"], list) or len(about["targets"]) != 1):
        raise FileError("a classification must have a list of classes and one target.")


def _read_scaling(values: torch.Tensor, width: int) -> Scaling:
    if values.shape != (2, width):
        raise FileError(f"expected a scaling of shape {(2, width)}, got {tuple(values.shape)}.")
    if not values.isfinite().all() or not (values[1] > 0).all():
        raise FileError("the scaling must be finite, with positive standard deviations.")
    return Scaling(*values.double().numpy())
