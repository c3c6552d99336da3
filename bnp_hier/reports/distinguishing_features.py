"""What distinguishes each cluster, in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from bnp_hier.posterior.cluster_profiles import ClusterProfiles, as_number, deviations, is_share, sizes_of
from bnp_hier.utils.rounding import rounded

__all__ = ["Distinction", "distinctions", "features_in_words"]

TELLING = 0.3
"""Standard deviations by which a mean must differ from that of all rows, or of the most similar cluster, to be mentioned."""

CLEAR, VERY = 1.0, 1.5
"""Standard deviations from which on a difference is mentioned even if other clusters lie on both sides, and is called very."""

APART = 1.0
"""Standard deviations within clusters by which a mean must differ from those on both sides to be said to lie between them."""

SMALL = 0.2
"""Share of the size of the median row's cluster below which a cluster is small, and is not compared with."""

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
    table = _ClusterTable.of(found)
    return [table.distinctions(k, most) for k in range(len(table.is_large))]


def features_in_words(found: ClusterProfiles, *, brief: bool = False) -> list[str]:
    """For each cluster, what distinguishes it in a line, in brief or with words for the directions.

    Empty if there is only one cluster.
    """
    written = [[each.in_brief() if brief else each.in_words() for each in some] for some in distinctions(found)]
    empty = UNREMARKABLE if len(written) > 1 else ""
    return [(", " if brief else "; ").join(some) or empty for some in written]


def _large_clusters(sizes: Int[np.ndarray, " k"]) -> Bool[np.ndarray, " k"]:
    """Whether each cluster has at least a fifth of the size of the cluster that the median row belongs to."""
    ordered = np.sort(sizes)[::-1]
    typical = ordered[np.searchsorted(np.cumsum(ordered), sizes.sum() / 2)]
    return sizes >= SMALL * typical


@dataclass(frozen=True)
class _ClusterTable:
    """The columns and levels that were used, (r,), in the clusters, (K,).

    - **keys** - (r,) names of the columns, and of their levels.
    - **is_share** - (r,) whether the means are shares.
    - **values** - (r, K + 1) means in the clusters and, last, in all rows; numbers or dates.
    - **means** - (r, K) in the clusters, as numbers.
    - **spread** - (r,) standard deviations over all rows.
    - **deviation** - (r, K) differences of the means from all rows, in these.
    - **within** - (r,) pooled standard deviations within large clusters.
    - **is_large** - (K,) whether each cluster is large.
    """

    keys: list[tuple[str, str]]
    is_share: list[bool]
    values: Shaped[np.ndarray, "r k1"]
    means: Float[np.ndarray, "r k"]
    spread: Float[np.ndarray, " r"]
    deviation: Float[np.ndarray, "r k"]
    within: Float[np.ndarray, " r"]
    is_large: Bool[np.ndarray, " k"]

    @classmethod
    def of(cls, found: ClusterProfiles) -> Self:
        profiles = found.profiles.join(deviations(found.profiles))
        is_large = _large_clusters(sizes_of(found).to_numpy())
        used = found.association.index[found.association["used"].to_numpy(dtype=bool)]
        profiles = profiles[profiles.index.get_level_values("column").isin(used)]
        keys = list(dict.fromkeys(zip(*(profiles.index.get_level_values(name) for name in ("column", "level")), strict=True)))
        # as `describe` makes them: for each column and level, the clusters in order of their numbers
        by = {name: profiles[name].astype(object).to_numpy().reshape(len(keys), -1) for name in profiles}
        freedom = np.where(is_large, np.maximum(by["rows"].astype(float) - 1.0, 0.0), 0.0)
        squares = freedom * np.nan_to_num(by["sd"].astype(float)) ** 2
        return cls(
            keys,
            [is_share(found, *key) for key in keys],
            np.column_stack([by["mean"], by["overall"][:, 0]]),
            np.array([[as_number(value) for value in row] for row in by["mean"]]),
            by["spread"][:, 0].astype(float),
            by["deviation"].astype(float),
            np.sqrt(squares.sum(1) / np.maximum(freedom.sum(1), 1.0)),
            is_large,
        )

    def distinctions(self, k: int, most: int) -> list[Distinction]:
        """Those of cluster k, one for each column."""
        between = self._neighbours(k)
        found: dict[str, Distinction] = {}
        for place in [*self._unlike_all_rows(k), *between]:
            column, _ = self.keys[place]
            if column in found:
                continue  # of a category, the level that tells most comes first
            if place in between and abs(self.deviation[place, k]) < CLEAR:
                others = " and ".join(self._in(place, other) for other in between[place])
                found[column] = self._distinction(place, k, "intermediate", f"between {others}")
            else:
                gap = self.deviation[place, k]
                direction = f"{'very ' if abs(gap) >= VERY else ''}{'high' if gap > 0 else 'low'}"
                found[column] = self._distinction(place, k, direction, f"all rows {self._written(place, -1)}")
            if len(found) == most:
                break
        return list(found.values()) or list(self._unlike_the_most_similar(k))

    def _unlike_all_rows(self, k: int) -> list[int]:
        """Numbers of the columns in which cluster k differs from all rows, the largest differences first."""
        gaps = np.nan_to_num(np.abs(self.deviation[:, k]))
        return [int(place) for place in np.argsort(-gaps, kind="stable") if gaps[place] >= TELLING]

    def _neighbours(self, k: int) -> dict[int, tuple[int, int]]:
        """Columns in which cluster k lies between large clusters, and those next to it on both sides.

        Those columns come first that have the fewest other clusters in the same place.
        """
        large = np.flatnonzero(self.is_large)
        gaps = self.means[:, large] - self.means[:, [k]]
        apart = (gaps != 0) & (np.abs(gaps) >= APART * self.within[:, None])  # False where a mean is missing
        below, above = apart & (gaps < 0), apart & (gaps > 0)
        low, high = np.where(below, gaps, -np.inf), np.where(above, gaps, np.inf)
        nearest = np.minimum(-low.max(1), high.min(1)) / np.where(self.within > 0, self.within, 1.0)
        order = np.lexsort((-nearest, -apart.sum(1)))
        return {
            int(place): (int(large[low[place].argmax()]), int(large[high[place].argmin()]))
            for place in order
            if below[place].any() and above[place].any()
        }

    def _unlike_the_most_similar(self, k: int) -> Iterator[Distinction]:
        """The column in which cluster k differs most from the most similar large cluster, if that is enough to be mentioned."""
        others = np.flatnonzero(self.is_large & (np.arange(len(self.is_large)) != k))
        scale = np.where(self.within > 0, self.within, np.inf)
        differences = np.nan_to_num((self.means[:, [k]] - self.means[:, others]) / scale[:, None])
        if not differences.size:
            return
        nearest = (differences**2).sum(0).argmin()
        place = int(np.abs(differences[:, nearest]).argmax())
        gap = differences[place, nearest]
        if abs(gap) >= TELLING:
            other = f"{self._in(place, int(others[nearest]))}, the most similar one"
            yield self._distinction(place, k, "higher" if gap > 0 else "lower", other)

    def _distinction(self, place: int, k: int, direction: str, others: str) -> Distinction:
        column, level = self.keys[place]
        return Distinction(f"{column} = {level}" if level else column, direction, self._written(place, k), others)

    def _in(self, place: int, k: int) -> str:
        return f"{self._written(place, k)} in cluster {k}"

    def _written(self, place: int, k: int) -> str:
        return rounded(self.values[place, k], self.spread[place], self.is_share[place])
