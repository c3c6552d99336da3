"""Data sets by name: from scikit-learn, this package, a local folder or a public repository."""

from __future__ import annotations

import dataclasses
import difflib
import http.client
import os
from collections.abc import Callable, Collection, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

import numpy as np
from jaxtyping import Float, Int, Shaped

from bnp_hier.datasets.dataset import Dataset
from bnp_hier.datasets.tabular import Table, as_labels, read_table
from bnp_hier.utils.npy_files import read_arrays

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["listing", "load", "names"]

_FOLDER_VARIABLE = "BNP_HIER_DATA"
_SHIPPED_FOLDER = Path(__file__).with_name("files")


def names() -> tuple[str, ...]:
    """Return the names of the data sets that :func:`load` can load."""
    return (*_BUNDLED, *_SHIPPED, *_FILES)


def listing(data_home: str | Path | None = None) -> pd.DataFrame:
    """List all data sets with their sources and descriptions, without downloading anything.

    Parameters
    ----------
    data_home
        As in :func:`load`.

    Returns
    -------
    table
        One row per data set, with the columns `source` ("scikit-learn", "bnp_hier", "file", "download", or "not here" if its
        file is needed but was not found) and `description`.

    Examples
    --------
    >>> from bnp_hier.datasets import listing
    >>> listing().loc["iris", "source"]
    'scikit-learn'
    """
    import pandas as pd

    home = _home(data_home)

    def source(name: str) -> str:
        if name in _BUNDLED:
            return "scikit-learn"
        if name in _SHIPPED:
            return "bnp_hier"
        if home is not None and (home / _FILES[name].file).is_file():
            return "file"
        return "not here" if _FILES[name].fetch is None else "download"

    rows = {name: (source(name), _description(name)) for name in names()}
    table = pd.DataFrame.from_dict(rows, orient="index", columns=["source", "description"])
    return table.rename_axis("name")


def _description(name: str) -> str:
    return _BUNDLED[name] if name in _BUNDLED else (_SHIPPED | _FILES)[name].description


def _home(data_home: str | Path | None) -> Path | None:
    """The folder with data files, or None if neither the argument nor the environment variable is set."""
    home = data_home if data_home is not None else os.environ.get(_FOLDER_VARIABLE) or None
    return None if home is None else Path(home).expanduser()


