import pytest
from matplotlib.figure import Figure
from PIL import Image

from fourward.study._aggregate import Cell, latest_rows
from fourward.study._figures import available_figures, write_figures
from fourward.study._figures.maps import draw_attributes, draw_gains, draw_times
from fourward.study._figures.style import draw_map, encode, log_norm, new_figure
from fourward.study._store import Store
from tests.study import synthetic

ALWAYS = {"overview", "forward", "layerings"}


def texts(axes):
    return [text.get_text().replace("\n", " ") for text in axes.texts]


def test_every_figure_is_drawn(drawings):
    names = [drawing.name for drawing in drawings]
    assert all(drawing.figure.axes for drawing in drawings)
    rest = {"times-cpu", "gains-cpu", "training-cpu", "reassignment-cpu", "attributes", "accuracy"}
    assert set(names) == ALWAYS | rest | {"ablation-edges", "ablation-neurons"}
    assert len(names) == len(set(names))


def test_files_are_written_and_not_empty(tmp_path):
    with Store(tmp_path / "results.sqlite", environment=synthetic.ENVIRONMENT) as store:
        synthetic.add_attributes(store)
        paths = write_figures(store, tmp_path / "figures")
    assert {path.name for path in paths} == {
        f"{name}.{format}" for name in (*ALWAYS, "attributes") for format in ("png", "svg")
    }
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {path.name for path in paths}
    for path in paths:
        if path.suffix == ".png":
            with Image.open(path) as picture:
                assert len(set(picture.convert("L").resize((80, 40)).get_flattened_data())) > 10
        else:
            assert path.read_text().count("<path") > 20


def test_the_same_rows_give_the_same_svg(rows_by_experiment):
    rows = rows_by_experiment["attributes"]
    first, second = (new_figure(lambda figure: draw_attributes(figure, rows), 9, 3) for _ in range(2))
    assert encode(first, "svg") == encode(second, "svg")


def test_cut_off_and_missing_cells_are_marked(rows_by_experiment):
    figure = Figure()
    draw_times(figure, rows_by_experiment["times"])
    maps = [axes for axes in figure.axes if axes.images]
    assert len(maps) == 4 * 2
    for axes in maps:
        assert sum(patch.get_hatch() is not None for patch in axes.patches) == texts(axes).count("cut off") + 1
        assert texts(axes).count("not run") == 1
        assert len(texts(axes)) == 12
    assert [texts(axes).count("cut off") for axes in maps] == [0, 0, 2, 2, 0, 0, 0, 0]
    figure = Figure()
    draw_gains(figure, rows_by_experiment["times"])
    rows = [texts(axes) for axes in figure.axes if axes.images]
    assert rows[2].count("cut off") == 2
    assert "2.23" in rows[0]


def test_the_unity_line_is_where_the_gain_is_one():
    axes = Figure().subplots()
    cells = {(size, p): Cell("done", 2 - 2 * p, 0.0, 1) for size in (64, 128) for p in (0.0, 0.25, 0.75, 1.0)}
    draw_map(axes, cells, (64, 128), (0.0, 0.25, 0.75, 1.0), log_norm([cells]), unity=True)
    (line,) = [part for part in axes.collections if len(part.get_paths())]
    assert line.get_paths()[0].vertices[:, 0] == pytest.approx(1.5)
    without = Figure().subplots()
    above = {key: Cell("done", 3.0, 0.0, 1) for key in cells}
    draw_map(without, above, (64, 128), (0.0, 0.25, 0.75, 1.0), log_norm([above]), unity=True)
    assert not without.collections


def test_a_map_without_a_single_number():
    axes = Figure().subplots()
    draw_map(axes, {(64, 0.2): Cell("cut off")}, (64,), (0.2, 0.4), log_norm([{}]), unity=True)
    assert texts(axes) == ["cut off", "not run"]


def test_a_partial_study_has_what_it_has(tmp_path):
    with Store(tmp_path / "results.sqlite", environment=synthetic.ENVIRONMENT) as store:
        assert {drawing.name for drawing in available_figures(latest_rows(store))} == ALWAYS
        synthetic.add_topologies(store, seeds=1, datasets=("wine",))
        store.add("topologies", {"topology": "mlp", "data": "digits", "seed": 0, "epochs": 2}, {}, status="failed")
        partial = {drawing.name: drawing for drawing in available_figures(latest_rows(store))}
    assert partial.keys() == ALWAYS | {"accuracy", "ablation-edges", "ablation-neurons"}
    assert all(partial[name].figure.axes for name in partial.keys() - {"forward", "layerings"})
