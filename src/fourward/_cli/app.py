"""The command `fourward`: collects its subcommands, and turns errors into messages and exit codes."""

from __future__ import annotations

import io
import shlex
import sys
import traceback
from collections.abc import Iterator, Sequence
from functools import cache, partial
from importlib import import_module
from typing import Any

from fourward._version import __version__
from fourward.errors import FourwardError, Repair, require

#: Modules of this package; `register(app)` of each adds its commands. Heavy imports stay inside the commands, so that
#: `fourward --help` doesn't import torch.
COMMANDS: list[str] = [
    "demo",
    "graph",
    "info",
    "export",
    "import_network",
    "bench",
    "train",
    "evaluate",
    "importance",
    "predict",
    "study",
    "draw",
    "view",
]
INTERRUPTED = 130  #: exit code after Ctrl-C


def main(args: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code: 0 success, 2 bad input, 1 a failure, 130 interrupted."""
    args = sys.argv[1:] if args is None else args
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr: what a terminal can't show is escaped
    debug = "--debug" in args
    args = [arg for arg in args if arg != "--debug"]
    try:
        return _run(args)
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED, debug)
    except FourwardError as error:
        return _fail(error.text(partial(_as_flag, args=args)), error.exit_code, debug)
    except OSError as error:  # a full disk, a folder without write permission
        return _fail(_format_os_error(error), 1, debug)
    except Exception as error:
        if hasattr(error, "exit_code") and hasattr(error, "show"):  # click's usage errors
            error.show()
            return int(error.exit_code)
        text = f"{type(error).__name__}: {error}\nThis is a bug in fourward. Run with --debug to see the traceback."
        return _fail(text, 1, debug)


def _run(args: list[str]) -> int:
    code = _build_command()(args=args, prog_name="fourward", standalone_mode=False)
    if code == INTERRUPTED:  # typer returns it after Ctrl-C
        raise KeyboardInterrupt
    return code if isinstance(code, int) else 0


@cache
def _build_command() -> Any:
    """All commands, as a click group, which takes 20 ms to build."""
    require("typer", "cli")
    import typer

    app = typer.Typer(
        name="fourward",
        help="Turn any directed graph of single neurons into a network that trains.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
        epilog="Every command takes --help, and --debug to show the traceback of an error.",
    )
    version_option = typer.Option(
        False, "--version", help="Show the version and exit.", is_eager=True, callback=_print_version
    )

    @app.callback()
    def root(version: bool = version_option) -> None:
        pass

    for name in COMMANDS:
        import_module(f"fourward._cli.{name}").register(app)
    return typer.main.get_command(app)


def _as_flag(repair: Repair, args: Sequence[str]) -> str:
    """A repair as a flag of the command that ran, or of the first one that has the option; else as a keyword."""
    group = _build_command()
    candidates = {path: flag for path, command in _subcommands(group) if (flag := _find_flag(command, repair))}
    if not candidates:
        return f"{repair.as_keyword()} in Python"
    path = _resolve(group, args)
    if path in candidates:
        return candidates[path]
    path, flag = next(iter(candidates.items()))
    return f"{flag} to `fourward {' '.join(path)}`"


def _subcommands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with its path, such as ("study", "times")."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _subcommands(command, (*path, name))
        else:
            yield (*path, name), command


def _resolve(group: Any, args: Sequence[str]) -> tuple[str, ...]:
    """The path of the command that a command line calls."""
    path: list[str] = []
    for arg in args:
        if arg in getattr(group, "commands", {}):
            path.append(arg)
            group = group.commands[arg]
    return tuple(path)


def _find_flag(command: Any, repair: Repair) -> str | None:
    """A repair as a flag of a command; None if it has no such option."""
    parameter = next((each for each in command.params if each.name == repair.option), None)
    if parameter is None or parameter.param_type_name != "option":
        return None
    if isinstance(repair.value, bool):
        flags = parameter.opts if repair.value else parameter.secondary_opts
        return max(flags, key=len, default=None)
    text = "..." if repair.value is ... else shlex.quote(_format_value(repair.value))
    return f"{max(parameter.opts, key=len)} {text}"


def _format_value(value: object) -> str:
    """A value as options take it: a list as a,b, a name and a table as name:a=1,b=2."""
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], dict):
        return f"{value[0]}:{','.join(f'{key}={number}' for key, number in value[1].items())}"
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _print_version(requested: bool) -> None:
    if requested:
        print(f"fourward {__version__}")
        raise require("typer", "cli").Exit


def _format_os_error(error: OSError) -> str:
    prefix = f"{error.filename}: " if error.filename is not None else ""
    return f"{prefix}{error.strerror or error}"


def _fail(message: str, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    print(f"fourward: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
