"""A launch for each level, captured in a CUDA graph once a shape of batch comes again."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from fourward.engine.gpu import lists
from fourward.engine.gpu.call import Kernel, zeros_row
from fourward.engine.gpu.program import Shape

_point, _enter, _leave = Kernel(lists.point), Kernel(lists.lists_enter), Kernel(lists.lists_leave)
_forward, _backward, _weights = (Kernel(k) for k in (lists.lists_forward, lists.lists_backward, lists.lists_weights))
GRAPHS = 128  #: captured, at most; the one unused for longest goes first


def forward(
    how: Any, tensors: tuple[Tensor, ...], program: Tensor, s: Shape, numbers: tuple[int, ...], fields: tuple[int, ...],
    flags: tuple[Any, ...],
) -> None:  # fmt: skip
    """X to rows, each level, rows to out."""
    x, weight, bias, key, out, kept = tensors
    batch, inputs, columns, rows, slices = numbers[:5]
    home = _home(program, s)
    fixed = (False, how.span, how.width, how.group, *flags)

    def launches(table: Tensor) -> None:
        if inputs:
            shape = (-(-inputs // 32) * slices,)
            _enter(shape, (table, program), (batch, inputs, rows), (how.width, flags[4]), how.warps)
        for low, high in home.levels:
            grid = (-(-(high - low) // how.span) * slices,)
            _forward(grid, (table, *tensors, program), (*numbers, low, high, *fields), fixed, how.warps)
        shape = (-(-columns // 32) * slices,)
        _leave(shape, (table, program), (batch, columns, rows, fields[4]), (how.width, flags[4]), how.warps)

    key_ = "forward", how, numbers, fields, flags
    home.run(key_, launches, (x, weight, bias, key, out, kept, *(kept,) * 5))


def backward(
    how: Any, tensors: tuple[Tensor, ...], last: tuple[Tensor, Tensor], program: Tensor, s: Shape,
    numbers: tuple[int, ...], fields: tuple[int, ...], flags: tuple[Any, ...], weighed: tuple[Any, Any, Any],
    x_wanted: bool,
) -> None:  # fmt: skip
    """Each level from the last, inputs if x's gradient is wanted, then all weights."""
    out_grad, weight, key, x_grad, kept, deltas = tensors
    home = _home(program, s)
    fixed = (False, how.span, how.width, how.group, *flags)

    def launches(table: Tensor) -> None:
        for low, high in reversed([*([(0, s.inputs)] if x_wanted and s.inputs else []), *home.levels]):
            grid = (-(-(high - low) // how.span) * numbers[4],)
            _backward(grid, (table, *tensors, program), (*numbers, low, high, *fields), fixed, how.warps)
        if weighed[0][0]:
            _weights(weighed[0], (table, kept, deltas, *last, program), weighed[1], (False, *weighed[2]), 4)

    key_ = "backward", how, numbers, fields, flags, x_wanted, weighed[0]
    home.run(key_, launches, (kept, weight, kept, key, kept, kept, deltas, out_grad, x_grad, *last))


class _Graph:
    """A captured sequence of launches, and the table of addresses that they read."""

    def __init__(self, device: torch.device) -> None:
        self.table = zeros_row(device)
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


class _Home:
    """What is known of one program: the levels, and the graphs captured so far."""

    def __init__(self, program: Tensor, s: Shape) -> None:
        ends = program[s.level_start : s.level_start + s.levels + 1].tolist()
        self.levels = list(pairwise(ends))  # the positions of each
        self.graphs: OrderedDict[Any, _Graph] = OrderedDict()
        self.lock = threading.Lock()  # between writing the table and the launches that read it

    def run(self, key: Any, launches: Callable[[Tensor], None], tensors: tuple[Tensor, ...]) -> None:
        """Launch; where this shape comes again, capture the launches and replay them from then on."""
        device = tensors[0].device
        if device.type != "cuda" or torch.cuda.is_current_stream_capturing():
            return self._launch(_Graph(device), launches, tensors)
        stream = torch._C._cuda_getCurrentRawStream(device.index)
        key = *key, stream, *[(tensor.dtype, tensor.data_ptr() % 16) for tensor in tensors]
        with self.lock:
            known = self.graphs.get(key)
            if known is None:
                known = self.graphs[key] = _Graph(device)
                if len(self.graphs) > GRAPHS:
                    self.graphs.popitem(last=False)
                return self._launch(known, launches, tensors)
            self.graphs.move_to_end(key)
            if known.graph is None:
                known.graph = _captured(device, partial(launches, known.table))
            _point((1,), (known.table, *tensors), (), (), 1)
            known.graph.replay()

    def _launch(self, graph: _Graph, launches: Callable[[Tensor], None], tensors: tuple[Tensor, ...]) -> None:
        _point((1,), (graph.table, *tensors), (), (), 1)
        launches(graph.table)


_homes: dict[int, _Home] = {}


def _home(program: Tensor, s: Shape) -> _Home:
    """What is known of a program, as long as it lives."""
    found = _homes.get(id(program))
    if found is None:
        found = _homes[id(program)] = _Home(program, s)
        weakref.finalize(program, _homes.pop, id(program), None)
    return found
