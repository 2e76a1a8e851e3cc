"""`fourward export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fourward.cli.options import JsonOption, print_json

if TYPE_CHECKING:
    from fourward.nn.module import FourWard


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(export)


def export(
    network: Annotated[
        Path, typer.Argument(help="A .safetensors file of a network or a checkpoint, or the folder of a run.")
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
    compared with torch in onnxruntime before the command ends.

    Example: `fourward export worm/best.safetensors --out worm.onnx`
    """
    from fourward import exchange

    net = _network(network, bare)
    exchange.export(net, out)
    told = {"out": str(out), "bytes": out.stat().st_size, "inputs": net.dag.num_inputs, "outputs": net.dag.num_outputs}
    if out.suffix == ".onnx":
        told["largest_difference"] = exchange.check_onnx(net, out)
    if as_json:
        print_json(told)
        return
    print(f"{out}: {net.dag!r}, {told['bytes']:,} bytes")
    if "largest_difference" in told:
        print(f"in onnxruntime its outputs differ by {told['largest_difference']:.2g} at most")


def _network(path: Path, bare: bool) -> FourWard:
    from fourward.nn import saved
    from fourward.train import checkpoint
    from fourward.train.whole import whole

    if path.is_dir():
        path = path / checkpoint.BEST
    if bare or "model" not in saved.read(path)[1]:
        return saved.load(path).eval()
    return whole(checkpoint.load(path)[0]).eval()
