"""Callbacks of a training run: the best weights, checkpoints, a progress bar, logs for TensorBoard."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from fourward._files import BEST, EDITS, LAST
from fourward.errors import require
from fourward.nn._engine_module import EngineModule
from fourward.sparse._rewire import get_wiring, set_wiring
from fourward.train import _checkpoint, _edits
from fourward.train._model import Model

if TYPE_CHECKING:
    from fourward.train._trainer import Trainer

#: Seconds within an epoch after which a checkpoint is written before the epoch ends.
_LONG_EPOCH = 60.0


class Callback:
    """Base class of callbacks; override what you need. They are called in the process of rank 0.

    `trainer` has the `model`, the `config`, the `history` of completed epochs, `epoch` (how many there are), and `step`
    (how many steps the current epoch has made, of `steps_per_epoch`).

    >>> class PrintLoss(Callback):
    ...     def on_epoch_end(self, trainer):
    ...         print(trainer.epoch, trainer.history.train_loss[-1])
    """

    def on_steps_end(self, trainer: Trainer) -> None:
        """Called every 32 steps within an epoch."""

    def on_epoch_end(self, trainer: Trainer) -> None:
        """Called after each epoch, when `trainer.history` includes it."""

    def on_stop(self, trainer: Trainer) -> None:
        """Called last, after a stop was requested."""


class Snapshot:
    """The weights of a model, and the wiring of its networks."""

    def __init__(self, model: nn.Module) -> None:
        self.weights = {name: value.clone() for name, value in model.state_dict().items()}
        self._wirings = [get_wiring(net) for net in _networks(model)]

    def restore(self, model: nn.Module) -> None:
        """Give the model these weights and wirings."""
        for net, wiring in zip(_networks(model), self._wirings, strict=True):
            set_wiring(net, wiring)
        model.load_state_dict(self.weights)


def _networks(model: nn.Module) -> list[Any]:
    return [module for module in model.modules() if isinstance(module, EngineModule)]


class BestWeights(Callback):
    """Keeps a copy of the weights of the best epoch so far."""

    def __init__(self) -> None:
        self.best: Snapshot | None = None

    def on_epoch_end(self, trainer: Trainer) -> None:
        """Copy the weights if this epoch is the best."""
        if trainer.history.epochs_since_best == 0:
            self.best = Snapshot(trainer.model)


class CheckpointCallback(BestWeights):
    """Writes checkpoints of the best and the last model, and the history; takes at most about a tenth of the time.

    Args:
        out: The folder of the run.
        model: The model that is trained.
        run: How the run was started, stored in each checkpoint.
    """

    def __init__(self, out: Path, model: Model, run: dict[str, Any]) -> None:
        super().__init__()
        self.out, self.model, self.run = out, model, run
        self.seconds = 0.0  #: seconds that the last save took
        self._saved_at = 0.0

    @property
    def saved(self) -> bool:
        """Whether there is a checkpoint to resume from."""
        return (self.out / LAST).exists()

    def on_steps_end(self, trainer: Trainer) -> None:
        """Save if the epoch is long."""
        if time.perf_counter() - self._saved_at > max(_LONG_EPOCH, 10 * self.seconds):
            self.save(trainer)

    def on_epoch_end(self, trainer: Trainer) -> None:
        """Save unless that was done just before."""
        super().on_epoch_end(trainer)
        if time.perf_counter() - self._saved_at > 10 * self.seconds:
            self.save(trainer)

    def on_stop(self, trainer: Trainer) -> None:
        """Save."""
        self.save(trainer)

    def save(self, trainer: Trainer) -> None:
        """Write both checkpoints and the history, each atomically."""
        _check_folder(self.out)  # it would be made again, with less in it
        start = time.perf_counter()
        trainer.check_finite()
        if self.best is not None:
            current = Snapshot(self.model)
            self.best.restore(self.model)
            _checkpoint.save_checkpoint(self.out / BEST, self.model, self.run)
            current.restore(self.model)
        _checkpoint.save_checkpoint(self.out / LAST, self.model, self.run, trainer.state())
        trainer.history.to_csv(self.out / "history.csv")
        for method in trainer.rewirings:
            if method.history is not None:
                _edits.save_edits(self.out / EDITS, self.model.net.graph, method.history)
        self._saved_at = time.perf_counter()
        self.seconds = self._saved_at - start


class Progress(Callback):
    """A progress bar on the terminal, with the time left and the latest losses; use it in a `with` block."""

    def __init__(self, console: Any) -> None:
        rich = require("rich.progress", "cli")
        columns = (rich.BarColumn(20), rich.TimeRemainingColumn(), rich.TextColumn("{task.fields[status]}"))
        self.bar = rich.Progress(*columns, console=console)
        self.task: Any = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self.task is not None:
            self.bar.stop()

    def on_steps_end(self, trainer: Trainer) -> None:
        """Move the bar."""
        if self.task is None:
            total = trainer.config.epochs * trainer.steps_per_epoch
            self.task = self.bar.add_task("", total=total, status="")
            self.bar.start()
        completed = trainer.epoch * trainer.steps_per_epoch + trainer.step
        self.bar.update(self.task, completed=completed, status=_status(trainer))

    def on_epoch_end(self, trainer: Trainer) -> None:
        """Move the bar."""
        self.on_steps_end(trainer)


def _status(trainer: Trainer) -> str:
    history = trainer.history
    curves = {"loss": history.train_loss, "val loss": history.val_loss, f"val {history.score}": history.val_score}
    values = [f"{name} {curve[-1]:.4f}" for name, curve in curves.items() if curve]
    replaced = int(sum(history.replaced)) + trainer.replaced
    edges = [f"{'pruned' if trainer.config.rewire == 'prune' else 'replaced'} {replaced:,}"] if replaced else []
    return ", ".join([f"epoch {trainer.epoch}/{trainer.config.epochs}", *values, *edges])


class TensorBoard(Callback):
    """Logs each epoch for TensorBoard; a resumed run replaces what was logged after its checkpoint."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.writer: Any = None

    def on_epoch_end(self, trainer: Trainer) -> None:
        """Log the epoch."""
        row = trainer.history.rows()[-1]
        epoch = int(row.pop("epoch"))
        if self.writer is None:
            require("tensorboard", "train")
            from torch.utils.tensorboard import SummaryWriter

            self.writer = SummaryWriter(os.fspath(self.folder), purge_step=epoch)
        _check_folder(self.folder)  # the writer's thread would print a traceback and end
        for name, value in row.items():
            self.writer.add_scalar(name, value, epoch)
        self.writer.flush()

    def close(self) -> None:
        """End the writer's thread and close its file."""
        if self.writer is not None:
            self.writer.close()


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))
