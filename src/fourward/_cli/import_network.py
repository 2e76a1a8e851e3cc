"""`fourward import`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fourward._cli.options import FORMAT_HELP, JsonOption, MaxBytesOption, RecurrentOption, offer_recurrent
from fourward._cli.output import print_json
from fourward.errors import FileError, GraphError, OptionError

if TYPE_CHECKING:
    from fourward.nn._fourward import FourWard
    from fourward.nn._recurrent import Recurrent


class Kind(StrEnum):
    """Contents of the file to import."""

    GRAPH = "graph"
    NEAT = "neat"
    TENSORNEAT = "tensorneat"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("import")(import_)


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to import.")],
    out: Annotated[Path, typer.Option(help="File to write: .safetensors, or any format of `fourward export`.")],
    kind: Annotated[
        Kind,
        typer.Option(
            "--from",
            metavar="KIND",
            help="Contents of the file. graph: a graph with weights. neat: JSON written by neat-python's "
            "export_network_json. tensorneat: JSON of what TensorNEAT's network_dict returns.",
        ),
    ] = Kind.GRAPH,
    activation: Annotated[
        str | None, typer.Option(help="Activation of neurons for which the graph file names none.")
    ] = None,
    format: Annotated[str | None, typer.Option(help=FORMAT_HELP)] = None,
    recurrent: RecurrentOption = False,
    inputs: Annotated[int | None, typer.Option(min=1, help="Number of inputs (--from tensorneat only).")] = None,
    outputs: Annotated[int | None, typer.Option(min=1, help="Number of outputs (--from tensorneat only).")] = None,
    output_transform: Annotated[
        str | None,
        typer.Option(help="The genome's output transform, by name (--from tensorneat only). Default: identity."),
    ] = None,
    max_bytes: MaxBytesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import a network from another program as a trainable one.

    Example: `fourward import winner.json --from neat --out winner.safetensors`
    """
    from fourward import exchange

    _check(kind, Kind.TENSORNEAT, inputs=inputs, outputs=outputs, output_transform=output_transform)
    _check(kind, Kind.GRAPH, activation=activation, format=format, recurrent=recurrent or None)
    net: FourWard | Recurrent
    if kind is Kind.NEAT:
        net = exchange.read_neat(file, max_bytes=max_bytes)
    elif kind is Kind.TENSORNEAT:
        if inputs is None or outputs is None:
            raise OptionError(
                "a TensorNEAT network doesn't record which nodes are its inputs and outputs. Pass --inputs and "
                "--outputs, the number of each."
            )
        transform = output_transform or "identity"
        net = exchange.read_tensorneat(file, inputs, outputs, output_transform=transform, max_bytes=max_bytes)
    else:
        net = _read_graph(file, activation, format, max_bytes, recurrent)
    exchange.export(net, out)
    dag = net.graph
    if as_json:
        counts = {"nodes": dag.num_nodes, "edges": dag.num_edges, "inputs": dag.num_inputs, "outputs": dag.num_outputs}
        print_json({"out": str(out), **counts})
    else:
        print(f"{out}: {dag!r}")


def _read_graph(
    file: Path, activation: str | None, format: str | None, max_bytes: int | None, recurrent: bool
) -> FourWard | Recurrent:
    from fourward import exchange
    from fourward.graph.files import NETWORK_SUFFIXES, SUFFIXES

    suffix = file.suffix.lower()
    if suffix == ".safetensors":
        from fourward._serialization import load_network

        options: dict[str, object] = {"--activation": activation, "--format": format, "--max-bytes": max_bytes}
        options["--recurrent"] = recurrent or None
        unused = [option for option, value in options.items() if value is not None]
        if unused:
            raise OptionError(f"{unused[0]} has no effect here: {file} is a network, not a graph file. Omit it.")
        return load_network(file)
    if format is None and suffix in exchange.EXPORTERS and suffix not in SUFFIXES:
        raise FileError(
            f"{file}: {suffix} files can't be imported. Import the network's file in one of the formats .safetensors, "
            f"{', '.join(NETWORK_SUFFIXES)}."
        )
    options = {"activation": activation, "format": format, "max_bytes": max_bytes, "recurrent": recurrent}
    try:
        return exchange.read_network(file, **options)  # type: ignore[arg-type]
    except GraphError as error:
        offer_recurrent(error)
        raise


def _check(kind: Kind, expected: Kind, **options: object) -> None:
    """Raise an OptionError if an option for `expected` is set with another kind of file."""
    flags = [f"--{name.replace('_', '-')}" for name, value in options.items() if value is not None]
    if flags and kind is not expected:
        raise OptionError(f"{flags[0]} needs --from {expected}, got --from {kind}.")
