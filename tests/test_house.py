"""The house: imports point up, the first rooms know no torch, and importing costs nothing."""

import ast
import importlib.util
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import fourward
from fourward.errors import MissingExtraError, require

PACKAGE = Path(fourward.__file__).parent
#: From the top of the house to its bottom; a room imports from itself and from those before it.
ROOMS = [
    "_version",
    "errors",
    "_arrays",
    "_files",
    "_jit",
    "_memory",
    "graph",
    "layering",
    "plan",
    "engine",
    "nn",
    "sparse",
    "_serialization",
    "paper",
    "exchange",
    "train",
    "view",
    "study",
    "demo",
    "_cli",
    "__main__",
]
FILES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def room(dotted: str) -> str:
    """The room of a module, or of a name that `fourward` imports from one."""
    name = dotted.split(".")[1]
    home = (fourward._SUBMODULES | fourward._ATTRIBUTES).get(name, f"fourward.{name}")
    return home.split(".")[1]


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse((PACKAGE / path).read_text())


@cache
def imports(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("path", FILES, ids=str)
def test_imports_point_up(path):
    own = ROOMS.index(path.parts[0].removesuffix(".py"))
    for name in imports(path):
        if name.startswith("fourward."):
            assert ROOMS.index(room(name)) <= own, f"{path} imports {name}, from a room below its own"


KERNELS = ("numba", "triton", "llvmlite", "fourward._jit", "fourward.engine._cpu", "fourward.engine._gpu")
FILE_ACCESS = (
    "fourward._files",
    "fourward.graph.files",
    "io",
    "json",
    "os",
    "pathlib",
    "pickle",
    "safetensors",
    "open",
)
#: What each package says never belongs in it, and the imports and builtins by which a test can see it.
NEVER = {
    "graph": {"torch": ("torch",), "`layering`": ("fourward.layering",)},
    "layering": {"torch": ("torch",), "`plan`": ("fourward.plan",)},
    "plan": {"torch": ("torch",), "kernels": KERNELS[:3]},
    "engine": {
        "graph algorithms": ("fourward.graph", "fourward.layering", "networkx", "rustworkx", "scipy"),
        "optimisers": ("torch.optim",),
        "files": ("fourward._files", "safetensors", "pickle", "open"),
    },
    "nn": {"kernels": KERNELS, "training loops": ("torch.optim", "lightning"), "files": FILE_ACCESS},
    "sparse": {"kernels": KERNELS[1:], "training loops": ("lightning",), "reading or writing files": FILE_ACCESS},
    "paper": {"kernels": KERNELS},
    "view": {"training": ("torch.optim", "fourward.train"), "timing": ("time", "timeit")},
    "exchange": {"training": ("torch.optim", "lightning"), "kernels": KERNELS, "pickles": ("pickle", "joblib", "dill")},
    "train": {
        "kernels": KERNELS,
        "pictures": ("matplotlib", "fourward.view"),
        "comparisons": ("fourward.study", "fourward.paper"),
    },
    "study": {
        "kernels": KERNELS,
        "training loops": ("lightning", "fourward.train._trainer"),
        "graph algorithms": ("networkx", "rustworkx"),
    },
}


@cache
def uses(path: Path) -> set[str]:
    """What a file imports, and the builtin functions it calls."""
    calls = [node.func for node in ast.walk(parse(path)) if isinstance(node, ast.Call)]
    return imports(path) | {call.id for call in calls if isinstance(call, ast.Name)}


@pytest.mark.parametrize(("package", "thing"), [(package, thing) for package in NEVER for thing in NEVER[package]])
def test_what_never_belongs_here_isnt_here(package, thing):
    docstring = ast.get_docstring(parse(Path(package, "__init__.py")))
    sentence = docstring.split("Never belongs here: ")[1].split("\n\n")[0].replace("\n", " ")
    assert thing in sentence, "the test and the sentence speak of the same things"
    for path in FILES:
        if path.parts[0] == package:
            wrong = {
                name for name in uses(path) for never in NEVER[package][thing] if f"{name}.".startswith(f"{never}.")
            }
            assert not wrong, f"{path} uses {wrong}: {thing} never belong in {package}"


def test_what_never_belongs_here_exists():
    names = {name for things in NEVER.values() for names in things.values() for name in names}
    for name in names:
        assert not name.startswith("fourward.") or importlib.util.find_spec(name), f"no file could import {name}"


@pytest.mark.parametrize(("engine", "other"), [("_cpu", "_gpu"), ("_gpu", "_cpu")])
def test_the_folder_of_an_engine_knows_no_other(engine, other):
    for path in FILES:
        if path.parts[:2] == ("engine", engine):
            assert not {name for name in imports(path) if f"{name}.".startswith(f"fourward.engine.{other}.")}


@pytest.mark.parametrize("path", [p for p in FILES if p.name == "__init__.py"], ids=str)
def test_every_room_says_what_it_is(path):
    words = ast.get_docstring(parse(path))
    assert words.startswith("Enters: ")
    assert "Leaves: " in words
    assert "Never belongs here: " in words


def test_import_is_light():
    code = "import sys, fourward; assert not {'torch', 'numba', 'networkx'} & set(sys.modules); fourward.Dag; "
    code += "assert 'torch' not in sys.modules; fourward.FourWard; import fourward.train; fourward.train.fit; "
    code += "assert not {'lightning', 'sklearn', 'pandas', 'torch._dynamo'} & set(sys.modules); "
    code += "print(sorted(dir(fourward)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "FourWard" in done.stdout


def test_public_names_are_there():
    for name in fourward.__all__:
        assert getattr(fourward, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Forward'"):
        fourward.Forward  # noqa: B018 - looking it up is the test


def test_a_missing_extra_names_the_command():
    with pytest.raises(MissingExtraError, match=r"pip install 'fourward\[plot\]'") as caught:
        require("a_package_nobody_has", "plot")
    assert isinstance(caught.value, ImportError)
    assert require("math", "plot").pi > 3
