"""`fourward export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fourward._cli.options import JsonOption, check_network_file
from fourward._cli.output import print_json
from fourward.errors import FileError

if TYPE_CHECKING:
    from fourward.nn._fourward import FourWard
    from fourward.nn._recurrent import Recurrent


_SINGLE_PRECISION = (".onnx", ".pt2", ".c")  # the other formats hold double precision
_TOLERANCE = 1e-3  # largest difference from the model that passes without a warning


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(export)


def export(
    network: Annotated[
        Path,
        typer.Argument(metavar="NETWORK", help="A network or checkpoint (.safetensors), or the folder of a run."),
    ],
    out: Annotated[
        Path,
        typer.Option(help="File to write: .onnx, .pt2, .safetensors, .graphml, .gexf, .json, .npz, .c, .py or .tex."),
    ],
    network_only: Annotated[
        bool,
        typer.Option(
            "--network-only", help="Export only the network of a checkpoint, without its linear layers and scaling."
        ),
    ] = False,
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="For ONNX and a network with feedback: the number of steps that the file computes."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Export a network to a format that other programs read.

    A checkpoint is exported as a whole, from raw features to logits or targets, and compared with its model. ONNX
    files are also compared with torch in onnxruntime.

    Example: `fourward export worm/best.safetensors --out worm.onnx`
    """
    from fourward import exchange

    net, model_difference = _load(network, network_only, out)
    exchange.export(net, out, steps=steps)
    result: dict[str, Any] = {
        "out": str(out),
        "bytes": out.stat().st_size,
        "inputs": net.graph.num_inputs,
        "outputs": net.graph.num_outputs,
    }
    if model_difference is not None:
        result["difference_to_model"] = model_difference
    if out.suffix.lower() == ".onnx":
        result["largest_difference"] = exchange.check_onnx(net, out)
    if as_json:
        print_json(result)
    else:
        _print(net, out, result)


def _print(net: FourWard | Recurrent, out: Path, result: dict[str, Any]) -> None:
    print(f"{out}: {net.graph!r}, {result['bytes']:,} bytes")
    if "largest_difference" in result:
        print(f"largest difference between onnxruntime and torch: {result['largest_difference']:.2g}")
    difference = result.get("difference_to_model")
    if difference is not None:
        print(f"largest difference from the model, on data like that of the training: {difference:.2g}")
        if not difference <= _TOLERANCE:
            print(
                f"warning: this is a large difference. {out.suffix} holds single precision, and some features have a "
                "mean that is large compared with their deviation. Export to .py, .json or .npz, or train on centred "
                "features."
            )


def _load(path: Path, network_only: bool, out: Path) -> tuple[FourWard | Recurrent, float | None]:
    """The network to export and, if it is a whole checkpoint, its largest difference from the model."""
    import torch

    from fourward import _serialization
    from fourward.train import _checkpoint

    if not path.exists():
        raise FileError(
            f"{path} does not exist. Expected a trained network, as `fourward train` saves it; to convert a graph, "
            "use `fourward graph`."
        )
    check_network_file(path)
    if network_only or "model" not in _serialization.read_safetensors(path)[1]:
        return _serialization.load_network(path).eval(), None
    model = _checkpoint.load_checkpoint(path)[0]
    net = model.fold(None if out.suffix.lower() in _SINGLE_PRECISION else torch.float64).eval()
    return net, model.max_error(net)
