"""CUDA C++ that is compiled at run time: by NVRTC for a GPU, or in tests by the system's compiler for emulation.

What Triton can't express, it is for: activations in shared memory that are gathered by index. NVRTC and the driver are
called through cuda-bindings, which torch's CUDA builds depend on.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from fourward.engine._gpu.kernel_launch import interpreting
from fourward.errors import EngineError

_FOLDER = Path(__file__).parent
_C_TYPES = {"int": ctypes.c_int, "i64": ctypes.c_longlong, "*": ctypes.c_void_p}


def why_unavailable() -> str | None:
    """Why CUDA C++ can't be compiled here, or None if it can."""
    if interpreting():
        return None if shutil.which("g++") else "emulation needs g++"
    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.bindings") is None:
        return "cuda-bindings isn't installed (pip install cuda-bindings)"
    return None


class CudaKernel:
    """A compiled kernel.

    Args:
        signature: The C type of each parameter by its name: "int", "i64", or "*" for pointers.
        function: What the driver, or the emulation, calls.
    """

    def __init__(self, signature: Mapping[str, str], function: Any) -> None:
        self.types = {name: _C_TYPES[kind] for name, kind in signature.items()}
        self.function = function

    def launch(self, grid: int, threads: int, shared_bytes: int, device: torch.device, **values: int) -> None:
        """Launch on the current stream; arguments by name, pointers as addresses."""
        if values.keys() != self.types.keys():
            raise TypeError(f"expected the arguments {', '.join(self.types)}, got {', '.join(values)}")
        arguments = [kind(values[name]) for name, kind in self.types.items()]
        pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(argument) for argument in arguments))
        if interpreting():
            if self.function(grid, threads, pointers):
                raise EngineError("threads of an emulated kernel wait for each other for ever.")
            return
        driver = _driver()
        stream = torch._C._cuda_getCurrentRawStream(device.index)
        with torch.cuda.device(device):
            _check(
                driver.cuLaunchKernel(
                    self.function, grid, 1, 1, threads, 1, 1, shared_bytes, stream, ctypes.addressof(pointers), 0
                )
            )


class CudaModule:
    """The kernels of a source file, compiled with a set of macros."""

    def __init__(self, name: str, macros: Mapping[str, str], device: torch.device) -> None:
        self.source, self.macros, self.device = _FOLDER / name, macros, device
        self._library = _emulate(self.source, macros) if interpreting() else self._load()

    def _load(self) -> Any:
        driver = _driver()
        major, minor = torch.cuda.get_device_capability(self.device)
        with torch.cuda.device(self.device):
            torch.cuda.current_stream()  # the device's context exists from here on
            return _check(driver.cuModuleLoadData(compile_cubin(self.source, self.macros, f"sm_{major}{minor}")))[0]

    def kernel(self, name: str, signature: Mapping[str, str], shared_bytes: int = 0) -> CudaKernel:
        """A kernel that may use this much shared memory."""
        if interpreting():
            return CudaKernel(signature, getattr(self._library, f"emulate_{name}"))
        driver = _driver()
        (function,) = _check(driver.cuModuleGetFunction(self._library, name.encode()))
        if shared_bytes > 48 << 10:  # more has to be asked for
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            _check(driver.cuFuncSetAttribute(function, attribute, shared_bytes))
        return CudaKernel(signature, function)


def _driver() -> Any:
    from cuda.bindings import driver

    return driver


def _check(result: Sequence[Any]) -> Sequence[Any]:
    """What a call of cuda-bindings returned after its error code."""
    if int(result[0]) != 0:
        raise EngineError(f"a CUDA call failed: {result[0]!r}.")
    return result[1:]


def compile_cubin(source: Path, macros: Mapping[str, str], architecture: str) -> bytes:
    """Compile a source file for an architecture such as "sm_90"; no GPU is needed."""
    from cuda.bindings import nvrtc

    (program,) = _check(
        nvrtc.nvrtcCreateProgram(_with_macros(source, macros).encode(), source.name.encode(), 0, [], [])
    )
    options = [f"--gpu-architecture={architecture}", "--std=c++17"]
    (error,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
    if int(error) != 0:
        (size,) = _check(nvrtc.nvrtcGetProgramLogSize(program))
        log = bytearray(size)
        _check(nvrtc.nvrtcGetProgramLog(program, log))
        raise EngineError(f"{source.name} doesn't compile for {architecture}:\n{log.decode()}")
    (size,) = _check(nvrtc.nvrtcGetCUBINSize(program))
    cubin = bytearray(size)
    _check(nvrtc.nvrtcGetCUBIN(program, cubin))
    _check(nvrtc.nvrtcDestroyProgram(program))
    return bytes(cubin)


def _with_macros(source: Path, macros: Mapping[str, str]) -> str:
    definitions = "".join(f"#define {name} {value}\n" for name, value in macros.items())
    return f'{definitions}#line 1 "{source.name}"\n{source.read_text()}'


_emulated: dict[str, ctypes.CDLL] = {}
_compiling = threading.Lock()


def _emulate(source: Path, macros: Mapping[str, str]) -> ctypes.CDLL:
    """Compile a source file for the CPU, and load it."""
    text = _with_macros(source, {"EMULATED": "1", **macros})
    key = hashlib.sha256(text.encode()).hexdigest()
    with _compiling:
        if key not in _emulated:
            folder = _emulation_folder()
            command = ["g++", "-std=c++17", "-O1", "-fPIC", "-shared", "-w", f"-I{source.parent}"]
            command += ["-x", "c++", "-", "-o", f"{folder.name}/{key}.so"]
            subprocess.run(command, input=text, text=True, check=True)
            _emulated[key] = ctypes.CDLL(f"{folder.name}/{key}.so")
        return _emulated[key]


@cache
def _emulation_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="fourward-emulation-")
