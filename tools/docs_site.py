"""What mkdocs is told beyond its settings: pages from elsewhere in the repository, and a check of what it built.

Nothing is copied by hand: benchmark results, notebooks and the files at the root appear on the site as they are in git.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
RESULTS = "benchmarks/results"
REPORTS = "results"  #: of the study, each in a folder of its machine
MIRRORED = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
FRAME = (
    r"[Open it alone](\1){ target=_blank }."
    "\n\n"
    r'<iframe class="network" src="\1" title="\2" loading="lazy"></iframe>'
)
#: Elements whose address a browser fetches by itself, and the attribute that holds it.
FETCHED = dict.fromkeys(("img", "script", "iframe", "source", "video", "audio", "embed"), "src") | {"link": "href"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add results, files of the root, notebooks as pages, and the page of a network."""
    for path in sorted((ROOT / RESULTS).iterdir()):
        _add(files, config, f"results/{path.name}", path.read_bytes())
    for path in sorted((ROOT / REPORTS).glob("*/report.html")):
        _add(files, config, f"reports/{path.parent.name}/report.html", path.read_bytes())
    for name, uri in MIRRORED.items():
        _add(files, config, uri, (ROOT / name).read_bytes())
    for path in sorted(Path(config.docs_dir).glob("notebooks/*.ipynb")):
        text, pictures = as_markdown(nbformat.read(path, as_version=4), path.stem)
        _add(files, config, f"notebooks/{path.stem}.md", text.encode())
        for name, data in pictures.items():
            _add(files, config, f"notebooks/{name}", data)
    _add(files, config, "worm.html", _worm().encode())
    return files


def _add(files: Files, config: MkDocsConfig, uri: str, content: bytes) -> None:
    files.append(File.generated(config, uri, content=content))


def _worm() -> str:
    from fourward.graph.connectomes import load
    from fourward.view._page import view

    worm = load("c-elegans")
    strength = dict(zip(worm.edges, worm.strength.tolist(), strict=True))
    labels = worm.dag.labels
    weight = [float(strength[labels[u], labels[v]]) for u, v in worm.dag.edges.tolist()]
    return view(worm.dag, weight=weight, title="C. elegans, its chemical synapses").html


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links of the repository hold on the site; comments become what only the site has.

    `table FILE KEY` is a table of the results, `page FILE TITLE` a page within the page.
    """
    up = "../" * page.file.src_uri.count("/")
    text = re.sub(rf"\]\((?:\.\./)+{REPORTS}/", f"]({up}reports/", markdown)
    text = re.sub(rf"\]\((?:\.\./)+{RESULTS}/", f"]({up}results/", text)
    text = re.sub(r"(\]\([^)\s]+)\.ipynb\)", r"\1.md)", text)  # notebooks are pages there
    text = re.sub(r"^<!-- page (\S+) (.+) -->$", FRAME, text, flags=re.MULTILINE)
    text = re.sub(
        r'^<!-- table (\S+) (\d+|".+") -->$', lambda m: table(m[1], m[2].strip('"')), text, flags=re.MULTILINE
    )
    return text.replace("](docs/", "](") if page.file.src_uri in MIRRORED.values() else text


def table(name: str, key: str) -> str:
    """A table of a results file: by its number, from 1, or by words of its first line."""
    found: list[str] = re.findall(r"(?:^\|.*\n)+", (ROOT / RESULTS / name).read_text(encoding="utf-8"), re.MULTILINE)
    if key.isdigit():
        return found[int(key) - 1]
    return next(one for one in found if key in one.partition("\n")[0])


def on_post_build(config: MkDocsConfig) -> None:
    """Fail if a page would ask anyone else for anything."""
    site = Path(config.site_dir)
    wrong = [f"{path.relative_to(site)}: {url}" for path in sorted(site.rglob("*.html")) for url in outside(path)]
    wrong += [f"{path.relative_to(site)}: {url}" for path in sorted(site.rglob("*.css")) for url in imported(path)]
    if wrong:
        raise PluginError("these pages ask other sites for something:\n" + "\n".join(wrong))


def outside(path: Path) -> list[str]:
    """The addresses beyond the site that a browser would fetch for a page."""
    reader = _Fetched()
    reader.feed(path.read_text(encoding="utf-8"))
    return [url for url in reader.found if re.match(r"(?:[a-z]+:)?//", url.strip(), re.IGNORECASE)]


def imported(path: Path) -> list[str]:
    """The same for a style sheet."""
    return re.findall(r"(?:url\(|@import\s+)[\"']?((?:https?:)?//[^\"')]+)", path.read_text(encoding="utf-8"))


class _Fetched(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what is fetched; a link to follow, or one that only says what a page is called, isn't."""
        given = dict(attrs)
        if tag in FETCHED and given.get("rel") not in ("canonical", "next", "prev"):
            self.found += [url for url in (given.get(FETCHED[tag]),) if url]


def as_markdown(notebook: Any, name: str) -> tuple[str, dict[str, bytes]]:
    """A notebook with its outputs as the text of a page, and its pictures by file name."""
    pictures: dict[str, bytes] = {}
    parts = [f"*This page is the notebook `docs/notebooks/{name}.ipynb`, with the outputs of its last run.*"]
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
        elif cell.cell_type == "code":
            parts.append(f"```python\n{cell.source}\n```")
            parts += [_shown(output, name, pictures) for output in cell.outputs]
    title = next((k for k, part in enumerate(parts) if part.startswith("# ")), 0)
    parts.insert(0, parts.pop(title))
    return "\n\n".join(filter(None, parts)) + "\n", pictures


def _shown(output: Any, name: str, pictures: dict[str, bytes]) -> str:
    if output.output_type == "stream":
        return "\n".join(_fenced(output.text))
    data = output.get("data", {})
    if "image/png" in data:
        file = f"{name}-{len(pictures) + 1}.png"
        pictures[file] = base64.b64decode(data["image/png"])
        return f"![output]({file})"
    return "\n".join(_fenced(data["text/plain"])) if "text/plain" in data else ""


def _fenced(text: str) -> Iterator[str]:
    yield from ("```text", text.rstrip("\n"), "```")
