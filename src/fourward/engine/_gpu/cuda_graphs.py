"""Launches that are captured in a CUDA graph once a shape of batch comes again."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from functools import cache, partial

import torch
from torch import Tensor

from fourward.engine._gpu.launcher import rehearsing, zeros_row

_Launches = Callable[[Tensor], None]  # given a table
GRAPHS = 128  #: captured of a network, at most; the one unused for longest goes first


class _Graph:
    """A captured sequence of launches, and the table of addresses that they read."""

    def __init__(self, table: Tensor) -> None:
        self.table = table
        self.graph: torch.cuda.CUDAGraph | None = None


@cache
def _capture_stream(device: torch.device) -> torch.cuda.Stream:
    """Of that very card; torch's own is of whichever card captured first."""
    return torch.cuda.Stream(device)


_capturing = threading.Lock()  # one capture at a time in a process


def _captured(device: torch.device, launches: Callable[[], None]) -> torch.cuda.CUDAGraph:
    graph, stream = torch.cuda.CUDAGraph(), _capture_stream(device)
    capture = torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local")
    with _capturing, torch.cuda.device(device), capture:
        launches()
    return graph


class Graphs:
    """The graphs captured for one program."""

    def __init__(self) -> None:
        self.levels: list[tuple[int, int]] | None = None  # the positions of each, where they have been read
        self.graphs: OrderedDict[tuple[object, int], _Graph] = OrderedDict()
        self.lock = threading.Lock()  # between writing the table and the launches that read it

    def run(self, made: object, device: torch.device, first: _Launches, others: _Launches) -> None:
        """Launch what writes the addresses of tensors into a table, then those that read them there.

        Where `made` comes again, the others are captured, and replayed from then on. What is captured may depend on
        nothing but `made` and the table.
        """
        if rehearsing() or device.type != "cuda" or torch.cuda.is_current_stream_capturing():
            table = torch.empty(0, dtype=torch.int64, device=device) if rehearsing() else zeros_row(device)
            first(table)
            others(table)
            return
        stream = torch._C._cuda_getCurrentRawStream(device.index)
        key = made, stream
        with self.lock:
            known = self.graphs.get(key)
            if known is None:
                known = _Graph(self._table(device, stream))
                first(known.table)
                others(known.table)
                self.graphs[key] = known  # only now: all is compiled, which nothing can be while a graph is captured
                return
            self.graphs.move_to_end(key)
            if known.graph is None:
                known.graph = _captured(device, partial(others, known.table))
            first(known.table)
            known.graph.replay()

    def _table(self, device: torch.device, stream: int) -> Tensor:
        """A new one, or that of a graph which makes room; only its own stream knows when that is done with it."""
        if len(self.graphs) >= GRAPHS:
            (_, other), gone = self.graphs.popitem(last=False)
            if other == stream:
                return gone.table
        return zeros_row(device)


_known: dict[int, Graphs] = {}


def graphs_of(program: Tensor) -> Graphs:
    """The graphs of a program, as long as it lives."""
    found = _known.get(id(program))
    if found is None:
        found = _known[id(program)] = Graphs()
        weakref.finalize(program, _known.pop, id(program), None)
    return found
