"""Networks as safetensors files with JSON metadata. Nothing is pickled, and loading a file never runs its code.

A file holds named tensors, and in its header, under the key "fourward", a JSON object. A network is stored as

    network.edges       (E, 2) int32, node indices
    network.inputs      (I,) int32; network.outputs (O,) int32
    network.labels      bytes of a JSON list; absent if the labels are 0 to N-1. A tuple is {"tuple": [...]}
    network.level       (N,) int32, the layering
    network.activation  one for each neuron, int32, indices into the list "activations" of the JSON's "network"
    network.weight      (E,); network.bias, one for each neuron, absent without biases
    network.sign        (E,) int8; network.frozen (E,) bool; network.tied (E,) int64; network.scale (E,) float64: the
                        constraints, each absent if there is none; with any of them network.free_weight (F,), the
                        parameters; with signs network.node_sign (N,) int8, those that new edges out of the nodes get
    network.attributes  bytes of a JSON object: (N,) values of the nodes by name; absent if there are none

and of a network with feedback, whose network.edges are those within a step, also

    network.feedback    (F, 2) int32, node indices, whose weights are the last of network.weight
    network.tau         one for each neuron, absent without time constants

A population is stored as concatenated arrays, member after member, with node indices that count from 0 in each:

    population.edges       (E, 2) int32; population.edge_start (P+1,) int64; population.num_nodes (P,) int64
    population.inputs      (P, I) or (1, I) int64, -1 where a member lacks an input
    population.outputs     (P, O) or (1, O) int64
    population.activation  (M,) int32, by node index, indices into the list "activations" of the JSON's "population"
    population.weight      (E,); population.bias (M,), absent without biases
    population.labels      bytes of a JSON list: null, or a member's "labels" and "attributes"; absent if all are null
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from fourward._files import BEST, replacing
from fourward._memory import check_memory
from fourward._version import __version__
from fourward.errors import ActivationError, EngineError, FileError, FourwardError, GraphError, pluralize
from fourward.graph import _members
from fourward.graph._base import BaseGraph
from fourward.graph._convert import Labels, is_integer
from fourward.graph._dag import Dag
from fourward.graph._digraph import Digraph
from fourward.graph._members import Members
from fourward.layering._layering import Layering
from fourward.nn._constraint_options import EdgeConstraints
from fourward.nn._engine_module import check_parameters
from fourward.nn._fourward import (
    FourWard,
    builtin_activation_names,
    check_network,
    from_parameters,
)
from fourward.nn._population import Population
from fourward.nn._recurrent import Recurrent, recurrent_from_parameters
from fourward.plan.activations import BY_CODE, CUSTOM

Tensors = dict[str, Tensor]
Metadata = dict[str, Any]  #: a JSON object

#: Incremented when older versions of fourward can no longer read the files.
FORMAT = 1
_KEY = "fourward"
_ARRAYS = ("edges", "inputs", "outputs", "level", "activation")
#: What data of the wrong type or value raises, here or in torch.
_CORRUPTIONS = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def save(net: FourWard | Recurrent | Population, path: str | Path) -> None:
    """Write a network to a safetensors file: graph, labels, layering, activations, weights, biases, time constants.

    The file is replaced atomically: a crash or a full disk leaves the old one. Activations passed as callables can't
    be saved.
    """
    if isinstance(net, Population):
        tensors, metadata = _serialize_population(net)
        write_safetensors(path, tensors, {"population": metadata})
        return
    tensors, metadata = serialize_network(net)
    write_safetensors(path, tensors, {"network": metadata})


def load(
    path: str | Path, *, engine: str = "auto", device: torch.device | str | None = None
) -> FourWard | Recurrent | Population:
    """Load what `save` or a training run wrote to a file, or from a run's folder its best network.

    The linear layers that training puts around a network aren't part of it.

    Args:
        path: The file, or the folder of a run.
        engine: As in `FourWard`.
        device: As in `FourWard`.
    """
    tensors, metadata = read_safetensors(path)
    if "population" in metadata:
        return _deserialize_population(path, tensors, metadata, engine=engine, device=device)
    return deserialize_network(path, tensors, metadata, engine=engine, device=device)


def load_network(
    path: str | Path, *, engine: str = "auto", device: torch.device | str | None = None
) -> FourWard | Recurrent:
    """As `load`, but only a single network."""
    net = load(path, engine=engine, device=device)
    if isinstance(net, Population):
        raise FileError(
            f"{path} holds a population of {pluralize(len(net), 'network')}; expected a single network. Save a member: "
            "fourward.save(pop[i], path), where pop = fourward.load(...)."
        )
    return net


def serialize_network(net: FourWard | Recurrent) -> tuple[Tensors, Metadata]:
    """A network as named tensors and JSON metadata."""
    if isinstance(net, Recurrent):
        check_parameters(net)
    else:
        check_network(net)
    dag = net.dag
    names = builtin_activation_names(net, "a safetensors file", "save net.state_dict() with torch.save")
    table = {name: k for k, name in enumerate(dict.fromkeys(names))}
    activation = np.array([table[name] for name in names])
    arrays = (dag.edges, dag.inputs, dag.outputs, net.layering.level, activation)
    tensors = {
        f"network.{name}": torch.tensor(array.astype(np.int32)) for name, array in zip(_ARRAYS, arrays, strict=True)
    }
    if not _are_indices(dag.labels):
        tensors["network.labels"] = _encode_json([_encode_label(label) for label in dag.labels])
    tensors["network.weight"] = net.weight.detach().cpu()
    if net.bias is not None:
        tensors["network.bias"] = net.bias.detach().cpu()
    if net.constraints is not None:
        arrays_by_name = net.constraints.arrays._asdict()
        tensors |= {f"network.{name}": torch.tensor(a) for name, a in arrays_by_name.items() if a is not None}
        # a copy: it may be the weights themselves, of which a file can't hold two
        tensors["network.free_weight"] = net.constraints.free_weight.detach().cpu().clone()
        if net.constraints.node_sign is not None:
            tensors["network.node_sign"] = torch.tensor(net.constraints.node_sign)
    if dag.attributes:
        tensors["network.attributes"] = _encode_json({name: list(values) for name, values in dag.attributes.items()})
    info = {"nodes": dag.num_nodes, "activations": list(table), "dropout": net.dropout, "seed": net.seed}
    if isinstance(net, Recurrent):
        tensors["network.feedback"] = torch.tensor(net.graph.feedback)
        if net.tau is not None:
            tensors["network.tau"] = net.tau.detach().cpu()
        learned = isinstance(net.tau, nn.Parameter)
        info["recurrent"] = {"dynamics": net.dynamics, "batch_first": net.batch_first, "learned_tau": learned}
    return tensors, info


def deserialize_network(
    path: str | Path, tensors: Mapping[str, Tensor], metadata: Metadata, **options: Any
) -> FourWard | Recurrent:
    """Rebuild the network from what `read_safetensors(path)` returned; options as in FourWard and Recurrent."""
    with corrupt_file_errors(path):
        info = metadata["network"]
        arrays = {name: tensors[f"network.{name}"].numpy() for name in _ARRAYS}
        dag = _build_dag(arrays, tensors.get("network.labels"), info["nodes"])
        if "network.attributes" in tensors:
            dag = dag.with_attributes(_decode_json(tensors["network.attributes"]))
        names = [info["activations"][k] for k in arrays["activation"]]
        weight, bias = tensors["network.weight"], tensors.get("network.bias")
        for name, values in (("weights", weight), ("biases", bias)):
            if values is not None and values.dtype not in _FLOATS:
                raise FileError(f"expected {name} of a floating point dtype of 16 to 64 bits, got {values.dtype}.")
        options |= {"dropout": info["dropout"], "dtype": weight.dtype}
        net: FourWard | Recurrent
        if "recurrent" in info:
            net = _build_recurrent(dag, tensors, info["recurrent"], names, options)
        else:
            net = _build_network(dag, tensors, arrays, weight, bias, names, options)
        net.seed = int(info["seed"])
        return net


def _build_network(
    dag: Dag, tensors: Mapping[str, Tensor], arrays: Any, weight: Tensor, bias: Any, names: Any, options: dict[str, Any]
) -> FourWard:
    """A FourWard, with its constraints."""
    options |= {"layering": Layering(dag, arrays["level"])} | _constraint_options(dag, arrays["edges"], tensors)
    net = from_parameters(dag, dag.align(weight, arrays["edges"], by="index"), bias, names, **options)
    _load_free_weight(net, arrays["edges"], tensors)
    return net


def _constraint_options(graph: BaseGraph, edges: Any, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """The constraints of a file whose edges are in this order, as options of a network."""
    return {
        name: graph.align(tensors[f"network.{name}"].numpy(), edges, by="index")
        for name in EdgeConstraints._fields
        if f"network.{name}" in tensors
    }


def _build_recurrent(
    dag: Dag, tensors: Mapping[str, Tensor], info: Metadata, names: list[str], options: dict[str, Any]
) -> Recurrent:
    feedback = tensors["network.feedback"].numpy()
    edges = np.concatenate((tensors["network.edges"].numpy(), feedback))
    graph = Digraph.from_arrays(edges, labels=dag.labels, inputs=dag.inputs, outputs=dag.outputs, feedback=feedback)
    graph = graph.with_attributes(dag.attributes) if dag.attributes else graph
    weight, bias, tau = (tensors.get(f"network.{name}") for name in ("weight", "bias", "tau"))
    if tau is not None:
        tau = tau.clamp(min=1)  # as in every pass: training may have left it
        tau = nn.Parameter(tau) if info["learned_tau"] is True else tau
    shared = {"dynamics": info["dynamics"], "batch_first": info["batch_first"], "tau": tau, "init": "zeros"}
    options |= shared | _constraint_options(graph, edges, tensors)
    net = recurrent_from_parameters(graph, graph.align(weight, edges, by="index"), bias, names, **options)
    _load_free_weight(net, edges, tensors)
    return net


def _serialize_population(pop: Population) -> tuple[Tensors, Metadata]:
    """A population as named tensors and JSON metadata."""
    members, code = pop.members, pop.neuron_codes()
    used = np.unique(code)
    if used.max(initial=0) >= CUSTOM:
        raise ActivationError(
            "a neuron has a callable as activation, which a safetensors file can't store. Use built-in activations by "
            "name, or save pop.state_dict() with torch.save."
        )
    arrays = {"edges": members.edges.astype(np.int32), "edge_start": members.edge_start}
    arrays |= {"num_nodes": members.num_nodes, "inputs": members.inputs, "outputs": members.outputs}
    arrays["activation"] = np.searchsorted(used, code).astype(np.int32)
    tensors = {f"population.{name}": torch.tensor(array) for name, array in arrays.items()}
    tensors["population.weight"] = pop.weight.detach().cpu()
    if pop.bias is not None:
        tensors["population.bias"] = pop.bias.detach().cpu()
    described = [None if dag is None else _describe_member(dag) for dag in members.graphs]
    if any(described):
        tensors["population.labels"] = _encode_json(described)
    names = [None if labels is None else [_encode_label(label) for label in labels] for labels in pop.names]
    return tensors, {"activations": [BY_CODE[k].name for k in used.tolist()], "names": names, "seed": pop.seed}


def _describe_member(graph: Dag | Labels) -> Metadata | None:
    """The labels and attributes of a graph; None if the labels are 0 to N-1, and there are no attributes."""
    labels, attributes = (graph.labels, graph.attributes) if isinstance(graph, Dag) else (graph, {})
    if _are_indices(labels) and not attributes:
        return None
    values = {name: list(values) for name, values in attributes.items()}
    return {"labels": [_encode_label(label) for label in labels], "attributes": values}


def _deserialize_population(
    path: str | Path, tensors: Mapping[str, Tensor], metadata: Metadata, **options: Any
) -> Population:
    """Rebuild a population; nothing in the file is trusted."""
    with corrupt_file_errors(path):
        info = metadata["population"]
        values = {name.removeprefix("population."): tensor for name, tensor in tensors.items()}
        edges, start, nodes = (values[name].numpy() for name in ("edges", "edge_start", "num_nodes"))
        inputs, outputs = values["inputs"].numpy(), values["outputs"].numpy()
        members = _members.from_arrays(edges, start, nodes, inputs, outputs, partial=True)
        if "labels" in values:
            members = _with_labels(members, _decode_json(values["labels"]))
        weight, bias = values["weight"], values.get("bias")
        for name, numbers in (("weights", weight), ("biases", bias)):
            if numbers is not None and numbers.dtype not in _FLOATS:
                raise FileError(f"expected {name} of a floating point dtype of 16 to 64 bits, got {numbers.dtype}.")
        activation = list(info["activations"]), values["activation"].numpy()
        names = [None if labels is None else [_decode_label(label) for label in labels] for labels in info["names"]]
        pop = Population.from_members(members, activation, weight, bias, names, dtype=weight.dtype, **options)
        pop.seed = int(info["seed"])
        return pop


def _with_labels(members: Members, described: list[Metadata | None]) -> Members:
    """Members with the labels and attributes that a file gives them."""
    dags: list[Dag | Labels | None] = [None] * len(members)
    for p, described_dag in zip(range(len(members)), described, strict=True):
        if described_dag is not None:
            labels = [_decode_label(label) for label in described_dag["labels"]]
            dag = members.dag(p, labels)
            dags[p] = dag.with_attributes(described_dag["attributes"]) if described_dag["attributes"] else dag
    return replace(members, graphs=tuple(dags))


def write_safetensors(path: str | Path, tensors: Tensors, metadata: Metadata) -> None:
    """Write tensors and JSON metadata to a file, atomically."""
    text = json.dumps({"format": FORMAT, "version": __version__} | metadata, allow_nan=False)
    path = Path(path)
    with replacing(path) as temporary:
        temporary.touch()
        mode = temporary.stat().st_mode  # the user's umask; safetensors creates files that only their owner can read
        try:
            save_file({name: value.contiguous() for name, value in tensors.items()}, temporary, {_KEY: text})
        except SafetensorError as error:  # also raised in place of an OSError, such as that of a full disk
            number = re.search(r"os error (\d+)", str(error))
            if number is None:
                raise
            raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error
        temporary.chmod(mode)


def read_safetensors(path: str | Path) -> tuple[Tensors, Metadata]:
    """The tensors and the metadata of a file that `write_safetensors` wrote; for a run's folder, of its best model."""
    path = Path(path)
    if path.is_dir():
        path = path / BEST
        if not path.exists():
            raise FileError(f"{path.parent} is a folder without {BEST}. Expected a file, or the folder of a run.")
    if not path.is_file():
        raise FileError(f"file not found: {path}.")
    size = path.stat().st_size
    check_memory(path, size, f"it has {size:,} bytes")
    try:
        with safe_open(path, "pt") as file:
            text = (file.metadata() or {}).get(_KEY)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (SafetensorError, *_CORRUPTIONS) as error:
        raise FileError(
            f"{path} is not a safetensors file, or it is truncated ({error}). Restore it from another copy."
        ) from None
    if text is None:
        raise FileError(
            f"{path} is a safetensors file that fourward didn't write. Expected a file that fourward.save wrote."
        )
    with corrupt_file_errors(path):
        metadata = dict(json.loads(text))
        if metadata["format"] > FORMAT:
            raise FileError(
                f"{path} was written by fourward {metadata['version']}, whose format {__version__} can't read. "
                "Upgrade fourward."
            )
        return tensors, metadata


