"""The results file: what is in it stays in it, whatever happens."""

import json
import multiprocessing
import sqlite3

import numpy as np
import pytest

from fourward.errors import OptionError, StudyError
from fourward.study import _environment, _sqlite
from fourward.study._store import Store

HERE, ELSEWHERE = {"processor": "one", "commit": "a"}, {"processor": "two", "commit": "a"}
KEY = {"size": 64, "p": 0.2, "method": "4ward", "weighted": None}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "new folder" / "results.sqlite"


def test_a_row_comes_back_as_it_was(path):
    with Store(path, environment=HERE) as results:
        results.add("times", KEY, {"mean": np.float32(0.5), "all": np.arange(3)}, note="fine", seconds=2.5)
        results.add("times", KEY | {"p": 1.0}, {}, status="cut off", note="slow")
    with Store(path, create=False, environment=HERE) as results:
        first, second = results.rows("times")
    assert (first.experiment, first.key, first.values) == ("times", KEY, {"mean": 0.5, "all": [0, 1, 2]})
    assert (first.status, first.note, first.seconds) == ("done", "fine", 2.5)
    assert first.when.endswith("+00:00")
    assert first.environment.items() >= HERE.items()
    assert (second.status, second.note, second.values) == ("cut off", "slow", {})


def test_the_same_parameters_are_the_same_run_however_they_are_written(path):
    with Store(path, environment=HERE) as results:
        results.add("times", {"p": 1.0, "size": 64}, {})
        assert results.has("times", {"size": np.int64(64), "p": 1})
        assert not results.has("times", {"size": 64, "p": 0.5})
        assert not results.has("training", {"size": 64, "p": 1})
        with pytest.raises(StudyError, match="already has this run of times"):
            results.add("times", {"size": 64, "p": 1}, {"mean": 2})
        assert [row.values for row in results.rows()] == [{}]


@pytest.mark.parametrize("value", [[1], float("nan"), float("inf"), np.ones(2), object()])
def test_a_parameter_is_text_or_a_number(path, value):
    with Store(path, environment=HERE) as results, pytest.raises(StudyError, match="size="):
        results.has("times", {"size": value})


def test_what_cannot_be_stored_is_refused_and_leaves_nothing(path):
    with Store(path, environment=HERE) as results:
        with pytest.raises(StudyError, match="JSON"):
            results.add("times", KEY, {"mean": object()})
        with pytest.raises(OptionError, match="'almost'"):
            results.add("times", KEY, {}, status="almost")
        assert results.rows() == []


def test_failed_runs_are_repeated_and_cut_off_ones_on_request(path):
    with Store(path, environment=HERE) as results:
        results.add("times", KEY, {}, status="failed", note="no memory")
        assert not results.has("times", KEY)
        results.add("times", KEY, {"count": 1}, status="cut off")
        assert results.has("times", KEY)
        assert not results.has("times", KEY, cut_off=False)
        results.add("times", KEY, {"count": 9})
        assert [(row.status, row.values) for row in results.rows()] == [("done", {"count": 9})]


def test_machines_and_commits_are_kept_apart(path):
    with Store(path, environment=HERE) as results:
        results.add("times", KEY, {"mean": 1})
    with Store(path, environment=ELSEWHERE) as results:
        assert not results.has("times", KEY)
        results.add("times", KEY, {"mean": 2})
        assert [row.values["mean"] for row in results.rows()] == [2]
        rows = results.rows(all_environments=True)
        assert [(row.values["mean"], row.environment["processor"]) for row in rows] == [(1, "one"), (2, "two")]
        assert len({row.environment["id"] for row in rows}) == 2


def test_protocols_are_noted_and_the_last_one_counts(path):
    with Store(path, environment=HERE) as results:
        results.set_protocol("times", {"seeds": 3})
        results.set_protocol("times", {"seeds": 4})
        assert results.protocols() == {"times": {"seeds": 4}}


def test_one_writes_and_others_read(path):
    with Store(path, environment=HERE) as results:
        results.add("times", KEY, {})
        with pytest.raises(StudyError, match=r"another process is writing to .*results.sqlite"):
            Store(path, environment=HERE)
        with Store(path, create=False, environment=HERE) as reader:
            results.add("times", KEY | {"p": 1.0}, {})
            assert len(reader.rows()) == 2
            with pytest.raises(StudyError, match="opened for reading"):
                reader.add("times", {}, {})
    with Store(path, environment=HERE) as results:
        results.add("times", {}, {})
    assert [entry.name for entry in path.parent.iterdir()] == ["results.sqlite"]


def _try(path, messages):
    try:
        Store(path, environment=HERE).close()
        messages.put("opened")
    except StudyError as error:
        messages.put(str(error))


def test_the_lock_holds_between_processes(path):
    context = multiprocessing.get_context("spawn")
    messages = context.Queue()
    with Store(path, environment=HERE):
        process = context.Process(target=_try, args=(path, messages))
        process.start()
        assert messages.get(timeout=60).startswith("another process is writing")
        process.join()


