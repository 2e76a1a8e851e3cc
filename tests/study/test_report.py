import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from fourward.study._aggregate import latest_rows
from fourward.study._protocol import Protocol, graph_keys
from fourward.study._report import write_report
from fourward.study._report_tables import compare_topologies, describe_coverage, paired_differences
from fourward.study._store import Store
from tests.study import synthetic


class Outline(HTMLParser):
    """All tags with their attributes, and all text."""

    def __init__(self):
        super().__init__()
        self.tags, self.words = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words.append(data)


def read(path):
    outline = Outline()
    outline.feed(path.read_text())
    return outline


@pytest.fixture(scope="module")
def page(study, drawings, tmp_path_factory):
    with Store(study, create=False) as store, pytest.MonkeyPatch.context() as patch:
        patch.setattr("fourward.study._report.available_figures", lambda rows: drawings)
        return write_report(store, tmp_path_factory.mktemp("report"))


def test_the_page_is_self_contained(page):
    outline = read(page)
    kinds = {tag for tag, _ in outline.tags}
    assert not kinds & {"script", "link", "iframe", "object", "base", "form"}
    for _, attributes in outline.tags:
        for name in ("src", "href", "srcset", "action", "data"):
            assert attributes.get(name, "#").startswith(("#", "data:image/svg+xml;base64,"))
    text = page.read_text()
    assert "http" not in re.sub(r"base64,[A-Za-z0-9+/=]+", "", text)
    assert "url(" not in text
    assert "@import" not in text


def test_text_of_rows_is_escaped(page):
    assert synthetic.HOSTILE in " ".join(read(page).words)
    assert "<script" not in page.read_text()


def test_all_parts_are_there(page):
    outline = read(page)
    words = " ".join(outline.words)
    assert sum(tag == "img" for tag, _ in outline.tags) == 11
    for published in ("2.80", "2.47 to 160.37", "no differences on an RTX A6000"):
        assert published in words
    for text in ("graphs a cell: 2 instead of 30", "Cut off: 16 runs. Failed: 0 runs.", "commit", "abc", "torch 2"):
        assert text in words
    verdicts = [attributes["class"] for tag, attributes in outline.tags if "verdict" in attributes.get("class", "")]
    assert verdicts == ["verdict holds"] * 8
    assert not [path for path in page.parent.iterdir() if path.name.startswith(".report")]


def test_tags_are_closed(page):
    text = re.sub(r"base64,[A-Za-z0-9+/=]+", "", page.read_text())
    for tag in ("section", "table", "tr", "td", "details", "figure", "ul", "li"):
        assert len(re.findall(f"<{tag}[ >]", text)) == text.count(f"</{tag}>")


@pytest.fixture
def no_figures(monkeypatch):
    monkeypatch.setattr("fourward.study._report.available_figures", lambda rows: [])


@pytest.mark.usefixtures("no_figures")
def test_an_empty_and_a_partial_store(tmp_path):
    with Store(tmp_path / "results.sqlite", environment=synthetic.ENVIRONMENT) as store:
        assert "The results file is empty" in " ".join(read(write_report(store, tmp_path)).words)
        synthetic.add_topologies(store, seeds=1, datasets=("wine",))
        words = " ".join(read(write_report(store, tmp_path)).words)
    assert "not in this results file: " in words
    assert "unknown" in words


@pytest.mark.usefixtures("no_figures")
def test_rows_of_other_commits_are_counted(tmp_path):
    path = tmp_path / "results.sqlite"
    with Store(path, environment={**synthetic.ENVIRONMENT, "commit": "old"}) as store:
        synthetic.add_attributes(store)
    with Store(path, environment=synthetic.ENVIRONMENT) as store:
        synthetic.add_attributes(store)
        assert "36 more runs of another machine, version, commit or protocol" in " ".join(
            read(write_report(store, tmp_path)).words
        )


def test_what_was_reduced(rows_by_experiment):
    assert describe_coverage("reassignment", rows_by_experiment["reassignment"]) == [
        "4Ward: 4 of 5 cells of the paper's grid (64 nodes at p = 0.2, 0.4, 0.8, 1); graphs a cell: 2 instead of 30; "
        "layerings a cell and graph: 3 instead of 10; batches a run: 10 instead of 100",
        "not run: fourward",
    ]
    (line,) = describe_coverage("attributes", rows_by_experiment["attributes"])
    assert line.startswith("12 of 25 cells of the paper's grid (64, 128, 256 nodes at p = 0.2, 0.4, 0.8, 1); graphs")


def test_coverage_is_described_for_each_method(rows_by_experiment):
    rows = [row for row in rows_by_experiment["times"] if row.key["method"] != "deepstruct" or row.key["size"] == 256]
    rows = [replace(row, note="cut off after 20 s") if row.status == "cut off" else row for row in rows]
    sequential, deepstruct, _, fourward = describe_coverage("times", rows[:-1])
    assert "(64, 128 nodes at p = 0.2, 0.4, 0.8, 1, batch size 32, 512; 256 nodes at p = 0.2, 0.8, 1, b" in sequential
    assert deepstruct.startswith("deepstruct: 6 of 75 cells of the paper's grid (256 nodes at p = 0.2, 0.8, 1, batch ")
    assert deepstruct.endswith("8 of 12 runs cut off after 20 s")
    assert "graphs a cell: 1 to 2 instead of 30" in fourward


def test_the_complete_grid_needs_no_list(rows_by_experiment):
    row = rows_by_experiment["attributes"][0]
    rows = [replace(row, key=key) for key in graph_keys(Protocol())]
    assert describe_coverage("attributes", rows) == ["25 of 25 cells of the paper's grid; graphs a cell: 30"]


def test_topologies_are_compared_seed_by_seed(tmp_path):
    with Store(tmp_path / "results.sqlite", environment=synthetic.ENVIRONMENT) as store:
        synthetic.add_topologies(store, datasets=("wine",))
        rows = latest_rows(store)["topologies"]
    differences = paired_differences(rows, lambda row: row.values["accuracy"])
    assert differences["erdos-renyi", "wine"] == pytest.approx([0.1, 0.1, 0.1])
    assert ("mlp", "wine") not in differences
    assert len(differences) == 6


def test_a_topology_with_other_neurons_is_shown_but_not_counted(rows_by_experiment):
    text = str(compare_topologies(rows_by_experiment["topologies"]))
    assert text.count("10 of 10 comparisons differ from zero") == 3, "5 topologies on 2 tasks"
    assert "dense-mlp (not matched in neurons)" in text


@pytest.mark.usefixtures("no_figures")
def test_a_page_that_fails_leaves_the_old_page(tmp_path, monkeypatch):
    with Store(tmp_path / "results.sqlite", environment=synthetic.ENVIRONMENT) as store:
        path = write_report(store, tmp_path)
        before = path.read_text()
        monkeypatch.setattr("fourward.study._report.page", lambda *parts: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            write_report(store, tmp_path)
    assert path.read_text() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["report.html", "results.sqlite"]