def load(name: str, *, data_home: str | Path | None = None) -> Dataset:
    """Load a data set by name.

    The first four data sets in the table come with scikit-learn and the next seven with this package; the ``README.md`` next
    to their files lists sources and licences. Every other data set is read from its file in ``data_home`` or, by default, in
    the folder named by the environment variable ``BNP_HIER_DATA``. If the file is missing, data sets marked * are downloaded
    with scikit-learn's fetchers (which keep a copy in scikit-learn's own folder); the rows of a download may be in a different
    order from those of the file.

    ==========================  ============  =====================================================================
    name                        n x d         labels ``y``, and remarks
    ==========================  ============  =====================================================================
    iris                        150 x 4       species 0-2
    wine                        178 x 13      cultivar 0-2
    digits                      1797 x 64     digit; pixel values 0-16
    breast_cancer               569 x 30      0 malignant, 1 benign
    animals33                   33 x 102      none; 0/1 features; ``item_names`` are the animals
    animals50_binary            50 x 85       none; 0/1 features; ``item_names`` are the animals
    animals50_ratings           50 x 85       none; ratings 0-100, 4 missing values are NaN; same animals
    glass                       214 x 9       glass type 1, 2, 3, 5, 6, 7
    yeast_cellcycle_384         384 x 17      cell cycle phase 1-5; ``item_names`` are the genes
    pendigits_sample            1500 x 16     digit; random rows of ``pendigits_train``
    newsgroups_words            500 x 20      group, 4 names; counts of 20 words in random messages of ``newsgroups4``
    abalone *                   4177 x 7      rings (28 values); the letter column ``sex`` is left out of ``X``
    spambase *                  4601 x 57     1 spam, 0 not; not binarised
    pendigits_train *           7494 x 16     digit
    pendigits_test *            3498 x 16     digit
    newsgroups4 *               3970 x 7689   group 0-3; word counts
    newsgroups20_hier *         2400 x 4430   group, 20 names; word counts
    fashion_products_2303       2303 x 355    category (4 names); word counts of the titles
    flipkart_products_1050      1050 x 671    category (7 names); word counts of names and descriptions
    fashion_mnist_1000 *        1000 x 784    class 0-9, 100 rows each; pixel values 0-255
    mnist_1000 *                1000 x 784    digit, 100 rows each; pixel values 0-255
    letter *                    20000 x 16    letter A-Z
    ==========================  ============  =====================================================================

    The newsgroups files are sparse but are returned as dense arrays: ``newsgroups4`` takes 3970 x 7689 x 8 bytes, 244 MB,
    and ``newsgroups20_hier`` 85 MB. When they are downloaded, scikit-learn cleans the texts (removing headers, quotes and
    footers), so the words, their counts and d differ somewhat from the files; ``newsgroups20_hier`` then consists of the
    first 120 messages with at least 20 words of each group.

    The two product data sets are texts. ``X`` contains raw word counts, without TF-IDF or any other weighting, computed by
    scikit-learn's ``CountVectorizer`` with ``min_df=5`` for fashion titles and ``min_df=10`` for flipkart; ``y`` is
    the top level of the category path, and ``item_names`` are the titles.

    The two 1000-row image data sets are random subsets with 100 images per class. A download does not reproduce them
    exactly: it returns the first 100 images of each class of ``mnist_784`` or ``Fashion-MNIST`` from OpenML.

    Parameters
    ----------
    name
        One of :func:`names`.
    data_home
        Folder with the files (``abalone.csv.gz``, ``newsgroups4.npz``, ...). Default: the folder named by the environment
        variable ``BNP_HIER_DATA``, if set.

    Returns
    -------
    Dataset
        ``X`` (n, d) float64; ``y`` (n,) int64 or text, or None.

    Raises
    ------
    ValueError
        If the name is unknown, or the file of the data set does not have the expected content.
    FileNotFoundError
        If the named folder does not exist, or the file of the data set was not found and the data set cannot be downloaded.
    OSError
        If the file of the data set was not found and the download failed.

    Examples
    --------
    >>> from bnp_hier.datasets import load
    >>> data = load("iris")
    >>> data.X.shape, data.feature_names[0]
    ((150, 4), 'sepal length (cm)')
    """
    if name not in names():
        close = difflib.get_close_matches(name.lower(), names())
        hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else "."
        raise ValueError(f"there is no data set {name!r}{hint} The data sets are {', '.join(names())}.")
    if name in _BUNDLED:
        dataset = _bundled(name)
    elif name in _SHIPPED:
        dataset = _SHIPPED[name].read(_SHIPPED_FOLDER / _SHIPPED[name].file)
    else:
        dataset = _find(name, _FILES[name], data_home)
    numbered = dataset.y is not None and dataset.y.dtype.kind == "i"
    classes = _CLASSES.get(name, {}) if numbered else {}
    return dataclasses.replace(dataset, name=name, description=_description(name), class_names=classes)


class _Entry(NamedTuple):
    description: str
    file: str
    read: Callable[[Path], Dataset]
    fetch: Callable[[], Dataset] | None = None


def _find(name: str, entry: _Entry, data_home: str | Path | None) -> Dataset:
    """Read the file of the data set if it exists, otherwise download the data set."""
    home = _home(data_home)
    advice = f"pass the folder that contains it as data_home= or in the environment variable {_FOLDER_VARIABLE}"
    if home is None:
        problem = f"data set {name!r}: looked for {entry.file}, but no folder was given"
    else:
        path = home / entry.file
        if path.is_file():
            return entry.read(path)
        if not path.parent.is_dir():
            raise FileNotFoundError(f"data set {name!r}: looked for {path}, but there is no such folder; {advice}")
        problem = f"data set {name!r}: looked for {path}, but there is no such file"
    if entry.fetch is None:
        raise FileNotFoundError(f"{problem}, and the data set cannot be downloaded; {advice}")
    try:
        return entry.fetch()
    except (OSError, http.client.HTTPException) as error:
        raise OSError(f"{problem}, and the download failed ({error}); {advice}") from error


def _bundled(name: str) -> Dataset:
    import sklearn.datasets

    bunch = getattr(sklearn.datasets, f"load_{name}")()
    return _dataset(bunch.data, bunch.target, bunch.feature_names)


