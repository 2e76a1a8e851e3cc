"""The command line's frame: help, versions, exit codes, messages without tracebacks."""

import subprocess
import sys

import pytest

from fourward import __version__
from fourward._cli import app
from fourward.errors import GraphError, MissingExtraError
from fourward.graph import _spec


def test_help_names_the_commands(capsys):
    assert app.main(["--help"]) == 0
    assert "demo" in capsys.readouterr().out


def test_version(capsys):
    assert app.main(["--version"]) == 0
    assert capsys.readouterr().out == f"fourward {__version__}\n"


@pytest.mark.parametrize("words", [["dmeo"], ["demo", "--epochs", "many"], ["demo", "--epoch-count", "3"]])
def test_wrong_words_are_bad_input(words, capsys):
    assert app.main(words) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (GraphError("no nodes came"), 2, "fourward: no nodes came\n"),
        (MissingExtraError("install it"), 1, "fourward: install it\n"),
        (OSError(28, "No space left on device", "out.png"), 1, "fourward: out.png: No space left on device\n"),
        (KeyboardInterrupt(), 130, "fourward: interrupted\n"),
        (RuntimeError("odd"), 1, "fourward: RuntimeError: odd\nThis is a defect"),
    ],
)
def test_errors_have_exit_codes_and_no_traceback(error, code, text, monkeypatch, capsys):
    def fail(words):
        raise error

    monkeypatch.setattr(app, "_run", fail)
    assert app.main(["demo"]) == code
    assert capsys.readouterr().err.startswith(text)
    assert app.main(["demo", "--debug"]) == code
    assert "Traceback" in capsys.readouterr().err


def test_ctrl_c_within_a_command_is_said(monkeypatch, capsys):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(_spec, "find", stop)
    assert app.main(["info", "er:9:0.5"]) == 130
    assert capsys.readouterr().err == "fourward: interrupted\n"


def test_the_command_starts_without_torch():
    code = "import sys; from fourward._cli.app import main; main(['--help']); assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
