"""The code speaks the language of PyTorch, Triton, NumPy and scikit-learn: no private word where the field has one."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: Words that the field has better ones for, as parts of a name: `held_loss`, `holes`, `own_word`.
BETTER = {
    "ahead": "forward_slot",
    "behind": "backward_slot",
    "blanks": "placeholders",
    "came": "got",
    "damage": "corrupt",
    "descend": "activation_grad",
    "everything": "all_nodes",
    "fours": "quads",
    "held": "validation",
    "holes": "empty_tiles",
    "judge": "evaluate",
    "keeper": "checkpoint",
    "rehearse": "precompile",
    "rehearsed": "precompiled",
    "rehearsing": "precompiling",
    "said": "metadata",
    "stretch": "segment",
    "stretches": "segments",
    "walk": "the pass, the kernel or the traversal that is meant",
    "walked": "computed, executed",
    "walks": "the pass, the kernel or the traversal that is meant",
    "watcher": "callback",
    "watchers": "callbacks",
    "way": "config, layout",
    "ways": "configs, layouts",
}
#: Words that say nothing of what they hold, as whole names.
VAGUE = {"again", "asked", "facts", "few", "found", "given", "kept", "lead", "mine", "more", "one", "others", "whole"}
#: Turns of phrase that no message, docstring, comment or page has.
PHRASES = re.compile(
    r"\b(came|(?:was|were) wanted|(?:leave|leaving|left) (?:it|them|that|these|those) (?:away|out)|to be had|"
    r"is no (?:node|file|network|name|number|graph|mapping)|are no nodes|in \w+'s clothes|knows better|goes about|"
    r"those who|whoever|as ever|what (?:it|that) takes|whatever it is|goes up when|by way of|has a say|lets through|"
    r"(?:the|this|that) very (?!same)|a process of its own|to be there still|is begun|warned of|CUDA card)\b"
)
#: Descriptions without a noun, of which a reader has to guess what they describe: `seed: Of the weights.`
NOUNLESS = re.compile(
    r"^\s+\w+: (?:Of|Whose|Under|By name)\b"  # an argument
    r"|\S.*  #:? (?:of|that|inside|likewise|whose)\b"  # a constant, a field or a variable
    r"|\bhelp=f?\"of\b|\bhelp=f?\"Of\b|^\s*\"\"\"Of\b"  # an option, a function
)
CODE = sorted(path for folder in ("src", "tests", "benchmarks", "tools") for path in (ROOT / folder).rglob("*.py"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
THIS = Path(__file__)


def definitions(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every name that a file defines: functions, classes, parameters, variables, attributes, loop variables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr, node.lineno


def parts(name: str) -> list[str]:
    """The words of a name.

    >>> parts("_forwardSlot_of"), parts("LaunchConfig")
    (['forward', 'slot', 'of'], ['launch', 'config'])
    """
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)]


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", CODE, ids=relative)
def test_names_are_those_of_the_field(path):
    wrong = [f"file {path.name}: {BETTER[word]}" for word in parts(path.stem) if word in BETTER]
    for name, line in definitions(ast.parse(path.read_text())):
        wrong += [f"line {line}: {name} -> {BETTER[word]}" for word in parts(name) if word in BETTER]
        if name.lower().strip("_") in VAGUE:
            wrong.append(f"line {line}: {name} doesn't say what it holds")
        if re.search(r"[a-z]_of$", name) and not name.startswith("test_"):
            wrong.append(f"line {line}: {name} -> a verb and its object")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("path", [path for path in [*CODE, *PAGES] if path != THIS], ids=relative)
def test_prose_is_that_of_the_field(path):
    lines = enumerate(path.read_text().splitlines(), 1)
    wrong = [f"line {k}: {match[0]!r} in: {line.strip()}" for k, line in lines if (match := PHRASES.search(line))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("path", [path for path in CODE if path != THIS], ids=relative)
def test_descriptions_name_what_they_describe(path):
    lines = enumerate(path.read_text().splitlines(), 1)
    wrong = [f"line {k}: {line.strip()}" for k, line in lines if NOUNLESS.search(line)]
    assert not wrong, "\n".join(wrong)
