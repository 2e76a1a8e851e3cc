"""Export of a network to a file, in the format of its suffix."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path

import torch

from fourward import _serialization
from fourward._files import replacing
from fourward.errors import FileError
from fourward.exchange._c_source import to_c
from fourward.exchange._latex import to_latex
from fourward.exchange._networkx import write_graph
from fourward.exchange._onnx import to_onnx
from fourward.exchange._python_source import to_python
from fourward.graph.files import NETWORK_SUFFIXES
from fourward.nn._fourward import FourWard, check_network, from_parameters


def to_pt2(net: FourWard, path: str | Path) -> None:
    """Write a network with torch.export, in plain torch operations that run without fourward, for any batch size."""
    options = {"engine": "torch", "layering": net.layering, "dtype": net.weight.dtype, "device": "cpu"}
    torch_net = from_parameters(net.dag, net.weight, net.bias, net.neuron_activations(), **options)
    x = torch.zeros(2, net.dag.num_inputs, dtype=net.weight.dtype)
    batch = torch.export.Dim("batch")
    exported = torch.export.export(torch_net.eval(), (x,), dynamic_shapes={"x": {0: batch}})
    buffer = BytesIO()  # torch's own writer aborts the process on a full disk
    torch.export.save(exported, buffer)
    with replacing(Path(path)) as temporary:
        temporary.write_bytes(buffer.getbuffer())


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


def export(net: FourWard, path: str | Path) -> None:
    """Export a network as ONNX, torch.export's pt2, safetensors, a weighted graph, C or Python source, or LaTeX.

    The file is replaced atomically. Its suffix, one of `EXPORTERS`, says the format.
    """
    check_network(net)
    suffix = Path(path).suffix.lower()
    if suffix not in EXPORTERS:
        raise FileError(
            f"{path}: expected a file with one of the suffixes {', '.join(EXPORTERS)}, got {suffix or 'none'}."
        )
    EXPORTERS[suffix](net, path)