@contextmanager
def corrupt_file_errors(path: str | Path) -> Iterator[None]:
    """Turn errors in the block into a FileError, which says that the file is corrupt."""
    try:
        yield
    except EngineError:
        raise
    except FourwardError as error:
        if str(path) in str(error):
            raise
        raise FileError(f"{path} is corrupt: {error}") from None
    except _CORRUPTIONS as error:
        raise FileError(f"{path} is corrupt, or not a file of fourward: {type(error).__name__}: {error}.") from None


def _build_dag(arrays: Mapping[str, Any], encoded_labels: Tensor | None, num_nodes: int) -> Dag:
    if len(arrays["level"]) != num_nodes:
        raise GraphError(f"expected {num_nodes:,} levels, one for each node, got {len(arrays['level']):,}.")
    labels: Labels = range(num_nodes)
    if encoded_labels is not None:
        labels = tuple(_decode_label(label) for label in _decode_json(encoded_labels))
    if len(labels) != num_nodes:
        raise GraphError(f"expected {num_nodes:,} labels, got {len(labels):,}.")
    return Dag.from_arrays(arrays["edges"], labels=labels, inputs=arrays["inputs"], outputs=arrays["outputs"])


def _load_free_weight(net: FourWard | Recurrent, edges: Any, tensors: Mapping[str, Tensor]) -> None:
    """Set the parameters under constraints: the effective weights give them only up to rounding."""
    if net.constraints is not None and net.constraints.node_sign is not None and "network.node_sign" in tensors:
        signs = tensors["network.node_sign"].numpy()
        if signs.shape != (net.graph.num_nodes,) or not np.isin(signs, (-1, 0, 1)).all():
            raise FileError(f"expected a sign of 1, 0 or -1 for each of {net.graph.num_nodes:,} nodes.")
        net.constraints.node_sign = signs.astype(np.int8)
    if net.constraints is None or not np.array_equal(edges, net.graph.edges):
        return
    parameter, values = net.constraints.free_weight, tensors["network.free_weight"]
    if values.shape != parameter.shape or values.dtype != parameter.dtype:
        raise FileError(
            f"expected {len(parameter):,} parameters of {parameter.dtype}, got {values.dtype} of shape "
            f"{tuple(values.shape)}."
        )
    with torch.no_grad():
        parameter.copy_(values)


def _encode_json(value: Any) -> Tensor:
    return torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)


def _decode_json(encoded: Tensor) -> Any:
    return json.loads(bytes(encoded.numpy()))


def _are_indices(labels: Labels) -> bool:
    return isinstance(labels, range) or all(type(label) is int and label == k for k, label in enumerate(labels))


def _encode_label(label: Any) -> Any:
    if isinstance(label, tuple):
        return {"tuple": [_encode_label(item) for item in label]}
    if label is None or isinstance(label, str | bool | float):
        return label
    if is_integer(label):
        return int(label)
    raise GraphError(
        f"label {label!r} is a {type(label).__name__}, which can't be saved. Use str, int, float, bool, None or "
        "tuples of these as labels."
    )


def _decode_label(label: Any) -> Any:
    return tuple(_decode_label(item) for item in label["tuple"]) if isinstance(label, dict) else label
