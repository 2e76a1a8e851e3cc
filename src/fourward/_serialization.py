"""Networks as files: safetensors, with a JSON text in its header. Nothing is pickled, and no loaded file runs code.

A file holds tensors by name, and in its metadata, under "fourward", a JSON object. Of a network these are:

    network.edges       (E, 2) int32, node indices
    network.inputs      (I,) int32; network.outputs (O,) int32
    network.labels      bytes of a JSON list; absent if the labels are 0 to N-1. A tuple is {"tuple": [...]}
    network.level       (N,) int32, the layering
    network.activation  (N-I,) int32, places in the list "activations" of the JSON's "network"
    network.weight      (E,); network.bias (N-I,), absent without biases
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fourward._files import replacing
from fourward._version import __version__
from fourward.errors import ActivationError, EngineError, FileError, FourwardError, GraphError
from fourward.graph._convert import Labels, is_integer
from fourward.graph._dag import Dag
from fourward.layering._layering import Layering
from fourward.nn._activations import name_of
from fourward.nn._fourward import FourWard, check_own
from fourward.plan.activations import CUSTOM

Tensors = dict[str, Tensor]
Said = dict[str, Any]

#: Goes up when an older fourward could no longer read the files.
FORMAT = 1
BEST = "best.safetensors"  #: the one to take of a run's folder
_KEY = "fourward"
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def save(net: FourWard, path: str | Path) -> None:
    """Write a network, its graph, labels, activations and weights, as one safetensors file.

    The file appears whole or not at all. Activations given as callables can't be saved.
    """
    tensors, said = pack(net)
    write(path, tensors, {"network": said})


def load(path: str | Path, *, engine: str = "auto", device: torch.device | str | None = None) -> FourWard:
    """The network in a file that `save` or `fourward train` wrote, or in a run's folder; without a run's adaptors."""
    tensors, said = read(path)
    return unpack(path, tensors, said, engine=engine, device=device)


def pack(net: FourWard) -> tuple[Tensors, Said]:
    """The tensors of a network, and what else is to be said of it in JSON."""
    check_own(net)
    dag = net.dag
    code = net.plan.node_code[dag.neurons]
    _check_named(net, code)
    used, activation = np.unique(code, return_inverse=True)
    arrays = {
        "edges": dag.edges,
        "inputs": dag.inputs,
        "outputs": dag.outputs,
        "level": net.layering.level,
        "activation": activation,
    }
    tensors = {f"network.{name}": torch.tensor(array.astype(np.int32)) for name, array in arrays.items()}
    if not _counted(dag.labels):
        text = json.dumps([_encode(label) for label in dag.labels]).encode()
        tensors["network.labels"] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    tensors["network.weight"] = net.weight.detach().cpu()
    if net.bias is not None:
        tensors["network.bias"] = net.bias.detach().cpu()
    names = [name_of(int(one), net.custom_activations) for one in used]
    said = {"nodes": dag.num_nodes, "activations": names, "dropout": net.dropout, "seed": net.seed}
    return tensors, said


def unpack(path: str | Path, tensors: Mapping[str, Tensor], said: Said, **options: Any) -> FourWard:
    """The network in what `read` gave; options as in FourWard."""
    with damage_of(path):
        part = {name.removeprefix("network."): value for name, value in tensors.items() if name.startswith("network.")}
        about = said["network"]
        arrays = {k: part[k].numpy() for k in ("edges", "inputs", "outputs", "level", "activation")}
        dag = _dag(part, arrays, about["nodes"])
        names = [about["activations"][k] for k in arrays["activation"]]
        weight, bias = part["weight"], part.get("bias")
        if weight.dtype not in _FLOATS:
            raise FileError(f"the weights are {weight.dtype}, but floats of 16, 32 or 64 bits were wanted.")
        net = FourWard(
            dag,
            _by_label(dag, names),
            bias=bias is not None,
            init="zeros",
            dropout=about["dropout"],
            layering=Layering(dag, arrays["level"]),
            dtype=weight.dtype,
            **options,
        )
        net.seed = int(about["seed"])
        net.load_edge_weights(dag.align(weight, arrays["edges"], by="index"), bias)
        return net


def write(path: str | Path, tensors: Tensors, said: Said) -> None:
    """Write a file of tensors and JSON; whole, or the old one stays."""
    text = json.dumps({"format": FORMAT, "version": __version__} | said, allow_nan=False)
    path = Path(path)
    with replacing(path) as temporary:
        temporary.touch()
        mode = temporary.stat().st_mode  # as the user's other files; safetensors makes files that others can't read
        try:
            save_file({name: value.contiguous() for name, value in tensors.items()}, temporary, {_KEY: text})
        except SafetensorError as error:  # a full disk reaches us in these clothes
            number = re.search(r"os error (\d+)", str(error))
            if number is None:
                raise
            raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error
        temporary.chmod(mode)


def read(path: str | Path) -> tuple[Tensors, Said]:
    """The tensors and the JSON of a file that `write` wrote; of a run's folder, those of its best model."""
    path = Path(path)
    if path.is_dir():
        path = path / BEST
        if not path.exists():
            raise FileError(f"{path.parent} is a folder, but no run's: there is no {BEST} in it.")
    if not path.is_file():
        raise FileError(f"there is no file {path}.")
    try:
        with safe_open(path, "pt") as file:
            text = (file.metadata() or {}).get(_KEY)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
    except SafetensorError as error:
        raise FileError(
            f"{path} can't be read: it is no safetensors file, or it was cut short ({error}). Take another copy."
        ) from None
    if text is None:
        raise FileError(f"{path} is a safetensors file, but fourward didn't write it.")
    with damage_of(path):
        said = dict(json.loads(text))
        if said["format"] > FORMAT:
            raise FileError(f"{path} was written by fourward {said['version']}, and this is {__version__}: update it.")
        return tensors, said


