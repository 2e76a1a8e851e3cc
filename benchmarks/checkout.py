"""Another checkout of fourward, such as an earlier commit's, in a new process that takes turns with this one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from benchmarks import worker
from fourward.study._environment import command_output
from fourward.study._timing import Call, HostClock

#: Seconds before and after a turn of the other process, in which the threads of the one that pauses stop spinning.
SETTLE = 0.02


class Checkout:
    """A `benchmarks.worker` that imports fourward from another folder."""

    def __init__(self, folder: Path, threads: int) -> None:
        source = folder.resolve() / "src"
        command = [sys.executable, "-P", worker.__file__]
        environment = {**os.environ, "PYTHONPATH": str(source)}
        self.commit = command_output("git", "-C", str(folder), "rev-parse", "HEAD")
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        try:
            imported = self.request("start", threads=threads)
            if source not in Path(imported).parents:
                raise ValueError(f"expected fourward of {source}, got {imported}. Name a checkout with a folder src.")
        except BaseException:
            self.close()
            raise

    def request(self, do: str, **arguments: Any) -> Any:
        """Send a request, and return the answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self.process.stdin.flush()
        reply = self.process.stdout.readline()
        if not reply:
            raise RuntimeError(f"the process of the other checkout ended with code {self.process.wait()}")
        answer = json.loads(reply)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["value"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class RemoteCall:
    """A call in another checkout. Calls that aren't timed warm it up; they take place before the next that is."""

    def __init__(self, checkout: Checkout, name: str) -> None:
        self.checkout, self.name, self.warmup = checkout, name, 0

    def __call__(self) -> None:
        """Add a call to the warm-up."""
        self.warmup += 1

    def time(self, calls: int) -> float:
        """Seconds of consecutive calls there."""
        time.sleep(SETTLE)
        seconds = self.checkout.request("time", name=self.name, calls=calls, warmup=self.warmup)
        time.sleep(SETTLE)
        self.warmup = 0
        return float(seconds)


class TurnClock(HostClock):
    """For calls here and in other checkouts."""

    def time(self, call: Call, calls: int = 1) -> float:
        """By perf_counter, wherever the call is."""
        return call.time(calls) if isinstance(call, RemoteCall) else super().time(call, calls)
