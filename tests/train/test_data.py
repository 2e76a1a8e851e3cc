"""Data: what each file means, and what each bad cell is called."""

import gzip

import numpy as np
import pytest

from fourward.errors import DataError, OptionError
from fourward.train._data import read, read_features, split
from fourward.train._model import Scaling

GOOD = "a,b,kind\n1,2,red\n3,4,blue\n5,6,red\n"


def written(folder, text, name="t.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_table(tmp_path):
    data = read(written(tmp_path, GOOD), "kind")
    assert data.x.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert (data.y.tolist(), data.classes, data.features, data.targets) == (
        [1, 0, 1],
        ["blue", "red"],
        ["a", "b"],
        ["kind"],
    )
    assert read(tmp_path / "t.csv", "kind", drop=["a"]).features == ["b"]
    tabs = read(written(tmp_path, GOOD.replace(",", "\t"), "t.tsv"), "kind")
    assert tabs.digest == data.digest
    assert read(written(tmp_path, GOOD.replace("2", "2.5")), "kind").digest != data.digest


@pytest.mark.parametrize(
    ("values", "task", "classes"),
    [
        (["x", "y", "x"], "classification", ["x", "y"]),
        (["None", "NA", "NA"], "classification", ["NA", "None"]),
        (["True", "False", "True"], "classification", [False, True]),
        (["0", "1", "7"], "classification", [0, 1, 7]),
        (["2.0", "1.0", "1.0"], "classification", [1, 2]),
        (["0.5", "1", "2"], "regression", None),
        (list(map(str, range(21))), "regression", None),
        (list(map(str, range(20))), "classification", list(range(20))),
    ],
)
def test_the_target_decides_the_task(tmp_path, values, task, classes):
    path = written(tmp_path, "a,y\n" + "".join(f"{k},{v}\n" for k, v in enumerate(values)))
    data = read(path, "y")
    assert (data.task, data.classes) == (task, classes)
    if classes is not None:
        assert [str(classes[k]) for k in data.y] == [v.removesuffix(".0") for v in values]


def test_the_task_can_be_overruled(tmp_path):
    path = written(tmp_path, "a,y\n1,0\n2,1\n3,2\n")
    assert read(path, "y", task="regression").y.tolist() == [[0], [1], [2]]
    path = written(tmp_path, "a,y\n1,0.5\n2,1.5\n3,0.5\n")
    assert read(path, "y", task="classification").classes == [0.5, 1.5]
    path = written(tmp_path, "a,y\n1,0\n2,1\n3,many\n")
    assert read(path, "y", task="classification").classes == ["0", "1", "many"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b,y\n1,2,p\n3,old,q\nbad,1,p\n", r"t\.csv, row 2, column 'b' holds 'old'"),
        ("a,b,y\n1,2,p\n3,,q\n", r"row 2, column 'b' is empty"),
        ("a,b,y\n1,2,p\n3,NA,q\n", r"row 2, column 'b' holds 'NA'"),
        ("a,b,y\n1,2,p\n3,nan,q\n", r"row 2, column 'b' holds 'nan'"),
        ("a,b,y\n1,inf,p\n3,1,q\n", r"row 1, column 'b' holds 'inf'"),
        ("a,b,y\n1,2,p\n3,4,\n", r"row 2, column 'y' is empty"),
        ("a,b\n1,2\n", r"no column 'y'. Its columns are 'a', 'b'"),
        ("y\np\nq\n", r"nothing to learn from"),
        ("a,y\n1,p\n2,p\n", r"all samples are of one class, 'p'"),
        ("a,y\n1,p,3\n2,q,4\n", r"can't be read as a table"),
        ("a,y\n1,p\n2,q,4\n", r"Expected 2 fields in line 3"),
        ("a,y,y\n1,p,p\n2,q,q\n", r"t\.csv has more than one column 'y'"),
        ("a;y\n1,5;p\n2,5;q\n", r"t\.csv has semicolons between its cells"),
        ("a,y\n1,0.5\n2,1.5\n3,n/a\n", r"row 3, column 'y' holds 'n/a', but most targets are numbers"),
        ("", r"can't be read as a table"),
        ("a,y\n", r"no rows"),
        (b"a,y\n\xff\xfe,p\n", r"t\.csv is no UTF-8 text. Save it as UTF-8"),
        ("a,y\n1,p\n2,q\n".encode("utf-16"), r"is no UTF-8 text"),
        ("a\ty\n1\tp\n", r"t\.csv has tabs between its cells"),
        (",a,y\n0,7,p\n1,8,q\n", r"column 1 has no name.*--drop 'Unnamed: 0'"),
        ("a,y,\n7,p,\n8,q,\n", r"column 3 has no name"),
    ],
)
def test_bad_tables(tmp_path, text, words):
    with pytest.raises(DataError, match=words):
        read(written(tmp_path, text), "y")