def refused(path, match, **options):
    """Opening fails, and leaves the folder and the file byte for byte as they were."""
    before = contents(path.parent)
    with pytest.raises(StudyError, match=match) as caught:
        Store(path, environment=HERE, **options)
    assert caught.value.exit_code == 2
    assert contents(path.parent) == before


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def filled(path, rows=20):
    with Store(path, environment=HERE) as results:
        for seed in range(rows):
            results.add("times", KEY | {"seed": seed}, {"mean": 0.5, "text": "x" * 9000})


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize(("version", "age"), [(0, "an older"), (_sqlite.VERSION + 1, "a newer")])
def test_another_version_is_refused(path, version, age, create):
    filled(path, rows=3)
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    refused(path, f"{age} version of fourward: expected schema version 1, got {version}", create=create)


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("content", [b"", b"size,p\n64,0.2\n", b"SQLite format 3\0", bytes(range(256)) * 40])
def test_other_files_are_refused(path, content, create):
    path.parent.mkdir()
    path.write_bytes(content)
    refused(path, "is not a results file", create=create)


def test_a_database_of_another_application_is_refused(path):
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE runs (x)")
    connection.close()
    refused(path, "an SQLite file of another application")


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("corruption", ["truncated", "overwritten"])
def test_a_corrupt_file_is_refused(path, corruption, create):
    filled(path)
    content = bytearray(path.read_bytes())
    if corruption == "truncated":
        del content[len(content) // 2 :]
    else:
        content[len(content) // 3 : len(content) // 2] = b"\xff" * (len(content) // 2 - len(content) // 3)
    path.write_bytes(content)
    refused(path, "is corrupt", create=create)


def killed(path):
    """What a killed writer leaves: a file and its `-wal`, with a row that is in the latter alone."""
    filled(path)
    with Store(path, environment=HERE) as results:
        results.add("times", KEY | {"seed": 99}, {"mean": 0.5})
        left = {name: (path.parent / name).read_bytes() for name in (path.name, f"{path.name}-wal")}
    for name, content in left.items():
        (path.parent / name).write_bytes(content)


@pytest.mark.parametrize("create", [True, False])
def test_a_corrupt_file_that_a_killed_process_left_is_refused(path, create):
    killed(path)
    content = bytearray(path.read_bytes())
    content[len(content) // 3 : len(content) // 2] = b"\xff" * (len(content) // 2 - len(content) // 3)
    path.write_bytes(content)
    refused(path, "is corrupt", create=create)


@pytest.mark.parametrize("create", [True, False])
def test_an_intact_file_that_a_killed_process_left_has_all_its_rows(path, create):
    killed(path)
    with Store(path, create=create, environment=HERE) as results:
        assert len(results.rows()) == 21
    assert list(contents(path.parent)) == [path.name]


@pytest.mark.parametrize("create", [True, False])
def test_a_file_without_its_tables_is_refused(path, create):
    filled(path, rows=1)
    connection = sqlite3.connect(path)
    connection.execute("DROP TABLE runs")
    connection.close()
    refused(path, "no such table: runs", create=create)


def test_a_copy_that_changes_meanwhile_says_nothing(path, monkeypatch):
    killed(path)

    def grown(copy):
        wal = path.with_name(f"{path.name}-wal")
        wal.write_bytes(wal.read_bytes() + b"more")
        raise sqlite3.DatabaseError("torn")

    monkeypatch.setattr("fourward.study._sqlite._check_file", grown)
    with Store(path, create=False, environment=HERE) as results:
        assert len(results.rows()) == 21


def test_a_row_with_broken_text_is_named(path):
    filled(path, rows=3)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE runs SET \"values\" = '{' WHERE number = 2")
    connection.commit()
    connection.close()
    with Store(path, create=False) as results, pytest.raises(StudyError, match="corrupt"):
        results.rows(all_environments=True)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE protocols SET text = '{bad'",
        "UPDATE protocols SET text = 'null'",
        "UPDATE facts SET text = 'null'",
        "UPDATE runs SET key = '[1]'",
    ],
)
def test_broken_text_in_any_table_is_named(path, change):
    filled(path, rows=2)
    with Store(path, environment=HERE) as results:
        results.set_protocol("times", {"seeds": 2})
    connection = sqlite3.connect(path)
    connection.execute(change)
    connection.commit()
    connection.close()
    with (
        Store(path, create=False, environment=HERE) as results,
        pytest.raises(StudyError, match=f"{path.name} is corrupt"),
    ):
        results.protocols(), results.rows()


def test_a_lock_file_of_another_application_is_named(path):
    filled(path, rows=1)
    path.with_name(f".{path.name}.lock").write_bytes(b"junk" * 100)
    refused(path, r"\.results\.sqlite\.lock is not a lock file of fourward")


def test_invalid_unicode_is_refused_and_leaves_nothing(path):
    with Store(path, environment=HERE) as results:
        with pytest.raises(StudyError, match="can't store text"):
            results.add("times", KEY, {}, note="\udcff")
        assert results.rows() == []


