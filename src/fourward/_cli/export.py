"""`fourward export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fourward._cli.options import JsonOption, print_json
from fourward.errors import FileError

if TYPE_CHECKING:
    from fourward.nn._fourward import FourWard


_SINGLE = (".onnx", ".pt2")  # formats that keep the network's own precision; the others hold double
_MUCH = 1e-3


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(export)


def export(
    network: Annotated[
        Path,
        typer.Argument(
            metavar="NETWORK", help="A .safetensors file of a network or a checkpoint, or the folder of a run."
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(help="The file to write: .onnx, .pt2, .safetensors, .graphml, .gexf, .json, .npz, .py or .tex."),
    ],
    bare: Annotated[
        bool, typer.Option("--bare", help="Of a checkpoint: the network alone, without its linear layers and scalings.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a network in a format that others read.

    A checkpoint is written whole: from features as they are in the table to logits, or to targets as they are. ONNX is
    compared with torch in onnxruntime before the command ends, and a whole checkpoint with its model.

    Example: `fourward export worm/best.safetensors --out worm.onnx`
    """
    from fourward import exchange

    net, apart = _network(network, bare, out)
    exchange.export(net, out)
    told: dict[str, Any] = {
        "out": str(out),
        "bytes": out.stat().st_size,
        "inputs": net.dag.num_inputs,
        "outputs": net.dag.num_outputs,
    }
    if apart is not None:
        told["difference_to_model"] = apart
    if out.suffix.lower() == ".onnx":
        told["largest_difference"] = exchange.check_onnx(net, out)
    if as_json:
        print_json(told)
        return
    print(f"{out}: {net.dag!r}, {told['bytes']:,} bytes")
    if "largest_difference" in told:
        print(f"in onnxruntime its outputs differ by {told['largest_difference']:.2g} at most")
    if apart is not None:
        print(f"on data like that of the training the network differs from the model by {apart:.2g} at most")
    if apart is not None and not apart <= _MUCH:
        print(
            f"this is much: {out.suffix} holds single precision, and some features lie far from 0 beside their "
            "deviation. Export to .py, .json or .npz, or train on features nearer to 0."
        )


def _network(path: Path, bare: bool, out: Path) -> tuple[FourWard, float | None]:
    """The network to write and, of a checkpoint, how far its outputs are from the model's."""
    import torch

    from fourward import _serialization
    from fourward.train import _checkpoint
    from fourward.train._whole import difference, whole

    if not path.exists():
        raise FileError(
            f"there is no file {path}. Trained networks are exported, as `fourward train` leaves them; `fourward "
            "graph` writes graphs."
        )
    if bare or "model" not in _serialization.read(path)[1]:
        return _serialization.load(path).eval(), None
    model = _checkpoint.load(path)[0]
    net = whole(model, None if out.suffix.lower() in _SINGLE else torch.float64).eval()
    return net, difference(net, model)
