"""Labels of a table that is read in parts: computed by one more reading when they are first accessed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from jaxtyping import Int

from bnp_hier.utils.jax_settings import double_precision

__all__ = ["LateLabels"]


class LateLabels:
    """Mixin of the estimators that read tables in parts: labels that are set, or computed when they are first accessed."""

    _labels: Int[np.ndarray, " n"] | None = None
    _reread: Callable[[], Int[np.ndarray, " n"]] | None = None

    @property
    def labels_(self) -> Int[np.ndarray, " n"]:
        """(n,) cluster labels, from 0; of a table that is read in parts, computed by another reading at first access."""
        if self._labels is None:
            if self._reread is None:
                raise AttributeError(
                    "labels_ is available only after fit; after a fit to a stream, access it once before pickling"
                )
            with double_precision():
                self.labels_ = self._reread()
        return cast(np.ndarray, self._labels)

    @labels_.setter
    def labels_(self, labels: Int[np.ndarray, " n"]) -> None:
        self._labels, self._reread = labels, None

    def _label_later(self, reread: Callable[[], Int[np.ndarray, " n"]]) -> None:
        """Compute the labels by this function when they are first accessed."""
        self._labels, self._reread = None, reread

    def __getstate__(self) -> dict[str, Any]:
        state = cast(dict[str, Any], super().__getstate__())
        return {**state, "_reread": None}  # the rows are not pickled
