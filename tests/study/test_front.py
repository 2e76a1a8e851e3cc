"""The command lines of the study, as a user gives them."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from fourward._cli import study as cli_study
from fourward._cli.app import main
from fourward.study import _grid, _progress, _store
from fourward.study.__main__ import main as bare_main
from fourward.study._progress import PlainProgress, left_text
from fourward.study._run import Progress
from fourward.study._store import Store

ALONE = os.environ | {"OMP_NUM_THREADS": "1"}  # threads that wait for one another are slow on a busy machine
TINY = ["--sizes", "8,12", "--densities", "0.5,1.0", "--batch-sizes", "2", "--seeds", "2", "--batches", "2"]


def rows(folder, experiment=None):
    with Store(folder / "results.sqlite", create=False) as results:
        return results.rows(experiment, all_facts=True)


def test_status_shows_what_looks_like_markup_as_it_is(tmp_path, capsys):
    with Store(tmp_path / "results.sqlite", facts={"commit": "a"}) as results:
        results.add("times", {"[/red]": "[/blue]", "method": "[/green]"}, {})
    assert main(["study", "status", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert all(word in said for word in ("[/red]", "[/blue]", "[/green]"))


def test_a_small_study_from_start_to_end(tmp_path, capsys, monkeypatch):
    learned = []  # topologies have tests of their own; here they would take a minute
    monkeypatch.setattr(cli_study, "topologies", lambda *given, **options: learned.append((given, options)))
    monkeypatch.setattr(cli_study, "figures", lambda out: None)  # the report draws the same ones
    words = ["--out", str(tmp_path)]
    assert main(["study", "all", *TINY, *words]) == 0
    assert learned == [((tmp_path,), {"seeds": 2, "commit": None})]
    assert (tmp_path / "report.html").exists()
    said = capsys.readouterr()
    assert "in 1" in said.out or "done in" in said.out
    assert "times: 32 of 32 runs, done" in said.err
    counted = {name: len(rows(tmp_path, name)) for name in ("attributes", "times", "reassignment", "training")}
    assert counted == {"attributes": 8, "times": 32, "reassignment": 2 * 2 * 10 * 2, "training": 32}
    assert main(["study", "times", *TINY, *words]) == 0
    assert "nothing new" in capsys.readouterr().out
    assert len(rows(tmp_path, "times")) == 32

    assert main(["study", "status", *words, "--json"]) == 0
    (group,) = json.loads(capsys.readouterr().out)["groups"]
    assert {one["name"]: (one["done"], one["wanted"]) for one in group["experiments"]} == {
        "attributes": (8, 8), "times": (32, 32), "reassignment": (80, 80), "training": (32, 32)
    }  # fmt: skip
    assert main(["study", "status", *words]) == 0
    said = capsys.readouterr().out
    assert "times: 32 done, 0 cut off, 0 failed, 32 asked for" in said
    assert "reduced: seeds: 2 instead of 30" in said
    assert "2/2" in said

    assert main(["study", "gains", *words, "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert len(table) == 4 * 5
    assert all(line["gain"] > 0 and line["graphs"] == 2 for line in table)
    assert main(["study", "gains", "--training", *words]) == 0
    assert "sequential / 4ward" in capsys.readouterr().out

    assert main(["study", "export", *words, "--format", "csv", "--to", str(tmp_path / "tables")]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(list((tmp_path / "tables").iterdir())) == 5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("times --methods 4ward,5ward", "methods: '5ward' came, but there are only 'sequential', 'deepstruct'"),
        ("times --sizes 1", "sizes: 1 came, but a whole number from 2"),
        ("times --seeds 0", "seeds: 0 came"),
        ("times --device tpu", "device: 'tpu' came"),
        ("reassignment --methods sequential", "layerings play no part"),
        ("flavour", "flavour"),
        ("times --seeds many", "--seeds"),
        ("gains", "there is no results file"),
        ("status", "there is no results file"),
        ("export", "there is no results file"),
    ],
)
def test_wrong_words_are_bad_input(words, said, tmp_path, capsys):
    extra = [] if words == "flavour" else ["--out", str(tmp_path / "new")]
    assert main(["study", *words.split(), *extra]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert "Traceback" not in told


def test_gains_need_times(tmp_path, capsys):
    main(["study", "attributes", "--sizes", "8", "--seeds", "1", "--out", str(tmp_path)])
    assert main(["study", "gains", "--out", str(tmp_path)]) == 2
    assert "Run `fourward study times` first" in capsys.readouterr().err
    assert main(["study", "export", "--format", "xls", "--out", str(tmp_path)]) == 2


def test_an_unwritable_folder(tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    assert main(["study", "attributes", "--out", str(tmp_path / "file")]) == 2
    assert "can't be written" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "mine"


def test_a_damaged_file_is_left_as_it_is(tmp_path, capsys):
    (tmp_path / "results.sqlite").write_bytes(b"SQLite format 3\0 and then nothing that makes sense" * 9)
    before = (tmp_path / "results.sqlite").read_bytes()
    for words in (["attributes"], ["status"], ["gains"], ["export"]):
        assert main(["study", *words, "--out", str(tmp_path)]) == 2
        assert "It was left as it is" in capsys.readouterr().err
    assert (tmp_path / "results.sqlite").read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_a_full_disk_ends_the_study_and_keeps_what_is_done(tmp_path, capsys, monkeypatch):
    original = _store._open

    def small(path, *, writing):
        connection = original(path, writing=writing)
        connection.execute("PRAGMA max_page_count = 9")
        return connection

    words = ["study", "attributes", "--sizes", "8,9,10", "--seeds", "5", "--out", str(tmp_path)]
    with monkeypatch.context() as patch:
        patch.setattr(_store, "_open", small)
        assert main(words) == 1
    assert "make room, and give the same command again" in capsys.readouterr().err
    kept = [row.key for row in rows(tmp_path)]
    assert 1 <= len(kept) < 75
    assert main(words) == 0
    assert [row.key for row in rows(tmp_path)][: len(kept)] == kept
    assert len(rows(tmp_path)) == 75


def test_ctrl_c_keeps_what_is_done_and_says_how_to_go_on(tmp_path, capsys, monkeypatch):
    original, count = _grid._describe, iter(range(100))

    def interrupted(wanted):
        if next(count) == 3:
            raise KeyboardInterrupt
        return original(wanted)

    words = ["attributes", "--sizes", "8", "--seeds", "2", "--out", str(tmp_path)]
    monkeypatch.setattr(_grid, "_describe", interrupted)
    assert main(["study", *words]) == 130
    assert "3 runs are kept in" in (said := capsys.readouterr().err)
    assert "The same command goes on from there" in said
    assert len(rows(tmp_path)) == 3
    assert bare_main(words) == 0
    assert len(rows(tmp_path)) == 10


def killed(folder, words, at_least):
    """Start a study in a process of its own, kill -9 it when so many rows are there, and tell what is kept."""
    command = [sys.executable, "-m", "fourward.study", *words, "--out", str(folder)]
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
    kept = killed(tmp_path, words, 20)
    assert 20 <= len(kept) < 320
    command = [sys.executable, "-m", "fourward.study", *words, "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=ALONE)
    assert done.returncode == 0, done.stderr
    assert f"{320 - len(kept)} done" in done.stdout
    assert f"{len(kept)} runs there already" in done.stdout
    found = [(row.key, row.values, row.when) for row in rows(tmp_path)]
    assert found[: len(kept)] == kept
    assert len({str(sorted(key.items())) for key, _, _ in found}) == len(found) == 320
    assert [path.name for path in tmp_path.iterdir()] == ["results.sqlite"]


def test_it_runs_with_nothing_but_torch_numpy_networkx_and_numba(tmp_path):
    code = """
