"""Watchers of a run: a bar with the time left, and logs for TensorBoard."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fourward.errors import require
from fourward.train.loop import Loop


class Progress:
    """A bar on the terminal, with the time left and how it stands; use it in a `with` block."""

    def __init__(self, console: Any) -> None:
        rich = require("rich.progress", "cli")
        columns = [rich.TextColumn("{task.description}"), rich.BarColumn(), rich.TimeRemainingColumn()]
        self.bar = rich.Progress(*columns, rich.TextColumn("{task.fields[stand]}"), console=console)
        self.task = self.bar.add_task("learning", total=None, stand="")

    def __enter__(self) -> Progress:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def after_steps(self, loop: Loop) -> None:
        """Move the bar."""
        total = loop.options.epochs * loop.steps
        self.bar.update(self.task, total=total, completed=loop.epoch * loop.steps + loop.step)

    def after_epoch(self, loop: Loop) -> None:
        """Move the bar, and say how it stands."""
        history, score = loop.history, "accuracy" if loop.task == "classification" else "R2"
        words = [f"epoch {loop.epoch}/{loop.options.epochs}", f"loss {history.train_loss[-1]:.4f}"]
        if history.held_loss:
            words += [f"held out {history.held_loss[-1]:.4f}", f"{score} {history.held_score[-1]:.4f}"]
        self.bar.update(self.task, stand=", ".join(words))
        self.after_steps(loop)

    def paused(self, loop: Loop) -> None:
        """Nothing to do."""


class TensorBoard:
    """Writes each epoch for TensorBoard; a run that goes on replaces what was written after it was saved."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.writer = folder, None

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
