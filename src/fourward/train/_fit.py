"""fit: a torch module learns from arrays, on Lightning's Trainer, in silence."""

from __future__ import annotations

import logging
import signal
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from fourward.errors import DataError, OptionError, require
from fourward.train._data import Task
from fourward.train._history import History
from fourward.train._options import Options, Schedule

require("lightning.pytorch", "train")
import lightning.pytorch as pl  # noqa: E402 - after the check that it is there

from fourward.train._devices import places  # noqa: E402
from fourward.train._loop import Loop, Samples, Watcher  # noqa: E402


def fit(
    model: nn.Module,
    x: Any,
    y: Any,
    *,
    task: Task = "classification",
    held: tuple[Any, Any] | None = None,
    epochs: int = 100,
    batch_size: int = 64,
    learning_rate: float = 1e-2,
    weight_decay: float = 1e-2,
    schedule: Schedule = "one-cycle",
    smoothing: float = 0.0,
    patience: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    watchers: Sequence[Watcher] = (),
) -> History:
    """Train a module on arrays; nothing is printed or written, and no global random state is touched.

    The same seed gives the same weights again. The model is left in eval mode, on the device it came from.

    Args:
        model: Any module, (B, features) -> (B, classes) or (B, targets).
        x: Features (n, ...), best of mean 0 and deviation 1.
        y: Class numbers (n,), or targets (n,) or (n, targets).
        task: "classification" lowers the cross-entropy, "regression" the mean square.
        held: Held-out x and y, measured after each epoch.
        epochs: Most times that all samples are seen.
        batch_size: Samples for each step.
        learning_rate: Of AdamW; the highest that the schedule reaches.
        weight_decay: Of AdamW.
        schedule: "one-cycle" (up for a third of the steps, then down to nothing), "cosine" or "constant".
        smoothing: Of the labels, in classification.
        patience: Stop after so many epochs without a lower held-out loss, and leave the best weights.
        seed: Of the order of the samples.
        device: "cpu", "cuda", "cuda:1", or "auto" for a card where there is one.
        watchers: Called after some steps and after each epoch; see `Watcher`.

    >>> from fourward import FourWard, generate
    >>> x = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    >>> net = FourWard(generate.layered_mlp([2, 8, 2]), output_activation="identity", seed=0)
    >>> history = fit(net, x, (x[:, 0] > x[:, 1]).long(), epochs=40, batch_size=16)
    >>> history.train_loss[-1] < 0.2 < history.train_loss[0]
    True
    """
    options = Options(epochs, batch_size, learning_rate, weight_decay, schedule, smoothing, patience, seed)
    if patience is not None and held is None:
        raise OptionError("patience looks at held-out samples: give held=(x, y) too.")
    if held is not None and not (isinstance(held, tuple | list) and len(held) == 2):
        raise OptionError("held came without x and y: give held-out samples and their targets, as held=(x, y).")
    like = next(model.parameters(), None)
    if like is None:
        raise OptionError("the model has no parameters, so there is nothing to learn.")
    home, best = like.device, Best()
    watching = watchers if patience is None else [*watchers, best]
    loop = Loop(
        model,
        task,
        options,
        as_samples(x, y, task, like.dtype),
        None if held is None else as_samples(*held, task, like.dtype),
        watching,
    )
    run_loop(loop, **places(device))
    if best.weights is not None:
        model.load_state_dict(best.weights)
    model.to(home).eval()
    return loop.history


class Best:
    """Keeps a copy of the best weights."""

    def __init__(self) -> None:
        self.weights: dict[str, Tensor] | None = None

    def after_steps(self, loop: Loop) -> None:
        """Nothing yet."""

    def after_epoch(self, loop: Loop) -> None:
        """Copy the weights if none were better."""
        if loop.history.waited == 0:
            self.weights = {name: value.clone() for name, value in loop.model.state_dict().items()}

    def paused(self, loop: Loop) -> None:
        """Nothing to do."""


def as_samples(x: Any, y: Any, task: Task, dtype: torch.dtype) -> Samples:
    """Tensors of a model's type, checked: class numbers (n,), or targets (n, targets)."""
    x, y = torch.as_tensor(x).to(dtype), torch.as_tensor(y)
    if len(x) == 0 or len(x) != len(y):
        raise DataError(f"{len(x):,} samples and {len(y):,} targets came, but there must be as many, and at least one.")
    if task == "regression":
        return x, y.to(dtype).reshape(len(y), -1)
    if task != "classification":
        raise OptionError(f"task={task!r} came, but it is either 'classification' or 'regression'.")
    if y.dim() != 1 or y.is_floating_point() or y.min() < 0:
        raise DataError(
            f"y has shape {tuple(y.shape)} of {y.dtype}, but classes are whole numbers from 0 on, one for each sample. "
            "For targets that are numbers take task='regression'."
        )
    return x, y.long()


def run_loop(loop: Loop, **where: Any) -> None:
    """Run Lightning's Trainer over a loop, without its files, its bars and its words."""
    handler = signal.getsignal(signal.SIGINT)
    with quiet():
        trainer = pl.Trainer(
            max_epochs=loop.options.epochs - loop.epoch,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
            **where,
        )
        try:
            trainer.fit(loop)
        except SystemExit:  # Lightning's answer to Ctrl-C, after which it ignores any other
            if trainer.state.status != "interrupted":
                raise
            signal.signal(signal.SIGINT, handler)
            raise KeyboardInterrupt from None


@contextmanager
def quiet() -> Iterator[None]:
    """Lightning says nothing within."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="lightning")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