def test_a_file_that_is_missing_is_not_made_for_reading(path):
    with pytest.raises(StudyError, match=r"results\.sqlite not found"):
        Store(path, create=False)
    assert not path.parent.exists()


def test_an_unwritable_folder(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StudyError, match=r"can't write .*results.sqlite: .*(exists|directory)"):
            Store(folder / "results.sqlite", environment=HERE)
    (tmp_path / "results.sqlite").mkdir()
    with pytest.raises(StudyError, match="can't read"):
        Store(tmp_path / "results.sqlite", environment=HERE)


def test_a_folder_that_is_read_only(path, monkeypatch):
    """Root may write everywhere: SQLite's error is raised instead of the folder's."""
    filled(path, rows=3)

    def refuse(*words, **options):
        raise sqlite3.OperationalError("unable to open database file")

    monkeypatch.setattr(_sqlite.sqlite3, "connect", refuse)
    refused(path, "can't write .*: unable to open database file. Choose a writable folder")


def test_a_file_that_is_read_only(path, monkeypatch):
    filled(path, rows=3)
    monkeypatch.setattr(_sqlite.os, "access", lambda path, mode: False)
    refused(path, "can't write")


def test_a_full_disk_loses_nothing(path):
    with Store(path, environment=HERE) as results:
        results.add("times", KEY, {"mean": 0.5})
        pages = results._connection.execute("PRAGMA page_count").fetchone()[0]
        results._connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StudyError, match=r"can't grow: .*full.* All earlier runs are safe") as caught:
            results.add("times", KEY | {"seed": 1}, {"text": "x" * 100_000})
        assert caught.value.exit_code == 1
        assert len(results.rows()) == 1
    with Store(path, environment=HERE) as results:
        assert not results.has("times", KEY | {"seed": 1})
        results.add("times", KEY | {"seed": 1}, {"text": "x" * 100_000})
        assert len(results.rows()) == 2


def test_tables_of_all_rows(path, tmp_path):
    pandas = pytest.importorskip("pandas")
    with Store(path, environment=HERE) as results:
        results.add("times", {"size": 64, "p": 0.2, "name": 'a "b", c'}, {"mean": 0.1, "curve": [1, 2]}, note="x\ny")
        results.add("times", {"size": 128, "p": 1.0, "name": None}, {"mean": None, "curve": []}, status="cut off")
        results.add("attributes", {"size": 64}, {"height": 20})
        frame = results.to_frame("times")
    assert frame["mean"].tolist()[0] == 0.1
    with Store(path, environment=ELSEWHERE) as results:
        results.add("attributes", {"size": 64}, {"height": 21})
        assert results.to_frame("attributes")["height"].tolist() == [21]
        for format, read in (("csv", pandas.read_csv), ("parquet", pandas.read_parquet)):
            paths = results.export(tmp_path / format, format)
            assert sorted(written.name for written in paths) == [
                f"{n}.{format}" for n in ("attributes", "environments", "times")
            ]
            times, attributes, known = (
                read(tmp_path / format / f"{n}.{format}") for n in ("times", "attributes", "environments")
            )
            times["note"] = times["note"].fillna("")  # CSV knows no empty text
            pandas.testing.assert_frame_equal(times, frame, check_dtype=False)
            assert json.loads(times["curve"][0]) == [1, 2]
            assert attributes["height"].tolist() == [20, 21]
            assert known.set_index("id").loc[attributes["environment"], "processor"].tolist() == ["one", "two"]
        with pytest.raises(OptionError, match="format must be one of 'csv', 'parquet', got 'xls'"):
            results.export(tmp_path, "xls")


@pytest.mark.parametrize("name", ["../evil", "environments", "Environments", "", "a/b", "/evil"])
def test_only_plain_names_become_tables(path, tmp_path, name):
    filled(path, rows=1)
    with Store(path, environment=HERE) as results:
        results.add(name, KEY, {})
        with pytest.raises(StudyError, match="can't name a table"):
            results.export(tmp_path / "tables" / "here")
    assert not (tmp_path / "tables").exists()


def test_the_environment_of_this_machine():
    environment = _environment.describe_environment()
    assert environment["versions"]["torch"]
    assert environment["threads"] >= 1
    assert json.loads(json.dumps(environment)) == environment
    assert _environment.describe_environment("abc")["commit"] == "abc"


def git(folder, *words):
    settings = "-c", "user.name=a", "-c", "user.email=a@b"
    assert _environment.command_output("git", "-C", str(folder), *settings, *words) != "unknown"


def test_the_code_is_known_by_the_last_commit_that_changed_it(tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "a.py").write_text("a = 1\n")
    bare = _environment.code_version(package)
    assert bare.startswith("source ")
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "one")
    first = _environment.code_version(package)
    assert len(first) == 40
    (tmp_path / "notes.txt").write_text("notes")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "two")
    assert _environment.code_version(package) == first
    (package / "a.py").write_text("a = 2\n")
    changed = _environment.code_version(package)
    assert changed.startswith(f"{first} with changes ")
    (package / "a.py").write_text("a = 3\n")
    assert _environment.code_version(package) not in (changed, first)
