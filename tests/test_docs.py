"""The documentation is true: its Python runs and prints what it shows, its commands and options exist."""

import io
import os
import random
import re
import shlex
import socket
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path

import pytest
import torch

from fourward import FourWard, files, generate
from fourward._cli import app
from fourward.engine._registry import ENGINES
from fourward.exchange import EXPORTERS
from tools.docs_outputs import DOCS, FENCE, ROOT, clean, fill, find_blocks, matches, run_blocks
from tools.docs_pictures import FOLDER, PICTURES, TOUCH, dark_name

PAGES = [*DOCS, ROOT / "CONTRIBUTING.md", ROOT / "README.md"]
#: Python that isn't run with the rest of its page: because it needs GPUs, or because it is started with torchrun.
MARKS = {"": "here", ".no-run": "nowhere", ".torchrun": "in two processes", ".run": "here"}


def parametrize_pages(pages: list[Path]) -> dict:
    return {"argvalues": pages, "ids": [str(page.relative_to(ROOT)) for page in pages]}


with_python = parametrize_pages(
    [page for page in DOCS if any(block.mark == "" for block in find_blocks(page, "python"))]
)
scripts = [block for page in PAGES for block in find_blocks(page, "python") if block.mark == ".torchrun"]


@pytest.fixture
def sandbox(tmp_path, monkeypatch):
    """A folder to run in; changes of a page to the process are undone."""
    monkeypatch.chdir(tmp_path)
    engines, state = dict(ENGINES), random.getstate()
    yield
    ENGINES.clear()
    ENGINES.update(engines)
    random.setstate(state)


@pytest.mark.usefixtures("sandbox")
@pytest.mark.filterwarnings("ignore::UserWarning:lightning", "ignore:.*LeafSpec:FutureWarning")  # Lightning's own
@pytest.mark.parametrize("page", **with_python)
def test_python_runs_and_prints_what_the_page_shows(page):
    for block, printed in run_blocks(page):
        expected = block.output or ""
        assert matches(expected, printed), (
            f"{page}:{block.line}: expected the output\n{expected}\ngot\n{clean(printed)}\n"
            "`python tools/docs_outputs.py PAGE` writes it into the page."
        )


@pytest.mark.parametrize("script", scripts, ids=[f"script{k}" for k in range(len(scripts))])
def test_scripts_run_in_two_processes(script, tmp_path):
    """As torchrun would start them; where one fails, the other isn't waited for."""
    FourWard(generate.erdos_renyi(20, 0.3, seed=0))(torch.ones(1, 4)).sum().backward()  # kernels compile once, here
    # Past its last line it ends at once: torch's gloo threads may abort a Python that is closing (pytorch#190489).
    (tmp_path / "train.py").write_text(f"{script.code}\nos._exit(0)\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        rendezvous = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": "2"}
    rendezvous |= {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    with (tmp_path / "log").open("w") as log:
        running = []
        for rank in ("0", "1"):
            options = {"cwd": tmp_path, "env": os.environ | rendezvous | {"RANK": rank, "LOCAL_RANK": rank}}
            running.append(subprocess.Popen([sys.executable, "train.py"], stdout=log, stderr=log, **options))
        end, codes = time.monotonic() + 240, [None, None]
        while None in codes and not any(codes) and time.monotonic() < end:
            time.sleep(0.05)
            codes = [process.poll() for process in running]
        for process in running:
            process.kill()
            process.wait()
    assert codes == [0, 0], (tmp_path / "log").read_text()


def test_marks_are_known():
    used = {block.mark for page in PAGES for block in find_blocks(page, "python", "sh")}
    assert used <= MARKS.keys()
    assert ".torchrun" in used


@pytest.mark.parametrize(
    ("shown", "same"),
    [("6\n", True), ("...\n", True), ("7\n", False), (None, False)],
    ids=["equal", "ellipsis", "different", "missing"],
)
def test_an_output_is_compared_and_filled_in(shown, same, tmp_path):
    page = tmp_path / "page.md"
    fence = "" if shown is None else f"\n\n  ```text\n  {shown}  ```"
    text = f"- a\n\n  ```python\n  a = 3\n  ```\n\n  ```python\n  print(2 * a)\n  ```{fence}\n\nEnd.\n"
    page.write_text(text)
    (silent, nothing), (block, printed) = run_blocks(page)
    assert (silent.output, nothing, block.output, printed) == (None, "", shown, "6\n")
    assert matches(shown or "", printed) == same
    assert fill(page) == (shown in (None, "7\n"))
    assert page.read_text() == (
        text
        if shown == "...\n"
        else text.replace(fence, "").replace("(2 * a)\n  ```", "(2 * a)\n  ```\n\n  ```text\n  6\n  ```")
    )


def commands(text: str) -> list[list[str]]:
    """The arguments of `fourward`, of every line that calls it."""
    lines = text.replace("\\\n", " ").splitlines()
    words = [shlex.split(line, comments=True) for line in lines if re.search(r"(^| )fourward [a-z]", line)]
    return [line[line.index("fourward") + 1 :] for line in words]


def find_commands(page: Path) -> list[list[str]]:
    """The commands of a page: in its blocks, fenced or indented, and within its lines."""
    text = page.read_text()
    fenced = "\n".join(block.code for block in find_blocks(page, "sh", ""))
    rest = FENCE.sub("", text)
    indented = "\n".join(re.findall(r"^ {4}(.*)$", rest, re.MULTILINE))
    spans = [" ".join(span.split()) for span in re.findall(r"`(fourward [^`]+)`", rest)]
    return [words for part in (fenced, indented, *spans) for words in commands(part)]


@cache
def read_help(*words: str) -> str:
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()):
        return out.getvalue() if app.main([*words, "--help"]) == 0 else ""


