"""Runs the tests of the gpu engine on a GPU, and a set of small graphs under the memory checker.

Compiling takes most of the time, so the tests run in several processes, each with a shard of them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

NAMES = (
    "contract",
    "recurrent",
    "gpu_kernels",
    "gpu_recurrent",
    "gpu_card",
    "gpu_engine",
    "gpu_launch",
    "gpu_kernel_launch",
    "gpu_heuristics",
    "gpu_tiling",
    "population",
)
MEMCHECK_TESTS = [
    "tests/engine/test_contract.py",
    "tests/engine/test_gpu_kernels.py",
    "-k",
    "(test_zoo and gpu and float32 and not chain) or (csr and fused and (odd or needed or hubs))",
]
MEMCHECK = ["compute-sanitizer", "--tool", "memcheck", "--report-api-errors", "no", "--error-exitcode", "86"]


class Shard:
    """Pytest in a new process, with a log."""

    def __init__(self, name: str, arguments: list[str], before: list[str], folder: Path, **environment: str) -> None:
        self.name, self.log = name, folder / f"{name}.log"
        command = [*before, sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *arguments]
        with self.log.open("w") as log:
            joined = {**os.environ, **environment, "PYTHONUNBUFFERED": "1"}
            self.process = subprocess.Popen(
                command, env=joined, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def report(self) -> bool:
        """Print the outcome, and the failures from its log; stop it if it still runs."""
        lines = self.log.read_text().strip().splitlines()
        code = self.process.poll()
        outcome = "passed" if code == 0 else "STOPPED, out of time" if code is None else f"FAILED ({code})"
        print(f"{self.name}: {outcome}: {lines[-1] if lines else 'no output'}", flush=True)
        if code is None:
            os.killpg(self.process.pid, signal.SIGKILL)  # the checker's child, too
        elif code != 0:
            print(
                "\n".join(line for line in lines if line.startswith(("FAILED", "ERROR", "E  ", "========= "))),
                flush=True,
            )
        return code == 0


def main() -> int:
    """0 if all passed, 1 if something failed or took too long, 2 without a GPU."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=min(8, os.cpu_count() or 1))
    parser.add_argument("--seconds", type=float, default=900.0, help="time limit")
    parser.add_argument("--select", default="gpu", help="an expression of pytest's -k")
    parser.add_argument(
        "--names", nargs="+", choices=NAMES, default=NAMES, help="parts of the suite, such as recurrent"
    )
    parser.add_argument("--no-checker", action="store_true", help="skip the memory checker")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("tools/test_gpu.py needs a CUDA device, and torch sees none here.", file=sys.stderr)
        print("`make test` runs the same suite in Triton's interpreter.", file=sys.stderr)
        return 2
    began = time.perf_counter()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder, of = Path(name), options.processes
        arguments = [*(f"tests/engine/test_{name}.py" for name in options.names), "-k", options.select]
        shards = [Shard(f"shard {i}", arguments, [], folder, FOURWARD_SHARE=f"{i}/{of}") for i in range(of)]
        if options.no_checker or shutil.which(MEMCHECK[0]) is None:
            print(f"{MEMCHECK[0]} isn't installed, or was skipped: memory accesses aren't checked.", flush=True)
        else:  # without torch's caching allocator, every tensor is an allocation that the checker sees
            shards.append(Shard("memory checker", MEMCHECK_TESTS, MEMCHECK, folder, PYTORCH_NO_CUDA_MEMORY_CACHING="1"))
        while any(s.process.poll() is None for s in shards) and time.perf_counter() - began < options.seconds:
            time.sleep(0.5)
        good = [shard.report() for shard in shards]
    print(f"{time.perf_counter() - began:.0f} s", flush=True)
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
