"""Run the Python of the documentation and write below each block what it prints.

    python tools/docs_outputs.py [PAGE...]

A ```python block that prints is followed by a ```text block with its output. An output that already matches stays as it
is, so parts that depend on the machine can be replaced by `...`, as in a doctest. The tests compare the two.
"""

from __future__ import annotations

import doctest
import io
import re
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
FENCE = re.compile(r"^( *)```(\w*)(?: \{([^}\n]*)\})?\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
OUTPUT = re.compile(r"\n\s*^( *)```text\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block of a page."""

    page: Path
    language: str
    mark: str  #: attributes in braces after the language, such as ".no-run"
    code: str
    line: int  #: number of lines before its code
    end: int  #: offset in the page at which it ends
    indent: str
    output: str | None  #: the ```text block that follows it


def find_blocks(page: Path, *languages: str) -> list[Block]:
    """The fenced blocks of a page in these languages."""
    text = page.read_text(encoding="utf-8")
    blocks = []
    for match in FENCE.finditer(text):
        if match[2] in languages:
            output = OUTPUT.match(text, match.end())
            blocks.append(
                Block(
                    page,
                    language=match[2],
                    mark=match[3] or "",
                    code=textwrap.dedent(match[4]),
                    line=text.count("\n", 0, match.start(4)),
                    end=match.end(),
                    indent=match[1],
                    output=None if output is None else textwrap.dedent(output[2]),
                )
            )
    return blocks


def run_blocks(page: Path) -> Iterator[tuple[Block, str]]:
    """Run a page's unmarked Python blocks in one namespace, in the current folder; yields each with what it printed."""
    namespace: dict[str, object] = {"__name__": "docs"}
    for block in find_blocks(page, "python"):
        if block.mark == "":
            with redirect_stdout(io.StringIO()) as out:
                exec(compile("\n" * block.line + block.code, str(page), "exec"), namespace)
            yield block, out.getvalue()


def matches(expected: str, printed: str) -> bool:
    """Whether an output is what a page shows; `...` in the page matches anything, as its last line also nothing."""
    check = doctest.OutputChecker().check_output
    texts = (expected, expected.removesuffix("...\n"))
    return any(check(text, clean(printed), doctest.ELLIPSIS) for text in texts)


def clean(printed: str) -> str:
    """An output as a page shows it: without spaces at the ends of lines and empty lines at the end."""
    text = "\n".join(line.rstrip() for line in printed.rstrip().splitlines())
    return text and text + "\n"


def fill(page: Path) -> bool:
    """Write a page's outputs where they are missing or differ; returns whether it changed."""
    page = page.resolve()
    text = page.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        results = list(run_blocks(page))
    for block, printed in reversed(results):  # from the end, so that offsets stay valid
        if printed and not (block.output and matches(block.output, printed)):
            old = OUTPUT.match(text, block.end)
            fence = textwrap.indent(f"```text\n{clean(printed)}```", block.indent)
            text = f"{text[: block.end]}\n\n{fence}{text[old.end() if old else block.end :]}"
    changed = text != page.read_text(encoding="utf-8")
    if changed:
        page.write_text(text, encoding="utf-8")
    return changed


def main() -> None:
    """Fill the pages that are named, or all of them."""
    import torch

    torch.set_num_threads(1)  # as the tests do
    for page in map(Path, sys.argv[1:]) if len(sys.argv) > 1 else DOCS:
        print(f"{page}: {'changed' if fill(page) else 'unchanged'}", flush=True)


if __name__ == "__main__":
    main()