def _dataset(X: np.ndarray, y: Iterable[object], feature_names: Iterable[str]) -> Dataset:
    return Dataset(
        name="",
        X=np.require(X, np.float64, ["C", "W"]),  # pandas hands out read-only arrays
        y=as_labels(y),
        feature_names=tuple(map(str, feature_names)),
        item_names=None,
        description="",
    )


# Readers of the files


def _read_animals_with_plus(path: Path) -> Dataset:
    dataset = read_table(path, items="animal")
    animals = tuple(name.replace("+", " ") for name in dataset.item_names or ())
    return dataclasses.replace(dataset, item_names=animals)


def _read_newsgroup_table(path: Path) -> Dataset:
    return _with_newsgroup_paths(read_table(path, truth="group"))


def _read_images(path: Path) -> Dataset:
    X, y = _arrays(path, "X", "y")
    return _dataset(X, y, (f"pixel{i}" for i in range(X.shape[1])))


def _read_sparse_counts(path: Path, labels: str) -> Dataset:
    from scipy.sparse import csr_array

    data, indices, indptr, shape, words, y = _arrays(path, "data", "indices", "indptr", "shape", "vocab", labels)
    X = csr_array((data.astype(np.float64), indices, indptr), shape=tuple(shape))
    return _with_newsgroup_paths(_dataset(X.toarray(), y, words))


def _with_newsgroup_paths(dataset: Dataset) -> Dataset:
    """Add paths such as rec, rec.sport, rec.sport.hockey if the labels are names of newsgroups."""
    assert dataset.y is not None
    if dataset.y.dtype.kind != "U":
        return dataset
    parts = [str(name).split(".") for name in dataset.y]
    return dataclasses.replace(dataset, paths=tuple((one[0], ".".join(one[:2]), ".".join(one)) for one in parts))


def _read_texts(path: Path, columns: tuple[str, ...], min_df: int) -> Dataset:
    table = Table.read(path)
    texts = [" ".join(parts) for parts in zip(*map(table.column, columns), strict=True)]
    X, words = _word_counts(texts, min_df=min_df)
    dataset = _dataset(X, table.complete("level1"), words)
    levels = [table.column(name).fillna("") for name in table.frame.columns if name.startswith("level")]
    # each level contains the whole path down to it, so the longest one is the full path
    paths = tuple(tuple(max(cells, key=len).split(" > ")) for cells in zip(*levels, strict=True))
    return dataclasses.replace(dataset, item_names=tuple(table.column(columns[0])), paths=paths)


def _arrays(path: Path, *wanted: str) -> list[np.ndarray]:
    try:
        arrays = read_arrays(path, wanted)
        return [arrays[name] for name in wanted]
    except (ValueError, KeyError) as error:
        raise ValueError(f"{path}: expected an .npz file with the arrays {', '.join(wanted)}, but found {error}") from error


def _word_counts(texts: Iterable[str], **options: object) -> tuple[Float[np.ndarray, "n words"], Shaped[np.ndarray, " words"]]:
    from sklearn.feature_extraction.text import CountVectorizer

    vectorizer = CountVectorizer(dtype=np.float64, **options)
    counts = vectorizer.fit_transform(texts)
    return counts.toarray(), vectorizer.get_feature_names_out()


# Downloads, with columns named as in the files


def _fetch_openml(
    name: str,
    target: str,
    rename: Callable[[str], str] = str,
    *,
    drop: Collection[str] = (),
    rows: Callable[[Shaped[np.ndarray, " n"]], slice | Int[np.ndarray, " m"]] = lambda y: slice(None),
) -> Dataset:
    from sklearn.datasets import fetch_openml

    bunch = fetch_openml(name=name, version=1, target_column=target, as_frame=True)
    y = as_labels(map(str, bunch.target))
    features = bunch.data.drop(columns=list(drop))
    kept = rows(y)
    return _dataset(features.iloc[kept].to_numpy(), y[kept], map(rename, features.columns))


def _pendigits_rows(y: Int[np.ndarray, " n"], part: slice) -> slice:
    train = np.bincount(y[:_PENDIGITS_TRAIN_ROWS], minlength=10)
    if train.tolist() != _PENDIGITS_TRAIN_COUNTS:
        raise ValueError(
            f"the downloaded pendigits have {train.tolist()} rows of the digits 0-9 among their first "
            f"{_PENDIGITS_TRAIN_ROWS}, expected {_PENDIGITS_TRAIN_COUNTS}: they are not in UCI's order, "
            "so training and test rows cannot be distinguished"
        )
    return part


