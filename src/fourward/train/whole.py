"""A model with its adaptors and scalings as one network, for export."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fourward.exchange.fold import fold
from fourward.nn.module import FourWard
from fourward.train.model import Model, Scaling


def whole(model: Model) -> FourWard:
    """A network from features as they are in the table to logits, or to targets as they are in the table."""
    enter_weight, enter_bias = _linear(model.enter, model.net.dag.num_inputs)
    mean, deviation = _pair(model.scale_x)
    enter = enter_weight / deviation, enter_bias - enter_weight @ (mean / deviation)
    leave_weight, leave_bias = _linear(model.leave, model.net.dag.num_outputs)
    if model.scale_y is not None:
        mean, deviation = _pair(model.scale_y)
        leave_weight, leave_bias = leave_weight * deviation.unsqueeze(1), leave_bias * deviation + mean
    targets = model.targets if model.classes is None else [str(one) for one in model.classes]
    return fold(model.net, enter, (leave_weight, leave_bias), features=model.features, targets=targets)


def _linear(layer: nn.Module, width: int) -> tuple[Tensor, Tensor]:
    """Weights and biases of an adaptor; a direct model has identities."""
    if isinstance(layer, nn.Linear):
        return layer.weight.detach().double().cpu(), layer.bias.detach().double().cpu()
    return torch.eye(width, dtype=torch.float64), torch.zeros(width, dtype=torch.float64)


def _pair(scaling: Scaling) -> tuple[Tensor, Tensor]:
    return torch.as_tensor(scaling.mean), torch.as_tensor(scaling.deviation)
