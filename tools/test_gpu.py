"""All that is tested on a card: the contract suite and the large cases, then the small zoo under the memory checker.

Compiling takes most of the time, so the tests run in several processes, each with its share of them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time

import torch

SUITE = ["tests/engine/test_contract.py", "tests/engine/test_gpu.py"]
CHECKED = ["tests/engine/test_contract.py", "-k", "test_zoo and gpu and float32 and not chain"]
CHECKER = ["compute-sanitizer", "--tool", "memcheck", "--error-exitcode", "86"]


def start(arguments: list[str], before: list[str], **environment: str) -> subprocess.Popen[str]:
    """Pytest in a process of its own."""
    command = [*before, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, env={**os.environ, **environment}, **pipes)  # type: ignore[call-overload, no-any-return]


def report(name: str, process: subprocess.Popen[str]) -> bool:
    """Print how it went; all of it where it failed."""
    text, _ = process.communicate()
    lines = text.strip().splitlines()
    passed = process.returncode == 0
    print(
        f"{name}: {'passed' if passed else f'FAILED ({process.returncode})'}: {lines[-1] if lines else ''}", flush=True
    )
    if not passed:
        print("\n".join(lines[-60:]), flush=True)
    return passed


def main() -> int:
    """0 if all passed, 1 if something failed, 2 without a card."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=min(8, os.cpu_count() or 1))
    parser.add_argument("--no-checker", action="store_true", help="leave out the memory checker")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("No CUDA card is here. `make test` runs the same suite in Triton's interpreter.", file=sys.stderr)
        return 2
    began = time.perf_counter()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}", flush=True)
    shares = [
        start([*SUITE, "-k", "gpu"], [], FOURWARD_SHARE=f"{i}/{options.processes}") for i in range(options.processes)
    ]
    good = [report(f"share {i}", process) for i, process in enumerate(shares)]
    if options.no_checker or shutil.which(CHECKER[0]) is None:
        print(f"{CHECKER[0]} was left out, or isn't here: memory accesses weren't checked.", flush=True)
    else:  # without torch's cache, every tensor is an allocation that the checker knows
        good.append(report("memory checker", start(CHECKED, CHECKER, PYTORCH_NO_CUDA_MEMORY_CACHING="1")))
    print(f"{time.perf_counter() - began:.0f} s", flush=True)
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
