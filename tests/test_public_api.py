"""What is public is visible: no underscore in the path, listed in `__all__`, documented, and all that pages use."""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import nbformat
import pytest
import yaml

import fourward
from tools.docs_outputs import DOCS, ROOT, find_blocks
from tools.run_notebooks import NOTEBOOKS

PACKAGE = Path(fourward.__file__).parent
SCRIPTS = {"fourward.demo"}  #: run with `python -m`, not imported
ENTRY = re.compile(r"^::: (\S+)\n((?:    .*\n)*)", re.MULTILINE)
PRIVATE = re.compile(r"\bfourward(?:\.\w+)*\._[a-z]\w*")


def is_public(dotted: str) -> bool:
    return not any(part.startswith("_") for part in dotted.split("."))


def list_modules() -> list[str]:
    paths = [path.relative_to(PACKAGE.parent).with_suffix("") for path in PACKAGE.rglob("*.py")]
    names = {".".join(path.parts).removesuffix(".__init__") for path in paths}
    return sorted(name for name in names if is_public(name) and name not in SCRIPTS)


MODULES = list_modules()


def resolve(dotted: str) -> object:
    """The module or object at a path."""
    try:
        return importlib.import_module(dotted)
    except ModuleNotFoundError:
        module, _, name = dotted.rpartition(".")
        return getattr(importlib.import_module(module), name)


def documented() -> Iterator[str]:
    """The paths of all entries of the API pages; an entry of a module includes its public names."""
    for page in sorted((ROOT / "docs" / "api").glob("*.md")):
        for path, options in ENTRY.findall(page.read_text()):
            yield path
            if isinstance(module := resolve(path), ModuleType):
                members = (yaml.safe_load(options or "{}") or {}).get("options", {}).get("members", module.__all__)
                yield from (f"{path}.{name}" for name in members)


@pytest.mark.parametrize("module", MODULES)
def test_public_modules_list_their_names(module):
    names = importlib.import_module(module).__all__
    assert all(is_public(name) or name == "__version__" for name in names)


def test_documented_names_are_public():
    for path in documented():
        module, _, name = path.rpartition(".")
        is_name = module in MODULES and name in importlib.import_module(module).__all__
        assert path in MODULES or is_name, f"{path} is private; document it where it is public"


def test_public_names_are_documented():
    entries, missing = [resolve(path) for path in documented()], []
    for module in map(importlib.import_module, MODULES):
        for name in set(module.__all__) - {"__version__"}:
            value = getattr(module, name)
            is_module = isinstance(value, ModuleType) and value.__name__ in MODULES
            if not is_module and not any(value is entry for entry in entries):
                missing.append(f"{module.__name__}.{name}")
    assert not missing, "these names have no entry on an API page"


@pytest.mark.parametrize("page", [*DOCS, ROOT / "README.md", *NOTEBOOKS], ids=lambda page: page.name)
def test_pages_use_public_names(page):
    private = PRIVATE.findall(page.read_text())
    assert not private
    if page.suffix == ".md":
        sources = [block.code for block in find_blocks(page, "python")]
    else:
        sources = [cell.source for cell in nbformat.read(page, as_version=4).cells if cell.cell_type == "code"]
    for source in sources:
        for node in ast.walk(ast.parse(source)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{name}" for name in names]
            assert all(is_public(name.removeprefix("__future__")) for name in names), names
