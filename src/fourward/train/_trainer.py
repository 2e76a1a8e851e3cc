"""Trainer: the training loop, and the state from which a stopped run continues to the same bits."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import lr_scheduler

from fourward.errors import DataError, OptionError, TrainingError
from fourward.nn._dag_module import DagModule
from fourward.nn._engine_module import EngineModule
from fourward.sparse import SET, Prune, Rewiring, RigL
from fourward.train._callbacks import Callback
from fourward.train._config import Precision, TrainConfig
from fourward.train._data import Task
from fourward.train._devices import Devices
from fourward.train._history import History

Samples = tuple[Tensor, Tensor]

#: Steps between two calls of the callbacks. With several processes each is also a collective call (the sum of the
#: losses, and whether any process was asked to stop), too slow for every step of a small network.
STEPS_PER_CALL = 32


class StopRequested(Exception):  # noqa: N818 - not an error
    """Training stopped between two steps because `Trainer.stop_requested` was set."""


class Trainer:
    """Trains a model with AdamW.

    Args:
        model: Any module, (B, features) -> (B, classes or targets); moved to the device.
        task: "classification" minimises the cross-entropy, "regression" the mean squared error.
        config: Hyperparameters.
        samples: Features (n, ...), and class indices (n,) or targets (n, targets).
        validation: The same for validation samples; patience needs them.
        callbacks: Called in the process of rank 0.
        devices: Where to train; default: the CPU.
        precision: "32", or "bf16" for activations in bfloat16.
        state: The `state()` of a stopped run, to continue it.
    """

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        config: TrainConfig,
        samples: Samples,
        validation: Samples | None = None,
        *,
        callbacks: Sequence[Callback] = (),
        devices: Devices | None = None,
        precision: Precision = "32",
        state: dict[str, Any] | None = None,
    ) -> None:
        self.devices = Devices("cpu") if devices is None else devices
        device = self.devices.device
        self.model, self.task, self.config, self.callbacks = model.to(device), task, config, callbacks
        self.samples = samples[0].to(device), samples[1].to(device)
        self.validation = None if validation is None else (validation[0].to(device), validation[1].to(device))
        self.width = samples[1].shape[-1] if task == "regression" else int(samples[1].max()) + 1
        self.steps_per_epoch = -(-len(samples[0]) // config.batch_size)
        self.optimiser = torch.optim.AdamW(
            model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, fused=True
        )
        self.schedule = self._make_schedule(config.epochs * self.steps_per_epoch)
        self.rewirings = [self._make_rewiring(net) for net in self.networks] if config.rewire else []
        if config.rewire and not self.rewirings:
            raise OptionError("rewire needs a FourWard or a Recurrent in the model, but there is none. Omit it.")
        self.replaced = 0  #: edges that were removed in this epoch
        self.history = History(score="accuracy" if task == "classification" else "r2", pruned=self._pruned_epochs())
        self.step = 0  #: steps done in this epoch
        #: Summed loss of this epoch's samples so far.
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=device)
        self.stop_requested = False  #: set to True to stop between two steps
        bf16 = precision == "bf16"
        self._autocast = torch.autocast(device.type, torch.bfloat16) if bf16 else nullcontext()
        self._seconds_before, self._start = 0.0, time.perf_counter()
        if state is not None:
            self._restore(state)

    def _make_schedule(self, steps: int) -> lr_scheduler.LRScheduler:
        if self.config.schedule == "constant":
            return lr_scheduler.ConstantLR(self.optimiser, factor=1.0)
        if self.config.schedule == "cosine":
            return lr_scheduler.CosineAnnealingLR(self.optimiser, T_max=steps)
        return lr_scheduler.OneCycleLR(self.optimiser, max_lr=self.config.learning_rate, total_steps=steps)

    @property
    def networks(self) -> list[Any]:
        """The networks in the model whose wiring can change."""
        return [module for module in self.model.modules() if isinstance(module, EngineModule)]

    def _rewired_steps(self) -> int:
        return max(1, self.config.epochs * self.steps_per_epoch * 3 // 4)

    def _pruned_epochs(self) -> int:
        return -(-self._rewired_steps() // self.steps_per_epoch) if self.config.rewire == "prune" else 0

    def _make_rewiring(self, net: Any) -> Rewiring:
        """What changes the wiring of a network; in the last quarter of the steps it stays."""
        config, every, until = self.config, self.config.rewire_every or self.steps_per_epoch, self._rewired_steps()
        if config.rewire == "prune":
            amount = 0.9 if config.rewire_fraction is None else config.rewire_fraction
            return Prune(net, self.optimiser, amount, every=every, until=until)
        fraction = 0.3 if config.rewire_fraction is None else config.rewire_fraction
        shared: dict[str, Any] = {"every": every, "until": until, "rule": config.rewire_rule, "seed": config.seed}
        if config.rewire == "set":
            return SET(net, self.optimiser, fraction, **shared)
        return RigL(net, self.optimiser, fraction, **shared, reduce=self.devices.sum)

    @property
    def epoch(self) -> int:
        """Number of completed epochs, including those before a resume."""
        return len(self.history.train_loss)

    @property
    def finished(self) -> bool:
        """Whether all epochs are done or the patience is used up."""
        patience = self.config.patience
        return self.epoch >= self.config.epochs or (
            patience is not None and self.epoch > 0 and self.history.epochs_since_best >= patience
        )

    def run(self) -> None:
        """Train until finished, or raise `StopRequested`."""
        self._wrapped = self.devices.launch(self.model)
        if self.devices.world_size > 1 and self.config.rewire == "prune":
            raise OptionError(
                "several devices can't prune: their processes exchange gradients in buffers of the network's size. "
                "Prune on one device, or choose rewire='set' or 'rigl', which keep the number of edges."
            )
        if self.devices.rank > 0:
            for net in self._dag_modules():  # each process draws its own dropout masks
                net.seed = int(np.random.SeedSequence((net.seed, self.devices.rank)).generate_state(1)[0])
        # What is not yet added up over the processes; with one process there is nothing to add up.
        self._local_sum = self.loss_sum if self.devices.world_size == 1 else torch.zeros_like(self.loss_sum)
        self._start = time.perf_counter()
        self.model.train()
        while not self.finished:
            self._train_epoch()
            self._end_epoch()

    def _train_epoch(self) -> None:
        one_process = self.devices.world_size == 1
        for rows, count in self._batches(len(self.samples[0]), self.config.batch_size, shuffle=True)[self.step :]:
            self._train_step(rows, count)
            self.step += 1
            if self.step == self.steps_per_epoch:
                return
            if self.step % STEPS_PER_CALL == 0 or (one_process and self.stop_requested):
                self._reduce_loss_sum()
                self._call("on_steps_end")
                self._stop_if_requested()

    def _train_step(self, rows: Tensor, count: int) -> None:
        """Step on a batch of `count` samples over all processes, of which `rows` are those of this process."""
        x, y = self.samples
        with self._autocast:
            loss = self._summed_loss(self._wrapped(x[rows]), y[rows], self.config.label_smoothing)
        self._local_sum += loss.detach()
        self.optimiser.zero_grad()
        # The gradient of the batch's mean: DDP averages over the processes, hence the factor world_size.
        loss.backward(loss.new_full((), self.devices.world_size / count))
        self.optimiser.step()
        self.schedule.step()
        for method in self.rewirings:
            edit = method.step()
            self.replaced += 0 if edit is None else len(edit.removed)

    def _end_epoch(self) -> None:
        self._reduce_loss_sum()
        self.check_finite()
        loss = self.loss_sum.item() / len(self.samples[0])
        if self.validation is not None:
            val_loss, val_score = self._validate(*self.validation)
            if not math.isfinite(val_loss):
                raise self._divergence("the validation loss", val_loss)
            self.history.val_loss.append(val_loss)
            self.history.val_score.append(val_score)
        self.history.train_loss.append(loss)
        self.history.learning_rate.append(float(self.optimiser.param_groups[0]["lr"]))
        self.history.seconds.append(self._elapsed())
        if self.rewirings:
            self.history.replaced.append(self.replaced)
        self.replaced, self.step, self._seconds_before, self._start = 0, 0, 0.0, time.perf_counter()
        self.loss_sum.zero_()
        self._call("on_epoch_end")
        if not self.finished:
            self._stop_if_requested()

    def _batches(self, count: int, size: int, *, shuffle: bool) -> list[tuple[Tensor, int]]:
        """Rows of this process and number of rows over all processes, for each batch of this epoch."""
        order = epoch_order(count, self.config.seed, self.epoch) if shuffle else torch.arange(count)
        return [(rows[self.devices.rank :: self.devices.world_size], len(rows)) for rows in order.split(size)]

    @torch.no_grad()
    def _validate(self, x: Tensor, y: Tensor) -> tuple[float, float]:
        """Mean loss and score; each process evaluates its part of the samples."""
        sums = torch.zeros(2, dtype=torch.float64, device=x.device)  # loss, number of correct predictions
        self.model.eval()
        with self._autocast:
            for rows, _ in self._batches(len(x), max(self.config.batch_size, 1024), shuffle=False):
                out = self.model(x[rows]).float()
                sums[0] += self._summed_loss(out, y[rows])
                if self.task == "classification":
                    sums[1] += (out.argmax(-1) == y[rows]).sum()
        self.model.train()
        loss, correct = self.devices.sum(sums).tolist()
        if self.task == "classification":
            return loss / len(x), correct / y.numel()
        per_sample = y.double().flatten(0, -2)
        spread = (per_sample - per_sample.mean(0)).square().sum().item() / y[0].numel()
        return loss / len(x), 1 - loss / spread if spread else math.nan

    def _summed_loss(self, out: Tensor, y: Tensor, label_smoothing: float = 0.0) -> Tensor:
        """Sum of the samples' losses; the loss of a sample with a target for each step is the mean over its steps."""
        steps = y.shape[1] if y.dim() == (3 if self.task == "regression" else 2) else 1
        if steps > 1 or (out.dim() == 3 and out.shape[1] == 1):
            if out.shape[:2] != (len(y), steps):
                raise DataError(f"expected the model to return (B, {steps:,}, ...), got {tuple(out.shape)}.")
            out, y = out.flatten(0, 1), y.flatten(0, 1)
        if out.dim() != 2 or out.shape[1] < self.width or (self.task == "regression" and out.shape[1] > self.width):
            columns = "targets" if self.task == "regression" else "classes"
            raise DataError(f"expected the model to return (B, {self.width:,}) {columns}, got {tuple(out.shape)}.")
        if self.task == "regression":
            return functional.mse_loss(out, y, reduction="sum") / (y.shape[-1] * steps)
        return functional.cross_entropy(out, y, reduction="sum", label_smoothing=label_smoothing) / steps

    def _reduce_loss_sum(self) -> None:
        if self.devices.world_size > 1:
            self.loss_sum += self.devices.sum(self._local_sum)
            self._local_sum.zero_()

    def check_finite(self) -> None:
        """Raise TrainingError if the loss or a weight isn't finite."""
        loss = self.loss_sum.item()
        if not math.isfinite(loss):
            raise self._divergence("the loss", loss)
        for parameter in self.model.parameters():
            bad = parameter.detach()[~parameter.isfinite()]
            if len(bad):
                raise self._divergence("a weight", bad[0].item())

    def _divergence(self, quantity: str, value: float) -> TrainingError:
        return describe_divergence(quantity, value, self.epoch, self.config.learning_rate)

    def _stop_if_requested(self) -> None:
        """Raise if any process was asked to stop; all processes do so after the same step."""
        if self.devices.any(self.stop_requested):
            self._call("on_stop")
            raise StopRequested

    def _call(self, hook: str) -> None:
        if self.devices.rank == 0:
            for callback in self.callbacks:
                getattr(callback, hook)(self)

    def _elapsed(self) -> float:
        """Seconds of this epoch so far, including those before a resume."""
        return self._seconds_before + time.perf_counter() - self._start

    def _dag_modules(self) -> list[DagModule]:
        """The networks that draw dropout masks."""
        return [module for module in self.model.modules() if isinstance(module, DagModule)]

    def state(self) -> dict[str, Any]:
        """Everything beside the weights that a later run needs to continue."""
        return {
            "history": self.history.to_json(),
            "step": self.step,
            "loss_sum": self.loss_sum.item(),
            "seconds": self._elapsed(),
            "passes": [int(net.passes) for net in self._dag_modules()],
            "optimiser": self.optimiser.state_dict(),
            "schedule": self.schedule.state_dict(),
            "replaced": self.replaced,
            "rewirings": [method.state_dict() for method in self.rewirings],
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self.history = History.from_json(state["history"], validation=self.validation is not None)
        self.step, self._seconds_before = state["step"], _finite(state["seconds"])
        self.loss_sum.fill_(_finite(state["loss_sum"]))
        if type(self.step) is not int or not 0 <= self.step < self.steps_per_epoch or self.epoch > self.config.epochs:
            raise DataError(f"this run has no step {self.step!r} in epoch {self.epoch + 1}.")
        done, scheduled = self.epoch * self.steps_per_epoch + self.step, state["schedule"]["last_epoch"]
        if scheduled != done:
            raise DataError(f"expected a schedule after {done:,} steps, got {scheduled!r}.")
        for net, passes in zip(self._dag_modules(), state["passes"], strict=True):
            net.passes.fill_(passes)
        self._restore_optimiser(state["optimiser"], done)
        self.replaced = int(_finite(state.get("replaced", 0)))
        for method, saved in zip(self.rewirings, state.get("rewirings", ()), strict=True):
            method.load_state_dict(saved)

    def _restore_optimiser(self, state: dict[str, Any], done: int) -> None:
        """Take what steps change from the state; the rest follows from the config."""
        (group,), (saved,) = self.optimiser.state_dict()["param_groups"], state["param_groups"]
        if saved["params"] != group["params"]:
            raise DataError(
                f"expected an optimiser of {len(group['params']):,} parameters, got {len(saved['params']):,}."
            )
        beta1, beta2 = map(_finite, saved["betas"])
        changed = {"lr": _finite(saved["lr"]), "betas": (beta1, beta2)}
        self.optimiser.load_state_dict({"state": state["state"], "param_groups": [group | changed]})
        self.schedule.load_state_dict({"last_epoch": done, "_step_count": done + 1, "_last_lr": [changed["lr"]]})


def describe_divergence(quantity: str, value: float, epoch: int, learning_rate: float) -> TrainingError:
    """The error if a loss or a weight isn't finite in an epoch, which counts from 0."""
    return TrainingError(
        f"{quantity} became {value} in epoch {epoch + 1}. Try a learning rate below {learning_rate:g}, or scale the "
        "data to smaller values."
    )


def epoch_order(count: int, seed: int, epoch: int) -> Tensor:
    """(count,) permutation of the samples, which depends on the seed and the epoch alone."""
    drawn = int(np.random.SeedSequence((seed, epoch)).generate_state(1, np.uint64)[0]) >> 1
    return torch.randperm(count, generator=torch.Generator().manual_seed(drawn))


def _finite(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise DataError(f"expected a finite number, got {value!r}.")
    return float(value)
