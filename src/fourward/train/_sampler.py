"""Which rows make which batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

#: Batches that are handed over at a time. Lightning's own work between two hand-overs takes as long as a step of a
#: small network (0.3 to 0.5 ms); shared by 32 steps it is hardly seen.
AT_A_TIME = 32


class Batches:
    """The rows of each batch, in an order that only the seed and the epoch decide.

    A batch is shared by all processes: each takes every `world`-th row, so the size of a batch, and what is
    learned from it, doesn't depend on how many there are.

    Args:
        count: Number of samples.
        size: Samples of a batch, over all processes.
        seed: Seed of the orders; None leaves the rows in their own order.
        epoch: Called at the start of each round; the number of the epoch.
        first: Called likewise; the batches before this one are left out, of a round that is resumed.
        rank: The number of this process.
        world: The number of processes.
    """

    def __init__(
        self,
        count: int,
        size: int,
        seed: int | None,
        *,
        epoch: Callable[[], int] = lambda: 0,
        first: Callable[[], int] = lambda: 0,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self.count, self.size, self.seed, self.epoch, self.first = count, size, seed, epoch, first
        self.rank, self.world = rank, world

    @property
    def steps(self) -> int:
        """Batches of an epoch."""
        return -(-self.count // self.size)

    def __len__(self) -> int:
        return -(-self.steps // AT_A_TIME)

    def __iter__(self) -> Iterator[list[tuple[Tensor, int]]]:
        """Lists of some batches, each as this process's rows and the number of all its rows."""
        own = [(rows[self.rank :: self.world], len(rows)) for rows in self._order().split(self.size)]
        first = self.first()
        yield from (own[max(k, first) : k + AT_A_TIME] for k in range(0, len(own), AT_A_TIME))

    def _order(self) -> Tensor:
        if self.seed is None:
            return torch.arange(self.count)
        drawn = int(np.random.SeedSequence((self.seed, self.epoch())).generate_state(1, np.uint64)[0]) >> 1
        return torch.randperm(self.count, generator=torch.Generator().manual_seed(drawn))
