import gzip
import http.client
import os
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn
from urllib.error import URLError

import numpy as np
import pandas as pd
import pytest
import sklearn.datasets

from bnp_hier import Hierarchy, datasets
from bnp_hier.datasets import listing, load, names

FILES = Path(datasets.__file__).with_name("files")

# n, d, rows per label in the order of the sorted labels
SETS: dict[str, tuple[int, int, list[int] | None]] = {
    "iris": (150, 4, [50] * 3),
    "wine": (178, 13, [59, 71, 48]),
    "digits": (1797, 64, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]),
    "breast_cancer": (569, 30, [212, 357]),
    "animals33": (33, 102, None),
    "animals50_binary": (50, 85, None),
    "animals50_ratings": (50, 85, None),
    "glass": (214, 9, [70, 76, 17, 13, 9, 29]),
    "yeast_cellcycle_384": (384, 17, [67, 135, 75, 52, 55]),
    "pendigits_sample": (1500, 16, [161, 156, 139, 146, 158, 165, 156, 141, 135, 143]),
    "newsgroups_words": (500, 20, [125] * 4),
    "spambase": (4601, 57, [2788, 1813]),
    "pendigits_train": (7494, 16, [780, 779, 780, 719, 780, 720, 720, 778, 719, 719]),
    "pendigits_test": (3498, 16, [363, 364, 364, 336, 364, 335, 336, 364, 336, 336]),
    "newsgroups4": (3970, 7689, [990, 994, 999, 987]),
    "newsgroups20_hier": (2400, 4430, [120] * 20),
    "fashion_mnist_1000": (1000, 784, [100] * 10),
    "mnist_1000": (1000, 784, [100] * 10),
}
BUNDLED = ("iris", "wine", "digits", "breast_cancer")
SHIPPED = (
    "animals33",
    "animals50_binary",
    "animals50_ratings",
    "glass",
    "yeast_cellcycle_384",
    "pendigits_sample",
    "newsgroups_words",
)
LARGER = tuple(name for name in SETS if name not in (*BUNDLED, *SHIPPED))
WITHOUT_DOWNLOAD = ("fashion_products_2303", "flipkart_products_1050")
Fetch = Callable[..., Any]


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**options: object) -> NoReturn:
        raise AssertionError("a test tried to download a data set")

    for fetcher in ("fetch_openml", "fetch_20newsgroups"):
        monkeypatch.setattr(sklearn.datasets, fetcher, refuse)


@pytest.fixture
def folder() -> Path:
    """The folder of the larger data sets; of tests marked `data`."""
    return Path(os.environ["BNP_HIER_DATA"])


def openml(monkeypatch: pytest.MonkeyPatch, bunches: dict[str, tuple[pd.DataFrame, str]]) -> None:
    """Replace the fetcher by one that knows these sets: name at OpenML -> (table, its label column)."""

    def fetch(*, name: str, version: int, target_column: str, as_frame: bool) -> SimpleNamespace:
        frame, label = bunches[name]
        assert (version, target_column, as_frame) == (1, label, True)
        return SimpleNamespace(data=frame.drop(columns=label), target=frame[label])

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)


def test_names_are_all_documented_sets() -> None:
    others = {"abalone", "letter", "fashion_products_2303", "flipkart_products_1050"}
    assert set(names()) == set(SETS) | others
    assert len(names()) == 22
    rows = re.findall(r"^ *(\w+) +\*? *\d+ x \d+ ", load.__doc__ or "", re.MULTILINE)
    assert sorted(names()) == sorted(rows)


@pytest.mark.parametrize("name", [*BUNDLED, *SHIPPED, *(pytest.param(name, marks=pytest.mark.data) for name in LARGER)])
def test_shapes_and_label_counts(name: str) -> None:
    n, d, counts = SETS[name]
    data = load(name)
    assert data.name == name
    assert data.description
    assert data.X.shape == (n, d)
    assert data.X.dtype == np.float64
    assert data.X.flags.c_contiguous and data.X.flags.writeable
    assert np.isnan(data.X).sum() == (4 if name == "animals50_ratings" else 0)
    assert len(set(data.feature_names)) == d
    assert {type(feature) for feature in data.feature_names} == {str}
    if counts is None:
        assert data.y is None
    else:
        assert data.y is not None and data.y.shape == (n,)
        assert np.unique(data.y, return_counts=True)[1].tolist() == counts


