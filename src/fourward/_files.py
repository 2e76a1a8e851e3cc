"""Atomic writes, which leave no half-written file; names of the checkpoints in the folder of a training run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

BEST = "best.safetensors"  #: file name, in the folder of a run, of the checkpoint with the lowest validation loss
LAST = "last.safetensors"  #: file name, in the folder of a run, of the checkpoint after the latest epoch

EDITS = "edits.safetensors"  #: file name, in the folder of a run, of the history of its edits


def remove_temporaries(folder: Path) -> None:
    """Remove the temporary files that `replacing` left in a folder because its process was killed."""
    for path in folder.iterdir():
        if re.fullmatch(r"\..+\.\d+\.(safetensors|csv|json)", path.name):
            path.unlink(missing_ok=True)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`, with the same suffix; renamed to it if the block succeeds, else removed.

    The data is on disk (fsync) before the file has its name. An OSError names `path`, not the temporary file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        yield temporary
        with temporary.open("r+b") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(temporary), temporary):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        with suppress(OSError):
            temporary.unlink()
