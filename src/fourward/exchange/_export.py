"""Export of a network to a file, in the format of its suffix."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from torch import nn

from fourward import _serialization
from fourward._files import replacing
from fourward.errors import FileError, OptionError, Repair
from fourward.exchange._c_source import to_c
from fourward.exchange._latex import to_latex
from fourward.exchange._module import Example, export_module
from fourward.exchange._networkx import write_graph
from fourward.exchange._onnx import to_onnx
from fourward.exchange._onnx_recurrent import to_onnx_recurrent
from fourward.exchange._pt2 import to_pt2
from fourward.exchange._python_source import to_python
from fourward.graph.files import NETWORK_SUFFIXES
from fourward.nn._fourward import FourWard, check_network
from fourward.nn._recurrent import Recurrent


def _text_writer(format_text: Callable[[FourWard], str]) -> Callable[[FourWard, str | Path], None]:
    def write(net: FourWard, path: str | Path) -> None:
        text = format_text(net)
        with replacing(Path(path)) as temporary:
            temporary.write_text(text, encoding="utf-8")

    return write


#: The function that writes each suffix.
EXPORTERS: Mapping[str, Callable[[FourWard, str | Path], None]] = {
    ".onnx": to_onnx,
    ".pt2": to_pt2,
    ".safetensors": _serialization.save,
    **dict.fromkeys(NETWORK_SUFFIXES, write_graph),
    ".c": _text_writer(to_c),
    ".py": _text_writer(to_python),
    ".tex": _text_writer(to_latex),
}


def export(net: nn.Module, path: str | Path, *, example: Example | None = None, steps: int | None = None) -> None:
    """Export a network as ONNX, torch.export's pt2, safetensors, a weighted graph, C or Python source, or LaTeX.

    The file is replaced atomically. Its suffix, one of `EXPORTERS`, says the format.

    Args:
        net: A FourWard, or a module with FourWards inside, which torch traces: .onnx or .pt2, for any batch size. Or a
            Recurrent: .onnx, .safetensors or a graph file.
        path: The file.
        example: An input of such a module, a tensor or a tuple of them, whose first dimension is the batch.
        steps: The number of steps that an ONNX file of a Recurrent computes, see `to_onnx_recurrent`.
    """
    if isinstance(net, Recurrent):
        return _export_recurrent(net, path, steps)
    if steps is not None:
        raise OptionError(f"steps is for networks with feedback, but this is a {type(net).__name__}. Omit it.")
    modules = net.modules() if isinstance(net, nn.Module) and not isinstance(net, FourWard) else ()
    if any(isinstance(module, FourWard) for module in modules):
        return export_module(net, path, example)
    check_network(net)
    assert isinstance(net, FourWard)
    suffix = Path(path).suffix.lower()
    if suffix not in EXPORTERS:
        raise FileError(
            f"{path}: expected a file with one of the suffixes {', '.join(EXPORTERS)}, got {suffix or 'none'}."
        )
    return EXPORTERS[suffix](net, path)


def _export_recurrent(net: Recurrent, path: str | Path, steps: int | None) -> None:
    suffix = Path(path).suffix.lower()
    if suffix != ".onnx" and steps is not None:
        raise OptionError(f"steps is for .onnx alone: {suffix or 'other'} files run any number. Omit it.")
    if suffix == ".safetensors":
        return _serialization.save(net, path)
    if suffix in NETWORK_SUFFIXES:
        return write_graph(net, path)
    if suffix != ".onnx":
        known = ", ".join((".onnx", ".safetensors", *NETWORK_SUFFIXES))
        raise FileError(
            f"{path}: expected one of the suffixes {known} for a network with feedback, got {suffix or 'none'}."
        )
    if steps is None:
        message = "ONNX files of networks with feedback have a fixed number of steps."
        raise OptionError(message, Repair("steps", ..., "choose it"))
    return to_onnx_recurrent(net, path, steps)
