"""Installs the wheel with each extra in a new environment, and runs a smoke test there: `make test-extras`.

The base dependencies are installed once, and every environment sees them; what an extra installs, only its own sees.
`python -m tools.test_extras base plot` tests these two; `--python python3.13` takes another interpreter.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.docs_outputs import ROOT, find_blocks

NET = "import fourward as fw\nnet = fw.FourWard(fw.generate.erdos_renyi(20, 0.2, seed=0), 'tanh', seed=0)\n"
COMMAND = "from fourward._cli.app import main\n"
README = find_blocks(ROOT / "README.md", "python")[0].code

#: What each extra makes possible. Without extras, all of the README's Python runs up to the picture.
SMOKE = {
    "base": f"""
try:
    exec({README!r})
except ImportError as error:
    assert "[plot]" in str(error), error
else:
    raise AssertionError("matplotlib is installed")
assert y.shape == (32, 1) and net.weight.grad.shape == (4,) and worm.dag.num_nodes == 302
fw.save(net, "net.safetensors")
assert fw.load("net.safetensors").engine == "cpu"
fw.exchange.export(net, "net.c")
{COMMAND}
assert main(["--help"]) == 1
""",
    "gpu": "import triton\nimport fourward as fw\nassert 'gpu' in fw.engine.ENGINES",
    "train": """
import fourward as fw
from sklearn.datasets import load_iris
x, y = load_iris(return_X_y=True)
model = fw.FourWardClassifier(fw.generate.erdos_renyi(30, 0.2, seed=0), epochs=2)
assert model.fit(x, y).predict(x).shape == (150,)
""",
    "plot": f"{README}\nfrom pathlib import Path\nassert Path('worm.png').stat().st_size > 10_000",
    "files": """
import fourward as fw
from pathlib import Path
Path("g.csv").write_text("a,b,1\\nb,c,2\\n")
assert fw.files.read_dag("g.csv").dag.num_edges == 2
""",
    "cli": f"""{COMMAND}
for words in (["--help"], ["info", "er:20:0.2"], ["graph", "er:20:0.2", "--out", "g.csv"], ["info", "g.csv"]):
    assert main(words) == 0, words
""",
    "export": f"{NET}fw.exchange.export(net, 'net.onnx')\nassert fw.exchange.check_onnx(net, 'net.onnx') < 1e-5",
    "study": f"""{COMMAND}
for words in (["attributes", "--sizes", "8", "--densities", "0.5", "--seeds", "1"], ["status"], ["report"]):
    assert main(["study", *words, "--out", "results"]) == 0, words
""",
}


def main() -> int:
    """Test the extras that the command line names, or all; return the number of failures."""
    parser = argparse.ArgumentParser(description="Install each extra in an environment of its own, and try it.")
    parser.add_argument("extras", nargs="*", metavar="EXTRA", help=f"{', '.join(SMOKE)}; default: all")
    parser.add_argument("--python", default=sys.executable, help="the interpreter to test with")
    args = parser.parse_args()
    unknown = set(args.extras) - SMOKE.keys()
    if unknown:
        parser.error(f"unknown extras {', '.join(sorted(unknown))}; choose from {', '.join(SMOKE)}")
    failures = 0
    with tempfile.TemporaryDirectory(prefix="fourward-extras-") as name:
        folder = Path(name)
        _run(args.python, "-m", "pip", "wheel", "--quiet", "--no-deps", str(ROOT), "-w", name)
        (wheel,) = folder.glob("*.whl")
        base = _create(folder / "base", args.python)
        _install(base, str(wheel))
        for extra in args.extras or SMOKE:
            failures += not _test(extra, folder, base, wheel, args.python)
    return failures


def _test(extra: str, folder: Path, base: Path, wheel: Path, interpreter: str) -> bool:
    python = base
    try:
        if extra != "base":
            python = _create(folder / extra, interpreter, see=base)
            _install(python, f"{wheel}[{extra}]")
        work = folder / f"{extra}-work"
        work.mkdir()
        _run(str(python), "-I", "-c", SMOKE[extra], cwd=work)
    except subprocess.CalledProcessError as error:
        print(f"{extra}: FAILED\n{error.stdout}", flush=True)
        return False
    print(f"{extra}: passed", flush=True)
    return True


def _create(folder: Path, interpreter: str, see: Path | None = None) -> Path:
    """The interpreter of a new environment, which also sees the packages of that of the interpreter `see`."""
    _run(interpreter, "-m", "venv", str(folder))
    python = folder / "bin" / "python"
    if see is not None:
        packages = "import sysconfig; print(sysconfig.get_path('purelib'))"
        own, other = (Path(_run(str(each), "-c", packages).strip()) for each in (python, see))
        (own / "base.pth").write_text(f"{other}\n")
    return python


def _install(python: Path, requirement: str) -> None:
    constraints = str(ROOT / "constraints.txt")
    _run(str(python), "-m", "pip", "install", "--quiet", "-c", constraints, requirement)


def _run(*command: str, cwd: Path | None = None) -> str:
    """The output of a command; raises if it fails."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
    )
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