def _first_per_class(y: Shaped[np.ndarray, " n"], size: int) -> Int[np.ndarray, " m"]:
    return np.concatenate([np.flatnonzero(y == label)[:size] for label in np.unique(y)])


def _fetch_newsgroups4() -> Dataset:
    groups = ["rec.autos", "rec.sport.baseball", "rec.sport.hockey", "sci.space"]
    texts, groups_of_texts = _fetch_newsgroups(groups)
    X, words = _word_counts(texts, min_df=5, **_WORDS)
    return _dataset(X, np.array([groups.index(group) for group in groups_of_texts]), words)


def _fetch_newsgroups20() -> Dataset:
    from sklearn.feature_extraction.text import CountVectorizer

    texts, groups = _fetch_newsgroups(None)
    split = CountVectorizer(**_WORDS).build_analyzer()
    long = np.array([i for i, text in enumerate(texts) if len(split(text)) >= 20])
    kept = long[_first_per_class(groups[long], 120)]
    X, words = _word_counts([texts[i] for i in kept], min_df=5, **_WORDS)
    frequent = X.sum(axis=0) >= 10
    return _with_newsgroup_paths(_dataset(X[:, frequent], groups[kept], words[frequent]))


def _fetch_newsgroups(groups: list[str] | None) -> tuple[list[str], Shaped[np.ndarray, " n"]]:
    from sklearn.datasets import fetch_20newsgroups

    bunch = fetch_20newsgroups(subset="all", categories=groups, remove=("headers", "footers", "quotes"), shuffle=False)
    return bunch.data, np.array(bunch.target_names)[bunch.target]


_pendigits = partial(_fetch_openml, "pendigits", "class", lambda column: column.replace("input", "x"))
_images = partial(
    _fetch_openml,
    rename=lambda column: f"pixel{int(column.removeprefix('pixel')) - 1}",  # OpenML counts from 1
    rows=partial(_first_per_class, size=100),
)
_PENDIGITS_TRAIN_ROWS = 7494
_PENDIGITS_TRAIN_COUNTS = [780, 779, 780, 719, 780, 720, 720, 778, 719, 719]
_WORDS = {"stop_words": "english", "token_pattern": "(?<![a-z])[a-z]{3,20}(?![a-z])"}

_CLASSES: dict[str, dict[int, str]] = {
    "iris": dict(enumerate(("setosa", "versicolor", "virginica"))),
    "wine": {i: f"cultivar {i}" for i in range(3)},
    "breast_cancer": {0: "malignant", 1: "benign"},
    "glass": {
        1: "building windows, float",
        2: "building windows, not float",
        3: "vehicle windows",
        5: "containers",
        6: "tableware",
        7: "headlamps",
    },
    "yeast_cellcycle_384": dict(enumerate(("early G1", "late G1", "S", "G2", "M"), 1)),
    "spambase": {0: "not spam", 1: "spam"},
    "newsgroups4": dict(enumerate(("rec.autos", "rec.sport.baseball", "rec.sport.hockey", "sci.space"))),
    "fashion_mnist_1000": dict(
        enumerate(
            ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"),
        )
    ),
}
"""Data set -> label -> name of the class, where the labels are numbers that stand for names."""

_BUNDLED = {
    "iris": "150 flowers of three iris species; four lengths in cm.",
    "wine": "178 Italian wines of three cultivars; 13 chemical measurements.",
    "digits": "1797 handwritten digits; 8 x 8 pixels with values 0-16.",
    "breast_cancer": "569 breast masses, malignant or benign; 30 measurements of cell nuclei.",
}