@pytest.mark.parametrize("name", [*BUNDLED, *SHIPPED])
def test_sets_of_scikit_learn_and_of_the_package_need_no_folder(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    expected = load(name)
    assert expected.X.shape == SETS[name][:2]
    (tmp_path / f"{name}.csv.gz").write_bytes(gzip.compress(b"RI,type\n1.5,2\n"))  # names have one meaning
    monkeypatch.setenv("BNP_HIER_DATA", str(tmp_path))
    for data_home in (None, tmp_path, "no/such/folder"):
        np.testing.assert_array_equal(load(name, data_home=data_home).X, expected.X)


def test_listing_says_where_sets_come_from(tmp_path: Path) -> None:
    (tmp_path / "spambase.csv.gz").touch()
    for source in (listing()["source"], listing(tmp_path)["source"]):
        assert set(source[[*BUNDLED]]) == {"scikit-learn"} and set(source[[*SHIPPED]]) == {"bnp_hier"}
        assert set(source[[*WITHOUT_DOWNLOAD]]) == {"not here"}
    assert source["spambase"] == "file" and set(source[["letter", "newsgroups4"]]) == {"download"}


def test_files_of_the_package_are_small_and_described() -> None:
    assert {path.name for path in FILES.iterdir()} == {"README.md", *(f"{name}.csv.gz" for name in SHIPPED)}
    assert sum(path.stat().st_size for path in FILES.iterdir()) < 400_000
    page = (FILES / "README.md").read_text(encoding="utf-8")
    for name in SHIPPED:
        n, d, _ = SETS[name]
        assert f"| `{name}` | {n} x {d}" in page


@pytest.mark.data
@pytest.mark.slow
def test_samples_are_drawn_as_their_page_says(folder: Path, tmp_path: Path) -> None:
    (recipe,) = re.findall(r"```python\n(.*?)```", (FILES / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    exec(recipe, {"source": folder, "target": tmp_path})
    for name in ("pendigits_sample", "newsgroups_words"):
        assert gzip.decompress((tmp_path / f"{name}.csv.gz").read_bytes()) == gzip.decompress(
            (FILES / f"{name}.csv.gz").read_bytes()
        )


def test_words_of_newsgroups() -> None:
    data = load("newsgroups_words")
    assert {"hockey", "car", "nasa", "baseball"} < set(data.feature_names)
    assert data.y is not None and sorted(set(data.y)) == ["rec.autos", "rec.sport.baseball", "rec.sport.hockey", "sci.space"]
    np.testing.assert_array_equal(data.X, np.round(data.X))
    assert data.X.any(axis=1).all()
    leagues = data.X[:, data.feature_names.index("nhl")]
    assert leagues[data.y == "rec.sport.hockey"].sum() > 0.9 * leagues.sum() > 0


@pytest.mark.data
def test_abalone() -> None:
    data = load("abalone")
    assert data.X.shape == (4177, 7)
    assert data.feature_names == (
        "length",
        "diameter",
        "height",
        "whole_weight",
        "shucked_weight",
        "viscera_weight",
        "shell_weight",
    )
    assert data.y is not None and data.y.dtype == np.int64
    assert len(np.unique(data.y)) == 28
    np.testing.assert_array_equal(data.X[0], [0.455, 0.365, 0.095, 0.514, 0.2245, 0.101, 0.15])
    assert data.y[0] == 15


@pytest.mark.data
def test_letter() -> None:
    data = load("letter")
    assert data.X.shape == (20000, 16)
    labels, counts = np.unique(data.y, return_counts=True)
    assert labels.tolist() == list("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    assert (counts.min(), counts.max()) == (734, 813)
    assert (data.X.min(), data.X.max()) == (0, 15)


LABELS = {"glass": [1, 2, 3, 5, 6, 7], "pendigits_sample": list(range(10)), "yeast_cellcycle_384": [1, 2, 3, 4, 5]}
LARGER_LABELS = {
    "spambase": [0, 1],
    "pendigits_test": list(range(10)),
    "newsgroups4": [0, 1, 2, 3],
    "mnist_1000": list(range(10)),
}


@pytest.mark.parametrize("sets", [LABELS, pytest.param(LARGER_LABELS, marks=pytest.mark.data)], ids=["package", "folder"])
def test_label_values(sets: dict[str, list[int]]) -> None:
    for name, values in sets.items():
        assert np.unique(load(name).y).tolist() == values


def test_animals() -> None:
    small, binary, ratings = (load(name) for name in ("animals33", "animals50_binary", "animals50_ratings"))
    assert small.item_names is not None and small.item_names[:2] == ("Elephant", "Rhino")
    assert small.feature_names[0] == "has lungs"
    assert set(np.unique(small.X)) == set(np.unique(binary.X)) == {0.0, 1.0}
    assert binary.item_names == ratings.item_names
    assert binary.item_names is not None and binary.item_names[1] == "grizzly bear"
    assert binary.feature_names == ratings.feature_names
    rows, columns = np.nonzero(np.isnan(ratings.X))
    assert {ratings.item_names[row] for row in rows} == {"antelope"}
    assert [ratings.feature_names[column] for column in columns] == ["black", "white", "blue", "brown"]
    assert (np.nanmin(ratings.X), np.nanmax(ratings.X)) == (0, 100)


def test_genes_have_names() -> None:
    data = load("yeast_cellcycle_384")
    assert data.item_names is not None and data.item_names[0] == "YDL179w"
    assert data.feature_names[0] == "t00"
    np.testing.assert_allclose(data.X.mean(axis=1), 0, atol=1e-4)


@pytest.mark.data
def test_newsgroups_are_dense_counts(folder: Path) -> None:
    data = load("newsgroups4")
    with np.load(folder / "newsgroups4.npz", allow_pickle=False) as arrays:
        first = slice(arrays["indptr"][7], arrays["indptr"][8])
        np.testing.assert_array_equal(data.X[7, arrays["indices"][first]], arrays["data"][first])
        assert data.X.sum() == arrays["data"].sum()
        assert data.feature_names == tuple(arrays["vocab"])
    hierarchical = load("newsgroups20_hier")
    assert hierarchical.y is not None and hierarchical.y[0].count(".") >= 1
    assert "comp.os.ms-windows.misc" in hierarchical.y


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "counts", "min_df", "word"),
    [
        ("fashion_products_2303", [601, 1130, 464, 108], 5, "watch"),  # accessories, apparel, footwear, personal care
        ("flipkart_products_1050", [150] * 7, 10, "curtain"),
    ],
)
def test_product_texts(name: str, counts: list[int], min_df: int, word: str) -> None:
    data = load(name)
    assert np.unique(data.y, return_counts=True)[1].tolist() == counts
    assert data.item_names is not None and len(data.item_names) == len(data.X) == int(name.rsplit("_")[-1])
    assert f" {len(data.X)} x {data.X.shape[1]} " in (load.__doc__ or "")
    assert ((data.X > 0).sum(axis=0) >= min_df).all()
    np.testing.assert_array_equal(data.X, np.round(data.X))
    with_word = data.X[:, data.feature_names.index(word)] > 0
    titled = [word in title.lower().split() for title in data.item_names]
    assert with_word[titled].all() and any(titled)


@pytest.mark.parametrize(
    ("name", "nodes"),
    [
        ("newsgroups_words", [2, 3, 4]),
        pytest.param("newsgroups20_hier", [7, 16, 20], marks=pytest.mark.data),
        pytest.param("fashion_products_2303", [4, 34, 97], marks=pytest.mark.data),
        pytest.param("flipkart_products_1050", [7, 62, 224, 392], marks=pytest.mark.data),
    ],
)
def test_paths_down_a_hierarchy_of_classes(name: str, nodes: list[int]) -> None:
    data = load(name)
    assert data.paths is not None and len(data.paths) == len(data.X)
    tree = Hierarchy.from_names(data.paths)
    assert [len(np.unique(tree.labels_at(level))) for level in range(1, tree.depth + 1)] == nodes
    if not name.startswith("newsgroups"):
        assert [path[0] for path in data.paths] == list(data.y)
    assert load("iris").paths is None


@pytest.mark.data
@pytest.mark.parametrize("name", ["mnist_1000", "fashion_mnist_1000"])
def test_images(name: str) -> None:
    data = load(name)
    assert (data.X.min(), data.X.max()) == (0, 255)
    assert (data.feature_names[0], data.feature_names[-1]) == ("pixel0", "pixel783")


def test_data_home_comes_before_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place, rows in (("named", b"0.5,1\n"), ("environment", b"0.5,1\n0.2,0\n")):
        (tmp_path / place).mkdir()
        (tmp_path / place / "spambase.csv.gz").write_bytes(gzip.compress(b"make,spam\n" + rows))
    monkeypatch.setenv("BNP_HIER_DATA", str(tmp_path / "environment"))
    assert load("spambase", data_home=tmp_path / "named").X.tolist() == [[0.5]]
    assert load("spambase", data_home=str(tmp_path / "named")).X.shape == (1, 1)
    assert load("spambase").X.tolist() == [[0.5], [0.2]]


def test_an_unknown_name() -> None:
    with pytest.raises(ValueError) as caught:
        load("newsgroup4")
    assert "there is no data set 'newsgroup4'; did you mean 'newsgroups4'" in str(caught.value)
    assert f"The data sets are {', '.join(names())}." in str(caught.value)
    with pytest.raises(ValueError, match="there is no data set '!!'. The data sets are iris, "):
        load("!!")


@pytest.mark.parametrize("name", WITHOUT_DOWNLOAD)
def test_sets_that_cannot_be_downloaded(tmp_path: Path, name: str) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        load(name)
    assert f"looked for {name}.csv.gz, but no folder was given, and the data set cannot be downloaded" in str(caught.value)
    assert "data_home= or in the environment variable BNP_HIER_DATA" in str(caught.value)
    with pytest.raises(FileNotFoundError) as caught:
        load(name, data_home=tmp_path)
    assert f"looked for {tmp_path / name}.csv.gz, but there is no such file" in str(caught.value)
    assert "data_home= or in the environment variable BNP_HIER_DATA" in str(caught.value)


def test_a_folder_that_is_not_there_is_not_replaced_by_a_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BNP_HIER_DATA", str(tmp_path / "typo"))
    with pytest.raises(FileNotFoundError, match=r"typo.letter\.csv\.gz, but there is no such folder; pass the folder"):
        load("letter")


@pytest.mark.parametrize("name", ["letter", "newsgroups4"])
@pytest.mark.parametrize("failure", [URLError("no method to host"), http.client.IncompleteRead(b""), TimeoutError("timed out")])
def test_a_failing_network(monkeypatch: pytest.MonkeyPatch, name: str, failure: Exception) -> None:
    def fail(**options: object) -> NoReturn:
        raise failure

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fail)
    monkeypatch.setattr(sklearn.datasets, "fetch_20newsgroups", fail)
    with pytest.raises(OSError) as caught:
        load(name)
    message = str(caught.value)
    assert f"data set '{name}': looked for {name}." in message
    assert f"the download failed ({failure})" in message
    assert "data_home= or in the environment variable BNP_HIER_DATA" in message
    assert caught.value.__cause__ is failure


@pytest.mark.parametrize("content", ["junk", "other arrays", "cut"])
def test_a_broken_file_of_arrays(tmp_path: Path, content: str) -> None:
    path = tmp_path / "mnist_1000.npz"
    if content == "junk":
        path.write_bytes(b"junk")
    else:
        np.savez(path, X=np.zeros((2, 3)))
    if content == "cut":
        path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(ValueError, match=r"mnist_1000\.npz: expected an \.npz file with the arrays X, y, but found "):
        load("mnist_1000", data_home=tmp_path)


def test_a_broken_table(tmp_path: Path) -> None:
    (tmp_path / "letter.csv.gz").write_bytes(gzip.compress(b"letter,legs\nA,two\n"))
    with pytest.raises(ValueError, match=r"letter\.csv\.gz, line 2, column 'legs': found the text 'two'"):
        load("letter", data_home=tmp_path)


OPENML_ABALONE = {
    "Sex": pd.Categorical(["M", "I"]),
    "Length": [0.455, 0.33],
    "Diameter": [0.365, 0.255],
    "Height": [0.095, 0.08],
    "Whole_weight": [0.514, 0.205],
    "Shucked_weight": [0.2245, 0.0895],
    "Viscera_weight": [0.101, 0.0395],
    "Shell_weight": [0.15, 0.055],
    "Class_number_of_rings": pd.Categorical(["15", "7"]),
}


def test_download_of_abalone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    openml(monkeypatch, {"abalone": (pd.DataFrame(OPENML_ABALONE), "Class_number_of_rings")})
    data = load("abalone", data_home=tmp_path)  # an existing folder without the file
    assert data.X.shape == (2, 7)
    assert data.X.flags.writeable
    assert data.feature_names[3] == "whole_weight"
    assert data.y is not None and data.y.dtype == np.int64 and data.y.tolist() == [15, 7]
    assert data.name == "abalone" and data.description.startswith("4177 abalone")


def from_file(path: Path, label: str, target: str, rename: dict[str, str] | Callable[[str], str]) -> pd.DataFrame:
    """A file's table as OpenML gives it: other column names, labels as categories of text."""
    frame = pd.read_csv(path, keep_default_na=False)
    frame[label] = pd.Categorical(frame[label].astype(str))
    return frame.rename(columns={label: target}).rename(columns=rename)


LETTER = {"xbox": "x-box", "ybox": "y-box", "xbar": "x-bar", "ybar": "y-bar", "xege": "x-ege", "yege": "y-ege"}
SPAM = {f"char_freq_{character}": f"char_freq_%{ord(character):02X}" for character in ";([!$#"}


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "label", "target", "rename"),
    [("spambase", "spam", "class", SPAM), ("letter", "letter", "class", LETTER)],
)
def test_downloads_equal_the_files(
    monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, label: str, target: str, rename: dict[str, str]
) -> None:
    monkeypatch.delenv("BNP_HIER_DATA")
    openml(monkeypatch, {name: (from_file(folder / f"{name}.csv.gz", label, target, rename), target)})
    downloaded, read = load(name), load(name, data_home=folder)
    np.testing.assert_array_equal(downloaded.X, read.X)
    np.testing.assert_array_equal(downloaded.y, read.y)
    assert downloaded.feature_names == read.feature_names


