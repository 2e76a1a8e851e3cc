"""The verdicts on docs/reproduction.md are those of the committed results."""

import json
import lzma
import re

import pytest

from fourward.study._aggregate import device_rows, latest_rows
from fourward.study._findings import findings
from fourward.study._store import Store
from tools.docs_outputs import ROOT

PAGE = (ROOT / "docs" / "reproduction.md").read_text()
TABLE = [line.split(" | ") for line in PAGE.splitlines() if line.startswith("|") and "**" in line]


@pytest.mark.parametrize(("machine", "device", "column"), [("gpu", "cuda", 2), ("cpu", "cpu", 3)])
def test_verdicts_are_those_of_the_results(machine, device, column, tmp_path):
    path = tmp_path / "results.sqlite"
    with lzma.open(ROOT / "results" / machine / "results.sqlite.xz") as packed:
        path.write_bytes(packed.read())
    with Store(path, create=False) as store:
        rows = latest_rows(store)
    wanted = findings(device_rows(rows, "times", device), device_rows(rows, "reassignment", device))
    verdicts = [re.match(r"\*\*(.*?)\*\*", line[column])[1] for line in TABLE]
    assert verdicts == [finding.verdict for finding in wanted]


def test_accuracies_on_mnist_are_those_of_the_results():
    runs = json.loads((ROOT / "benchmarks" / "results" / "mnist.json").read_text())["runs"]
    *first, last = (f"{run['accuracy'][-1]:.2f}" for run in runs)
    assert f"Ours: {', '.join(first)} and {last} % with seeds 0 to {len(runs) - 1}" in PAGE
