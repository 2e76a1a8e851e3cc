"""The campaign of tools/fuzz.py, in short: the same cases every time."""

import pytest

from tools import fuzz


@pytest.fixture(scope="module")
def targets(tmp_path_factory):
    folder = tmp_path_factory.mktemp("valid")
    return fuzz.make_targets(folder / "valid")


NAMES = [
    *(
        f"graph.{suffix}"
        for suffix in ("csv", "tsv", "edges", "mtx", "json", "graphml", "gexf", "npz", "csv.gz", "json.gz")
    ),
    *(f"matrix-{form}.npz" for form in ("csr", "csc", "coo", "bsr", "dia")),
    *(
        "network.safetensors",
        "recurrent.safetensors",
        "population.safetensors",
        "best.safetensors",
        "last.safetensors",
        "tensorneat.json",
        "neat.json",
    ),
    *("table.csv", "table.npz"),
]


def test_all_targets_are_tested(targets):
    assert list(targets) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_mutated_files_are_read_or_refused(name, targets):
    folder = targets["graph.csv"].path.parent.parent
    report = fuzz.Report()
    for case in range(10):
        fuzz.run_case(0, name, case, targets[name], folder, report)
    assert not report.defects, "\n".join(report.defects)
    assert report.cases == {name: 10}


def test_a_defect_is_reported(targets, tmp_path):
    """The check can fail: here is a reader that raises what no reader may."""
    target = fuzz.Target(targets["table.csv"].path, [fuzz.mutate_bytes], lambda path: 1 / 0)
    report = fuzz.Report()
    fuzz.run_case(3, "broken", 7, target, tmp_path, report)
    assert len(report.defects) == 1
    assert report.defects[0].startswith("--only broken --case 7 --seed 3\n")
    assert "ZeroDivisionError" in report.defects[0]