@pytest.mark.data
def test_download_of_pendigits_is_split_where_uci_does(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.delenv("BNP_HIER_DATA")
    parts = [
        from_file(folder / f"pendigits_{part}.csv.gz", "digit", "class", lambda column: column.replace("x", "input"))
        for part in ("train", "test")
    ]
    openml(monkeypatch, {"pendigits": (pd.concat(parts, ignore_index=True), "class")})
    for name in ("pendigits_train", "pendigits_test"):
        downloaded, read = load(name), load(name, data_home=folder)
        np.testing.assert_array_equal(downloaded.X, read.X)
        np.testing.assert_array_equal(downloaded.y, read.y)
        assert downloaded.feature_names == read.feature_names
    openml(monkeypatch, {"pendigits": (pd.concat(parts[::-1], ignore_index=True), "class")})
    with pytest.raises(ValueError, match="not in UCI's order"):
        load("pendigits_train")


@pytest.mark.parametrize(("name", "openml_name"), [("mnist_1000", "mnist_784"), ("fashion_mnist_1000", "Fashion-MNIST")])
def test_download_of_images_takes_the_first_hundred_of_each_class(
    monkeypatch: pytest.MonkeyPatch, name: str, openml_name: str
) -> None:
    digits = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 120))
    frame = pd.DataFrame({"pixel1": np.arange(1200), "pixel2": digits, "class": pd.Categorical(digits.astype(str))})
    openml(monkeypatch, {openml_name: (frame, "class")})
    data = load(name)
    assert data.feature_names == ("pixel0", "pixel1")
    np.testing.assert_array_equal(data.y, np.repeat(np.arange(10), 100))
    np.testing.assert_array_equal(data.X[:, 1], data.y)
    for digit in range(10):
        np.testing.assert_array_equal(data.X[data.X[:, 1] == digit, 0], np.flatnonzero(digits == digit)[:100])


