"""Data sets by name: from scikit-learn, this package, a local folder or a public repository."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import http.client
import os
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

import numpy as np
from jaxtyping import Float, Int, Shaped

from bnp_hier.datasets.dataset import Dataset
from bnp_hier.datasets.tabular import RawTable, as_labels, read_table
from bnp_hier.utils.npy_files import read_arrays

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["listing", "load", "names"]

_FOLDER_VARIABLE = "BNP_HIER_DATA"
_SHIPPED_FOLDER = Path(__file__).with_name("files")


class _Entry(NamedTuple):
    """A data set of `catalogue.toml`.

    - **description** - of rows and columns.
    - **source** - where it comes from; None if it is read from a file of the user or downloaded.
    - **file** - name of its file.
    - **reader** - name in `_READERS`; **options** - of this function.
    - **classes** - names of labels that are numbers.
    """

    description: str
    source: str | None = None
    file: str = ""
    reader: str = "table"
    options: Mapping[str, Any] = {}
    classes: Sequence[str] | Mapping[str, str] = ()

    @property
    def class_names(self) -> dict[int, str]:
        """Label -> name of the class."""
        named = self.classes.items() if isinstance(self.classes, Mapping) else enumerate(self.classes)
        return {int(label): name for label, name in named}

    def read(self, path: Path) -> Dataset:
        """Read the file."""
        return _READERS[self.reader](path, **self.options)


@functools.cache
def _entries() -> dict[str, _Entry]:
    entries = tomllib.loads(Path(__file__).with_name("catalogue.toml").read_text(encoding="utf-8"))
    return {name: _Entry(**entry) for name, entry in entries.items()}


def names() -> tuple[str, ...]:
    """Return the names of the data sets that :func:`load` can load.

    Examples
    --------
    >>> from bnp_hier.datasets import names
    >>> "iris" in names()
    True
    """
    return tuple(_entries())


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

    def source(name: str, entry: _Entry) -> str:
        is_here = home is not None and (home / entry.file).is_file()
        return entry.source or ("file" if is_here else "download" if name in _DOWNLOADS else "not here")

    rows = {name: (source(name, entry), entry.description) for name, entry in _entries().items()}
    table = pd.DataFrame.from_dict(rows, orient="index", columns=["source", "description"])
    return table.rename_axis("name")


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
    entry = _entries()[name]
    if entry.source == "scikit-learn":
        dataset = _bundled(name)
    elif entry.source is not None:
        dataset = entry.read(_SHIPPED_FOLDER / entry.file)
    else:
        dataset = _find(name, entry, data_home)
    numbered = dataset.y is not None and dataset.y.dtype.kind == "i"
    classes = entry.class_names if numbered else {}
    return dataclasses.replace(dataset, name=name, description=entry.description, class_names=classes)


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
    if name not in _DOWNLOADS:
        raise FileNotFoundError(f"{problem}, and the data set cannot be downloaded; {advice}")
    try:
        return _DOWNLOADS[name]()
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


def _read_texts(path: Path, columns: Sequence[str], min_df: int) -> Dataset:
    table = RawTable.read(path)
    texts = [" ".join(parts) for parts in zip(*(table.frame[name] for name in columns), strict=True)]
    X, words = _word_counts(texts, min_df=min_df)
    dataset = _dataset(X, table.frame["level1"], words)
    levels = [table.frame[name].fillna("") for name in table.frame.columns if name.startswith("level")]
    # each level contains the whole path down to it, so the longest one is the full path
    paths = tuple(tuple(max(cells, key=len).split(" > ")) for cells in zip(*levels, strict=True))
    return dataclasses.replace(dataset, item_names=tuple(table.frame[columns[0]]), paths=paths)


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

_READERS: dict[str, Callable[..., Dataset]] = {
    "table": read_table,
    "animals with plus": _read_animals_with_plus,
    "newsgroup table": _read_newsgroup_table,
    "images": _read_images,
    "sparse counts": _read_sparse_counts,
    "texts": _read_texts,
}

_DOWNLOADS: dict[str, Callable[[], Dataset]] = {
    "abalone": partial(_fetch_openml, "abalone", "Class_number_of_rings", str.lower, drop=("Sex",)),
    "spambase": partial(_fetch_openml, "spambase", "class", unquote),  # OpenML writes characters as in a URL: char_freq_%3B
    "pendigits_train": partial(_pendigits, rows=partial(_pendigits_rows, part=slice(None, _PENDIGITS_TRAIN_ROWS))),
    "pendigits_test": partial(_pendigits, rows=partial(_pendigits_rows, part=slice(_PENDIGITS_TRAIN_ROWS, None))),
    "newsgroups4": _fetch_newsgroups4,
    "newsgroups20_hier": _fetch_newsgroups20,
    "fashion_mnist_1000": partial(_images, "Fashion-MNIST", "class"),
    "mnist_1000": partial(_images, "mnist_784", "class"),
    "letter": partial(_fetch_openml, "letter", "class", lambda column: column.replace("-", "")),
}