import sys
for name in ("rustworkx", "scipy", "safetensors", "matplotlib", "rich", "typer", "pandas", "pyarrow", "sklearn",
             "lightning", "dask", "distributed", "pytest", "hypothesis"):
    sys.modules[name] = None
from fourward.study.__main__ import main
sys.exit(main(["all", *sys.argv[1:]]) or main(["gains", *sys.argv[-2:]]) or main(["status", *sys.argv[-2:]]))
"""
    command = [sys.executable, "-W", "error", "-c", code, *TINY, "--seeds", "1", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=ALONE)
    assert done.returncode == 0, done.stderr
    assert '"gain"' in done.stdout


def test_a_bare_command_line_has_the_same_exit_codes(tmp_path, capsys):
    assert bare_main(["times", "--methods", "5ward", "--out", str(tmp_path)]) == 2
    assert "'5ward' came" in capsys.readouterr().err
    with pytest.raises(SystemExit) as caught:
        bare_main(["flavour"])
    assert caught.value.code == 2


def test_the_time_left_is_told_as_far_as_it_is_known():
    key = {"size": 64}
    assert left_text(Progress("times", 3, 3, key, 0.0, 0)) == "done"
    assert left_text(Progress("times", 1, 3, key, 90.0, 0)) == "about 1 min 30 s left"
    assert left_text(Progress("times", 1, 3, key, 90.0, 2)) == "at least 1 min 30 s left, 2 cells not seen yet"
    assert left_text(Progress("times", 0, 3, None, 0.0, 2)) == "2 cells not seen yet"


def test_lines_of_progress_come_now_and_then_and_at_the_end(capsys):
    say = PlainProgress(every=3600.0)
    for ended in range(4):
        say(Progress("times", ended, 3, None, 1.0, 0))
    assert capsys.readouterr().err == "times: 0 of 3 runs, about 1 s left\ntimes: 3 of 3 runs, done\n"


def test_other_machines_are_left_out_and_named(tmp_path, capsys):
    for name in ("one", "two"):
        with Store(tmp_path / "results.sqlite", facts={"processor": name}) as results:
            results.add("times", {"size": 8}, {})
    (row,) = _progress.newest(tmp_path, "times")
    assert row.facts["processor"] == "two"
    assert "rows of 1 other machines" in capsys.readouterr().err
