"""Watchers of a run: a bar with the time left, and logs for TensorBoard."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fourward.errors import require
from fourward.train._loop import Loop


class Progress:
    """A bar on the terminal, with the time left and how it stands; use it in a `with` block."""

    def __init__(self, console: Any) -> None:
        rich = require("rich.progress", "cli")
        columns = (rich.BarColumn(20), rich.TimeRemainingColumn(), rich.TextColumn("{task.fields[stand]}"))
        self.bar = rich.Progress(*columns, console=console)
        self.task: Any = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self.task is not None:
            self.bar.stop()

    def after_steps(self, loop: Loop) -> None:
        """Move the bar, and say how it stands."""
        if self.task is None:
            self.task = self.bar.add_task("", total=loop.options.epochs * loop.steps, stand="")
            self.bar.start()
        self.bar.update(self.task, completed=loop.epoch * loop.steps + loop.step, stand=_stand(loop))

    def after_epoch(self, loop: Loop) -> None:
        """The same."""
        self.after_steps(loop)

    def paused(self, loop: Loop) -> None:
        """Nothing to do."""


def _stand(loop: Loop) -> str:
    history = loop.history
    curves = {"loss": history.train_loss, "held out": history.held_loss, history.score: history.held_score}
    words = [f"{name} {curve[-1]:.4f}" for name, curve in curves.items() if curve]
    return ", ".join([f"epoch {loop.epoch}/{loop.options.epochs}", *words])


class TensorBoard:
    """Writes each epoch for TensorBoard; a run that goes on replaces what was written after it was saved."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.writer: Any = None

    def after_steps(self, loop: Loop) -> None:
        """Nothing to do."""

    def after_epoch(self, loop: Loop) -> None:
        """Write the epoch."""
        row = loop.history.rows()[-1]
        epoch = int(row.pop("epoch"))
        if self.writer is None:
            require("tensorboard", "train")
            from torch.utils.tensorboard import SummaryWriter

            self.writer = SummaryWriter(os.fspath(self.folder), purge_step=epoch)
        for name, value in row.items():
            self.writer.add_scalar(name, value, epoch)
        self.writer.flush()

    def paused(self, loop: Loop) -> None:
        """Nothing to do."""
