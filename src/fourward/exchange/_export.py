"""A network into a file, in the format that its ending names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path

import torch

from fourward import _serialization
from fourward._files import replacing
from fourward.errors import FileError
from fourward.exchange._latex import to_latex
from fourward.exchange._networkx import write_graph
from fourward.exchange._onnx import to_onnx
from fourward.exchange._python_source import to_python
from fourward.nn._fourward import FourWard, check_network


def to_pt2(net: FourWard, path: str | Path) -> None:
    """Write a network as torch.export does, in plain torch operations, so that it runs without fourward; any batch."""
    dag = net.dag
    chosen = dict(zip((dag.labels[v] for v in dag.neurons.tolist()), net.neuron_activations(), strict=True))
    twin = FourWard(
        dag,
        chosen or "identity",
        bias=net.bias is not None,
        init="zeros",
        engine="torch",
        layering=net.layering,
        dtype=net.weight.dtype,
        device="cpu",
    )
    twin.load_edge_weights(net.weight.cpu(), None if net.bias is None else net.bias.cpu())
    x = torch.zeros(2, dag.num_inputs, dtype=net.weight.dtype)
    batch = torch.export.Dim("batch")
    program = torch.export.export(twin.eval(), (x,), dynamic_shapes={"x": {0: batch}})
    packed = BytesIO()  # torch's own writer ends the process on a full disk
    torch.export.save(program, packed)
    with replacing(Path(path)) as temporary:
        temporary.write_bytes(packed.getbuffer())


def _text(make: Callable[[FourWard], str]) -> Callable[[FourWard, str | Path], None]:
    def write(net: FourWard, path: str | Path) -> None:
        words = make(net)
        with replacing(Path(path)) as temporary:
            temporary.write_text(words, encoding="utf-8")

    return write


#: What writes each ending.
ENDINGS: Mapping[str, Callable[[FourWard, str | Path], None]] = {
    ".onnx": to_onnx,
    ".pt2": to_pt2,
    ".safetensors": _serialization.save,
    ".graphml": write_graph,
    ".gexf": write_graph,
    ".json": write_graph,
    ".npz": write_graph,
    ".py": _text(to_python),
    ".tex": _text(to_latex),
}


def export(net: FourWard, path: str | Path) -> None:
    """Write a network as ONNX, torch.export's pt2, safetensors, a weighted graph, Python source or LaTeX.

    The file appears whole or not at all. Its ending says the format: see `ENDINGS`.
    """
    check_network(net)
    ending = Path(path).suffix.lower()
    if ending not in ENDINGS:
        raise FileError(f"{path}: a network can't be exported to {ending or 'a file without an ending'}. Known are "
                        f"{', '.join(ENDINGS)}.")  # fmt: skip
    ENDINGS[ending](net, path)
