"""The Lightning module: steps, epochs, what they learn and what a later run needs to go on."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any, Protocol

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import lr_scheduler

from fourward.errors import DataError, TrainingError
from fourward.nn._dag_module import DagModule
from fourward.train._data import Task
from fourward.train._history import History
from fourward.train._options import Options
from fourward.train._sampler import Batches

Samples = tuple[Tensor, Tensor]


class Watcher(Protocol):
    """Looks on while a network learns."""

    def after_steps(self, loop: Loop) -> None:
        """Some steps are done."""

    def after_epoch(self, loop: Loop) -> None:
        """An epoch is done, and is in the history."""

    def paused(self, loop: Loop) -> None:
        """Someone asked to stop; nothing more will be called."""


class Paused(Exception):  # noqa: N818 - nothing is wrong
    """Training stopped between two steps because someone asked for it."""


class Loop(pl.LightningModule):
    """A model that learns its task; the optimiser is AdamW.

    Args:
        model: Any module, (B, features) -> (B, classes or targets).
        task: Cross-entropy is lowered in classification, the mean square in regression.
        options: How to learn.
        samples: Features (n, ...), and class numbers (n,) or targets (n, targets).
        held: The same, held out; what the patience looks at.
        watchers: Called in the first process.
        state: What `state` gave in a run that this one continues.
    """

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        options: Options,
        samples: Samples,
        held: Samples | None = None,
        watchers: Sequence[Watcher] = (),
        state: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.model, self.task, self.options = model, task, options
        self.samples, self.held, self.watchers = samples, held, watchers
        self.history = History(score="accuracy" if task == "classification" else "r2")
        self.step, self.learned, self.total = 0, 0.0, torch.zeros(())
        self.asked_to_pause = False
        self._optimiser_state: dict[str, Any] | None = None
        self.steps = Batches(len(samples[0]), options.batch_size, None).steps
        self.width = samples[1].shape[-1] if task == "regression" else int(samples[1].max()) + 1
        if state is not None:
            self._restore(state)
            self.configure_optimizers()  # a throwaway, so that what is wrong with the state is said at once

    @property
    def epoch(self) -> int:
        """Epochs done, those of an earlier run among them."""
        return len(self.history.train_loss)

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """AdamW and the schedule of its learning rate."""
        given = self.options
        self.optimiser = torch.optim.AdamW(
            self.model.parameters(), lr=given.learning_rate, weight_decay=given.weight_decay, fused=True
        )
        self.schedule = self._schedule(given.epochs * self.steps)
        if self._optimiser_state is not None:
            self._go_on(self._optimiser_state)
        return {"optimizer": self.optimiser, "lr_scheduler": self.schedule}

    def _schedule(self, steps: int) -> lr_scheduler.LRScheduler:
        if self.options.schedule == "constant":
            return lr_scheduler.ConstantLR(self.optimiser, factor=1.0)
        if self.options.schedule == "cosine":
            return lr_scheduler.CosineAnnealingLR(self.optimiser, T_max=steps)
        return lr_scheduler.OneCycleLR(self.optimiser, max_lr=self.options.learning_rate, total_steps=steps)

    def train_dataloader(self) -> Batches:
        """The batches of an epoch, of which this process learns its share."""
        share = {"rank": self.trainer.global_rank, "world": self.trainer.world_size}
        count, given = len(self.samples[0]), self.options
        return Batches(count, given.batch_size, given.seed, epoch=lambda: self.epoch, first=lambda: self.step, **share)

    def on_fit_start(self) -> None:
        """Move the samples to where the model is; processes draw their dropout apart."""
        self.model.train()
        self.samples = (self.samples[0].to(self.device), self.samples[1].to(self.device))
        if self.held is not None:
            self.held = (self.held[0].to(self.device), self.held[1].to(self.device))
        self.total = torch.as_tensor(self.total, device=self.device)
        if self.global_rank > 0:
            for net in self._drawing():
                net.seed = int(np.random.SeedSequence((net.seed, self.global_rank)).generate_state(1)[0])
        self._started = time.perf_counter()

    def training_step(self, batches: list[tuple[Tensor, int]]) -> None:
        """Take a step for each of some batches."""
        (x, y), model, world = self.samples, self.model, self.trainer.world_size
        optimiser, schedule, total = self.optimiser, self.schedule, torch.zeros_like(self.total)
        for rows, count in batches:
            loss = self._loss(model(x[rows]), y[rows], self.options.smoothing)  # the sum over this process's rows
            total += loss.detach()
            optimiser.zero_grad()
            share = loss.new_full((), world / count)  # DDP takes the mean over the processes
            if world > 1:
                self.manual_backward(loss, gradient=share)
            else:  # the same, 80 microseconds sooner
                loss.backward(share)
            optimiser.step()
            schedule.step()
        self.step += len(batches)
        self.total = self.total + self._sum(total)
        if batches and self.step < self.steps:
            self._tell("after_steps")
            self._pause()

    def on_train_epoch_end(self) -> None:
        """Note the epoch, and stop if it is time."""
        rate = self.optimiser.param_groups[0]["lr"]
        loss = self.total.item() / len(self.samples[0])
        self.check_finite()
        if self.held is not None:
            held_loss, held_score = self._judge(*self.held)
            if not math.isfinite(held_loss):
                raise self._diverged("the held-out loss", held_loss)
            self.history.held_loss.append(held_loss)
            self.history.held_score.append(held_score)
        self.step, self.total = 0, torch.zeros_like(self.total)
        self.history.train_loss.append(loss)
        self.history.learning_rate.append(float(rate))
        self.history.seconds.append(self.elapsed())
        self._started, self.learned = time.perf_counter(), 0.0
        self._tell("after_epoch")
        self.trainer.should_stop = self.finished
        if not self.finished:
            self._pause()

    def check_finite(self) -> None:
        """Refuse to go on, or to be saved, once the loss or a weight isn't finite."""
        total = self.total.item()
        if not math.isfinite(total):
            raise self._diverged("the loss", total)
        for parameter in self.model.parameters():
            bad = parameter.detach()[~parameter.isfinite()]
            if len(bad):
                raise self._diverged("a weight", bad[0].item())

    def _diverged(self, what: str, value: float) -> TrainingError:
        return TrainingError(
            f"{what} became {value} in epoch {self.epoch + 1}. A lower learning rate than "
            f"{self.options.learning_rate:g} may help, or smaller values in the data."
        )

    @property
    def finished(self) -> bool:
        """Whether the patience is at its end, or all epochs are done."""
        patience = self.options.patience
        return self.epoch >= self.options.epochs or (
            patience is not None and self.epoch > 0 and self.history.waited >= patience
        )

    def elapsed(self) -> float:
        """Seconds of this epoch so far, those of an earlier run among them."""
        return self.learned + time.perf_counter() - self._started

    def state(self) -> dict[str, Any]:
        """All that a later run needs beside the weights, to go on as if nothing had been."""
        return {
            "history": self.history.to_json(),
            "step": self.step,
            "total": self.total.double().item(),
            "seconds": self.elapsed(),
            "passes": [int(net.passes) for net in self._drawing()],
            "optimiser": self.optimiser.state_dict(),
            "schedule": self.schedule.state_dict(),
        }

    def _go_on(self, state: dict[str, Any]) -> None:
        """Take from a state what steps change; the rest follows from the options."""
        (group,), (came,) = self.optimiser.state_dict()["param_groups"], state["param_groups"]
        if came["params"] != group["params"]:
            raise DataError(f"the optimiser has {len(came['params']):,} parameters, but {len(group['params']):,} fit.")
        first, second = map(_number, came["betas"])
        moved = {"lr": _number(came["lr"]), "betas": (first, second)}
        self.optimiser.load_state_dict({"state": state["state"], "param_groups": [group | moved]})
        done = self.epoch * self.steps + self.step
        self.schedule.load_state_dict({"last_epoch": done, "_step_count": done + 1, "_last_lr": [moved["lr"]]})

    def _restore(self, state: dict[str, Any]) -> None:
        self.history = History.from_json(state["history"], held=self.held is not None)
        self.step, self.learned = state["step"], _number(state["seconds"])
        self.total, done = torch.tensor(_number(state["total"])), state["schedule"]["last_epoch"]
        if type(self.step) is not int or not 0 <= self.step < self.steps or self.epoch > self.options.epochs:
            raise DataError(f"step {self.step!r} of epoch {self.epoch + 1} is none of this run.")
        if done != self.epoch * self.steps + self.step:
            raise DataError(f"the schedule has done {done!r} steps, but {self.epoch * self.steps + self.step:,} fit.")
        self._optimiser_state = state["optimiser"]
        for net, passes in zip(self._drawing(), state["passes"], strict=True):
            net.passes.fill_(passes)

    def _drawing(self) -> list[DagModule]:
        """The networks that draw dropout."""
        return [module for module in self.model.modules() if isinstance(module, DagModule)]

    def _loss(self, out: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
        """The sum of the samples' losses."""
        if out.dim() != 2 or out.shape[1] < self.width or (self.task == "regression" and out.shape[1] > self.width):
            wanted = "targets" if self.task == "regression" else "classes"
            raise DataError(f"the model returned shape {tuple(out.shape)}, but there are {self.width:,} {wanted}.")
        if self.task == "regression":
            return functional.mse_loss(out, y, reduction="sum") / y.shape[-1]
        return functional.cross_entropy(out, y, reduction="sum", label_smoothing=smoothing)

    @torch.no_grad()
    def _judge(self, x: Tensor, y: Tensor) -> tuple[float, float]:
        """Mean loss and score of held-out samples, of which each process takes its share."""
        sums = torch.zeros(2, dtype=torch.float64, device=self.device)
        size = max(self.options.batch_size, 1024)
        self.model.eval()
        with self.trainer.precision_plugin.forward_context():
            for chunk in Batches(len(x), size, None, rank=self.global_rank, world=self.trainer.world_size):
                for rows, _ in chunk:
                    out = self.model(x[rows]).float()
                    right = (out.argmax(-1) == y[rows]).sum() if self.task == "classification" else 0.0
                    sums += torch.stack((self._loss(out, y[rows]).double(), torch.as_tensor(right).double()))
        self.model.train()
        loss, right = self._sum(sums).tolist()
        if self.task == "classification":
            return loss / len(x), right / len(x)
        spread = (y.double() - y.double().mean(0)).square().sum().item() / y.shape[-1]
        return loss / len(x), 1 - loss / spread if spread else math.nan

    def _sum(self, values: Tensor) -> Tensor:
        """Over all processes."""
        summed = self.trainer.strategy.reduce(values, reduce_op="sum")
        assert isinstance(summed, Tensor)
        return summed

    def _pause(self) -> None:
        """Stop if any process was asked to; all do at the same step."""
        asked = self.asked_to_pause
        if self.trainer.world_size > 1:
            asked = self.trainer.strategy.reduce_boolean_decision(asked, all=False)
        if asked:
            self._tell("paused")
            raise Paused

    def _tell(self, news: str) -> None:
        if self.global_rank == 0:
            for watcher in self.watchers:
                getattr(watcher, news)(self)


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise DataError(f"{value!r} came where a finite number was wanted.")
    return float(value)