def test_a_column_without_a_name_can_be_left_out(tmp_path):
    path = written(tmp_path, ",a,y\n0,7,p\n1,8,q\n")
    assert read(path, "y", drop=["Unnamed: 0"]).features == ["a"]
    assert read(path, "y", features=["a"], classes=["p", "q"]).x.tolist() == [[7], [8]]


def test_cells_without_a_number_are_counted_and_the_way_out_is_named(tmp_path):
    path = written(tmp_path, "a,b,y\n1,,p\n2,,q\n")
    with pytest.raises(DataError, match=r"row 1, column 'b' is empty.*\(2 cells hold none\).*--drop 'b'"):
        read(path, "y")
    with pytest.raises(DataError, match=r"remove the row; the model needs the column\.$"):
        read(path, "y", features=["a", "b"], classes=["p", "q"])


def test_numbers_too_large_to_be_standardised():
    with pytest.raises(DataError, match=r"column 2 holds 3e\+300, too large to be standardised"):
        Scaling.of(np.array([[1, 1e300], [2, 3e300]]))


@pytest.mark.parametrize("name", ["T.CSV", "my.table.csv", "T.csv.GZ", "T.NPZ"])
def test_endings_may_be_in_capitals(tmp_path, name):
    if name == "T.NPZ":
        with (tmp_path / name).open("wb") as file:
            np.savez(file, x=np.eye(2), y=np.arange(2))
    else:
        written(tmp_path, gzip.compress(GOOD.encode()) if name.endswith("GZ") else GOOD, name)
    assert read(tmp_path / name, None if name == "T.NPZ" else "kind").x.shape[1] == 2


def test_a_constant_column_is_fine(tmp_path):
    assert read(written(tmp_path, "a,b,y\n1,5,p\n2,5,q\n"), "y").x[:, 1].tolist() == [5, 5]


def test_bad_requests(tmp_path):
    path = written(tmp_path, GOOD)
    with pytest.raises(OptionError, match=r"which column .* 'a', 'b', 'kind'"):
        read(path)
    with pytest.raises(DataError, match="no column 'c'"):
        read(path, "kind", drop=["c"])
    with pytest.raises(DataError, match="row 1, column 'kind' holds 'red'"):
        read(path, "kind", task="regression")
    with pytest.raises(DataError, match="no file"):
        read(tmp_path / "none.csv", "kind")
    with pytest.raises(DataError, match=r"\.csv, \.tsv or \.npz"):
        read(tmp_path / "t.xlsx", "kind")
    with pytest.raises(OptionError, match="brings its own target"):
        read("wine", "kind")
    with pytest.raises(OptionError, match="wine is a classification"):
        read("wine", task="regression")
    with pytest.raises(OptionError, match="wine is none"):
        read("wine", drop=["hue"])


