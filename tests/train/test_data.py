"""Data: what each file means, and which cell an error names."""

import gzip

import numpy as np
import pytest

from fourward.errors import DataError, OptionError
from fourward.train import read_data, split
from fourward.train._data import read_features

GOOD = "a,b,kind\n1,2,red\n3,4,blue\n5,6,red\n"


def write(folder, text, name="t.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_table(tmp_path):
    data = read_data(write(tmp_path, GOOD), "kind")
    assert data.x.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert (data.y.tolist(), data.classes, data.features, data.targets) == (
        [1, 0, 1],
        ["blue", "red"],
        ["a", "b"],
        ["kind"],
    )
    assert read_data(tmp_path / "t.csv", "kind", drop=["a"]).features == ["b"]
    tabs = read_data(write(tmp_path, GOOD.replace(",", "\t"), "t.tsv"), "kind")
    assert tabs.digest == data.digest
    assert read_data(write(tmp_path, GOOD.replace("2", "2.5")), "kind").digest != data.digest


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
    path = write(tmp_path, "a,y\n" + "".join(f"{k},{v}\n" for k, v in enumerate(values)))
    data = read_data(path, "y")
    assert (data.task, data.classes) == (task, classes)
    if classes is not None:
        assert [str(classes[k]) for k in data.y] == [v.removesuffix(".0") for v in values]


def test_the_task_can_be_overridden(tmp_path):
    path = write(tmp_path, "a,y\n1,0\n2,1\n3,2\n")
    assert read_data(path, "y", task="regression").y.tolist() == [[0], [1], [2]]
    path = write(tmp_path, "a,y\n1,0.5\n2,1.5\n3,0.5\n")
    assert read_data(path, "y", task="classification").classes == [0.5, 1.5]
    path = write(tmp_path, "a,y\n1,0\n2,1\n3,many\n")
    assert read_data(path, "y", task="classification").classes == ["0", "1", "many"]


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
        ("y\np\nq\n", r"no columns besides the target 'y'"),
        ("a,y\n1,p\n2,p\n", r"expected at least two classes, got only 'p'"),
        ("a,y\n1,p,3\n2,q,4\n", r"can't be parsed as a table"),
        ("a,y\n1,p\n2,q,4\n", r"Expected 2 fields in line 3"),
        ("a,y,y\n1,p,p\n2,q,q\n", r"t\.csv has duplicate columns 'y'"),
        ("a;y\n1,5;p\n2,5;q\n", r"got semicolons in .*t\.csv"),
        ("a,y\n1,0.5\n2,1.5\n3,n/a\n", r"row 3, column 'y' holds 'n/a', but most targets are numbers"),
        ("", r"t\.csv is empty"),
        ("a,y\n", r"no rows"),
        (b"a,y\n\xff\xfe,p\n", r"t\.csv is not UTF-8 text. Save it as UTF-8"),
        ("a,y\n1,p\n2,q\n".encode("utf-16"), r"is not UTF-8 text"),
        ("a\ty\n1\tp\n", r"got tabs in .*t\.csv"),
        (",a,y\n0,7,p\n1,8,q\n", r"column 1 has no name.*Pass drop=\['Unnamed: 0'\] to drop it"),
        ("a,y,\n7,p,\n8,q,\n", r"column 3 has no name"),
    ],
)
def test_bad_tables(tmp_path, text, words):
    with pytest.raises(DataError, match=words):
        read_data(write(tmp_path, text), "y")


def test_a_column_without_a_name_can_be_dropped(tmp_path):
    path = write(tmp_path, ",a,y\n0,7,p\n1,8,q\n")
    assert read_data(path, "y", drop=["Unnamed: 0"]).features == ["a"]
    assert read_data(path, "y", features=["a"], classes=["p", "q"]).x.tolist() == [[7], [8]]


def test_cells_without_a_number_are_counted_and_the_repair_is_named(tmp_path):
    path = write(tmp_path, "a,b,y\n1,,p\n2,,q\n")
    with pytest.raises(
        DataError, match=r"row 1, column 'b' is empty, .*\(the first of 2 such cells\).*Pass drop=\['b'\]"
    ):
        read_data(path, "y")
    with pytest.raises(DataError, match=r"remove the row; the model needs the column\.$"):
        read_data(path, "y", features=["a", "b"], classes=["p", "q"])


@pytest.mark.parametrize("name", ["T.CSV", "my.table.csv", "T.csv.GZ", "T.NPZ"])
def test_endings_may_be_in_capitals(tmp_path, name):
    if name == "T.NPZ":
        with (tmp_path / name).open("wb") as file:
            np.savez(file, x=np.eye(2), y=np.arange(2))
    else:
        write(tmp_path, gzip.compress(GOOD.encode()) if name.endswith("GZ") else GOOD, name)
    assert read_data(tmp_path / name, None if name == "T.NPZ" else "kind").x.shape[1] == 2


def test_a_constant_column_is_fine(tmp_path):
    assert read_data(write(tmp_path, "a,b,y\n1,5,p\n2,5,q\n"), "y").x[:, 1].tolist() == [5, 5]


