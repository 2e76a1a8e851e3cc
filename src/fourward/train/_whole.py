"""A model with its adaptors and scalings as one network, for export."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from fourward.exchange._fold import fold
from fourward.nn._fourward import FourWard
from fourward.train._model import Model, Scaling


def whole(model: Model, dtype: torch.dtype | None = None) -> FourWard:
    """A network from features as they are in the table to logits, or to targets as they are in the table.

    Features far from 0 need digits: where their mean is large beside their deviation, take dtype torch.float64.
    """
    enter_weight, enter_bias = _linear(model.enter, model.net.dag.num_inputs)
    mean, deviation = _pair(model.scale_x)
    enter = enter_weight / deviation, enter_bias - enter_weight @ (mean / deviation)
    leave_weight, leave_bias = _linear(model.leave, model.net.dag.num_outputs)
    if model.scale_y is not None:
        mean, deviation = _pair(model.scale_y)
        leave_weight, leave_bias = leave_weight * deviation.unsqueeze(1), leave_bias * deviation + mean
    targets = model.targets if model.classes is None else [str(one) for one in model.classes]
    leave = leave_weight, leave_bias
    return fold(model.net, enter, leave, features=model.features, targets=targets, dtype=dtype)


def difference(net: FourWard, model: Model, rows: int = 64) -> float:
    """How far a whole network is from its model at most, on features with the mean and deviation of the training's.

    Logits count over 1 or the largest of them, targets over their deviation.
    """
    scaled = np.random.default_rng(0).standard_normal((rows, len(model.features)))
    with torch.no_grad():
        got = net(torch.as_tensor(model.scale_x.undo(scaled)).to(net.weight)).double().cpu()
        want = model.eval()(torch.as_tensor(scaled).to(model.net.weight)).double().cpu()
    if model.scale_y is not None:
        got = torch.as_tensor(model.scale_y.apply(got.numpy()))
    largest: float = ((got - want).abs().max() / want.abs().max().clamp(min=1)).item()
    return largest


def _linear(layer: nn.Module, width: int) -> tuple[Tensor, Tensor]:
    """Weights and biases of an adaptor; a direct model has identities."""
    if isinstance(layer, nn.Linear):
        return layer.weight.detach().double().cpu(), layer.bias.detach().double().cpu()
    return torch.eye(width, dtype=torch.float64), torch.zeros(width, dtype=torch.float64)


def _pair(scaling: Scaling) -> tuple[Tensor, Tensor]:
    return torch.as_tensor(scaling.mean), torch.as_tensor(scaling.deviation)
