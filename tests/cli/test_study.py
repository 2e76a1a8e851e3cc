"""`fourward study`: experiments, progress, interruption and tables."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from fourward._cli import study as cli_study
from fourward._cli.app import main
from fourward._cli.study_output import ProgressLines
from fourward.study import _grid, _report, _sqlite
from fourward.study._figures import available_figures
from fourward.study._run import Progress
from fourward.study._store import Store

ALONE = os.environ | {"OMP_NUM_THREADS": "1"}  # threads that wait for one another are slow on a busy machine
TINY = ["--sizes", "8,12", "--densities", "0.5,1.0", "--batch-sizes", "2", "--seeds", "2", "--batches", "2"]


def rows(folder, experiment=None):
    with Store(folder / "results.sqlite", create=False) as results:
        return results.rows(experiment, all_environments=True)


def test_status_shows_what_looks_like_markup_as_it_is(tmp_path, capsys):
    with Store(tmp_path / "results.sqlite", environment={"commit": "a"}) as results:
        results.add("times", {"[/red]": "[/blue]", "method": "[/green]"}, {})
    assert main(["study", "status", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("[/red]", "[/blue]", "[/green]"))


def measured_figures(rows):
    """Without those that only explain the method, which have tests of their own."""
    return [drawing for drawing in available_figures(rows) if drawing.name not in ("overview", "forward", "layerings")]


def test_a_small_study_from_start_to_end(tmp_path, capsys, monkeypatch):
    trained = []  # topologies have tests of their own; here they would take a minute
    monkeypatch.setattr(cli_study, "topologies", lambda *args, **options: trained.append((args, options)))
    monkeypatch.setattr(cli_study, "figures", lambda out: None)  # the report draws the same ones
    monkeypatch.setattr(_report, "available_figures", measured_figures)
    words = ["--out", str(tmp_path)]
    assert main(["study", "all", *TINY, *words]) == 0
    assert trained == [((tmp_path,), {"seeds": 2, "commit": None})]
    assert (tmp_path / "report.html").exists()
    printed = capsys.readouterr()
    assert "in 1" in printed.out or "done in" in printed.out
    assert "times: 32 of 32 runs, done" in printed.err
    counted = {name: len(rows(tmp_path, name)) for name in ("attributes", "times", "reassignment", "training")}
    assert counted == {"attributes": 8, "times": 32, "reassignment": 2 * 2 * 10 * 2, "training": 32}
    assert main(["study", "times", *TINY, *words]) == 0
    assert "nothing new" in capsys.readouterr().out
    assert len(rows(tmp_path, "times")) == 32

    assert main(["study", "status", *words, "--json"]) == 0
    (group,) = json.loads(capsys.readouterr().out)["groups"]
    assert {each["name"]: (each["done"], each["requested"]) for each in group["experiments"]} == {
        "attributes": (8, 8), "times": (32, 32), "reassignment": (80, 80), "training": (32, 32)
    }  # fmt: skip
    assert main(["study", "status", *words]) == 0
    printed = capsys.readouterr().out
    assert "times: 32 done, 0 cut off, 0 failed, 32 requested" in printed
    assert "reduced: seeds: 2 instead of 30" in printed
    assert "2/2" in printed

    assert main(["study", "gains", *words, "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert len(table) == 4 * 5
    assert all(line["gain"] > 0 and line["graphs"] == 2 for line in table)
    assert main(["study", "gains", "--training", *words]) == 0
    assert "sequential / 4ward" in capsys.readouterr().out

    assert main(["study", "export", *words, "--format", "csv", "--to", str(tmp_path / "tables")]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(list((tmp_path / "tables").iterdir())) == 5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("times --methods 4ward,5ward", "unknown method '5ward'. Choose from 'sequential', 'deepstruct'"),
        ("times --sizes 1", "sizes: expected an int from 2"),
        ("times --seeds 0", "seeds: expected an int from 1 to 10,000, got 0"),
        ("times --device tpu", "unknown device 'tpu'. Choose from"),
        ("reassignment --methods sequential", "doesn't use layerings"),
        ("flavour", "flavour"),
        ("times --seeds many", "--seeds"),
        ("gains", "results.sqlite not found"),
        ("status", "results.sqlite not found"),
        ("export", "results.sqlite not found"),
    ],
)
def test_wrong_words_are_bad_input(words, message, tmp_path, capsys):
    extra = [] if words == "flavour" else ["--out", str(tmp_path / "new")]
    assert main(["study", *words.split(), *extra]) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert "Traceback" not in printed


def test_gains_need_times(tmp_path, capsys):
    main(["study", "attributes", "--sizes", "8", "--seeds", "1", "--out", str(tmp_path)])
    assert main(["study", "gains", "--out", str(tmp_path)]) == 2
    assert "Run `fourward study times` first" in capsys.readouterr().err
    assert main(["study", "export", "--format", "xls", "--out", str(tmp_path)]) == 2


def test_an_unwritable_folder(tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    assert main(["study", "attributes", "--out", str(tmp_path / "file")]) == 2
    assert "can't write" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "mine"


def test_a_corrupt_file_is_not_changed(tmp_path, capsys):
    (tmp_path / "results.sqlite").write_bytes(b"SQLite format 3\0 and then nothing that makes sense" * 9)
    before = (tmp_path / "results.sqlite").read_bytes()
    for words in (["attributes"], ["status"], ["gains"], ["export"]):
        assert main(["study", *words, "--out", str(tmp_path)]) == 2
        assert "The file was not changed" in capsys.readouterr().err
    assert (tmp_path / "results.sqlite").read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_a_full_disk_ends_the_study_and_keeps_what_is_done(tmp_path, capsys, monkeypatch):
    original = _sqlite.open_file

    def small(path, *, writing):
        connection = original(path, writing=writing)
        connection.execute("PRAGMA max_page_count = 9")
        return connection

    words = ["study", "attributes", "--sizes", "8,9,10", "--seeds", "5", "--out", str(tmp_path)]
    with monkeypatch.context() as patch:
        patch.setattr(_sqlite, "open_file", small)
        assert main(words) == 1
    assert "free some space and start the same study again" in capsys.readouterr().err
    saved = [row.key for row in rows(tmp_path)]
    assert 1 <= len(saved) < 75
    assert main(words) == 0
    assert [row.key for row in rows(tmp_path)][: len(saved)] == saved
    assert len(rows(tmp_path)) == 75


def test_ctrl_c_keeps_what_is_done_and_says_how_to_go_on(tmp_path, capsys, monkeypatch):
    original, count = _grid._describe, iter(range(100))

    def interrupted(keys):
        if next(count) == 3:
            raise KeyboardInterrupt
        return original(keys)

    words = ["attributes", "--sizes", "8", "--seeds", "2", "--out", str(tmp_path)]
    monkeypatch.setattr(_grid, "_describe", interrupted)
    assert main(["study", *words]) == 130
    assert "3 runs saved in" in (printed := capsys.readouterr().err)
    assert "Run the same command to continue" in printed
    assert len(rows(tmp_path)) == 3
    assert main(["study", *words]) == 0
    assert len(rows(tmp_path)) == 10


def killed(folder, words, at_least):
    """Start a study in a new process, kill -9 it after at least so many rows, and return what is saved."""
    command = [sys.executable, "-m", "fourward", "study", *words, "--out", str(folder)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=ALONE)
    try:
        end = time.monotonic() + 120
        while time.monotonic() < end:
            assert process.poll() is None, process.stderr.read()
            if (folder / "results.sqlite").exists() and len(rows(folder)) >= at_least:
                break
            time.sleep(0.02)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stderr.close()
    return [(row.key, row.values, row.when) for row in rows(folder)]


def test_a_killed_study_goes_on_with_nothing_lost_and_nothing_twice(tmp_path):
    words = ["times", *TINY, "--seeds", "20"]
    saved = killed(tmp_path, words, 20)
    assert 20 <= len(saved) < 320
    command = [sys.executable, "-m", "fourward", "study", *words, "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=ALONE)
    assert done.returncode == 0, done.stderr
    assert f"{320 - len(saved)} done" in done.stdout
    assert f"{len(saved)} runs skipped: already in the file" in done.stdout
    stored = [(row.key, row.values, row.when) for row in rows(tmp_path)]
    assert stored[: len(saved)] == saved
    assert len({str(sorted(key.items())) for key, _, _ in stored}) == len(stored) == 320
    assert [path.name for path in tmp_path.iterdir()] == ["results.sqlite"]


def test_lines_of_progress_are_printed_now_and_then_and_at_the_end(capsys):
    report = ProgressLines(interval=3600.0)
    for ended in range(4):
        report(Progress("times", ended, 3, None, 1.0, 0))
    assert capsys.readouterr().err == "times: 0 of 3 runs, about 1 s left\ntimes: 3 of 3 runs, done\n"


def test_other_environments_are_omitted_and_counted(tmp_path, capsys):
    for name in ("a", "b"):
        with Store(tmp_path / "results.sqlite", environment={"processor": name}) as results:
            results.add("times", {"size": 8}, {})
    (row,) = cli_study._latest_rows(tmp_path, "times")
    assert row.environment["processor"] == "b"
    assert "rows of 1 other environment (machine, versions or commit)" in capsys.readouterr().err
