"""Certainty of the assignment of each row, and alternative clusters for uncertain rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int, Shaped

from bnp_hier.posterior.item_uncertainty import cluster_affinities

__all__ = ["CERTAIN", "ELSEWHERE", "RowCertainty"]

CERTAIN, ELSEWHERE = 0.9, 0.1
"""Mean co-clustering probability of a certain row: at least this with its own cluster, at most this with any other."""

MOST_WORK = 3e8
"""Draws × rows × clusters beyond which some of the draws are left out."""


class RowCertainty(NamedTuple):
    """How certain each row's place in a partition is, from draws of partitions.

    - **labels** - (n,) clusters from 0.
    - **own** - (n,) mean co-clustering probability with the other rows of its cluster; NaN for a row alone in its cluster.
    - **other** - (n,) the largest mean co-clustering probability with the rows of another cluster; 0 if there is none.
    - **alternative** - (n,) that other cluster; −1 if there is none.
    """

    labels: Int[np.ndarray, " n"]
    own: Float[np.ndarray, " n"]
    other: Float[np.ndarray, " n"]
    alternative: Int[np.ndarray, " n"]

    @classmethod
    def of(cls, draws: Int[np.ndarray, "chain draw n"], labels: Int[np.ndarray, " n"]) -> Self:
        """Compare every row with every cluster."""
        n, clusters = len(labels), int(labels.max()) + 1
        affinities = cluster_affinities(draws, labels, num_samples=max(20, int(MOST_WORK / (n * clusters))))
        rows = np.arange(n)
        own = affinities[rows, labels]
        others = affinities.copy()
        others[rows, labels] = -1.0
        alternative = others.argmax(1)
        other = others[rows, alternative]
        return cls(labels, own, np.maximum(other, 0.0), np.where(other < 0, -1, alternative))

    @property
    def alone(self) -> Bool[np.ndarray, " n"]:
        """(n,) whether the row is alone in its cluster."""
        return np.isnan(self.own)

    @property
    def certain(self) -> Bool[np.ndarray, " n"]:
        """(n,) whether the row belongs to its cluster and to no other, as a heat map of co-clustering would show it."""
        return ~self.alone & (self.own >= CERTAIN) & (self.other <= ELSEWHERE)

    @property
    def torn(self) -> Bool[np.ndarray, " n"]:
        """(n,) whether another cluster is at least half as probable as the row's own."""
        return ~self.alone & (self.own < 2.0 * self.other)

    def most_uncertain(
        self, names: Sequence[str] | None = None, classes: Shaped[np.ndarray, " n"] | None = None, most: int = 12
    ) -> pd.DataFrame:
        """The least certain rows, their clusters and their alternatives, the least certain first.

        Parameters
        ----------
        names
            n names of the rows; by default their numbers.
        classes
            n known classes, for a column of their own.
        most
            Most rows in the table; rows that are certain are left out.
        """
        margin = np.where(self.alone, -1.0, self.own - self.other)
        order = [int(i) for i in np.argsort(margin, kind="stable") if not self.certain[i]][:most]
        known = {} if classes is None else {"known class": [str(classes[i]) for i in order]}
        return pd.DataFrame(
            {
                "row": [str(i) if names is None else names[i] for i in order],
                **known,
                "cluster": [int(self.labels[i]) for i in order],
                "with its own cluster": [float(self.own[i]) for i in order],
                "alternative": [int(self.alternative[i]) if self.alternative[i] >= 0 else None for i in order],
                "with the alternative": [float(self.other[i]) if self.alternative[i] >= 0 else np.nan for i in order],
            }
        ).set_index("row")
