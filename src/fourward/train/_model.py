"""Model: a network between its adapters, which takes features and returns targets in the units of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fourward.errors import DataError, OptionError, Repair
from fourward.nn._fourward import FourWard
from fourward.nn._recurrent import Recurrent
from fourward.train._data import Array, Task

_ROWS_PER_CALL = 4096  # bounds the memory of `predict`


@dataclass(frozen=True, eq=False)
class Scaling:
    """Mean and standard deviation of each column; a constant column has deviation 1."""

    mean: Array
    std: Array

    @classmethod
    def fit(cls, values: Array) -> Scaling:
        """The scaling that standardises the columns of these values, (n, columns) or sequences (n, T, columns)."""
        values = values.reshape(-1, values.shape[-1])
        with np.errstate(over="ignore", invalid="ignore"):
            std = values.std(0)
        large = np.flatnonzero(~np.isfinite(std))
        if len(large):
            largest = np.abs(values[:, large[0]]).max()
            raise DataError(
                f"column {large[0] + 1} holds {largest:g}, too large to be standardised. Divide it by a constant."
            )
        constant = std <= 1e-12 * np.abs(values).max(0, initial=0)
        return cls(values.mean(0), np.where(constant, 1.0, std))

    def apply(self, values: Array) -> Array:
        """Standardise: mean 0 and standard deviation 1."""
        return (values - self.mean) / self.std

    def undo(self, values: Array) -> Array:
        """The inverse of `apply`."""
        return values * self.std + self.mean


class Model(nn.Module):
    """A network with adapters: linear layers from the features to its inputs, and from its outputs to the targets.

    Args:
        net: The network.
        features: Name of each feature.
        targets: Name of each target.
        classes: The class of each class index; None in regression.
        scale_x: Scaling of the features.
        scale_y: Scaling of the targets, in regression.
        adapters: Whether there are linear layers. Without them, features are the inputs, and outputs the classes or
            targets.
        seed: Seed of the adapters' weights.
        steps: For a Recurrent: the number of steps with the same features, after which its outputs are read; None if
            its samples are sequences.
        per_step: Whether there is a target for each step of a sequence, instead of one for the sequence.
    """

    def __init__(
        self,
        net: FourWard | Recurrent,
        features: Sequence[str],
        targets: Sequence[str],
        classes: Sequence[Any] | None,
        scale_x: Scaling,
        scale_y: Scaling | None,
        *,
        adapters: bool = True,
        seed: int = 0,
        steps: int | None = None,
        per_step: bool = False,
    ) -> None:
        super().__init__()
        _check_steps(net, steps, per_step)
        self.steps, self.per_step = steps, per_step
        self.net, self.features, self.targets, self.classes = net, list(features), list(targets), classes
        self.scale_x, self.scale_y, self.adapters = scale_x, scale_y, adapters
        width = len(self.targets) if classes is None else len(classes)
        if not adapters:
            self._check_widths(width)
        dag, dtype = net.dag, net.weight.dtype
        first, last = np.random.SeedSequence(seed).generate_state(2).tolist()
        self.input_adapter = linear(len(self.features), dag.num_inputs, first, dtype) if adapters else nn.Identity()
        self.output_adapter = linear(dag.num_outputs, width, last, dtype) if adapters else nn.Identity()

    @property
    def task(self) -> Task:
        """The task: classification if there are classes, else regression."""
        return "regression" if self.classes is None else "classification"

    def forward(self, x: Tensor) -> Tensor:
        """Standardised features (B, features) -> logits (B, classes) or standardised targets (B, targets).

        Sequences are (B, T, features); with targets for each step, the result is (B, T, ...).
        """
        result: Tensor = self.output_adapter(self.run_network(self.input_adapter(x)))
        return result

    def run_network(self, inputs: Tensor) -> Tensor:
        """Inputs of the network, (B, num_inputs) or (B, T, num_inputs), to its outputs that targets are read from."""
        if not isinstance(self.net, Recurrent):
            outputs: Tensor = self.net(inputs)
            return outputs
        if self.steps is not None:
            return self.net.steps(inputs, self.steps)
        time = 1 if self.net.batch_first else 0
        y: Tensor = self.net(inputs.transpose(1, time))[0].transpose(1, time)
        return y if self.per_step else y[:, -1]

    def predict(self, x: Array) -> Array:
        """Features (n, features) -> probabilities (n, classes) or targets (n, targets), in the units of the table.

        Sequences are (n, T, features); with targets for each step, the result is (n, T, ...).
        """
        self._check_samples(x)
        weight = self.net.weight
        scaled = torch.as_tensor(self.scale_x.apply(x)).to(weight.dtype)
        training = self.training
        self.eval()
        with torch.no_grad():
            parts = [self(part.to(weight.device)).double().cpu() for part in scaled.split(_ROWS_PER_CALL)]
        self.train(training)
        out = torch.cat(parts)
        return out.softmax(-1).numpy() if self.scale_y is None else self.scale_y.undo(out.numpy())

    def fold(self, dtype: torch.dtype | None = None) -> FourWard:
        """One network from unscaled features to logits, or to unscaled targets; see `fourward.exchange.fold`."""
        from fourward.exchange import fold

        if isinstance(self.net, Recurrent):
            raise OptionError(
                "a model around a network with feedback can't be folded into one network. Export model.net, or pass "
                "--network-only at the command line, which leaves out its linear layers and scaling."
            )
        return fold(
            self.net,
            self.input_adapter,
            self.output_adapter,
            input_scaling=(self.scale_x.mean, self.scale_x.std),
            output_scaling=None if self.scale_y is None else (self.scale_y.mean, self.scale_y.std),
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

    def _check_samples(self, x: Array) -> None:
        takes_sequences = isinstance(self.net, Recurrent) and self.steps is None
        if x.ndim != (3 if takes_sequences else 2):
            kind = "sequences (n, T, features)" if takes_sequences else "samples (n, features)"
            raise DataError(f"expected {kind}, as the model was trained on, got shape {x.shape}.")

    def _check_widths(self, width: int) -> None:
        dag, columns = self.net.dag, "targets" if self.classes is None else "classes"
        for expected, count, name, ends in (
            (len(self.features), dag.num_inputs, "features", "inputs"),
            (width, dag.num_outputs, columns, "outputs"),
        ):
            if count != expected:
                raise DataError(
                    f"without adapters, the graph needs as many {ends} as there are {name}: expected {expected:,} "
                    f"{ends}, got {count:,}. Choose a graph that fits.",
                    Repair("adapters", True, "put linear layers between them"),
                )


def _check_steps(net: FourWard | Recurrent, steps: int | None, per_step: bool) -> None:
    if not isinstance(net, Recurrent):
        if steps is not None or per_step:
            raise OptionError(
                "steps are for networks with feedback, but this one has none. Omit them, or keep the feedback of its "
                "graph: pass a Digraph, or --recurrent at the command line."
            )
    elif steps is not None and (isinstance(steps, bool) or not isinstance(steps, int) or steps < 1):
        raise OptionError(f"steps must be an int of at least 1, got {steps!r}.")


def linear(inputs: int, outputs: int, seed: int, dtype: torch.dtype) -> nn.Linear:
    """A linear layer with torch's initialisation, drawn from a local seed."""
    layer = nn.utils.skip_init(nn.Linear, inputs, outputs, dtype=dtype)
    assert isinstance(layer, nn.Linear)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in (layer.weight, layer.bias):
            parameter.uniform_(-(inputs**-0.5), inputs**-0.5, generator=generator)
    return layer
