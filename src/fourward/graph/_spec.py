"""A graph by one word: a file, a family such as er:64:0.2:0, or a bundled nervous system."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fourward.errors import FileError, FourwardError, OptionError
from fourward.graph import _convert, _io, connectomes, files, generate
from fourward.graph._annotated import AnnotatedDag, AnnotatedGraph, Orient, settle
from fourward.graph._convert import EdgeList, Labels
from fourward.graph._dag import Dag
from fourward.graph.orient import Seed


def _sizes(word: str) -> list[int]:
    return [int(size) for size in word.split("-")]


class _Family(NamedTuple):
    make: Callable[..., Dag]
    arguments: tuple[tuple[str, Callable[[str], Any]], ...]
    seeded: bool
    edges: Callable[..., float]  # about so many, of the same arguments

    def usage(self, name: str) -> str:
        words = [name, *(argument for argument, _ in self.arguments)]
        return ":".join(word.upper() if k else word for k, word in enumerate(words)) + "[:SEED]" * self.seeded


def _between(sizes: list[int], *_: float) -> int:
    return sum(a * b for a, b in pairwise(sizes))


_N = ("n", int)
_EDGE_BYTES = 75  # peak memory for each edge on the way to a Dag, of the family that takes least: er
_FAMILIES = {
    "er": _Family(generate.erdos_renyi, (_N, ("p", float)), True, lambda n, p: p * n * n / 2),
    "ws": _Family(generate.watts_strogatz, (_N, ("k", int), ("p", float)), True, lambda n, k, p: n * k / 2),
    "ba": _Family(generate.barabasi_albert, (_N, ("m", int)), True, lambda n, m: n * m),
    "mlp": _Family(generate.layered_mlp, (("sizes", _sizes),), False, _between),
    "rewired": _Family(generate.rewired_mlp, (("sizes", _sizes), ("fraction", float)), True, _between),
    "chain": _Family(generate.chain, (_N,), False, lambda n: n),
    "complete": _Family(generate.complete, (_N,), False, lambda n: n * n / 2),
}

#: How each family is written, for help texts.
USAGE = tuple(family.usage(name) for name, family in _FAMILIES.items())


def find(
    word: str | Path,
    *,
    orient: Orient = None,
    seed: Seed = None,
    remove_feedback: bool = False,
    merge: bool = False,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    bare: bool = False,
    **options: Any,
) -> AnnotatedDag:
    """The Dag that a word stands for, with what came along with it.

    Args:
        word: A family and its numbers ("er:64:0.2:0"; see `USAGE`; the seed is 0 if left away), a bundled nervous
            system ("c-elegans", without its feedback edges), or a graph file.
        orient: As in `fourward.files.read_dag`.
        seed: Likewise.
        remove_feedback: Likewise.
        merge: Likewise.
        inputs: Labels of the inputs as words; "3" also means the label 3.
        outputs: The same for the outputs.
        bare: The graph alone, without weights, biases and activations.
        options: As in `fourward.files.read`; for files alone.

    >>> find("er:64:0.2:0").dag
    Dag(64 nodes, 413 edges, 4 inputs, 5 outputs)
    >>> find("c-elegans", outputs=["AVAL", "AVAR"]).dag.num_outputs
    2
    """
    given, known = _given(str(word), bare, options)
    given = given._replace(weight=None) if bare else given
    try:
        return settle(
            given,
            orient=orient,
            seed=seed,
            remove_feedback=remove_feedback or known,
            merge=merge,
            inputs=_chosen(inputs, given.graph.labels),
            outputs=_chosen(outputs, given.graph.labels),
        )
    except FourwardError as error:
        error.prepend(str(word))
        raise


def _given(word: str, bare: bool, options: dict[str, Any]) -> tuple[AnnotatedGraph, bool]:
    """The graph as it comes, and whether it is a nervous system, of which cycles are known."""
    name, *numbers = word.split(":")
    set_options = {key: value for key, value in options.items() if value is not None}
    if (name in _FAMILIES and numbers) or word in connectomes.NAMES:
        if set_options:
            raise OptionError(f"{', '.join(set_options)} came, but {word!r} isn't read from a file.")
        return (_connectome(word), True) if word in connectomes.NAMES else (_generated(name, numbers), False)
    if Path(word).is_dir() or Path(word).suffix.lower() == ".safetensors":
        raise FileError(
            f"{word!r} came, where a graph was wanted. If it is a network or a run's folder, `fourward export` writes "
            "its graph."
        )
    if not Path(word).is_file():
        raise FileError(
            f"there is no file {word!r}, and it names no graph: these are {', '.join(USAGE)}, and the nervous "
            f"systems {', '.join(connectomes.NAMES)}."
        )
    return files.read(word, bare=bare, **options), False


def _generated(name: str, words: list[str]) -> AnnotatedGraph:
    family = _FAMILIES[name]
    least = len(family.arguments)
    if not least <= len(words) <= least + family.seeded:
        raise OptionError(f"{':'.join((name, *words))!r} came, but {family.usage(name)} was wanted.")
    seed = {"seed": words[least] if len(words) > least else "0"} if family.seeded else {}
    try:
        values = [parse(text) for (_, parse), text in zip(family.arguments, words, strict=False)]
        edges = family.edges(*values)
        _io.check_memory(":".join((name, *words)), _EDGE_BYTES * edges, f"it has about {edges:,.0f} edges")
        dag = family.make(*values, **{key: int(value) for key, value in seed.items()})
    except ValueError as error:
        if isinstance(error, FourwardError):
            raise
        came = ":".join((name, *words))
        raise OptionError(f"{came!r} came, but {family.usage(name)} was wanted, with numbers.") from error
    ends = ([dag.labels[v] for v in chosen.tolist()] for chosen in (dag.inputs, dag.outputs))
    return AnnotatedGraph(EdgeList(dag.source, dag.target, dag.labels, True, *ends))


def _connectome(name: str) -> AnnotatedGraph:
    system = connectomes.load(name)
    return AnnotatedGraph(_convert.from_pairs(system.edges, system.classes), system.strength.astype(np.float64))


def _chosen(words: Sequence[str] | None, labels: Labels) -> list[Any] | None:
    """The labels that words mean: themselves, or else the numbers they spell."""
    if words is None:
        return None
    known = labels if isinstance(labels, range) else frozenset(labels)
    spelt = {word: int(word) for word in words if re.fullmatch(r"-?\d+", word)}
    return [spelt[word] if word in spelt and word not in known and spelt[word] in known else word for word in words]
