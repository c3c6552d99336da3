"""What distinguishes each cluster, in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from bnp_hier.posterior.cluster_profiles import ClusterProfiles, as_number, deviations, is_share
from bnp_hier.reports.cluster_sizes import large_clusters
from bnp_hier.utils.rounding import rounded

__all__ = ["Distinction", "distinctions", "features_in_words"]

TELLING = 0.3
"""Standard deviations by which a mean must differ from that of all rows, or of the most similar cluster, to be mentioned."""

CLEAR, VERY = 1.0, 1.5
"""Standard deviations from which on a difference is mentioned even if other clusters lie on both sides, and is called very."""

APART = 1.0
"""Standard deviations within clusters by which a mean must differ from those on both sides to be said to lie between them."""

UNREMARKABLE = "close to the mean of all rows in every column"
"""Said of a cluster that no column distinguishes."""


class Distinction(NamedTuple):
    """What distinguishes a cluster in one column.

    - **column** - the column, or a category and its level.
    - **direction** - "high", "very low", "intermediate" or the like.
    - **own** - the mean or share of the cluster's own rows.
    - **others** - what it is compared with: all rows, clusters on both sides, or the most similar cluster.
    """

    column: str
    direction: str
    own: str
    others: str

    def in_words(self) -> str:
        """The distinction with a word for its direction."""
        return f"{self.direction} {self.column}: {self.own} ({self.others})"

    def in_brief(self) -> str:
        """The same without it."""
        return f"{self.column} {self.own} ({self.others})"


def distinctions(found: ClusterProfiles, most: int = 3) -> list[list[Distinction]]:
    """For each cluster, the columns that distinguish its rows, the most telling first; none if there is only one cluster.

    First come the columns whose means or shares differ most from those of all rows, by at least 0.3 standard deviations of all
    rows; "very" from 1.5 on. Then, if there is room, those in which the cluster lies between large clusters on both sides, at
    least one standard deviation within clusters away from them; this is also said instead of a difference from all rows of less
    than one standard deviation. A cluster without any is compared with the most similar large cluster. Columns that were not
    used to find the clusters are left out.

    Parameters
    ----------
    found
        The clusters' profiles.
    most
        Largest number of columns for each cluster.
    """
    table = _Table.of(found)
    words = []
    for k in range(len(table.is_large)):
        between, found_first = dict(table.in_between(k)), dict[str, Distinction]()
        for place, distinction in [*table.unlike_all_rows(k), *between.items()]:
            apt = distinction if abs(table.deviation[place, k]) >= CLEAR else between.get(place, distinction)
            found_first.setdefault(table.columns[place], apt)  # of a category, the level that tells most
        words.append(list(found_first.values())[:most] or list(table.unlike_the_most_similar(k)))
    return words


def features_in_words(found: ClusterProfiles, *, brief: bool = False) -> list[str]:
    """For each cluster, what distinguishes it in a line, in brief or with words for the directions.

    Empty if there is only one cluster.
    """
    written = [[each.in_brief() if brief else each.in_words() for each in some] for some in distinctions(found)]
    empty = UNREMARKABLE if len(written) > 1 else ""
    return [(", " if brief else "; ").join(some) or empty for some in written]


@dataclass(frozen=True)
class _Table:
    """Means of the columns and levels that were used, (r,), in the clusters, (K,).

    - **columns**, **names** - (r,) names of the columns, and with their levels.
    - **means**, **overall** - (r, K) in the clusters and (r,) in all rows; dates are days.
    - **written**, **written_overall** - the same as text.
    - **deviation** - (r, K) differences from all rows in standard deviations over all rows.
    - **within** - (r,) pooled standard deviation within large clusters.
    - **is_large** - (K,) whether each cluster is large.
    """

    columns: list[str]
    names: list[str]
    means: Float[np.ndarray, "r k"]
    written: list[list[str]]
    written_overall: list[str]
    deviation: Float[np.ndarray, "r k"]
    within: Float[np.ndarray, " r"]
    is_large: Bool[np.ndarray, " k"]

    @classmethod
    def of(cls, found: ClusterProfiles) -> Self:
        profiles = found.profiles.join(deviations(found.profiles))
        is_large = large_clusters(profiles["rows"].groupby("cluster").max().sort_index().to_numpy())
        profiles = profiles[[bool(found.association.loc[column, "used"]) for column, _, _ in profiles.index]]
        groups = profiles.reset_index().groupby(["column", "level"], sort=False)
        keys, rows = zip(*((key, row.sort_values("cluster")) for key, row in groups), strict=True)
        shares = [is_share(found, *key) for key in keys]
        written = [
            [rounded(value, row["spread"].iloc[0], share) for value in (*row["mean"], row["overall"].iloc[0])]
            for row, share in zip(rows, shares, strict=True)
        ]
        return cls(
            [column for column, _ in keys],
            [f"{column} = {level}" if level else column for column, level in keys],
            np.array([[as_number(value) for value in row["mean"]] for row in rows]),
            [texts[:-1] for texts in written],
            [texts[-1] for texts in written],
            np.array([row["deviation"] for row in rows]),
            np.array([_pooled(row[is_large]) for row in rows]),
            is_large,
        )

    def unlike_all_rows(self, k: int) -> Iterator[tuple[int, Distinction]]:
        """Columns in which cluster k differs from all rows, by their numbers, the largest differences first."""
        gaps = self.deviation[:, k]
        for place in np.argsort(-np.nan_to_num(np.abs(gaps)), kind="stable"):
            if np.abs(gaps[place]) >= TELLING:
                very = "very " if np.abs(gaps[place]) >= VERY else ""
                direction = f"{very}{'high' if gaps[place] > 0 else 'low'}"
                yield int(place), self._distinction(place, direction, k, f"all rows {self.written_overall[place]}")

    def in_between(self, k: int) -> Iterator[tuple[int, Distinction]]:
        """Columns in which cluster k lies between large clusters, those first that have the fewest clusters in this place."""
        some = []
        for place, means in enumerate(self.means):
            below, above = (self._beyond(place, k, sign) for sign in (-1.0, 1.0))
            if len(below) and len(above):
                low, high = below[means[below].argmax()], above[means[above].argmin()]
                gap = min(means[k] - means[low], means[high] - means[k]) / (self.within[place] or 1.0)
                others = f"between {self._in(place, low)} and {self._in(place, high)}"
                rank = -len(below) - len(above), -gap
                some.append((rank, place, self._distinction(place, "intermediate", k, others)))
        yield from ((place, distinction) for _, place, distinction in sorted(some, key=lambda each: each[0]))

    def unlike_the_most_similar(self, k: int) -> Iterator[Distinction]:
        """The column in which cluster k differs most from the most similar large cluster, if that is enough to be mentioned."""
        others = np.flatnonzero(self.is_large & (np.arange(len(self.is_large)) != k))
        scale = np.where(self.within > 0, self.within, np.inf)
        differences = np.nan_to_num((self.means[:, [k]] - self.means[:, others]) / scale[:, None])
        if not differences.size:
            return
        nearest = (differences**2).sum(0).argmin()
        place = np.abs(differences[:, nearest]).argmax()
        if np.abs(differences[place, nearest]) >= TELLING:
            direction = "higher" if differences[place, nearest] > 0 else "lower"
            yield self._distinction(place, direction, k, f"{self._in(place, others[nearest])}, the most similar one")

    def _beyond(self, place: int, k: int, sign: float) -> Int[np.ndarray, " c"]:
        """The large clusters whose mean is above (sign 1) or below that of cluster k, and well apart from it."""
        gaps = sign * (self.means[place] - self.means[place, k])
        return np.flatnonzero(self.is_large & (gaps > 0) & (gaps >= APART * self.within[place]))

    def _distinction(self, place: int, direction: str, k: int, others: str) -> Distinction:
        return Distinction(self.names[place], direction, self.written[place][k], others)

    def _in(self, place: int, k: int) -> str:
        return f"{self.written[place][k]} in cluster {k}"


def _pooled(profile: pd.DataFrame) -> float:
    """Standard deviation within clusters; 0 if no cluster has two rows."""
    freedom = np.maximum(profile["rows"].to_numpy(dtype=float) - 1.0, 0.0)
    squares = freedom * np.nan_to_num(profile["sd"].to_numpy(dtype=float)) ** 2
    return float(np.sqrt(squares.sum() / max(freedom.sum(), 1.0)))
