"""EditHistory: every pair that was added or removed, and the difference that remains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fourward._arrays import BoolArray, IntArray
from fourward.errors import DataError
from fourward.graph._validation import check_indices

_NAMES = ("steps", "num_added", "num_removed", "added", "removed")


class NetChange(NamedTuple):
    """Pairs by which a wiring differs from that at the start, (K, 2) node indices."""

    grown: IntArray  #: edges that weren't there
    gone: IntArray  #: those that were


class EditHistory:
    """The edits of a network with a fixed set of nodes, one after another, as pairs of node indices."""

    def __init__(self) -> None:
        self.steps: list[int] = []  #: the step of each edit
        self.added: list[IntArray] = []  #: (A, 2) pairs that each edit added
        self.removed: list[IntArray] = []  #: (R, 2) pairs that it removed

    def __len__(self) -> int:
        return len(self.steps)

    def append(self, step: int, added: IntArray, removed: IntArray) -> None:
        """Record an edit; a pair that was removed and added anew counts as neither."""
        self.steps.append(step)
        codes = [pairs[:, 0].astype(np.int64) << 32 | pairs[:, 1] for pairs in (added, removed)]
        ascending = np.sort(np.concatenate(codes))  # the pairs of each are distinct
        both = ascending[1:][ascending[1:] == ascending[:-1]]
        for pairs, code, listed in zip((added, removed), codes, (self.added, self.removed), strict=True):
            neither = both[np.searchsorted(both, code) % len(both)] == code if len(both) else np.zeros(len(code), bool)
            listed.append(pairs[~neither].astype(np.int32))

    def net_change(self, since: int = 0) -> NetChange:
        """The edges that grew, and those that went, from before edit `since` to the end."""
        pairs = [pair for edit in zip(self.removed[since:], self.added[since:], strict=True) for pair in edit]
        if not pairs:
            return NetChange(np.empty((0, 2), np.int32), np.empty((0, 2), np.int32))
        is_added = np.concatenate([np.full(len(each), k % 2 == 1) for k, each in enumerate(pairs)])
        joined = np.concatenate(pairs)
        code = joined[:, 0].astype(np.int64) << 32 | joined[:, 1]
        order = np.argsort(code, kind="stable")
        first = np.flatnonzero(np.diff(code[order], prepend=-1))
        last = np.append(first[1:], len(order)) - 1
        first_adds, last_adds = is_added[order[first]], is_added[order[last]]

        def select(mask: BoolArray) -> IntArray:
            selected: IntArray = joined[np.sort(order[last[mask]])]
            return selected

        return NetChange(select(first_adds & last_adds), select(~first_adds & ~last_adds))

    def to_arrays(self) -> dict[str, IntArray]:
        """The history as arrays by name, such as a file holds."""
        empty = np.empty((0, 2), np.int32)
        return {
            "steps": np.array(self.steps, np.int64),
            "num_added": np.array([len(pairs) for pairs in self.added], np.int64),
            "num_removed": np.array([len(pairs) for pairs in self.removed], np.int64),
            "added": np.concatenate([empty, *self.added]),
            "removed": np.concatenate([empty, *self.removed]),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], num_nodes: int) -> EditHistory:
        """The inverse of `to_arrays`; every index is checked."""
        missing = [name for name in _NAMES if name not in arrays]
        if missing:
            raise DataError(f"expected the arrays {', '.join(_NAMES)} of a history, but {missing[0]} is missing.")
        steps, *counts = (np.asarray(arrays[name]) for name in _NAMES[:3])
        pairs = [np.asarray(arrays[name]) for name in _NAMES[3:]]
        valid = all(
            each.shape == (len(steps),) and each.dtype.kind == "i" and (each >= 0).all() for each in (steps, *counts)
        ) and all(each.ndim == 2 and each.shape[1] == 2 and each.dtype.kind == "i" for each in pairs)
        if not valid or any(int(count.sum()) != len(each) for count, each in zip(counts, pairs, strict=True)):
            raise DataError("expected a history with as many pairs as its edits count.")
        history = cls()
        history.steps = steps.tolist()
        for each, count, listed in zip(pairs, counts, (history.added, history.removed), strict=True):
            check_indices(each, num_nodes, "pairs of a history")
            listed += np.split(each.astype(np.int32), np.cumsum(count)[:-1]) if len(steps) else []
        return history

    def __repr__(self) -> str:
        return f"EditHistory({len(self):,} edits, {sum(map(len, self.added)):,} edges added)"
