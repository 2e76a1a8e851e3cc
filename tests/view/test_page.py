"""The page in a real browser: what a user does with mouse and keys, what a hostile file can't do."""

import os
import re
import shutil
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch

import fourward as fw
from fourward import FourWard, generate
from fourward.errors import pluralize
from fourward.graph._dag import Dag
from fourward.view import _page as pages

ASSETS = Path(pages.__file__).parent / "assets"
HOSTILE = ["</script><img src=x onerror=alert(1)>", "<b>bold</b>", "\"'><script>alert(2)</script>", "$style ${title}"]


def find_browser():
    named = os.environ.get("FOURWARD_BROWSER")
    return named or next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="module")
def browser():
    path = find_browser()
    if path is None:
        pytest.skip("no Chromium found: install it, or set FOURWARD_BROWSER to its path")
    playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright isn't installed")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def net():
    return FourWard(generate.erdos_renyi(40, 0.12, seed=3), activation="tanh", seed=0)


@pytest.fixture(scope="module")
def samples(net):
    return torch.randn(3, net.dag.num_inputs, generator=torch.Generator().manual_seed(2))


@pytest.fixture
def show(browser, tmp_path):
    """Opens pages; fails if one requests anything beyond its own file, or logs anything."""
    contexts, requests, complaints = [], [], []

    def open_page(page, **options):
        path = page.save(tmp_path / f"page{len(contexts)}.html")
        options = {"viewport": {"width": 1200, "height": 800}, "reduced_motion": "reduce"} | options
        context = browser.new_context(**options)
        context.set_default_timeout(10_000)
        contexts.append(context)
        tab = context.new_page()
        tab.route(
            lambda url: url != path.as_uri() and not url.startswith("data:"),
            lambda route: (requests.append(route.request.url), route.abort()),
        )
        tab.on("console", lambda message: complaints.append(message.text))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
        tab.goto(path.as_uri())
        settle(tab)
        return tab

    yield open_page
    for context in contexts:
        context.close()
    assert requests == []
    assert complaints == []


def settle(tab):
    """Wait until pending frames are drawn."""
    tab.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def view_position(tab, node):
    x, y = tab.evaluate("node => fourward.painter.viewPosition(node)", node)
    box = tab.locator("#view").bounding_box()
    return box["x"] + x + 1, box["y"] + y + 1  # the border is 1 wide


def state(tab, name):
    return tab.evaluate("name => fourward.state[name]", name)


def array(tab, what):
    return np.array(tab.evaluate(f"() => Array.from({what})"))


def ink(tab, canvas):
    """How many pixels of a canvas aren't blank."""
    return tab.evaluate(
        """id => {
        const canvas = document.getElementById(id);
        const { width, height } = canvas;
        const copy = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
        copy.drawImage(canvas, 0, 0);
        return copy.getImageData(0, 0, width, height).data.reduce((sum, byte, i) => sum + (i % 4 === 3 && byte > 0), 0);
        }""",
        canvas,
    )


def properties(tab):
    return dict(
        zip(tab.locator("#details dt").all_inner_texts(), tab.locator("#details dd").all_inner_texts(), strict=True)
    )


def test_it_shows_all_of_a_network(show, net):
    tab = show(fw.view(net, title="A network"))
    assert tab.title() == "A network"
    assert tab.locator("#shown").inner_text() == f"Shown: all 40 neurons and all {net.dag.num_edges} edges."
    assert ink(tab, "edges") > 2000
    assert ink(tab, "nodes") > 2000
    assert "hidden, could move" in tab.locator("#legend").inner_text()
    assert "ISC" in tab.locator("footer").inner_html()


