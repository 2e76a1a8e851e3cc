"""fit: train a torch module on arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from fourward.errors import DataError, OptionError, Repair
from fourward.train._callbacks import BestWeights, Callback
from fourward.train._config import Rewire, RewireRule, Schedule, TrainConfig
from fourward.train._data import Task
from fourward.train._devices import Devices
from fourward.train._history import History
from fourward.train._outputs import warn_of_bounded_outputs
from fourward.train._trainer import Samples, Trainer

_PASS_PAIR = Repair("validation", ..., "give validation samples and their targets, as a pair (x, y)")


def fit(
    model: nn.Module,
    x: Any,
    y: Any,
    *,
    task: Task = "classification",
    validation: tuple[Any, Any] | None = None,
    epochs: int = 100,
    batch_size: int = 64,
    learning_rate: float = 1e-2,
    weight_decay: float = 1e-2,
    schedule: Schedule = "one-cycle",
    label_smoothing: float = 0.0,
    patience: int | None = None,
    seed: int = 0,
    rewire: Rewire | None = None,
    rewire_fraction: float | None = None,
    rewire_every: int | None = None,
    rewire_rule: RewireRule = "levels",
    device: str = "cpu",
    callbacks: Sequence[Callback] = (),
) -> History:
    """Train a module on arrays with AdamW and return its learning curves.

    Prints and writes nothing, and leaves global random state alone. The same seed gives the same weights. The model
    ends in eval mode, on the device it was on. Warns if it is a FourWard whose output activation, such as relu, can't
    reach the logits or targets.

    Args:
        model: Any module, (B, features) -> (B, classes) or (B, targets).
        x: Features (n, ...), preferably standardised.
        y: Class indices (n,), or targets (n,) or (n, targets); for models that return (B, T, ...) from sequences
            (n, T, features), one for each step: (n, T) or (n, T, targets).
        task: "classification" minimises the cross-entropy, "regression" the mean squared error.
        validation: Validation x and y, evaluated after each epoch.
        epochs: Maximum number of passes over the samples.
        batch_size: Samples per step.
        learning_rate: The maximum of the schedule.
        weight_decay: Weight decay of AdamW.
        schedule: "one-cycle" (up for a third of the steps, then down to almost 0), "cosine" or "constant".
        label_smoothing: Label smoothing of the cross-entropy.
        patience: Stop after this many epochs without a lower validation loss, and restore the best weights.
        seed: Seed of the order of the samples, and of edges that grow.
        rewire: How the wiring of the model's networks changes, in the first three quarters of the steps: "set",
            "rigl" or "prune", for fourward.sparse.SET, RigL and Prune. Default: it stays.
        rewire_fraction: The fraction of edges that each change replaces, by default 0.3; or with "prune", that are gone
            in the end, by default 0.9.
        rewire_every: Steps between two changes; default: an epoch.
        rewire_rule: Which edges may grow, "levels" or "layered", as in fourward.sparse.SET.
        device: "cpu", "cuda", "cuda:1", or "auto" for a GPU if there is one.
        callbacks: Called every 32 steps and after each epoch; see `Callback`.

    >>> from fourward import FourWard, generate
    >>> x = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    >>> net = FourWard(generate.layered_mlp([2, 8, 2]), output_activation="identity", seed=0)
    >>> history = fit(net, x, (x[:, 0] > x[:, 1]).long(), epochs=40, batch_size=16)
    >>> history.train_loss[-1] < 0.2 < history.train_loss[0]
    True
    """
    config = TrainConfig(
        epochs=epochs, batch_size=batch_size, learning_rate=learning_rate, weight_decay=weight_decay,
        schedule=schedule, label_smoothing=label_smoothing, patience=patience, seed=seed, rewire=rewire,
        rewire_fraction=rewire_fraction, rewire_every=rewire_every, rewire_rule=rewire_rule,
    )  # fmt: skip
    if patience is not None and validation is None:
        raise OptionError("patience needs validation samples.", _PASS_PAIR)
    if validation is not None and not (isinstance(validation, tuple | list) and len(validation) == 2):
        raise OptionError("expected validation to be a pair of arrays.", _PASS_PAIR)
    parameter = next(model.parameters(), None)
    if parameter is None:
        raise OptionError("the model has no parameters to train.")
    original_device, dtype, best = parameter.device, parameter.dtype, BestWeights()
    samples = as_samples(x, y, task, dtype)
    warn_of_bounded_outputs(model, task, samples[1], stacklevel=2)
    trainer = Trainer(
        model,
        task,
        config,
        samples,
        None if validation is None else as_samples(*validation, task, dtype),
        callbacks=callbacks if patience is None else [*callbacks, best],
        devices=Devices(device),
    )
    trainer.run()
    if best.best is not None:
        best.best.restore(model)
    model.to(original_device).eval()
    return trainer.history


def as_samples(x: Any, y: Any, task: Task, dtype: torch.dtype) -> Samples:
    """Tensors in a model's dtype, checked: class indices (n,) or targets (n, targets); (n, T, ...) for each step."""
    x, y = torch.as_tensor(x).to(dtype), torch.as_tensor(y)
    if len(x) == 0 or len(x) != len(y):
        raise DataError(f"expected as many samples as targets, and at least one: got {len(x):,} and {len(y):,}.")
    if task == "regression":
        per_step = x.dim() == 3 and y.dim() == 3 and y.shape[:2] == x.shape[:2]
        return x, y.to(dtype) if per_step else y.to(dtype).reshape(len(y), -1)
    if task != "classification":
        raise OptionError(f"task must be 'classification' or 'regression', got {task!r}.")
    per_step = x.dim() == 3 and y.dim() == 2 and y.shape == x.shape[:2]
    if not (y.dim() == 1 or per_step) or y.is_floating_point() or y.min() < 0:
        raise DataError(
            f"expected y as non-negative integer class indices of shape (n,), got {y.dtype} of shape {tuple(y.shape)}.",
            Repair("task", "regression", "train on targets that are numbers"),
        )
    return x, y.long()
