"""`python -m fourward.study`: the timed experiments where only torch, numpy, networkx and numba are installed.

`fourward study` has the same and more, in colour.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from fourward.errors import FourwardError
from fourward.study._progress import PlainProgress, experiments_of, measure, newest, protocols, summary_text
from fourward.study._protocol import EXPERIMENTS, WORDS
from fourward.study._store import FILE, Store
from fourward.study._tables import gains, status

_WHOLE = ("seeds", "batches", "variants")


def main(words: list[str] | None = None) -> int:
    """Run a command line; returns the exit code: 0 done, 2 bad input, 1 a failure, 130 interrupted."""
    chosen = options().parse_args(words)
    try:
        _run(chosen)
    except FourwardError as error:
        print(f"fourward: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


def options() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m fourward.study", description=__doc__)
    add = parser.add_argument
    add("what", choices=(*EXPERIMENTS, "all", "gains", "status"))
    add("--out", type=Path, default=Path("study"), help=f"folder of {FILE}")
    add("--device", choices=("cpu", "cuda"), default="cpu")
    for name, text in WORDS.items():
        kind = int if name in _WHOLE else float if name == "cell_seconds" else str
        add(f"--{name.replace('_', '-')}", type=kind, help=text)
    add("--seconds", type=float, help="after which no new graph is begun")
    add("--retry", action="store_true", help="also run again what was cut off")
    add("--commit", help="of the code, where there is no git to ask")
    return parser


def _run(chosen: argparse.Namespace) -> None:
    if chosen.what == "status":
        with Store(chosen.out / FILE, create=False) as store:
            print(json.dumps(status(store), indent=1))
    elif chosen.what == "gains":
        print(json.dumps(gains(newest(chosen.out, "times")), indent=1))
    else:
        given = {name: getattr(chosen, name) for name in ("device", *WORDS)}
        asked = protocols(experiments_of(chosen.what), given)
        settings = {name: getattr(chosen, name) for name in ("seconds", "retry", "commit")}
        print(summary_text(measure(chosen.out, asked, on_progress=PlainProgress(), **settings), chosen.out))


if __name__ == "__main__":
    sys.exit(main())