def test_bad_requests(tmp_path):
    path = write(tmp_path, GOOD)
    with pytest.raises(OptionError, match=r"needs a target. Its columns are 'a', 'b', 'kind'.*Pass target=..."):
        read_data(path)
    with pytest.raises(DataError, match="no column 'c'"):
        read_data(path, "kind", drop=["c"])
    with pytest.raises(DataError, match="row 1, column 'kind' holds 'red'"):
        read_data(path, "kind", task="regression")
    with pytest.raises(DataError, match="file not found"):
        read_data(tmp_path / "none.csv", "kind")
    with pytest.raises(DataError, match=r"\.csv, \.tsv or \.npz"):
        read_data(tmp_path / "t.xlsx", "kind")
    with pytest.raises(OptionError, match="the target of wine is 'class'"):
        read_data("wine", "kind")
    with pytest.raises(OptionError, match="wine is a classification"):
        read_data("wine", task="regression")
    with pytest.raises(OptionError, match="drop applies to the columns of a"):
        read_data("wine", drop=["hue"])


def test_arrays(tmp_path):
    path = tmp_path / "t.npz"
    np.savez(path, x=np.eye(3), y=np.array(["u", "v", "u"]))
    data = read_data(path)
    assert (data.y.tolist(), data.classes, data.features) == ([0, 1, 0], ["u", "v"], ["x0", "x1", "x2"])
    np.savez(path, x=np.eye(3, dtype=int), y=np.eye(3)[:, :2])
    assert read_data(path).targets == ["y0", "y1"]
    np.savez(path, x=np.eye(3), y=np.array([[4], [7], [4]]))
    assert (read_data(path).y.tolist(), read_data(path).classes) == ([0, 1, 0], [4, 7])
    np.savez(path, x=np.eye(3, dtype=int), y=np.eye(3)[:, :2])
    assert read_features(path, ["p", "q", "r"]).tolist() == np.eye(3).tolist()
    with pytest.raises(DataError, match="has 3 features, but the model was trained on 2"):
        read_features(path, ["p", "q"])


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        (
            {"x": np.eye(2), "y": np.array([{}, 1], object)},
            r"'y' holds Python objects. These are pickled, and pickles, which could run code",
        ),
        ({"x": np.array([[None]], object), "y": [1]}, r"'x' holds Python objects"),
        ({"x": np.eye(2)}, r"expected arrays 'x', 'y' in .*, got 'x'"),
        ({"x": np.ones(3), "y": [1, 2, 3]}, r"got float64 of shape \(3,\)"),
        ({"x": np.ones((0, 3)), "y": []}, r"got float64 of shape \(0, 3\)"),
        ({"x": np.ones((3, 2)), "y": [1, 2]}, r"for each of 3 samples, got int64 of shape \(2,\)"),
        ({"x": np.ones((2, 2)) * np.nan, "y": [1, 2]}, r"got nan at index \[0, 0\]"),
        ({"x": np.ones((2, 2)), "y": [1, np.inf]}, r"got inf at index \[1\]"),
        ({"x": np.ones((2, 2)), "y": [1j, 2]}, r"complex128"),
    ],
)
def test_bad_arrays(tmp_path, arrays, words):
    np.savez(tmp_path / "t.npz", **arrays)
    with pytest.raises(DataError, match=words):
        read_data(tmp_path / "t.npz")


def test_broken_arrays(tmp_path):
    path = tmp_path / "t.npz"
    np.savez(path, x=np.eye(50), y=np.arange(50) % 2)
    content = path.read_bytes()
    for broken in (content[:100], b"", b"\x80\x04]\x94."):
        path.write_bytes(broken)
        with pytest.raises(DataError, match="not an npz file, or it is truncated"):
            read_data(path)
    path.write_bytes(content[:300] + bytes(300) + content[600:])
    with pytest.raises(DataError, match="'x' is corrupt"):
        read_data(path)


def test_known_features_and_classes(tmp_path):
    path = write(tmp_path, "b,a,kind,other\n1,4,1,x\n2,5,2,y\n")
    data = read_data(path, "kind", features=["a", "b"], classes=["2", "1", "3"])
    assert data.x.tolist() == [[4, 1], [5, 2]]
    assert data.y.tolist() == [1, 0]
    assert read_features(path, ["a"]).tolist() == [[4], [5]]
    with pytest.raises(DataError, match=r"unknown classes 1, 2. The model knows '7'"):
        read_data(path, "kind", features=["a"], classes=["7"])
    with pytest.raises(DataError, match="no columns 'c', 'd'"):
        read_features(path, ["a", "c", "d"])


def test_splits_are_stratified():
    y = np.repeat([0, 1, 2], [600, 300, 100])
    train, validation, test = split(y, 0.2, 0.1, seed=0)
    assert sorted([*train, *validation, *test]) == list(range(1000))
    for rows, fraction in ((train, 0.7), (validation, 0.2), (test, 0.1)):
        assert np.abs(np.bincount(y[rows]) - fraction * np.array([600, 300, 100])).max() <= 1.01
    assert all(np.array_equal(a, b) for a, b in zip((train, validation, test), split(y, 0.2, 0.1, seed=0), strict=True))
    assert not np.array_equal(validation, split(y, 0.2, 0.1, seed=1)[1])


def test_rare_classes_stay_in_train_and_numbers_are_spread():
    y = np.array([0] * 50 + [1, 2, 2])
    for seed in range(20):
        train, _, _ = split(y, 0.4, 0.4, seed)
        assert set(y[train]) == {0, 1, 2}
    numbers = np.random.default_rng(0).permutation(1000)[:, None].astype(float)
    _, validation, test = split(numbers, 0.1, 0.1, seed=0)
    assert abs(numbers[validation].mean() - 499.5) < 15
    assert len(validation) == len(test) == 100
    train, validation, test = split(y, 0.0, 0.0, seed=0)
    assert (len(train), len(validation), len(test)) == (53, 0, 0)
    with pytest.raises(OptionError, match="leave rows to train on"):
        split(y, 0.5, 0.5, 0)
