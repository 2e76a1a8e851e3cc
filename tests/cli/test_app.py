"""The command line's frame: help, versions, exit codes, messages without tracebacks."""

import subprocess
import sys

import pytest

from fourward import __version__
from fourward._cli import app
from fourward.errors import GraphError, MissingExtraError, Repair
from fourward.graph import _spec


def test_help_names_the_commands(capsys):
    assert app.main(["--help"]) == 0
    assert "demo" in capsys.readouterr().out


def test_version(capsys):
    assert app.main(["--version"]) == 0
    assert capsys.readouterr().out == f"fourward {__version__}\n"


@pytest.mark.parametrize("args", [["dmeo"], ["demo", "--epochs", "many"], ["demo", "--epoch-count", "3"]])
def test_usage_errors_are_bad_input(args, capsys):
    assert app.main(args) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (GraphError("the graph is empty."), 2, "fourward: the graph is empty.\n"),
        (MissingExtraError("install it"), 1, "fourward: install it\n"),
        (OSError(28, "No space left on device", "out.png"), 1, "fourward: out.png: No space left on device\n"),
        (KeyboardInterrupt(), 130, "fourward: interrupted\n"),
        (RuntimeError("odd"), 1, "fourward: RuntimeError: odd\nThis is a bug in fourward. Run with --debug"),
    ],
)
def test_errors_have_exit_codes_and_no_traceback(error, code, text, monkeypatch, capsys):
    def fail(args):
        raise error

    monkeypatch.setattr(app, "_run", fail)
    assert app.main(["demo"]) == code
    assert capsys.readouterr().err.startswith(text)
    assert app.main(["demo", "--debug"]) == code
    assert "Traceback" in capsys.readouterr().err


def test_ctrl_c_within_a_command_is_reported(monkeypatch, capsys):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(_spec, "resolve_graph", stop)
    assert app.main(["info", "er:9:0.5"]) == 130
    assert capsys.readouterr().err == "fourward: interrupted\n"


@pytest.mark.parametrize("words", [["--help"], ["info", "c-elegans"]])
def test_commands_start_without_what_takes_long_to_import(words):
    code = f"import sys; from fourward._cli.app import main; main({words}); "
    code += "assert not {'torch', 'networkx', 'pandas'} & {*sys.modules}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


ORIENT = Repair("orient", "random", "direct its edges")


@pytest.mark.parametrize(
    ("args", "repair", "flag"),
    [
        (["info", "g.csv"], ORIENT, "--orient random"),
        (["info", "g.csv"], Repair("remove_feedback", True, ""), "--remove-feedback"),
        (["info", "g.csv"], Repair("header", True, ""), "--header"),
        (["info", "g.csv"], Repair("header", False, ""), "--no-header"),
        (["info", "g.csv"], Repair("inputs", ..., ""), "--inputs ..."),
        (["info", "g.csv"], Repair("columns", ["pre", "post"], ""), "--columns pre,post"),
        (["--debug", "view", "draw"], Repair("around", "a", ""), "--around a"),
        (["study", "times", "--seeds", "3"], Repair("seeds", 2, ""), "--seeds 2"),
        (["study", "topologies"], Repair("workers", 2, ""), "--workers 2"),
    ],
)
def test_a_repair_is_a_flag_of_the_command_that_ran(args, repair, flag):
    assert app._as_flag(repair, args) == flag


@pytest.mark.parametrize(
    ("args", "repair", "flag"),
    [
        (["export", "g.csv"], ORIENT, "--orient random to `fourward graph`"),
        (["study", "times"], ORIENT, "--orient random to `fourward graph`"),
        (["study", "times"], Repair("around", "a", ""), "--around a to `fourward view`"),
        (["train", "g.csv"], Repair("workers", 2, ""), "--workers 2 to `fourward study topologies`"),
        ([], Repair("topology_only", True, ""), "--topology-only to `fourward graph`"),
    ],
)
def test_a_repair_is_a_flag_of_another_command_that_has_it(args, repair, flag):
    assert app._as_flag(repair, args) == flag


@pytest.mark.parametrize(
    ("repair", "keyword"),
    [
        (Repair("double_backward", True, ""), "double_backward=True in Python"),
        (Repair("merge", False, ""), "merge=False in Python"),  # there is no --no-merge
        (Repair("file", "x", ""), "file='x' in Python"),  # an argument, not an option
    ],
)
def test_a_repair_that_no_command_has_is_a_keyword(repair, keyword):
    assert app._as_flag(repair, ["graph", "x.csv"]) == keyword


def test_an_error_names_its_repairs_as_flags(monkeypatch, capsys):
    def fail(args):
        raise GraphError("the graph is undirected.", ORIENT)

    monkeypatch.setattr(app, "_run", fail)
    assert app.main(["info", "g.csv"]) == 2
    assert capsys.readouterr().err == "fourward: the graph is undirected. Pass --orient random to direct its edges.\n"