def newsgroups(monkeypatch: pytest.MonkeyPatch, groups: list[str], texts: list[str], target: list[int]) -> None:
    def fetch(*, subset: str, categories: list[str] | None, remove: tuple[str, ...], shuffle: bool) -> SimpleNamespace:
        assert (subset, remove, shuffle) == ("all", ("headers", "footers", "quotes"), False)
        assert categories is None or categories == groups
        return SimpleNamespace(data=texts, target=np.array(target), target_names=groups)

    monkeypatch.setattr(sklearn.datasets, "fetch_20newsgroups", fetch)


def test_download_of_four_newsgroups(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = ["rec.autos", "rec.sport.baseball", "rec.sport.hockey", "sci.space"]
    texts = ["The Rocket rocket42 is up"] * 5 + ["a puck, a PUCK; the rare goalie"] * 4 + ["puck"]
    newsgroups(monkeypatch, groups, texts, [3] * 5 + [2] * 5)
    data = load("newsgroups4")
    assert data.feature_names == ("puck", "rocket")  # stop words, short words and words of few messages are left out
    assert data.X.tolist() == [[0, 2]] * 5 + [[2, 0]] * 4 + [[1, 0]]
    assert data.y is not None and data.y.tolist() == [3] * 5 + [2] * 5


def test_download_of_twenty_newsgroups(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = ["alt.atheism", "sci.space"]
    texts = ["too short"] + ["orbit " * 20] * 130 + ["creed " * 20] * 125 + ["few " + "creed " * 20] * 6
    newsgroups(monkeypatch, groups, texts, [1] + [1] * 130 + [0] * 131)
    data = load("newsgroups20_hier")
    assert data.feature_names == ("creed", "orbit")
    assert data.X.tolist() == [[20, 0]] * 120 + [[0, 20]] * 120
    assert data.y is not None and data.y.tolist() == ["alt.atheism"] * 120 + ["sci.space"] * 120
