"""Certainty of the assignment of each row, and alternative clusters for uncertain rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int, Shaped

from bnp_hier.posterior.item_uncertainty import CERTAIN

__all__ = ["RowCertainty"]


class RowCertainty(NamedTuple):
    """How certain each row's place in a partition is.

    - **labels** - (n,) clusters from 0.
    - **own** - (n,) probability of the row's own cluster.
    - **other** - (n,) that of the most probable other cluster; 0 if there is none.
    - **alternative** - (n,) that other cluster; −1 if there is none.
    """

    labels: Int[np.ndarray, " n"]
    own: Float[np.ndarray, " n"]
    other: Float[np.ndarray, " n"]
    alternative: Int[np.ndarray, " n"]

    @classmethod
    def of(cls, probabilities: Float[np.ndarray, "n k"], labels: Int[np.ndarray, " n"]) -> Self:
        """The probabilities of every row's cluster and of its alternative, from those of all clusters, numbered from 0."""
        rows = np.arange(len(labels))
        others = probabilities.copy()
        others[rows, labels] = 0.0
        alternative, other = others.argmax(1), others.max(1)
        return cls(labels, probabilities[rows, labels], other, np.where(other > 0, alternative, -1))

    @property
    def certain(self) -> Bool[np.ndarray, " n"]:
        """(n,) whether the row's own cluster has at least the probability `CERTAIN`."""
        return self.own >= CERTAIN

    @property
    def torn(self) -> Bool[np.ndarray, " n"]:
        """(n,) whether another cluster is at least half as probable as the row's own."""
        return self.own <= 2.0 * self.other

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
        order = [int(i) for i in np.argsort(self.own - self.other, kind="stable") if not self.certain[i]][:most]
        known = {} if classes is None else {"known class": [str(classes[i]) for i in order]}
        return pd.DataFrame(
            {
                "row": [str(i) if names is None else names[i] for i in order],
                **known,
                "cluster": [int(self.labels[i]) for i in order],
                "probability": [float(self.own[i]) for i in order],
                "alternative": [int(self.alternative[i]) if self.alternative[i] >= 0 else None for i in order],
                "probability of the alternative": [float(self.other[i]) for i in order],
            }
        ).set_index("row")