def test_arrays(tmp_path):
    path = tmp_path / "t.npz"
    np.savez(path, x=np.eye(3), y=np.array(["u", "v", "u"]))
    data = read(path)
    assert (data.y.tolist(), data.classes, data.features) == ([0, 1, 0], ["u", "v"], ["x0", "x1", "x2"])
    np.savez(path, x=np.eye(3, dtype=int), y=np.eye(3)[:, :2])
    assert read(path).targets == ["y0", "y1"]
    np.savez(path, x=np.eye(3), y=np.array([[4], [7], [4]]))
    assert (read(path).y.tolist(), read(path).classes) == ([0, 1, 0], [4, 7])
    np.savez(path, x=np.eye(3, dtype=int), y=np.eye(3)[:, :2])
    assert read_features(path, ["p", "q", "r"]).tolist() == np.eye(3).tolist()
    with pytest.raises(DataError, match="has 3 features, but the model learned from 2"):
        read_features(path, ["p", "q"])


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        (
            {"x": np.eye(2), "y": np.array([{}, 1], object)},
            r"Python objects as 'y'. These are pickles, which could run",
        ),
        ({"x": np.array([[None]], object), "y": [1]}, r"Python objects as 'x'"),
        ({"x": np.eye(2)}, r"no array 'y', but 'x'"),
        ({"x": np.ones(3), "y": [1, 2, 3]}, r"x has shape \(3,\)"),
        ({"x": np.ones((0, 3)), "y": []}, r"x has shape \(0, 3\)"),
        ({"x": np.ones((3, 2)), "y": [1, 2]}, r"y has shape \(2,\) .* 3 samples"),
        ({"x": np.ones((2, 2)) * np.nan, "y": [1, 2]}, r"nan stands at \[0, 0\]"),
        ({"x": np.ones((2, 2)), "y": [1, np.inf]}, r"inf stands at \[1\]"),
        ({"x": np.ones((2, 2)), "y": [1j, 2]}, r"complex128"),
    ],
)
def test_bad_arrays(tmp_path, arrays, words):
    np.savez(tmp_path / "t.npz", **arrays)
    with pytest.raises(DataError, match=words):
        read(tmp_path / "t.npz")


def test_broken_arrays(tmp_path):
    path = tmp_path / "t.npz"
    np.savez(path, x=np.eye(50), y=np.arange(50) % 2)
    whole = path.read_bytes()
    for broken in (whole[:100], b"", b"\x80\x04]\x94."):
        path.write_bytes(broken)
        with pytest.raises(DataError, match="no npz file, or it was cut short"):
            read(path)
    path.write_bytes(whole[:300] + bytes(300) + whole[600:])
    with pytest.raises(DataError, match="'x' is damaged"):
        read(path)


def test_known_features_and_classes(tmp_path):
    path = written(tmp_path, "b,a,kind,other\n1,4,1,x\n2,5,2,y\n")
    data = read(path, "kind", features=["a", "b"], classes=["2", "1", "3"])
    assert data.x.tolist() == [[4, 1], [5, 2]]
    assert data.y.tolist() == [1, 0]
    assert read_features(path, ["a"]).tolist() == [[4], [5]]
    with pytest.raises(DataError, match="knows the classes '7', and these are none: 1, 2"):
        read(path, "kind", features=["a"], classes=["7"])
    with pytest.raises(DataError, match="no columns 'c', 'd'"):
        read_features(path, ["a", "c", "d"])


def test_splits_keep_the_shares():
    y = np.repeat([0, 1, 2], [600, 300, 100])
    learn, held, test = split(y, 0.2, 0.1, seed=0)
    assert sorted([*learn, *held, *test]) == list(range(1000))
    for rows, share in ((learn, 0.7), (held, 0.2), (test, 0.1)):
        assert np.abs(np.bincount(y[rows]) - share * np.array([600, 300, 100])).max() <= 1.01
    assert all(np.array_equal(a, b) for a, b in zip((learn, held, test), split(y, 0.2, 0.1, seed=0), strict=True))
    assert not np.array_equal(held, split(y, 0.2, 0.1, seed=1)[1])


def test_rare_classes_are_learned_and_numbers_are_spread():
    y = np.array([0] * 50 + [1, 2, 2])
    for seed in range(20):
        learn, _, _ = split(y, 0.4, 0.4, seed)
        assert set(y[learn]) == {0, 1, 2}
    numbers = np.random.default_rng(0).permutation(1000)[:, None].astype(float)
    _, held, test = split(numbers, 0.1, 0.1, seed=0)
    assert abs(numbers[held].mean() - 499.5) < 15
    assert len(held) == len(test) == 100
    learn, held, test = split(y, 0.0, 0.0, seed=0)
    assert (len(learn), len(held), len(test)) == (53, 0, 0)
    with pytest.raises(OptionError, match="left to learn from"):
        split(y, 0.5, 0.5, 0)
