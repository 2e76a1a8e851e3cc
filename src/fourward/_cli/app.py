"""The command `fourward`: its commands, and what becomes of errors."""

from __future__ import annotations

import sys
import traceback
from functools import partial
from importlib import import_module
from typing import Any

from fourward._version import __version__
from fourward.errors import FourwardError, Repair, require

#: Modules of this room; each has `register(app)`, which adds its commands. Heavy imports stay inside the commands.
COMMANDS: list[str] = [
    "demo",
    "graph",
    "info",
    "export",
    "import_network",
    "bench",
    "train",
    "evaluate",
    "predict",
    "study",
    "draw",
    "view",
]


INTERRUPTED = 130


def main(words: list[str] | None = None) -> int:
    """Run a command line; returns the exit code: 0 done, 2 bad input, 1 a failure, 130 interrupted."""
    words = sys.argv[1:] if words is None else words
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    try:
        return _run(words)
    except KeyboardInterrupt:
        return _say("interrupted", INTERRUPTED, debug)
    except FourwardError as error:
        return _say(error.text(partial(_as_flag, words=words)), error.exit_code, debug)
    except OSError as error:  # a full disk, a folder that can't be written
        return _say(_os_text(error), 1, debug)
    except Exception as error:
        if hasattr(error, "exit_code") and hasattr(error, "show"):  # the command line itself was wrong
            error.show()
            return int(error.exit_code)
        text = f"{type(error).__name__}: {error}\nThis is a defect of fourward. --debug shows where it happened."
        return _say(text, 1, debug)


def _run(words: list[str]) -> int:
    code = _command()(args=words, prog_name="fourward", standalone_mode=False)
    if code == INTERRUPTED:  # what typer makes of Ctrl-C
        raise KeyboardInterrupt
    return code if isinstance(code, int) else 0


def _command() -> Any:
    """All commands, as a click group."""
    require("typer", "cli")
    import typer

    app = typer.Typer(
        name="fourward",
        help="Any directed acyclic graph of single neurons, as a network that trains.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
        epilog="Every command takes --help, and --debug to see the traceback of an error.",
    )

    shown = typer.Option(False, "--version", help="Show the version.", is_eager=True, callback=_version)

    @app.callback()
    def root(version: bool = shown) -> None:
        pass

    for name in COMMANDS:
        import_module(f"fourward._cli.{name}").register(app)
    return typer.main.get_command(app)


def _as_flag(repair: Repair, words: list[str]) -> str:
    """A repair as a flag of the command that was run, or of another one that has it."""
    commands = _command().commands
    name = next((word for word in words if word in commands), None)
    options = {
        command: {param.name: max(param.opts, key=len) for param in commands[command].params} for command in commands
    }
    has_it = [command for command in options if repair.option in options[command]]
    if not has_it:
        return repair.as_keyword() + " in Python"
    home = name if name in has_it else has_it[0]
    value = "" if isinstance(repair.value, bool) else " ..." if repair.value is ... else f" {repair.value}"
    flag = options[home][repair.option] + value
    return flag if home == name else f"{flag} to `fourward {home}`"


def _version(wanted: bool) -> None:
    if wanted:
        print(f"fourward {__version__}")
        raise require("typer", "cli").Exit


def _os_text(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename is not None else ""
    return f"{where}{error.strerror or error}"


def _say(text: str, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    print(f"fourward: {text}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
