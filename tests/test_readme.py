"""The README is short, its commands come first, its Python runs, and its numbers are those of the results."""

import json
import re
from pathlib import Path

from tools.docs_outputs import ROOT, find_blocks

README = ROOT / "README.md"


def test_the_two_commands_come_first():
    lines = README.read_text().splitlines()
    assert len(lines) < 80
    assert [line.split("  ")[0] for line in lines[3:5]] == ["make demo", "make test"]


def test_readme_code_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (block,) = find_blocks(README, "python")
    assert len(block.code.splitlines()) <= 12
    names: dict = {}
    exec(block.code, names)
    assert names["y"].shape == (32, 1)
    assert Path("worm.png").stat().st_size > 10_000


COLUMNS = {"paper's method": "masked", "sequential": "sequential", "deepstruct": "deepstruct", "MLP": "mlp"}
COLUMNS |= {"fourward": "fourward"}


def case_name(cell: dict) -> str:
    """The name of a cell of the results in the README."""
    if "p" in cell:
        return f"N={cell['n']}, p={cell['p']}, B={cell['batch']}"
    if "degree" in cell:
        return f"{cell['nodes']:,} nodes, 10^7 edges, B={cell['batch']}"
    return f"C. elegans, B={cell['batch']}"


def test_the_table_is_that_of_the_results():
    data = json.loads((ROOT / "benchmarks/results/cpu.json").read_text())
    large = [cell for cell in data["large"] if cell["graph"] == "er"]
    known = {case_name(cell): cell for cell in (*data["grid"], *data["c-elegans"], *large)}
    lines = re.findall(r"^\|(.*)\|$", README.read_text(), re.MULTILINE)
    head, _, *table = [[cell.strip(" *") for cell in line.replace("*", "").split("|")] for line in lines]
    assert len(table) == 6
    for case, *cells in table:
        for column, cell in zip(head[1:], cells, strict=True):
            kind = "train" if column.startswith("train: ") else "forward"
            time = known[case][kind].get(COLUMNS[column.removeprefix("train: ")])
            assert cell == ("" if time is None else f"{1e3 * time:.3g}"), f"{case}, {column}"


def test_gains_are_those_of_the_results():
    cpu, gpu = ((ROOT / "benchmarks/results" / name).read_text() for name in ("cpu.md", "gpu.md"))
    for results, words in (
        (cpu, ("| 47.8x |", "| 31.4x, ", "| 0.67 |")),
        (gpu, ("| 219.0x (", "| 0.66 (geometric mean; 0.83")),
    ):
        assert all(word in results for word in words)
    text = " ".join(README.read_text().split())
    assert "48 times as fast as the paper's method (geometric mean of 75 cells; 31 times where caches are cold)" in text
    assert "takes 0.67 of the MLP's time; on an H200, called from Python, 219 times, and 0.66." in text


def count_losses(cells: list[dict], kind: str, ours: str, baseline: str) -> tuple[int, float]:
    """In how many cells the MLP is faster, and how many times at most."""
    ratios = [cell[kind][ours] / cell[kind][baseline] for cell in cells]
    return sum(ratio > 1 for ratio in ratios), max(ratios)


def test_losing_cells_are_those_of_the_results():
    cpu, gpu = (json.loads((ROOT / f"benchmarks/results/{name}.json").read_text())["grid"] for name in ("cpu", "gpu"))
    text = " ".join((ROOT / "docs/speed.md").read_text().split())
    steps, passes = (count_losses(cpu, kind, "fourward", "mlp") for kind in ("train", "forward"))
    assert passes[0] == 0
    words = {7: "seven"}[steps[0]]
    assert f"to the MLP in a training step of {words} of the 75 cells" in text
    assert f"by up to {steps[1]:.2f} times at B=32" in text
    steps, passes = (count_losses(gpu, kind, "fourward graph", "mlp graph") for kind in ("train", "forward"))
    assert f"the forward pass in {passes[0]} of 75 cells" in text
    assert f"up to {passes[1]:.1f} times as fast, and the training step in {steps[0]}" in text
    assert f"at B=32 three), up to {steps[1]:.1f} times." in text


def test_links_lead_somewhere():
    links = re.findall(r"\]\(([^)\s]+)\)|src(?:set)?=\"([^\"]+)\"", README.read_text())
    links = [link or source for link, source in links]
    inside = [link for link in links if not link.startswith("https://")]
    assert len(inside) > 8
    for link in inside:
        path, _, anchor = link.partition("#")
        assert (ROOT / path).is_file(), link
        assert anchor.replace("-", " ") in (ROOT / path).read_text(errors="ignore").lower()
