"""Launching a Triton kernel by the names of its parameters and with little overhead, and what launches share."""

from __future__ import annotations

import inspect
import os
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor


def interpreting() -> bool:
    """Whether Triton's interpreter replaces the GPU, as tests set it with TRITON_INTERPRET=1."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


_Requests = dict[tuple[Any, ...], Callable[[], None]]
_requests: ContextVar[_Requests | None] = ContextVar("requests", default=None)  # while precompiling: what to compile
_compiled: set[tuple[Any, ...]] = set()
#: Tensors that a caller may pass from anywhere in memory; all others are allocated here, at multiples of 16 bytes.
UNALIGNED = frozenset({"x", "h0", "weight", "bias", "rate", "key", "out_grad", "h_grad"})


@cache
def _parameters(kernel: Any) -> dict[str, bool]:
    """The names of a kernel's parameters in their order, and whether each is a constexpr."""
    parameters = inspect.signature(kernel.fn).parameters
    return {name: "constexpr" in str(parameters[name].annotation) for name in kernel.arg_names}


def bind(kernel: Any, tensors: Sequence[str], shared: Mapping[str, Any], explicit: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a kernel after its tensors, by name and in the order of its parameters.

    Args:
        kernel: A kernel whose first parameters are tensors.
        tensors: Names of tensors; the kernel takes those that it has.
        shared: Arguments that kernels share; the kernel takes those that it has.
        explicit: Arguments for this kernel.

    Raises:
        TypeError: A parameter has no argument or two, an explicit argument has no parameter, or a tensor follows a
            number.
    """
    names, wrong = list(_parameters(kernel)), []
    tensor_names = [name for name in names if name in tensors]
    rest = names[len(tensor_names) :]
    if tensor_names != names[: len(tensor_names)]:
        wrong.append(f"expected tensors as the first parameters, got {', '.join(names[: len(tensor_names)])}")
    for problem, culprits in {
        "missing arguments": [name for name in rest if name not in shared and name not in explicit],
        "unexpected arguments": [name for name in explicit if name not in names],
        "multiple values for": [n for n in names if (n in tensors) + (n in shared) + (n in explicit) > 1],
    }.items():
        if culprits:
            wrong.append(f"{problem} {', '.join(culprits)}")
    if wrong:
        raise TypeError(f"{kernel.fn.__name__}: {'; '.join(wrong)}")
    return {name: explicit[name] if name in explicit else shared[name] for name in rest}


class Launch:
    """A Triton kernel with its grid and all of its arguments but the tensors, bound by name once.

    What Triton compiled is stored, so that a second call doesn't inspect its arguments again. So a launch is for
    tensors of the same dtypes.

    Args:
        kernel: Its first parameters are tensors.
        grid: Programs along each axis.
        tensors: Names of the tensors that calls pass, in their order; the kernel takes those that it has.
        shared: Arguments that kernels share, by name; the kernel takes those that it has.
        num_warps: Number of warps of each program.
        renamed: Names of tensors for parameters that are called otherwise.
        explicit: All other arguments, by name.
    """

    def __init__(
        self, kernel: Any, grid: tuple[int, ...], tensors: Sequence[str], shared: Mapping[str, Any], /, *,
        num_warps: int, renamed: Mapping[str, str] | None = None, **explicit: Any,
    ) -> None:  # fmt: skip
        renamed = {name: name for name in tensors} | dict(renamed or {})
        arguments = bind(kernel, list(renamed), shared, explicit)
        sources = [renamed[name] for name in _parameters(kernel) if name in renamed]
        self.kernel, self.grid, self.num_warps, self.arguments = kernel, grid, num_warps, arguments
        self.order = [tensors.index(name) for name in sources]  # index of each tensor in a call
        self.unaligned = [i for i, name in enumerate(sources) if name in UNALIGNED]
        self.rest = tuple(arguments.values())
        self.constants = tuple(value for name, value in arguments.items() if _parameters(kernel)[name])
        self.compiled: Any = None
        self.kernels: list[Any] = []  # what Triton compiled, for any grid; shared by all that `replace` builds

    def replace(self, grid: tuple[int, ...], **changed: int) -> Launch:
        """The same launch with another grid and other numbers: built in 2 microseconds, where a new one takes 60."""
        parameters = _parameters(self.kernel)
        wrong = [name for name in changed if name not in self.arguments or parameters[name]]
        if wrong:
            raise TypeError(f"{self.kernel.fn.__name__}: expected names of numbers, got {', '.join(wrong)}")
        launch = object.__new__(Launch)
        launch.__dict__.update(self.__dict__, grid=grid, arguments=self.arguments | changed, compiled=None)
        if not set(changed) <= set(getattr(self.kernel, "do_not_specialize", ())):
            launch.kernels = []  # what Triton compiled depends on these numbers
        launch.rest = tuple(launch.arguments.values())
        return launch

    def __call__(self, tensors: Sequence[Tensor]) -> None:
        """Launch it on the device of the first tensor."""
        pointers = [tensors[i].data_ptr() for i in self.order]
        bits = 0
        for i in self.unaligned:
            bits |= pointers[i]
        if self.compiled is None and self.kernels:
            self.compiled = self.kernels[0][(*self.grid, 1, 1)[:3]]
        if self.compiled is None or bits % 16:
            self._launch_jit(tensors, bits % 16 == 0)
        elif tensors[0].get_device() == torch._C._cuda_getDevice():
            self.compiled(*pointers, *self.rest)  # given integers, Triton doesn't query the driver for each tensor
        else:
            with torch.cuda.device(tensors[0].device):
                self.compiled(*pointers, *self.rest)

    def _launch_jit(self, tensors: Sequence[Tensor], aligned: bool) -> None:
        """Launch through Triton, which compiles it for these dtypes and alignments if need be."""
        arguments, device = [tensors[i] for i in self.order], tensors[0].get_device()
        requests = _requests.get()
        if requests is not None:
            signature = device, aligned, *(tensor.dtype for tensor in arguments)
            requests[self.kernel, self.constants, self.num_warps, signature] = partial(self._compile, arguments, device)
            return
        with torch.cuda.device(device):
            compiled = self.kernel[self.grid](*arguments, *self.rest, num_warps=self.num_warps, num_stages=1)
        if compiled is not None and aligned:  # the interpreter compiles nothing
            self.kernels[:] = [compiled]
            self.compiled = compiled[(*self.grid, 1, 1)[:3]]

    def _compile(self, arguments: Sequence[Tensor], device: int) -> None:
        with torch.cuda.device(device), suppress(Exception):  # the launch raises it again
            self.kernel.warmup(*arguments, *self.rest, grid=self.grid, num_warps=self.num_warps, num_stages=1)


def precompiling() -> bool:
    """Whether launches only request their compilation, and don't run."""
    return _requests.get() is not None


def precompile(*passes: Callable[[], None]) -> None:
    """Compile everything that these passes launch, in parallel, since a kernel takes seconds; run nothing."""
    requests: _Requests = {}
    token = _requests.set(requests)
    try:
        for launch_pass in passes:
            launch_pass()
    finally:
        _requests.reset(token)
    new = [compile_ for key, compile_ in requests.items() if key not in _compiled]
    if len(new) > 1:
        with warnings.catch_warnings():  # Triton 3.6 sets filters while it compiles, and threads would leave them so
            threads = [threading.Thread(target=compile_) for compile_ in new]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    _compiled.update(requests)


def placeholders(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Empty tensors of the same dtypes, for launches that load their pointers from a table.

    What is compiled depends on the alignment of tensors, and nothing can be compiled while a graph is captured. So what
    is captured gets no tensor whose alignment may differ from that of the first call.
    """
    return [tensor.new_empty(0) for tensor in tensors]


@cache
def max_resident_programs(device: torch.device, num_warps: int) -> int:
    """The number of programs of `num_warps` warps that are guaranteed to be resident on a GPU at once.

    A multiprocessor holds 8 warps, whatever their registers, if it has the 18 KiB of shared memory that a sweep may
    need for each; else one program.
    """
    if device.type != "cuda":
        return 4 * 8 // num_warps
    properties = torch.cuda.get_device_properties(device)
    per_multiprocessor = 8 // num_warps if properties.shared_memory_per_multiprocessor >= 160 << 10 else 1
    return properties.multi_processor_count * per_multiprocessor


_blocks: list[Tensor] = []  # all that were ever allocated: a captured graph may use a row at any time
_rows: dict[int, list[Tensor]] = {}  # rows of 16 int64 zeros that are unused so far, by device index
_counters: dict[tuple[int, int], Tensor] = {}


def reserve_rows(device: torch.device) -> None:
    """Allocate rows of zeros on a GPU, before a graph is captured there."""
    index = torch.cuda.current_device() if device.index is None else device.index
    if not _rows.get(index):
        _blocks.append(torch.zeros(4096, 16, dtype=torch.int64, device=torch.device("cuda", index)))
        _rows[index] = list(_blocks[-1].unbind())
        torch.cuda.synchronize(index)


def take_row(device: torch.device) -> Tensor:
    """16 int64 zeros, whose memory is never used for anything else."""
    if device.type == "cuda":
        if not torch.cuda.is_current_stream_capturing():
            reserve_rows(device)
        if _rows.get(device.index):
            return _rows[device.index].pop()
    return torch.zeros(16, dtype=torch.int64, device=device)


def counters(device: torch.device) -> Tensor:
    """Zeros that the kernels of one stream, or of one captured graph, count with and leave as zeros."""
    if device.type != "cuda" or torch.cuda.is_current_stream_capturing():  # a graph may be replayed on any stream
        return take_row(device)
    key = device.index, torch._C._cuda_getCurrentRawStream(device.index)
    row = _counters.get(key)
    if row is None:
        row = _counters[key] = take_row(device)
    return row
