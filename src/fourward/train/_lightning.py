"""A callback of Lightning that changes the wiring while its Trainer trains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl

from fourward.errors import OptionError
from fourward.sparse import Rewiring


class RewiringCallback(pl.Callback):
    """Changes the wiring of a network in a LightningModule, after each step of the optimiser.

    Checkpoints of Lightning hold its state; the graph must be stored beside them, with fourward.save.

    Args:
        make: Makes the method from the module and its optimiser once training starts, for example
            `lambda module, optimizer: fw.sparse.SET(module.net, optimizer, every=100, seed=0)`.
        index: Which optimiser of the module it is, if it has several.
    """

    def __init__(self, make: Callable[[Any, Any], Rewiring], index: int = 0) -> None:
        self.make, self.index = make, index
        self.method: Rewiring | None = None
        self._state: dict[str, Any] | None = None
        self._last_step = 0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Make the method."""
        self.method = self.make(pl_module, trainer.optimizers[self.index])
        if not isinstance(self.method, Rewiring):
            raise OptionError(f"expected make to return a SET, a RigL or a Prune, got a {type(self.method).__name__}.")
        if self._state is not None:
            self.method.load_state_dict(self._state)
        self._last_step = trainer.global_step

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count a step, unless gradients are still accumulated; log how many edges an edit replaced."""
        if trainer.global_step == self._last_step or self.method is None:
            return
        self._last_step = trainer.global_step
        edit = self.method.step()
        if edit is not None:
            pl_module.log("edges_replaced", float(len(edit.removed)))

    def state_dict(self) -> dict[str, Any]:
        """The state of the method."""
        return {} if self.method is None else self.method.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the state for the start of the training."""
        self._state = state_dict or None