@contextmanager
def damage_of(path: str | Path) -> Iterator[None]:
    """Whatever goes wrong within is the fault of the file."""
    try:
        yield
    except EngineError:
        raise
    except FourwardError as error:
        if str(path) in str(error):
            raise
        raise FileError(f"{path} is damaged: {error}") from None
    except (KeyError, ValueError, TypeError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        raise FileError(f"{path} is damaged, or no file of fourward's: {type(error).__name__}: {error}.") from None


def _dag(part: Tensors, arrays: dict[str, Any], nodes: int) -> Dag:
    if len(arrays["level"]) != nodes:
        raise GraphError(f"{len(arrays['level']):,} levels came for {nodes:,} nodes.")
    labels: Labels = range(nodes)
    if "labels" in part:
        labels = tuple(_decode(label) for label in json.loads(bytes(part["labels"].numpy())))
    if len(labels) != nodes:
        raise GraphError(f"expected {nodes:,} labels, got {len(labels):,}.")
    return Dag.from_arrays(arrays["edges"], labels=labels, inputs=arrays["inputs"], outputs=arrays["outputs"])


def _by_label(dag: Dag, names: list[str]) -> dict[Any, str]:
    """Activations as FourWard takes them: the most frequent one as "default", the others by label."""
    by_label = {dag.labels[v]: name for v, name in zip(dag.neurons.tolist(), names, strict=True)}
    # A neuron that is itself called "default" can't be named beside it: then its activation is the default.
    usual = by_label.get("default", max(set(names), key=names.count)) if names else "identity"
    return {label: name for label, name in by_label.items() if name != usual} | {"default": usual}


def _check_named(net: FourWard, code: Any) -> None:
    custom = np.flatnonzero(code >= CUSTOM)
    if len(custom):
        label = net.dag.labels[net.dag.neurons[custom[0]]]
        raise ActivationError(
            f"neuron {label!r} has the activation {name_of(int(code[custom[0]]), net.custom_activations)}, a callable, "
            "which a file can't hold. Take one of fourward's own by name, or keep net.state_dict() yourself."
        )


def _counted(labels: Labels) -> bool:
    return isinstance(labels, range) or all(type(label) is int and label == k for k, label in enumerate(labels))


def _encode(label: Any) -> Any:
    if isinstance(label, tuple):
        return {"tuple": [_encode(one) for one in label]}
    if label is None or isinstance(label, str | bool | float):
        return label
    if is_integer(label):
        return int(label)
    raise GraphError(
        f"the label {label!r} is a {type(label).__name__}, which a file can't hold: text, numbers, true and false, "
        "None and tuples of these can be saved."
    )


def _decode(label: Any) -> Any:
    return tuple(_decode(one) for one in label["tuple"]) if isinstance(label, dict) else label
