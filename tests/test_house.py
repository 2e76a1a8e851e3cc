"""The house: imports point one way, the first rooms know no torch, and importing costs nothing."""

import ast
import subprocess
import sys
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


def imports(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse((PACKAGE / path).read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("path", FILES, ids=str)
def test_imports_point_one_way(path):
    own = ROOMS.index(path.parts[0].removesuffix(".py"))
    for name in imports(path):
        if name.startswith("fourward."):
            assert ROOMS.index(room(name)) <= own, f"{path} imports {name}, from a room below its own"


@pytest.mark.parametrize("path", [p for p in FILES if p.parts[0] in ("graph", "layering", "plan")], ids=str)
def test_the_first_rooms_know_no_torch(path):
    assert not any(name.split(".")[0] == "torch" for name in imports(path))


@pytest.mark.parametrize("path", [p for p in FILES if p.parts[0] == "nn"], ids=str)
def test_modules_of_torch_read_and_write_no_files(path):
    reading = {"fourward._files", "fourward.graph.files", "io", "json", "os", "pathlib", "pickle", "safetensors"}
    assert not {name for name in imports(path) for module in reading if f"{name}.".startswith(f"{module}.")}
    calls = [node.func for node in ast.walk(ast.parse((PACKAGE / path).read_text())) if isinstance(node, ast.Call)]
    assert not any(isinstance(call, ast.Name) and call.id == "open" for call in calls)


@pytest.mark.parametrize("path", [p for p in FILES if p.parts[0] == "study"], ids=str)
def test_studies_have_no_kernels_graph_algorithms_and_training_loops(path):
    packages = {name.split(".")[0] for name in imports(path)}
    assert not packages & {"llvmlite", "numba", "triton", "networkx", "rustworkx", "lightning"}
    loops = [
        node for node in ast.walk(ast.parse((PACKAGE / path).read_text())) if isinstance(node, ast.For | ast.While)
    ]
    called = {node.func.attr for loop in loops for node in ast.walk(loop)
              if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)}  # fmt: skip
    assert "backward" not in called, "training is fourward.train's"


@pytest.mark.parametrize("path", [p for p in FILES if p.name == "__init__.py"], ids=str)
def test_every_room_says_what_it_is(path):
    words = ast.get_docstring(ast.parse((PACKAGE / path).read_text()))
    assert words.startswith("Enters: ")
    assert "Leaves: " in words
    assert "Never belongs here: " in words


def test_import_is_light():
    code = "import sys, fourward; assert not {'torch', 'numba', 'networkx'} & set(sys.modules); fourward.Dag; "
    code += "assert 'torch' not in sys.modules; fourward.FourWard; import fourward.train; fourward.train.fit; "
    code += "assert not {'lightning', 'sklearn', 'pandas'} & set(sys.modules); print(sorted(dir(fourward)))"
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
