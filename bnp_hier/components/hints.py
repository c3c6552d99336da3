"""What families say of themselves to those who choose among them: which columns they suit, and how strong a prior is."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

__all__ = ["Columns", "Spread"]


class Columns(NamedTuple):
    """The columns of a table, as a family sees them that is to be chosen.

    - **kinds** - of each column: "binary", "count", "continuous", "category" (an indicator of one), "row number" or "constant".
    - **values** - (n, d) the data, NaN where a value is missing.
    """

    kinds: tuple[str, ...]
    values: Float[np.ndarray, "n d"]

    @property
    def found(self) -> set[str]:
        """The kinds that matter: row numbers are numbers, and constant columns say nothing."""
        return {"continuous" if kind == "row number" else kind for kind in self.kinds} - {"constant"}

    @property
    def has_missing(self) -> bool:
        """Whether a value is missing."""
        return bool(np.isnan(self.values).any())


class Spread(NamedTuple):
    """What a prior expects of a cluster, by column.

    - **within** - root of the expected variance of rows.
    - **mean** - prior mean of the cluster's mean.
    - **of_mean** - standard deviation of the cluster's mean.
    """

    within: Float[np.ndarray, " d"]
    mean: Float[np.ndarray, " d"]
    of_mean: Float[np.ndarray, " d"]
