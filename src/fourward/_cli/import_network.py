"""`fourward import`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fourward._cli.options import FORMAT_HELP, JsonOption, print_json
from fourward.errors import FileError, OptionError

if TYPE_CHECKING:
    from fourward.nn._fourward import FourWard


class Kind(StrEnum):
    """What a file is."""

    GRAPH = "graph"
    NEAT = "neat"
    TENSORNEAT = "tensorneat"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("import")(import_)


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to read.")],
    out: Annotated[Path, typer.Option(help="The network: .safetensors, or any ending of `fourward export`.")],
    kind: Annotated[
        Kind,
        typer.Option(
            "--from",
            metavar="KIND",
            help="graph: a graph file with weights. neat: JSON of neat-python's export_network_json. "
            "tensorneat: JSON of TensorNEAT's network_dict.",
        ),
    ] = Kind.GRAPH,
    activation: Annotated[str | None, typer.Option(help="Of neurons for which a graph names none.")] = None,
    format: Annotated[str | None, typer.Option(help=FORMAT_HELP)] = None,
    inputs: Annotated[int | None, typer.Option(min=1, help="Of tensorneat: how many inputs there are.")] = None,
    outputs: Annotated[int | None, typer.Option(min=1, help="Of tensorneat: how many outputs there are.")] = None,
    output_transform: Annotated[
        str | None, typer.Option(help="Of tensorneat: the genome's own, by name; else identity.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make a network, which trains, of one that another program made.

    Example: `fourward import winner.json --from neat --out winner.safetensors`
    """
    from fourward import exchange

    net = _read(file, kind, activation, format, inputs, outputs, output_transform)
    exchange.export(net, out)
    if as_json:
        counts = {"nodes": net.dag.num_nodes, "edges": net.dag.num_edges}
        print_json({"out": str(out), **counts, "inputs": net.dag.num_inputs, "outputs": net.dag.num_outputs})
    else:
        print(f"{out}: {net.dag!r}")


def _read(
    file: Path,
    kind: Kind,
    activation: str | None,
    format: str | None,
    inputs: int | None,
    outputs: int | None,
    transform: str | None,
) -> FourWard:
    from fourward import exchange

    _check(kind, Kind.TENSORNEAT, inputs=inputs, outputs=outputs, output_transform=transform)
    _check(kind, Kind.GRAPH, activation=activation, format=format)
    if kind is Kind.NEAT:
        return exchange.read_neat(file)
    if kind is Kind.TENSORNEAT:
        if inputs is None or outputs is None:
            raise OptionError(
                "a TensorNEAT network doesn't say which nodes are its inputs: give --inputs and --outputs."
            )
        return exchange.read_tensorneat(file, inputs, outputs, output_transform=transform or "identity")
    if file.suffix.lower() == ".safetensors":
        from fourward._serialization import load

        if activation is not None or format is not None:
            raise OptionError(
                f"--activation and --format are for graph files, but {file} is a network. Leave them away."
            )
        return load(file)
    if format is None and file.suffix.lower() in (".onnx", ".pt2", ".py", ".tex"):
        raise FileError(
            f"{file}: {file.suffix} is a way out, and isn't read again. Import the .safetensors, .graphml, .gexf, "
            ".json or .npz of the network."
        )
    return exchange.read_network(file, activation=activation, format=format)


def _check(kind: Kind, wanted: Kind, **options: object) -> None:
    """Refuse options of one kind of file with another."""
    given = [f"--{name.replace('_', '-')}" for name, value in options.items() if value is not None]
    if given and kind is not wanted:
        raise OptionError(f"{given[0]} is an option of --from {wanted}, but this file is read with --from {kind}.")
