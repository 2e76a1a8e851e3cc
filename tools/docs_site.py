"""Hooks of mkdocs: pages from elsewhere in the repository, and a check of the built site.

Benchmark results, notebooks and files of the root appear on the site as they are in git; nothing is copied by hand.
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
REPORTS = "results"  #: reports of the study, each in the folder of its machine
MIRRORED = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
FRAME = (
    r"[Open it alone](\1){ target=_blank }."
    "\n\n"
    r'<iframe class="network" src="\1" title="\2" loading="lazy"></iframe>'
)
BOTH_THEMES = r"![\1](\2.\3#only-light)" "\n" r"![\1](\2-dark.\3#only-dark)"
#: Elements whose URL a browser fetches, and the attribute that holds it.
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
        text, pictures = notebook_to_markdown(nbformat.read(path, as_version=4), path.stem)
        _add(files, config, f"notebooks/{path.stem}.md", text.encode())
        for name, data in pictures.items():
            _add(files, config, f"notebooks/{name}", data)
    _add(files, config, "worm.html", _worm().encode())
    return files


def _add(files: Files, config: MkDocsConfig, uri: str, content: bytes) -> None:
    files.append(File.generated(config, uri, content=content))


def _worm() -> str:
    import fourward as fw

    worm = fw.connectomes.load("c-elegans")
    return fw.view(worm.dag, weight=worm.weight, title="C. elegans, its chemical synapses").html


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Adapt links of the repository to the site, and expand what only the site has.

    `<!-- table FILE KEY -->` is a table of the results, `<!-- page FILE TITLE -->` a page within the page. A picture
    of `docs/pictures` becomes two, one for each theme.
    """
    up = "../" * page.file.src_uri.count("/")
    text = re.sub(rf"\]\((?:\.\./)+{REPORTS}/", f"]({up}reports/", markdown)
    text = re.sub(rf"\]\((?:\.\./)+{RESULTS}/", f"]({up}results/", text)
    text = re.sub(r"(\]\([^)\s]+)\.ipynb\)", r"\1.md)", text)  # notebooks are pages there
    text = re.sub(r"!\[([^\]]*)\]\(([^)\s]*\bpictures/[^)\s]+)\.(\w+)\)", BOTH_THEMES, text)
    text = re.sub(r"^<!-- page (\S+) (.+) -->$", FRAME, text, flags=re.MULTILINE)
    text = re.sub(
        r'^<!-- table (\S+) (\d+|".+") -->$', lambda m: table(m[1], m[2].strip('"')), text, flags=re.MULTILINE
    )
    return text.replace("](docs/", "](") if page.file.src_uri in MIRRORED.values() else text


def table(name: str, key: str) -> str:
    """A table of a results file: by its number, from 1, or by words of its first line."""
    tables: list[str] = re.findall(r"(?:^\|.*\n)+", (ROOT / RESULTS / name).read_text(encoding="utf-8"), re.MULTILINE)
    if key.isdigit():
        return tables[int(key) - 1]
    return next(each for each in tables if key in each.partition("\n")[0])


def on_post_build(config: MkDocsConfig) -> None:
    """Raise an error if a page would request anything from another site."""
    site = Path(config.site_dir)
    wrong = [f"{path.relative_to(site)}: {url}" for path in sorted(site.rglob("*.html")) for url in external_urls(path)]
    wrong += [
        f"{path.relative_to(site)}: {url}" for path in sorted(site.rglob("*.css")) for url in external_imports(path)
    ]
    if wrong:
        raise PluginError("these pages request resources from other sites:\n" + "\n".join(wrong))


def external_urls(path: Path) -> list[str]:
    """The URLs of other sites that a browser would fetch for a page."""
    parser = _FetchParser()
    parser.feed(path.read_text(encoding="utf-8"))
    return [url for url in parser.urls if re.match(r"(?:[a-z]+:)?//", url.strip(), re.IGNORECASE)]


def external_imports(path: Path) -> list[str]:
    """The URLs of other sites that a style sheet imports."""
    return re.findall(r"(?:url\(|@import\s+)[\"']?((?:https?:)?//[^\"')]+)", path.read_text(encoding="utf-8"))


class _FetchParser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect what is fetched: neither links to follow nor those that only name other pages."""
        attributes = dict(attrs)
        if tag in FETCHED and attributes.get("rel") not in ("canonical", "next", "prev"):
            self.urls += [url for url in (attributes.get(FETCHED[tag]),) if url]


def notebook_to_markdown(notebook: Any, name: str) -> tuple[str, dict[str, bytes]]:
    """A notebook with its outputs as Markdown, and its pictures by file name."""
    pictures: dict[str, bytes] = {}
    parts = [f"*This page is the notebook `docs/notebooks/{name}.ipynb`, with the outputs of its last run.*"]
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
        elif cell.cell_type == "code":
            parts.append(f"```python\n{cell.source}\n```")
            parts += [_render_output(output, name, pictures) for output in cell.outputs]
    title = next((k for k, part in enumerate(parts) if part.startswith("# ")), 0)
    parts.insert(0, parts.pop(title))
    return "\n\n".join(filter(None, parts)) + "\n", pictures


def _render_output(output: Any, name: str, pictures: dict[str, bytes]) -> str:
    if output.output_type == "stream":
        return "\n".join(_fence(output.text))
    data = output.get("data", {})
    if "image/png" in data:
        file = f"{name}-{len(pictures) + 1}.png"
        pictures[file] = base64.b64decode(data["image/png"])
        return f"![output]({file})"
    return "\n".join(_fence(data["text/plain"])) if "text/plain" in data else ""


def _fence(text: str) -> Iterator[str]:
    yield from ("```text", text.rstrip("\n"), "```")