_SHIPPED = {
    "animals33": _Entry(
        "33 animals; 102 features that an animal has (1) or lacks (0).",
        "animals33.csv.gz",
        partial(read_table, items="animal"),
    ),
    "animals50_binary": _Entry(
        "50 mammals; 85 features that an animal has (1) or lacks (0): the ratings thresholded at their overall mean.",
        "animals50_binary.csv.gz",
        _read_animals_with_plus,
    ),
    "animals50_ratings": _Entry(
        "50 mammals; human ratings of 85 features from 0 to 100, with four missing values.",
        "animals50_ratings.csv.gz",
        partial(read_table, items="animal"),
    ),
    "glass": _Entry(
        "214 pieces of glass of six types; refractive index and eight oxides in percent by weight.",
        "glass.csv.gz",
        partial(read_table, truth="type"),
    ),
    "yeast_cellcycle_384": _Entry(
        "384 yeast genes of five cell cycle phases; expression at 17 times, scaled per gene.",
        "yeast_cellcycle_384.csv.gz",
        partial(read_table, truth="phase", items="gene"),
    ),
    "pendigits_sample": _Entry(
        "1500 pen-written digits, a random sample of UCI's training set; eight resampled points (x, y) scaled to 0-100.",
        "pendigits_sample.csv.gz",
        partial(read_table, truth="digit"),
    ),
    "newsgroups_words": _Entry(
        "500 messages from four newsgroups; counts of the 20 words that are most informative about the group.",
        "newsgroups_words.csv.gz",
        _read_newsgroup_table,
    ),
}

_FILES = {
    "abalone": _Entry(
        "4177 abalone shells labelled with their number of rings; seven lengths and weights.",
        "abalone.csv.gz",
        partial(read_table, truth="rings", drop=("sex",)),
        partial(_fetch_openml, "abalone", "Class_number_of_rings", str.lower, drop=("Sex",)),
    ),
    "spambase": _Entry(
        "4601 e-mails, spam or not; frequencies of 48 words and six characters, and three lengths of runs of capitals.",
        "spambase.csv.gz",
        partial(read_table, truth="spam"),
        # OpenML writes the characters as in a URL: char_freq_%3B
        partial(_fetch_openml, "spambase", "class", unquote),
    ),
    "pendigits_train": _Entry(
        "7494 pen-written digits (UCI's training set); eight resampled points (x, y) scaled to 0-100.",
        "pendigits_train.csv.gz",
        partial(read_table, truth="digit"),
        partial(_pendigits, rows=partial(_pendigits_rows, part=slice(None, _PENDIGITS_TRAIN_ROWS))),
    ),
    "pendigits_test": _Entry(
        "3498 pen-written digits (UCI's test set); eight resampled points (x, y) scaled to 0-100.",
        "pendigits_test.csv.gz",
        partial(read_table, truth="digit"),
        partial(_pendigits, rows=partial(_pendigits_rows, part=slice(_PENDIGITS_TRAIN_ROWS, None))),
    ),
    "newsgroups4": _Entry(
        "3970 messages from the groups rec.autos, rec.sport.baseball, rec.sport.hockey and sci.space; word counts.",
        "newsgroups4.npz",
        partial(_read_sparse_counts, labels="y"),
        _fetch_newsgroups4,
    ),
    "newsgroups20_hier": _Entry(
        "2400 messages, 120 from each of 20 newsgroups, whose dotted names form a hierarchy; word counts.",
        "newsgroups20_hier.npz",
        partial(_read_sparse_counts, labels="level3"),
        _fetch_newsgroups20,
    ),
    "fashion_products_2303": _Entry(
        "2303 fashion products of four categories; word counts of their titles.",
        "fashion_products_2303.csv.gz",
        partial(_read_texts, columns=("title",), min_df=5),
    ),
    "flipkart_products_1050": _Entry(
        "1050 products of seven categories; word counts of their names and descriptions.",
        "flipkart_products_1050.csv.gz",
        partial(_read_texts, columns=("name", "description"), min_df=10),
    ),
    "fashion_mnist_1000": _Entry(
        "100 images of each of ten kinds of clothing; 28 x 28 pixels with values 0-255.",
        "fashion_mnist_1000.npz",
        _read_images,
        partial(_images, "Fashion-MNIST", "class"),
    ),
    "mnist_1000": _Entry(
        "100 images of each handwritten digit; 28 x 28 pixels with values 0-255.",
        "mnist_1000.npz",
        _read_images,
        partial(_images, "mnist_784", "class"),
    ),
    "letter": _Entry(
        "20000 images of capital letters in 20 fonts; 16 integer features 0-15.",
        "letter.csv.gz",
        partial(read_table, truth="letter"),
        partial(_fetch_openml, "letter", "class", lambda column: column.replace("-", "")),
    ),
}
