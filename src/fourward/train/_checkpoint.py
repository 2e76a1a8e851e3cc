"""Checkpoints: a model and, if it is to be trained on, the state of its training, as one safetensors file.

The file is that of `fourward._serialization`, so that `fourward.load` finds the network in it. Beside the network it
holds

    enter.*, leave.*        the adaptors, absent in direct models
    scale.x, scale.y        (2, columns) float64: mean and deviation
    optimiser.<p>.<name>    AdamW's tensors of parameter p

and in its JSON "model" (features, targets, classes, direct), "setup" (how the run was started) and "state" (history,
step, schedule and the like).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from fourward import _serialization
from fourward._serialization import Metadata, Tensors
from fourward.errors import FileError
from fourward.graph._dag import Dag
from fourward.train._model import Model, Scaling


def save(path: str | Path, model: Model, setup: Metadata | None = None, state: Metadata | None = None) -> None:
    """Write a checkpoint; whole, or the old one stays."""
    tensors, network = _serialization.serialize_network(model.net)
    for name in ("enter", "leave"):
        weights = getattr(model, name).state_dict()
        tensors |= {f"{name}.{key}": value.cpu() for key, value in weights.items()}
    for name, scaling in (("scale.x", model.scale_x), ("scale.y", model.scale_y)):
        if scaling is not None:
            tensors[name] = torch.tensor(np.stack((scaling.mean, scaling.deviation)), dtype=torch.float64)
    about = {
        "features": model.features,
        "targets": model.targets,
        "classes": None if model.classes is None else list(model.classes),
        "direct": model.direct,
    }
    said = {"network": network, "model": about, "setup": setup}
    if state is not None:
        said["state"], more = _apart(state)
        tensors |= more
    _serialization.write_safetensors(path, tensors, said)


def load(path: str | Path, *, device: str | None = None) -> tuple[Model, Metadata | None, Metadata | None]:
    """The model of a checkpoint in eval mode, how its run was started, and its state, if there is one."""
    tensors, said = _serialization.read_safetensors(path)
    if "model" not in said:
        raise FileError(
            f"{path} holds a network alone, without what it was trained on. `fourward train` writes checkpoints."
        )
    net = _serialization.deserialize_network(path, tensors, said, device=device)
    with _serialization.corrupt_file_errors(path):
        about = said["model"]
        _check_names(about)
        model = Model(
            net,
            about["features"],
            about["targets"],
            about["classes"],
            _scaling(tensors["scale.x"], len(about["features"])),
            _scaling(tensors["scale.y"], len(about["targets"])) if about["classes"] is None else None,
            direct=about["direct"],
        )
        for name in ("enter", "leave"):
            weights = {k.removeprefix(f"{name}."): v for k, v in tensors.items() if k.startswith(f"{name}.")}
            _fill(getattr(model, name), weights)
        state = said.get("state")
        if state is not None:
            state = _together(state, tensors, model)
        return model.to(net.weight.device).eval(), said.get("setup"), state


def check_graph(path: str | Path, model: Model, dag: Dag) -> None:
    """Refuse a checkpoint of another graph."""
    if dag != model.net.dag:
        raise FileError(f"{path} is a checkpoint of another graph: {model.net.dag!r}, but {dag!r} came.")


def _fill(module: nn.Module, weights: Tensors) -> None:
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:  # torch's word for weights that don't fit
        raise FileError(f"the adaptors don't fit: {error}") from None


def _apart(state: Metadata) -> tuple[Metadata, Tensors]:
    """A training state as JSON, and its tensors by name."""
    optimiser = state["optimiser"]
    tensors = {
        f"optimiser.{p}.{name}": value.detach().cpu()
        for p, values in optimiser["state"].items()
        for name, value in values.items()
    }
    return state | {"optimiser": optimiser["param_groups"]}, tensors


def _together(state: Metadata, tensors: Tensors, model: Model) -> Metadata:
    """A training state whose tensors fit the parameters: the optimiser trusts their shapes."""
    found: dict[int, dict[str, Any]] = {}
    for p, parameter in enumerate(model.parameters()):
        wanted = {"step": torch.zeros(()), "exp_avg": parameter, "exp_avg_sq": parameter}
        found[p] = {name: _like(tensors, f"optimiser.{p}.{name}", like) for name, like in wanted.items()}
    return state | {"optimiser": {"state": found, "param_groups": state["optimiser"]}}


def _like(tensors: Tensors, key: str, like: torch.Tensor) -> torch.Tensor:
    value = tensors[key]
    if value.shape != like.shape or value.dtype != like.dtype:
        raise FileError(
            f"{key} has shape {tuple(value.shape)} of {value.dtype}, but {tuple(like.shape)} of {like.dtype} fits."
        )
    return value


def _check_names(about: Metadata) -> None:
    for name in ("features", "targets"):
        if not about[name] or not all(isinstance(word, str) for word in about[name]):
            raise FileError(f"{name} must be names, at least one, but {about[name]!r} came.")
    if about["classes"] is not None and (not isinstance(about["classes"], list) or len(about["targets"]) != 1):
        raise FileError("a classification has a list of classes and one target.")


def _scaling(values: torch.Tensor, width: int) -> Scaling:
    if values.shape != (2, width):
        raise FileError(f"the scaling has shape {tuple(values.shape)}, but {(2, width)} was wanted.")
    if not values.isfinite().all() or not (values[1] > 0).all():
        raise FileError("the scaling must be finite, with deviations above 0.")
    return Scaling(*values.double().numpy())
