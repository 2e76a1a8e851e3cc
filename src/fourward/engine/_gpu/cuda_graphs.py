"""Launches that are captured in a CUDA graph when a pass of the same shape is repeated."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from fourward.engine._gpu.kernel_launch import precompiling, take_row

_Launches = Callable[[Tensor], None]  # with a pointer table
MAX_GRAPHS = 128  #: CUDA graphs captured for a network; the least recently used is evicted first


class _Graph:
    """A captured sequence of launches, and the pointer table that they read."""

    def __init__(self, table: Tensor) -> None:
        self.table = table
        self.graph: torch.cuda.CUDAGraph | None = None


@cache
def _capture_stream(device: torch.device) -> torch.cuda.Stream:
    """A stream of this device; the one that torch captures on by default belongs to the device that captured first."""
    return torch.cuda.Stream(device)


_capturing = threading.Lock()  # one capture at a time in a process


def _capture(device: torch.device, launches: Callable[[], None]) -> torch.cuda.CUDAGraph:
    graph, stream = torch.cuda.CUDAGraph(), _capture_stream(device)
    capture = torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local")
    with _capturing, torch.cuda.device(device), capture:
        launches()
    return graph


class Graphs:
    """The CUDA graphs captured for one packed plan."""

    def __init__(self) -> None:
        self.read: dict[str, Any] = {}  # parts of the packed plan that launches depend on, once read from the GPU
        self.graphs: OrderedDict[tuple[object, int], _Graph] = OrderedDict()
        self.lock = threading.Lock()  # between writing the table and the launches that read it

    def run(self, owner: object, device: torch.device, first: _Launches, rest: _Launches) -> None:
        """Launch `first`, which writes the addresses of tensors into a table, then `rest`, which reads them there.

        From the second call with the same owner on, `rest` is captured and replayed. What is captured may depend on
        nothing but the owner and the table.
        """
        if precompiling() or device.type != "cuda" or torch.cuda.is_current_stream_capturing():
            table = torch.empty(0, dtype=torch.int64, device=device) if precompiling() else take_row(device)
            first(table)
            rest(table)
            return
        stream = torch._C._cuda_getCurrentRawStream(device.index)
        key = owner, stream
        with self.lock:
            entry = self.graphs.get(key)
            if entry is None:
                entry = _Graph(self._take_table(device, stream))
                first(entry.table)
                rest(entry.table)
                self.graphs[key] = (
                    entry  # only now: by this time all kernels are compiled, which is impossible during capture
                )
                return
            self.graphs.move_to_end(key)
            if entry.graph is None:
                entry.graph = _capture(device, partial(rest, entry.table))
            first(entry.table)
            entry.graph.replay()

    def _take_table(self, device: torch.device, stream: int) -> Tensor:
        """A new table, or that of an evicted graph of the same stream; on another one it may still be in use."""
        if len(self.graphs) >= MAX_GRAPHS:
            (_, other_stream), evicted = self.graphs.popitem(last=False)
            if other_stream == stream:
                return evicted.table
        return take_row(device)


_graphs: dict[int, Graphs] = {}


def find_graphs(packed_plan: Tensor) -> Graphs:
    """The CUDA graphs of a packed plan, which are freed with it."""
    graphs = _graphs.get(id(packed_plan))
    if graphs is None:
        graphs = _graphs[id(packed_plan)] = Graphs()
        weakref.finalize(packed_plan, _graphs.pop, id(packed_plan), None)
    return graphs