def check_command(words: list[str]) -> None:
    depth = 2 if words[0] == "study" else 1
    text = read_help(*words[:depth])
    assert text, f"there is no command fourward {' '.join(words[:depth])}"
    for word in words[depth:]:
        if word.startswith("--"):
            assert re.search(rf"{word}\b(?!-)", text), f"fourward {' '.join(words[:depth])} has no option {word}"


@pytest.mark.parametrize("page", **parametrize_pages([page for page in PAGES if find_commands(page)]))
def test_commands_and_options_exist(page):
    for words in find_commands(page):
        check_command(words)


def test_a_wrong_command_is_detected():
    with pytest.raises(AssertionError, match="no command fourward trian"):
        check_command(["trian"])
    with pytest.raises(AssertionError, match="no option --epoch"):
        check_command(["train", "c-elegans", "--epoch", "3"])
    assert commands("srun -n 2 fourward train a \\\n  --data b  # c") == [["train", "a", "--data", "b"]]


@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize(
    "page", **parametrize_pages([p for p in PAGES if any(b.mark == ".run" for b in find_blocks(p, "sh"))])
)
def test_commands_run(page, capsys):
    for block in find_blocks(page, "sh"):
        for words in commands(block.code) if block.mark == ".run" else []:
            assert app.main(words) == 0, capsys.readouterr().err


@pytest.mark.parametrize("page", **parametrize_pages([*PAGES, ROOT / "CHANGELOG.md"]))
def test_links_lead_to_files_of_the_repository(page):
    """As GitHub shows them; the build of the site checks its own links and anchors."""
    links = re.findall(r"\]\(([^)\s#]+)[^)]*\)", FENCE.sub("", page.read_text()))
    missing = [link for link in links if not re.match(r"[a-z]+:", link) and not (page.parent / link).exists()]
    assert not missing


def find_named_files(text: str) -> list[str]:
    """The files and folders that a page names by their path, from the root of the repository or the package."""
    return re.findall(r"`([\w/]+/(?:\w+\.py)?|\w+\.py)`", text)


@pytest.mark.parametrize("page", **parametrize_pages(PAGES))
def test_files_that_a_page_names_exist(page):
    roots = ROOT, ROOT / "src/fourward", ROOT / "src"
    outputs = {"tensorboard/"}  # written by a training run
    names = set(find_named_files(FENCE.sub("", page.read_text()))) - outputs
    assert not [name for name in names if "/" in name and not any((root / name).exists() for root in roots)]


def test_contributing_names_the_files_of_the_data():
    assert len(find_named_files((ROOT / "CONTRIBUTING.md").read_text())) > 30


def test_the_gpu_page_names_the_modules_of_the_engine():
    """Each of them, and no other."""
    folder = ROOT / "src/fourward/engine/_gpu"
    table = re.search(r"\| file \| contents \|\n(.+?)\n\n", (ROOT / "docs/gpu.md").read_text(), re.DOTALL)
    named = {name for row in table[1].splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert named == {path.stem for path in folder.glob("*.py")} - {"__init__", "engine"}


def test_every_picture_is_made_by_the_tool():
    assert {path.name for path in FOLDER.iterdir()} == {*PICTURES, *map(dark_name, PICTURES)}
    shown = "\n".join(page.read_text() for page in PAGES)
    assert all(f"pictures/{name}" in shown for name in PICTURES)


def test_the_circuit_that_is_listed_is_the_one_that_is_drawn():
    names: dict = {}
    exec(find_blocks(ROOT / "docs" / "concepts" / "graph.md", "python")[0].code, names)
    assert names["touch"] == TOUCH


def test_the_page_of_files_lists_every_suffix():
    reading, writing = (ROOT / "docs/exchange.md").read_text().split("\n## Export\n")
    for suffixes, text in ((files.SUFFIXES, reading), (EXPORTERS, writing)):
        rows = "".join(line for line in text.splitlines() if line.startswith("| `."))
        assert not [suffix for suffix in suffixes if f"`{suffix}`" not in rows]


def test_an_ellipsis_as_last_line_matches_more_lines_or_none():
    assert matches("a\n...\n", "a\n")
    assert matches("a\n...\n", "a\nb\n")
    assert not matches("a\n...\n", "b\n")
    assert not matches("a\n", "a\nb\n")
