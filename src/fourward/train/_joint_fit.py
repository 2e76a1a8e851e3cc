"""Several networks trained on the same samples as one population: the results of `fit`, up to rounding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from fourward.errors import TrainingError
from fourward.nn._fourward import FourWard
from fourward.nn._population import Population
from fourward.train._trainer import describe_divergence, epoch_order

EVALUATED_ROWS = 1024  #: samples of a batch that is evaluated


class Curves(NamedTuple):
    """What a member's training gives: its losses after each epoch, and why it failed."""

    train_loss: list[float]
    val_loss: list[float]
    error: TrainingError | None


class JointModel(nn.Module):
    """P networks, each between two linear adapters of its own: (B, features) -> (P, B, classes).

    Args:
        models: Modules of an adapter, a network and an adapter, of as many features, inputs, outputs and classes.
    """

    def __init__(self, models: Sequence[nn.Sequential]) -> None:
        super().__init__()
        before, nets, after = zip(*models, strict=True)
        self.population = Population(nets)
        self.before, self.before_bias = _stack(before)
        self.after, self.after_bias = _stack(after)

    def forward(self, x: Tensor) -> Tensor:
        """The outputs of all members."""
        h = torch.baddbmm(self.before_bias, x.expand(len(self.population), *x.shape), self.before.transpose(1, 2))
        return torch.baddbmm(self.after_bias, self.population(h), self.after.transpose(1, 2))

    @torch.no_grad()
    def write_back(self, models: Sequence[nn.Sequential]) -> None:
        """Copy the parameters of each member to its module."""
        for p, (model, member) in enumerate(zip(models, self.population, strict=True)):
            before, net, after = model
            assert isinstance(net, FourWard)
            net.load_edge_weights(member.weight, member.bias)
            for adapter, weight, bias in (
                (before, self.before, self.before_bias),
                (after, self.after, self.after_bias),
            ):
                assert isinstance(adapter, nn.Linear)
                adapter.weight.copy_(weight[p])
                adapter.bias.copy_(bias[p, 0])


def _stack(adapters: Sequence[nn.Linear]) -> tuple[nn.Parameter, nn.Parameter]:
    """(P, out, in) weights and (P, 1, out) biases."""
    weight = torch.stack([adapter.weight.detach() for adapter in adapters])
    bias = torch.stack([adapter.bias.detach()[None] for adapter in adapters])
    return nn.Parameter(weight), nn.Parameter(bias)


def fit_together(
    models: Sequence[nn.Sequential],
    x: Tensor,
    y: Tensor,
    *,
    validation: tuple[Tensor, Tensor],
    epochs: int,
    batch_size: int,
    learning_rate: float,
    weight_decay: float,
    seed: int,
) -> list[Curves]:
    """Train models of an adapter, a network and an adapter as `fit` does each, with its batches and its schedule.

    AdamW treats every parameter on its own, so that one optimiser of all members is as good as one for each. A member
    that diverges leaves the others as they are.

    Args:
        models: The models, which end trained, in eval mode.
        x: Features (n, features).
        y: Class indices (n,).
        validation: Validation x and y, evaluated after each epoch.
        epochs: As in `fit`, as all below.
        batch_size: Samples per step.
        learning_rate: The maximum of the schedule.
        weight_decay: Weight decay of AdamW.
        seed: Seed of the order of the samples.
    """
    joint, count = JointModel(models), len(x)
    optimizer = torch.optim.AdamW(joint.parameters(), lr=learning_rate, weight_decay=weight_decay, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=learning_rate, total_steps=epochs * -(-count // batch_size)
    )
    train_losses, val_losses = [], []
    for epoch in range(epochs):
        total = torch.zeros(len(models), dtype=torch.float64)
        for rows in epoch_order(count, seed, epoch).split(batch_size):
            losses = _summed_losses(joint(x[rows]), y[rows])
            total += losses.detach()
            optimizer.zero_grad()
            losses.backward(losses.new_full((len(models),), 1 / len(rows)))
            optimizer.step()
            schedule.step()
        train_losses.append(total / count)
        val_losses.append(_evaluate(joint, *validation))
    joint.write_back(models)
    curves = zip(torch.stack(train_losses, 1).tolist(), torch.stack(val_losses, 1).tolist(), strict=True)
    return [
        Curves(train, val, _find_divergence(model.eval(), train, val, learning_rate))
        for model, (train, val) in zip(models, curves, strict=True)
    ]


def _summed_losses(out: Tensor, y: Tensor) -> Tensor:
    """(P,) cross-entropies of outputs (P, B, classes), summed over samples."""
    losses = functional.cross_entropy(out.flatten(0, 1), y.repeat(len(out)), reduction="none")
    return losses.reshape(out.shape[:2]).sum(1)


@torch.no_grad()
def _evaluate(joint: JointModel, x: Tensor, y: Tensor) -> Tensor:
    """(P,) mean losses."""
    total = torch.zeros(len(joint.population), dtype=torch.float64)
    for rows in torch.arange(len(x)).split(EVALUATED_ROWS):
        total += _summed_losses(joint(x[rows]), y[rows])
    return total / len(x)


def _find_divergence(
    model: nn.Module, train_loss: Sequence[float], val_loss: Sequence[float], learning_rate: float
) -> TrainingError | None:
    """The error that `fit` would have raised, at the end of the epoch in which a loss wasn't finite."""
    for epoch, losses in enumerate(zip(train_loss, val_loss, strict=True)):
        for name, value in zip(("the loss", "the validation loss"), losses, strict=True):
            if not torch.isfinite(torch.tensor(value)):
                return describe_divergence(name, value, epoch, learning_rate)
    for parameter in model.parameters():
        bad = parameter.detach()[~parameter.isfinite()]
        if len(bad):
            return describe_divergence("a weight", bad[0].item(), len(train_loss) - 1, learning_rate)
    return None
