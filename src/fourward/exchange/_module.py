"""Export of a module with FourWards inside, as torch traces it."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fourward._files import replacing
from fourward.errors import FileError, OptionError, Repair, require
from fourward.nn._fourward import FourWard, check_network, from_parameters

#: One tensor, or one for each argument of the module's forward.
Example = Tensor | tuple[Tensor, ...]


def export_module(module: nn.Module, path: str | Path, example: Example | None) -> None:
    """Write a module with FourWards inside as ONNX or torch.export's pt2."""
    suffix = Path(path).suffix.lower()
    if suffix not in MODULE_EXPORTERS:
        raise FileError(
            f"{path}: expected a file with one of the suffixes {', '.join(MODULE_EXPORTERS)} for a "
            f"{type(module).__name__}, got {suffix or 'none'}. Other formats take a FourWard alone."
        )
    if example is None:
        raise OptionError(
            f"a {type(module).__name__} is exported by tracing it.",
            Repair("example", ..., "give an input of it to trace, a tensor whose first dimension is the batch"),
        )
    tensors = tuple(tensor.detach().cpu() for tensor in ((example,) if isinstance(example, Tensor) else example))
    MODULE_EXPORTERS[suffix](in_torch_operations(module), tensors, Path(path))


def in_torch_operations(module: nn.Module) -> nn.Module:
    """A copy of a module on the CPU, in eval mode, whose FourWards run in plain torch operations."""
    twins: dict[nn.Module, FourWard] = {}
    for net in module.modules():
        if isinstance(net, FourWard):
            check_network(net)
            options = {"engine": "torch", "layering": net.layering, "dtype": net.weight.dtype, "device": "cpu"}
            twins[net] = from_parameters(net.dag, net.weight, net.bias, net.neuron_activations(), **options)
    # deepcopy takes what its memo holds for an object instead of copying that.
    return copy.deepcopy(module, {id(net): twin for net, twin in twins.items()}).cpu().eval()


def write_pt2(module: nn.Module, example: tuple[Tensor, ...], path: Path) -> None:
    """Write a module with torch.export, for any batch size."""
    program = torch.export.export(module, example, dynamic_shapes=_any_batch(example))
    buffer = BytesIO()  # torch's own writer aborts the process on a full disk
    torch.export.save(program, buffer)
    with replacing(path) as temporary:
        temporary.write_bytes(buffer.getbuffer())


def _write_onnx(module: nn.Module, example: tuple[Tensor, ...], path: Path) -> None:
    for package in ("onnx", "onnxscript"):
        require(package, "export")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch 2.13's exporter uses what torch 2.13 deprecates
        program = torch.onnx.export(module, example, dynamo=True, dynamic_shapes=_any_batch(example), verbose=False)
    assert program is not None
    with replacing(path) as temporary:
        program.save(str(temporary), external_data=False)


def _any_batch(example: tuple[Tensor, ...]) -> tuple[Any, ...]:
    return tuple({0: torch.export.Dim.DYNAMIC} for _ in example)


#: The function that writes each suffix.
MODULE_EXPORTERS: Mapping[str, Callable[[nn.Module, tuple[Tensor, ...], Path], None]] = {
    ".onnx": _write_onnx,
    ".pt2": write_pt2,
}
