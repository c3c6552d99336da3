"""The `Dataset` class: a table of numbers with labels, names, and what its columns were converted from."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping

import numpy as np
from jaxtyping import Float, Int, Shaped

from bnp_hier.datasets.conversions import features_of, modelled_kinds, owners

__all__ = ["RENAME", "Dataset", "combined_labels"]

RENAME = "rename one of them or drop it (drop= or --drop)"
"""Advice about two columns of the same name."""


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """A table of numbers with labels and names of rows and columns.

    Parameters
    ----------
    name
        Short name of the data set.
    X
        The data, (n, d) float64; missing values are NaN.
    y
        One label per row, (n,), of any dtype; None if there are none. Labels are never used for fitting.
    feature_names
        The names of the d columns of ``X``.
    item_names
        The names of the n rows (animals, genes, titles); None if the rows have no names.
    description
        A short description of the rows and columns.
    paths
        The path of each row in a known hierarchy of classes, as names from the top down; None if there is none. The format is
        that of `bnp_hier.Hierarchy.scores`.
    levels
        Name of each categorical column -> its distinct values; those of an ordered one are all grades of its scale, from low to
        high. ``X`` contains such a column as indicators named "column=value". If there are two values, the only indicator is
        that of the second, and it is NaN where the value is missing. If there are more, each has an indicator, and all of them
        are 0 where the value is missing.
    class_names
        Label in ``y`` -> name of its class, where the labels are numeric codes; labels without a name keep their number.
    kinds
        Name of each column whose kind was given, by `kinds` or as an ordered type -> its kind, as in `read_table`; "logit%" for
        the log odds of percentages, and the scale itself, such as "low<medium<high", for an ordered one.
    sources
        Name -> values, (n,), of columns that were converted, as they were read; numbers are float64 and texts are strings,
        empty where missing.
    others
        Name -> values, (n,), of columns that were left out, likewise.
    units
        Name of each column whose numbers were written with a unit, such as "kg", "%" or "$" -> the unit.
    separators
        Name of each column whose numbers were written with thousands separators -> the separator, ",", "'", " " or ".".
    items
        Name of the column that contained ``item_names``; None if there was none.
    notes
        How columns were read, where that is not evident, in clauses.
    truths
        Name -> labels, (n,), of each column of labels if there are several; ``y`` has their combinations, such as "a / b".

    Raises
    ------
    ValueError
        If the indicator of a categorical column is not the name of exactly one column of ``X``.

    Examples
    --------
    >>> from bnp_hier.datasets import load
    >>> data = load("iris")
    >>> data.name, data.X.shape, data.feature_names[0], data.y[:3], data.class_names[0]
    ('iris', (150, 4), 'sepal length (cm)', array([0, 0, 0]), 'setosa')
    """

    name: str
    X: Float[np.ndarray, "n d"]
    y: Shaped[np.ndarray, " n"] | None
    feature_names: tuple[str, ...]
    item_names: tuple[str, ...] | None
    description: str
    paths: tuple[tuple[str, ...], ...] | None = None
    levels: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    class_names: Mapping[int, str] = dataclasses.field(default_factory=dict)
    kinds: Mapping[str, str] = dataclasses.field(default_factory=dict)
    sources: Mapping[str, Shaped[np.ndarray, " n"]] = dataclasses.field(default_factory=dict)
    others: Mapping[str, Shaped[np.ndarray, " n"]] = dataclasses.field(default_factory=dict)
    units: Mapping[str, str] = dataclasses.field(default_factory=dict)
    separators: Mapping[str, str] = dataclasses.field(default_factory=dict)
    items: str | None = None
    notes: tuple[str, ...] = ()
    truths: Mapping[str, Shaped[np.ndarray, " n"]] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        times = Counter(self.feature_names)
        for column, levels in self.levels.items():
            for one in features_of(column, None, levels):
                if times[one] != 1:
                    raise ValueError(
                        f"{self.name}: {times[one]} columns have the name {one!r}, expected exactly one, the "
                        f"indicator of the category {column!r}; {RENAME}"
                    )

    @property
    def classes(self) -> Shaped[np.ndarray, " n"] | None:
        """The labels ``y`` as class names, for display; None if there are no labels."""
        if self.y is None or not self.class_names:
            return self.y
        labels = (label.item() for label in self.y)
        return np.array([self.class_names.get(label, str(label)) for label in labels])

    @property
    def truth(self) -> Shaped[np.ndarray, " n"] | Mapping[str, Shaped[np.ndarray, " n"]] | None:
        """The labels as `bnp_hier.compare` takes them: by the name of their column if there are several."""
        return self.truths or self.y

    @property
    def categories(self) -> tuple[tuple[int, ...], ...]:
        """Groups of columns of ``X``, each the indicators of one column with three or more values."""
        place = {name: j for j, name in enumerate(self.feature_names)}
        more = [features_of(name, None, levels) for name, levels in self.levels.items() if len(levels) > 2]
        return tuple(tuple(place[one] for one in group) for group in more)

    @property
    def column_kinds(self) -> dict[str, str]:
        """Name in ``feature_names`` -> "continuous", "count" or "binary", for columns whose kind was given."""
        return modelled_kinds(self.kinds)

    @property
    def source_columns(self) -> dict[str, tuple[int, ...]]:
        """Name of each column as it was read -> its columns of ``X``: several for the indicators of a category."""
        source = owners(self.kinds, self.levels)
        found: dict[str, list[int]] = {}
        for place, feature in enumerate(self.feature_names):
            found.setdefault(source.get(feature, feature), []).append(place)
        return {name: tuple(places) for name, places in found.items()}

    def rows(self, which: Int[np.ndarray, " m"]) -> Dataset:
        """The data set of some of the rows."""
        return dataclasses.replace(
            self,
            X=self.X[which],
            y=None if self.y is None else self.y[which],
            item_names=None if self.item_names is None else tuple(self.item_names[i] for i in which),
            paths=None if self.paths is None else tuple(self.paths[i] for i in which),
            sources={name: values[which] for name, values in self.sources.items()},
            others={name: values[which] for name, values in self.others.items()},
            truths={name: values[which] for name, values in self.truths.items()},
        )


def combined_labels(truths: Mapping[str, Shaped[np.ndarray, " n"]]) -> Shaped[np.ndarray, " n"]:
    """The combination of the labels in each row, such as "a / b"; the labels themselves if there is one column of them."""
    if len(truths) == 1:
        return next(iter(truths.values()))
    return np.array([" / ".join(map(str, labels)) for labels in zip(*truths.values(), strict=True)])
