"""The hooks of the site: pages from elsewhere, comments as documentation, and the check of the built site."""

from types import SimpleNamespace

import nbformat
import pytest

from tools import docs_api, docs_site
from tools.run_notebooks import NOTEBOOKS


def page_at(uri: str) -> SimpleNamespace:
    return SimpleNamespace(file=SimpleNamespace(src_uri=uri))


@pytest.mark.parametrize(
    ("html", "urls"),
    [
        ('<img src="a.png"><script src="../b.js"></script><a href="https://doi.org/1">1</a>', []),
        ('<link rel="canonical" href="https://example.org/"><link rel="stylesheet" href="s.css">', []),
        ('<script src="https://unpkg.com/x"></script>', ["https://unpkg.com/x"]),
        ('<link href="//fonts.example/f.css" rel="stylesheet">', ["//fonts.example/f.css"]),
        ('<img alt="" SRC="HTTP://counter.example/1.gif">', ["HTTP://counter.example/1.gif"]),
        ('<iframe src="https://video.example"></iframe>', ["https://video.example"]),
    ],
)
def test_requests_to_other_sites_are_found(html, urls, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(html)
    assert docs_site.external_urls(path) == urls


def test_a_site_with_requests_to_other_sites_is_rejected(tmp_path):
    (tmp_path / "style.css").write_text("a { background: url(pictures/a.png) }")
    docs_site.on_post_build(SimpleNamespace(site_dir=str(tmp_path)))
    (tmp_path / "style.css").write_text('@import "https://fonts.example/f.css";')
    with pytest.raises(docs_site.PluginError, match=r"style.css: https://fonts.example/f.css"):
        docs_site.on_post_build(SimpleNamespace(site_dir=str(tmp_path)))


def test_links_of_the_repository_hold_on_the_site():
    def shown(text, uri):
        return docs_site.on_page_markdown(text, page_at(uri), None, None)

    assert shown("[t](../benchmarks/results/gpu.md)", "gpu.md") == "[t](results/gpu.md)"
    assert shown("[t](../../benchmarks/results/cpu.png)", "howto/a.md") == "[t](../results/cpu.png)"
    assert shown("[r](../results/gpu/report.html)", "reproduction.md") == "[r](reports/gpu/report.html)"
    assert shown("[n](../notebooks/worm.ipynb)", "howto/a.md") == "[n](../notebooks/worm.md)"
    assert shown("[e](docs/extend/engine.md)", "contributing.md") == "[e](extend/engine.md)"
    assert shown("[e](docs/extend/engine.md)", "index.md") == "[e](docs/extend/engine.md)"


def test_pictures_come_in_pairs_for_light_and_dark():
    text = docs_site.on_page_markdown("![A b.](../pictures/c.svg)\n", page_at("concepts/a.md"), None, None)
    assert text == "![A b.](../pictures/c.svg#only-light)\n![A b.](../pictures/c-dark.svg#only-dark)\n"


def test_tables_come_from_the_results():
    text = docs_site.on_page_markdown("a\n<!-- table cpu.md 1 -->\nb", page_at("speed.md"), None, None)
    assert "| training step against the MLP's, geometric mean | 1.0 |" in text
    assert "ps/edge/sample |\n" in docs_site.table("cpu.md", "ps/edge/sample")
    with pytest.raises(StopIteration):
        docs_site.table("cpu.md", "no such column")


def test_a_page_stands_within_a_page():
    text = docs_site.on_page_markdown("a\n\n<!-- page b.html A b -->\n", page_at("index.md"), None, None)
    assert text.startswith("a\n\n[Open it alone](b.html)")
    assert '<iframe class="network" src="b.html" title="A b" loading="lazy"></iframe>\n' in text


def test_a_notebook_becomes_a_page():
    (path,) = (path for path in NOTEBOOKS if path.stem == "worm")
    notebook = nbformat.read(path, as_version=4)
    text, pictures = docs_site.notebook_to_markdown(notebook, "worm")
    assert text.startswith("# A connectome learns the digits\n")
    assert "```python\ndag = worm.dag\n" in text
    assert "```text\nDag(302 nodes" in text
    assert list(pictures) == ["worm-1.png", "worm-2.png"]
    assert all(f"]({name})" in text and data.startswith(b"\x89PNG") for name, data in pictures.items())


def test_comments_beside_and_above_are_documentation():
    lines = ["#: Above,", "#: in two lines.", "a = 1", "b: int  #: beside", "c = (", "    2  #: within", ")", "d = 3"]
    spans = ((3, 3), (4, 4), (5, 7), (8, 8))
    assert [docs_api.find_comment(lines, *span) for span in spans] == ["Above, in two lines.", "beside", "within", ""]
    assert (
        docs_api.find_declared_comment(
            ["class A:", "    w: int  #: wide", "    def f(self):", "        self.w = 1"], "w"
        )
        == "wide"
    )


def test_doctests_are_fenced():
    text = "Words.\n\n>>> 1 + 1\n2\n>>> [\n...     3]\n[3]\n\nMore."
    assert docs_api.fence_doctests(text) == "Words.\n\n```pycon\n>>> 1 + 1\n2\n>>> [\n...     3]\n[3]\n```\n\nMore."
