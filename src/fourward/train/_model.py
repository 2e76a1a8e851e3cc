"""Model: a network between its adaptors, which takes and gives values as they are in a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fourward.errors import DataError
from fourward.nn._fourward import FourWard
from fourward.train._data import Array, Task

_AT_A_TIME = 4096


@dataclass(frozen=True, eq=False)
class Scaling:
    """Mean and deviation of each column; a constant column has deviation 1."""

    mean: Array
    deviation: Array

    @classmethod
    def of(cls, values: Array) -> Scaling:
        """The scaling that these values need."""
        with np.errstate(over="ignore", invalid="ignore"):
            deviation = values.std(0)
        large = np.flatnonzero(~np.isfinite(deviation))
        if len(large):
            most = np.abs(values[:, large[0]]).max()
            raise DataError(
                f"column {large[0] + 1} holds {most:g}, too large to be standardised. Divide it by a constant."
            )
        constant = deviation <= 1e-12 * np.abs(values).max(0, initial=0)
        return cls(values.mean(0), np.where(constant, 1.0, deviation))

    def apply(self, values: Array) -> Array:
        """Values of mean 0 and deviation 1."""
        return (values - self.mean) / self.deviation

    def undo(self, values: Array) -> Array:
        """The values as they were."""
        return values * self.deviation + self.mean


class Model(nn.Module):
    """A linear layer from the features to the inputs, the network, and one from the outputs to classes or targets.

    Args:
        net: The network.
        features: Name of each feature.
        targets: Name of each target.
        classes: What each class number stands for; None in regression.
        scale_x: Of the features.
        scale_y: Of the targets, in regression.
        direct: No linear layers: features are inputs, and outputs are classes or targets.
        seed: Of the linear layers' weights.
    """

    def __init__(
        self,
        net: FourWard,
        features: Sequence[str],
        targets: Sequence[str],
        classes: Sequence[Any] | None,
        scale_x: Scaling,
        scale_y: Scaling | None,
        *,
        direct: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.net, self.features, self.targets, self.classes = net, list(features), list(targets), classes
        self.scale_x, self.scale_y, self.direct = scale_x, scale_y, direct
        width = len(self.targets) if classes is None else len(classes)
        if direct:
            self._check_direct(width)
        dag, dtype = net.dag, net.weight.dtype
        first, last = np.random.SeedSequence(seed).generate_state(2).tolist()
        self.enter = nn.Identity() if direct else linear(len(self.features), dag.num_inputs, first, dtype)
        self.leave = nn.Identity() if direct else linear(dag.num_outputs, width, last, dtype)

    @property
    def task(self) -> Task:
        """What was learned."""
        return "regression" if self.classes is None else "classification"

    def forward(self, x: Tensor) -> Tensor:
        """Scaled features (B, features) -> logits (B, classes) or scaled targets (B, targets)."""
        result: Tensor = self.leave(self.net(self.enter(x)))
        return result

    def predict(self, x: Array) -> Array:
        """Features as they are (n, features) -> probabilities (n, classes), or targets as they are (n, targets)."""
        like = self.net.weight
        scaled = torch.as_tensor(self.scale_x.apply(x)).to(like.dtype)
        training = self.training
        self.eval()
        with torch.no_grad():
            parts = [self(part.to(like.device)).double().cpu() for part in scaled.split(_AT_A_TIME)]
        self.train(training)
        out = torch.cat(parts)
        return out.softmax(-1).numpy() if self.scale_y is None else self.scale_y.undo(out.numpy())

    def fold(self, dtype: torch.dtype | None = None) -> FourWard:
        """One network from unscaled features to logits, or to unscaled targets; see `fourward.exchange.fold`."""
        from fourward.exchange import fold

        return fold(
            self.net,
            self.enter,
            self.leave,
            input_scaling=(self.scale_x.mean, self.scale_x.deviation),
            output_scaling=None if self.scale_y is None else (self.scale_y.mean, self.scale_y.deviation),
            feature_names=self.features,
            target_names=self.targets if self.classes is None else list(map(str, self.classes)),
            dtype=dtype,
        )

    def max_error(self, folded: FourWard, samples: int = 64) -> float:
        """The largest difference between a folded network and this model, on normally distributed features.

        Logits count relative to 1 or the largest of them, targets relative to their standard deviation.
        """
        x = np.random.default_rng(0).standard_normal((samples, len(self.features)))
        with torch.no_grad():
            actual = folded(torch.as_tensor(self.scale_x.undo(x)).to(folded.weight)).double().cpu()
            expected = self.eval()(torch.as_tensor(x).to(self.net.weight)).double().cpu()
        if self.scale_y is not None:
            actual = torch.as_tensor(self.scale_y.apply(actual.numpy()))
        error: float = ((actual - expected).abs().max() / expected.abs().max().clamp(min=1)).item()
        return error

    def _check_direct(self, width: int) -> None:
        dag, things = self.net.dag, "targets" if self.classes is None else "classes"
        for came, wanted, what, where in (
            (len(self.features), dag.num_inputs, "features", "inputs"),
            (width, dag.num_outputs, things, "outputs"),
        ):
            if came != wanted:
                raise DataError(
                    f"there are {came:,} {what}, but the graph has {wanted:,} {where}, and without adaptors (--direct) "
                    "each needs one of its own. Leave --direct away, or take a graph that fits."
                )


def linear(inputs: int, outputs: int, seed: int, dtype: torch.dtype) -> nn.Linear:
    """A linear layer as torch initialises it, but drawn from a seed of its own."""
    layer = nn.utils.skip_init(nn.Linear, inputs, outputs, dtype=dtype)
    assert isinstance(layer, nn.Linear)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in (layer.weight, layer.bias):
            parameter.uniform_(-(inputs**-0.5), inputs**-0.5, generator=generator)
    return layer