def test_hovering_shows_properties_of_a_neuron(show, net, samples):
    tab = show(fw.view(net, samples=samples))
    dag, lay = net.dag, net.layering
    node = int(dag.neurons[len(dag.neurons) // 2])
    assert tab.locator("#tip").is_hidden()
    tab.mouse.move(*view_position(tab, node))
    lines = tab.locator("#tip").inner_text().split("\n")
    assert lines[0] == str(dag.labels[node])
    assert lines[2] == f"layer {lay.level[node]} of 0 to {lay.height - 1}"
    assert lines[3:5] == [f"edges in {dag.in_degree[node]}", f"edges out {dag.out_degree[node]}"]
    bias = net.bias[list(dag.neurons).index(node)].item()
    assert float(lines[5].removeprefix("bias ")) == pytest.approx(bias, rel=1e-3)
    activation = net.activations(samples)[0, node].item()
    assert float(lines[6].removeprefix("activation, sample 1 of 3 ")) == pytest.approx(activation, rel=1e-3)
    tab.mouse.move(*view_position(tab, int(dag.inputs[0])))
    assert "bias" not in tab.locator("#tip").inner_text()


def test_inputs_and_outputs_are_named_where_they_are_not_the_sources_and_sinks(show):
    edges = [("a", "h"), ("b", "h"), ("c", "k"), ("h", "k"), ("k", "o"), ("k", "p")]
    dag = Dag.from_edges(edges, inputs=["b", "a"], outputs=["h", "o", "a"])
    tab = show(fw.view(dag))
    legend = tab.locator("#legend").inner_text()
    assert re.findall(r"(\w[\w, ]+) \((\d)\)", legend) == [
        ("input", "1"), ("hidden", "3"), ("hidden, could move", "0"), ("output", "2"), ("input and output", "1"),
    ]  # fmt: skip
    expected = {
        "a": "input 1, output 2",
        "b": "input 0",
        "c": "hidden",
        "h": "output 0",
        "o": "output 1",
        "p": "hidden",
    }
    for label, kind in expected.items():
        tab.mouse.click(*view_position(tab, dag.index(label)))
        assert properties(tab)["kind"] == kind


def test_clicking_highlights_ancestors_and_descendants(show, net):
    tab = show(fw.view(net))
    graph, node = net.dag.to_networkx(), 17
    before = ink(tab, "nodes")
    tab.mouse.click(*view_position(tab, net.dag.index(node)))
    settle(tab)
    for name, expected in (("ancestors", nx.ancestors(graph, node)), ("descendants", nx.descendants(graph, node))):
        lit = {net.dag.labels[v] for v in np.flatnonzero(array(tab, f"fourward.state.{name}"))}
        assert lit == expected | {node}
        assert properties(tab)[name] == str(len(expected))
    assert ink(tab, "nodes") > before, "lit edges are drawn with the nodes"
    assert tab.locator("#edges").get_attribute("class") == "dim"
    heading = f"Receives from {graph.in_degree(node)}"
    assert heading in tab.locator("#details h2").all_inner_texts()
    tab.mouse.click(*[a + 15 for a in tab.locator("#view").bounding_box().values()][:2])
    assert state(tab, "selected") == -1


def test_weak_edges_of_the_selected_neuron_have_the_colours_of_their_signs(show):
    pairs = [("a", "hub"), ("b", "hub"), ("c", "hub"), ("hub", "d"), ("d", "e")]
    dag = Dag.from_edges(pairs)
    weight = dag.align([0.01, -0.01, 0.002, 0.02, 9.0], pairs)
    tab = show(fw.view(dag, weight=weight))
    tab.get_by_label("Find a neuron").fill("hub")
    tab.get_by_label("Find a neuron").press("Enter")
    bins = tab.evaluate("Array.from(fourward.graph.weight, (w, e) => fourward.painter.nearBin(e, 0.02))")
    assert [tab.evaluate(f"fourward.painter.bin({e})") for e in range(4)] == [4] * 4, "grey beside the others"
    assert [(b > 4) - (b < 4) for b in bins] == np.sign(weight).tolist()
    assert max(bins) == 8
    assert min(abs(b - 4) for b in bins) == 2


def test_search_by_label(show):
    worm = Dag.from_edges([("PVCL", "AVAL"), ("ASHL", "AVAL"), ("AVAL", "AVAR"), ("AVAR", "DA1"), ("PVCL", "DA1")])
    tab = show(fw.view(worm))
    search = tab.get_by_label("Find a neuron")
    search.fill("ava")
    expected = {label for label in worm.labels if "ava" in label.lower()}
    assert set(tab.locator("#results li span:first-child").all_inner_texts()) == expected
    assert tab.locator("#result-count").inner_text() == f"{len(expected)} neurons found"
    search.fill("AVAL")
    search.press("Enter")
    assert state(tab, "selected") == worm.index("AVAL")
    assert tab.locator("#details h2").first.inner_text() == "AVAL"
    assert "Selected: AVAL, kind hidden" in tab.locator("#status").inner_text()
    tab.locator("#details li button").first.click()
    assert state(tab, "selected") in worm.source[worm.target == worm.index("AVAL")]


def test_nodes_move_between_layerings_and_stay_legal(show, net):
    tab = show(fw.view(net), reduced_motion="no-preference")
    source, target = net.dag.source, net.dag.target
    names = tab.locator("#layering option").all_inner_texts()
    assert names[:2] == ["longest path, sources pushed", "longest path"]
    assert len(names) == 5
    before = array(tab, "fourward.painter.x")
    for k in range(1, len(names)):
        tab.get_by_label("Layering").select_option(str(k))
        tab.wait_for_timeout(150)
        assert ((x := array(tab, "fourward.painter.x"))[source] < x[target] + 1e-3).all(), "legal on the way"
        tab.wait_for_function("() => !fourward.isMoving()")
        x, column = array(tab, "fourward.painter.x"), array(tab, "fourward.state.column")
        np.testing.assert_allclose((x - x.min()) / np.ptp(x), column / column.max(), atol=1e-6)
        assert (x[source] < x[target]).all()
        assert not np.allclose(x, before)
        before = x
    expected = fw.layering.reassign(net.dag, net.layering, seed=2).level
    np.testing.assert_array_equal(array(tab, "fourward.state.column"), expected)
    assert "reassigned, seed 2" in tab.locator("#status").inner_text()


def test_weak_edges_can_be_hidden(show, net):
    tab = show(fw.view(net))
    full, count = ink(tab, "edges"), net.dag.num_edges
    tab.get_by_label("Hide weak edges").fill("75")
    settle(tab)
    visible = np.flatnonzero(array(tab, "fourward.state.visible"))
    assert len(visible) == count - round(0.75 * count)
    size = net.weight.detach().abs().numpy()
    assert size[visible].min() >= np.delete(size, visible).max()
    assert f"{len(visible)} of {count} edges of size" in tab.locator("#weak-text").inner_text()
    assert 0 < ink(tab, "edges") < 0.6 * full
    graph = net.dag.to_networkx()
    part = graph.edge_subgraph([tuple(net.dag.labels[v] for v in net.dag.edges[k]) for k in visible])
    label = max(part, key=lambda label: len(nx.ancestors(part, label)))
    tab.mouse.click(*view_position(tab, net.dag.index(label)))
    assert properties(tab)["ancestors"] == str(len(nx.ancestors(part, label))) != str(len(nx.ancestors(graph, label)))
    assert "Counted along the visible edges." in tab.locator("#details").inner_text()


def test_the_forward_pass_is_the_networks_own(show, net, samples):
    tab = show(fw.view(net, samples=samples))
    tab.get_by_label("Sample").select_option("1")
    expected = net.activations(samples)[1].detach().numpy()
    np.testing.assert_array_equal(array(tab, "fourward.graph.samples[1].activation").astype(np.float32), expected)
    limit = tab.evaluate("fourward.graph.activationLimit")
    colours = "Array.from(fourward.graph.labels, (_, v) => fourward.painter.fill(v, fourward.state))"
    for layer in range(net.layering.height):
        tab.get_by_label("Next layer").click()
        assert state(tab, "step") == layer
        drawn, there = np.array(tab.evaluate(colours)), net.layering.level <= layer
        shares = (np.clip(expected / limit, -1, 1) + 1) / 2
        by_value = tab.evaluate("shares => shares.map((t) => fourward.painter.signs(t))", shares.tolist())
        np.testing.assert_array_equal(drawn[there], np.array(by_value)[there])
        assert (drawn[~there] == tab.evaluate("fourward.painter.colour.paper")).all()
        edges = np.isin(net.dag.target, net.layering.layers[layer]).sum()
        nodes = pluralize(len(net.layering.layers[layer]), "neuron")
        words = f"Layer {layer}: {nodes} from {pluralize(edges, 'edge')}, sample 2 of 3."
        assert tab.locator("#status").inner_text() == words
    tab.get_by_label("Previous layer").click()
    assert state(tab, "step") == net.layering.height - 2
    tab.get_by_label("Layer", exact=True).fill("1")
    assert state(tab, "step") == 1


def test_the_keyboard_does_it_all(show, net):
    tab = show(fw.view(net))
    level, view = net.layering.level, tab.locator("#view")
    view.focus()
    view.press("ArrowRight")
    first = state(tab, "current")
    assert first >= 0
    assert tab.locator("#status").inner_text().startswith(f"{net.dag.labels[first]}, kind ")
    while level[state(tab, "current")] > 0:
        before = level[state(tab, "current")]
        view.press("ArrowLeft")
        assert level[state(tab, "current")] == before - 1
    for key in ("ArrowUp", "ArrowDown"):
        for _ in range(len(net.layering.layers[0])):
            view.press(key)
            assert level[state(tab, "current")] == 0
        end = array(tab, "fourward.painter.y")[net.layering.layers[0]]
        y = array(tab, "fourward.painter.y")[state(tab, "current")]
        assert y == (end.min() if key == "ArrowUp" else end.max())
    view.press("Enter")
    assert state(tab, "selected") == state(tab, "current")
    view.press(".")
    assert state(tab, "step") == 0
    tab.clock.install()
    view.press(" ")
    assert tab.locator("#play").inner_text() == "Pause"
    tab.clock.run_for(2000)
    assert state(tab, "step") >= 2
    view.press(" ")
    assert tab.locator("#play").inner_text() == "Play"
    view.press("+")
    assert tab.evaluate("fourward.painter.transform.k") == pytest.approx(1.5)
    view.press("0")
    assert tab.evaluate("fourward.painter.transform.k") == 1
    view.press("/")
    assert tab.evaluate("document.activeElement.id") == "search"
    tab.keyboard.press("Escape")
    assert [state(tab, name) for name in ("selected", "current", "step")] == [-1, -1, -1]


def test_playing_ends_at_the_last_layer(show):
    tab = show(fw.view(FourWard(generate.layered_mlp([2, 3, 1]), seed=0)))
    tab.clock.install()  # it plays a layer in 0.9 s; the test doesn't wait for it
    tab.get_by_role("button", name="Play").click()
    tab.clock.run_for(3000)
    assert [state(tab, name) for name in ("step", "playing")] == [2, None]
    assert tab.locator("#play").inner_text() == "Play"


def test_pan_and_zoom_with_the_mouse(show, net):
    tab = show(fw.view(net))
    box = tab.locator("#view").bounding_box()
    x, y = box["x"] + 200, box["y"] + 12
    before = view_position(tab, 5)
    tab.mouse.move(x, y)
    tab.mouse.down()
    tab.mouse.move(x + 60, y + 30, steps=3)
    tab.mouse.up()
    np.testing.assert_allclose(np.subtract(view_position(tab, 5), before), [60, 30], atol=1)
    tab.mouse.wheel(0, -200)
    tab.wait_for_function("() => fourward.painter.transform.k > 1.2")


def test_a_large_graph_is_moved_as_an_image_and_redrawn(show):
    tab = show(fw.view(FourWard(generate.erdos_renyi(150, 0.15, seed=0), seed=0)))
    assert tab.evaluate("fourward.painter.heavy")
    tab.get_by_label("Zoom in").click()
    tab.wait_for_function("() => fourward.painter.drawn.k > 1.4 && fourward.painter.stage.style.transform === ''")
    assert ink(tab, "edges") > 5000
    before = ink(tab, "edges")
    tab.get_by_label("Hide weak edges").fill("90")
    for _ in range(50):
        tab.wait_for_timeout(100)  # it is drawn when the slider rests
        if ink(tab, "edges") < 0.8 * before:
            break
    assert 0 < ink(tab, "edges") < 0.8 * before


def test_labels_are_text_and_never_markup(show):
    dag = Dag.from_edges([(HOSTILE[0], HOSTILE[1]), (HOSTILE[1], HOSTILE[2]), (HOSTILE[1], HOSTILE[3])])
    page = fw.view(FourWard(dag, seed=0), title=HOSTILE[0])
    assert page.html.count("</script>") == 2, "the page's own two"
    tab = show(page)
    assert tab.title() == HOSTILE[0]
    assert tab.locator("h1").inner_text() == HOSTILE[0]
    assert set(tab.locator("#results li span:first-child").all_inner_texts()) == set(HOSTILE)
    for node, label in enumerate(dag.labels):
        tab.mouse.move(*view_position(tab, node))
        assert tab.locator("#tip").inner_text().startswith(label)
        tab.mouse.click(*view_position(tab, node))
        assert tab.locator("#details h2").first.inner_text() == label
    assert tab.locator("img, main b, aside script, h1 *").count() == 0


def test_no_script_but_its_own_runs_and_nothing_is_sent(browser, net, tmp_path):
    tab = browser.new_page()
    tab.goto(fw.view(net).save(tmp_path / "page.html").as_uri())
    tried = tab.evaluate(
        """async () => {
        const blocked = [];
        document.addEventListener("securitypolicyviolation", (event) => blocked.push(event.effectiveDirective));
        const script = document.createElement("script");
        script.textContent = "window.ran = true";
        document.body.append(script);
        const image = new Image();
        image.src = "https://example.com/a.png";
        await fetch("https://example.com").catch(() => 0);
        await new Promise((done) => setTimeout(done, 50));
        return { blocked, ran: window.ran === true }; }"""
    )
    assert sorted(tried["blocked"]) == ["connect-src", "img-src", "script-src-elem"]
    assert not tried["ran"]
    tab.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark(show, net, scheme):
    tab = show(fw.view(net), color_scheme=scheme)

    def brightness():
        return sum(map(int, re.findall(r"\d+", tab.evaluate("getComputedStyle(document.body).backgroundColor"))[:3]))

    assert (brightness() > 600) == (scheme == "light")
    other = "light" if scheme == "dark" else "dark"
    while tab.locator("#theme").inner_text() != f"Theme: {other}":
        tab.locator("#theme").click()
    assert (brightness() > 600) == (other == "light")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_neurons_that_the_pass_has_not_reached_are_visible(show, net, scheme):
    tab = show(fw.view(net), color_scheme=scheme)
    tab.get_by_label("Next layer").click()
    shown = tab.evaluate("fourward.painter.colour")
    outline, paper = (np.array([int(shown[name][k : k + 2], 16) for k in (1, 3, 5)]) for name in ("outline", "paper"))
    assert np.abs(0.3 * (outline - paper)).min() > 40, "an outline that stands back still differs from the paper"


def test_what_is_not_a_number_does_not_look_like_zero(show):
    net = FourWard(generate.chain(3), activation="identity", seed=0)
    with torch.no_grad():
        net.weight[1] = float("nan")
    tab = show(fw.view(net))
    assert tab.locator("#legend").inner_text().count("not a number") == 1
    assert tab.evaluate("[0, 1].map((e) => fourward.painter.bin(e) > 8)") == [False, True]
    tab.get_by_label("Layer", exact=True).fill("2")
    assert tab.locator("#legend").inner_text().count("not a number") == 2
    mark = tab.evaluate("fourward.painter.colour.mark")
    fills = tab.evaluate("[0, 1, 2].map((v) => fourward.painter.fill(v, fourward.state))")
    assert [fill == mark for fill in fills] == [False, False, True]


def test_names_of_inputs_and_outputs_stand_beside_them_and_long_ones_are_not_cut(show):
    long = ["a long name of an input", "a stimulus of the left", "a stimulus of the right"]
    dag = Dag.from_edges([*((name, "brain") for name in ("eye", *long)), ("brain", "leg"), ("brain", "arm")])
    tab = show(fw.view(dag))
    written = tab.evaluate(
        """() => {
        const written = {};
        const pen = CanvasRenderingContext2D.prototype;
        const write = pen.fillText;
        pen.fillText = function (text, x) { written[text] = [x, this.measureText(text).width]; };
        fourward.painter.paintNodes(fourward.state);
        pen.fillText = write;
        return written; }"""
    )
    x = dict(zip(dag.labels, array(tab, "fourward.painter.x"), strict=True))
    assert written["eye"][0] < x["eye"] - 10
    assert written["leg"][0] > x["leg"] + 10
    assert written["brain"][0] == pytest.approx(x["brain"])
    for name in ("a long name of an…", "a stimulu…the left", "a stimulu…he right"):
        middle, width = written[name]
        assert middle - width / 2 > 0


def test_a_search_in_part_of_a_graph_says_so(show):
    tab = show(fw.view(generate.chain(5200)))
    search = tab.get_by_label("Find a neuron")
    for query, count in (("5199", 0), ("1499", 1)):
        search.fill(query)
        assert tab.locator("#result-count").inner_text() == f"{pluralize(count, 'neuron')} found among those shown"


def test_a_narrow_window_needs_no_sideways_scrolling(show, net):
    tab = show(fw.view(net), viewport={"width": 400, "height": 800})
    assert tab.evaluate("document.documentElement.scrollWidth") <= 400
    assert tab.locator("#view").bounding_box()["width"] > 300


def test_a_graph_without_weights_has_no_controls_for_them(show):
    tab = show(fw.view(generate.chain(3)))
    assert tab.get_by_label("Hide weak edges").is_hidden()
    assert tab.get_by_label("Sample").is_hidden()
    tab.get_by_label("Next layer").click()
    assert tab.locator("#status").inner_text() == "Layer 0: 1 neuron from 0 edges."


def test_it_runs_inside_a_notebook(browser, net, tmp_path):
    (tmp_path / "cell.html").write_text(f"<!doctype html><body>{fw.view(net)._repr_html_()}", encoding="utf-8")
    tab = browser.new_page()
    tab.goto((tmp_path / "cell.html").as_uri())
    frame = tab.frame_locator("iframe")
    assert frame.locator("#shown").inner_text().startswith("Shown: all 40 neurons")
    frame.get_by_label("Find a neuron").fill("17")
    assert frame.locator("#results li").count() == 1
    tab.close()


def test_the_module_can_be_called_and_imported(net):
    import fourward.view._draw

    assert fourward.view._draw.draw is fw.draw
    assert fw.view is fourward.view
    page = fw.view(net)
    assert repr(page).startswith("Page(")
    assert "Shown: all 40 neurons" in repr(page)


def test_the_same_network_gives_the_same_page(net):
    assert fw.view(net).html == fw.view(net).html


def test_bundled_files_are_what_their_note_says():
    note = (ASSETS / "d3" / "README.md").read_text()
    listed = dict(re.findall(r"^\| (d3-\w+) \| ([\d.]+) \|", note, re.M))
    assert (
        {f"d3-{name}" for name in pages.D3_MODULES}
        == set(listed)
        == {p.name.split(".")[0] for p in ASSETS.glob("d3/*.js")}
    )
    for name, version in listed.items():
        assert f"/{name}/ v{version} " in (ASSETS / "d3" / f"{name}.min.js").read_text().split("\n")[0]
    notice = Path(__file__).parents[2].joinpath("NOTICE").read_text()
    assert "D3" in notice


def test_neurons_are_coloured_by_class_or_numbers(show):
    dag = fw.Dag.from_edges([("a", "b"), ("b", "c")]).with_attributes({"class": {"a": "sensory", "b": "inter"}})
    tab = show(fw.view(fw.FourWard(dag, seed=0), colour=[1, 2, 900], colour_label="importance"))
    fills = "[0, 1, 2].map((v) => fourward.painter.fill(v, fourward.state))"
    assert tab.evaluate(fills)[2] == "rgb(253, 231, 37)", "the largest"
    assert "importance by rank" in tab.locator("#legend").inner_text()
    tab.get_by_label("Colour").select_option(label="class")
    first, second, missing = tab.evaluate(fills)
    assert len({first, second, missing}) == 3
    assert "sensory" in tab.locator("#legend").inner_text()
    tab.get_by_label("Find a neuron").fill("a")
    tab.get_by_label("Find a neuron").press("Enter")
    assert "sensory" in tab.locator("#details").inner_text()
