"""Information with which a family is chosen and its prior checked: kinds of columns, and the spread a prior expects."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

__all__ = ["Columns", "Spread"]


class Columns(NamedTuple):
    """The columns of a table, from which a family is chosen.

    - **kinds** - the kind of each column: "binary", "count", "continuous", "category" (an indicator of one),
      "identifier", "date" or "constant".
    - **values** - the data, (n, d), NaN where a value is missing.
    """

    kinds: tuple[str, ...]
    values: Float[np.ndarray, "n d"]

    @property
    def found(self) -> set[str]:
        """The kinds that matter: identifiers and dates count as continuous; constant columns do not."""
        same = {"identifier": "continuous", "date": "continuous"}
        return {same.get(kind, kind) for kind in self.kinds} - {"constant"}

    @property
    def has_missing(self) -> bool:
        """Whether any value is missing."""
        return bool(np.isnan(self.values).any())


class Spread(NamedTuple):
    """Location and spread of a cluster expected under the prior, by column.

    - **within** - square root of the expected variance of the rows of a cluster.
    - **mean** - prior mean of the cluster mean.
    - **of_mean** - prior standard deviation of the cluster mean.
    """

    within: Float[np.ndarray, " d"]
    mean: Float[np.ndarray, " d"]
    of_mean: Float[np.ndarray, " d"]
