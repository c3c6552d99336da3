"""A fit in a file, with the data that it belongs to."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float, Int

from bnp_hier.comparison import partition_of
from bnp_hier.datasets import Dataset
from bnp_hier.deterministic.base import DeterministicClustering
from bnp_hier.posterior.draws import draws_of, log_predictive
from bnp_hier.posterior.hierarchies import HierarchyDraws, hierarchy_draws, is_hierarchical
from bnp_hier.posterior.new_rows import cluster_probabilities

__all__ = ["SavedFit", "load_fit"]

LIBRARIES = ("bnp-hier", "jax", "numpyro", "scikit-learn")


@dataclass(frozen=True)
class SavedFit:
    """A fit with its data, as `bnp-hier fit` saves it and `load_fit` gives it back.

    Parameters
    ----------
    fit
        An estimator, or a run of chains, that `bnp_hier.compare` (but for hierarchical mixtures) and `bnp_hier.to_arviz` take.
    data
        What it was fitted to.
    route
        Name of the route.
    family
        Name of the family.
    seconds
        Run time of the fit.
    notes
        What is worth knowing of it, in sentences.
    versions
        Of the libraries that wrote it.
    """

    fit: Any
    data: Dataset
    route: str
    family: str
    seconds: float = np.nan
    notes: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=lambda: {name: version(name) for name in LIBRARIES})

    @cached_property
    def trees(self) -> HierarchyDraws | None:
        """The draws of trees, if it is a fit of a hierarchical mixture."""
        return hierarchy_draws(self.fit, self.data.X) if is_hierarchical(self.fit, self.data.X) else None

    @cached_property
    def _central(self) -> tuple[int, int]:
        """Number of the chain and draw whose tree stands for all."""
        assert self.trees is not None
        return self.trees.central()

    @cached_property
    def labels(self) -> Int[np.ndarray, " n"]:
        """(n,) clusters: the estimator's, the point estimate of the draws, or the leaves of the central tree."""
        if self.trees is not None:
            tree = self.trees[self._central]
            return tree.labels_at(tree.depth)
        return partition_of(self.fit, self.data.X)

    def predict_proba(self, X: ArrayLike) -> Float[np.ndarray, "m k1"]:
        """Probability that each new row belongs to each cluster of `labels` and, last, to a new one."""
        if self.trees is None:
            return cluster_probabilities(self.fit, self.data.X, self.labels, X)
        leaves = np.zeros(self.labels.max() + 1, dtype=int)
        leaves[self.labels] = self.trees[self._central].paths[:, -1]
        known = self.trees.predict(X, self._central)[:, leaves]
        return np.column_stack([known, np.maximum(1.0 - known.sum(1), 0.0)])

    def score_samples(self, X: ArrayLike) -> Float[np.ndarray, " m"]:
        """Log predictive density of each new row (nats); chains average it over their draws."""
        if isinstance(self.fit, DeterministicClustering):
            return self.fit.score_samples(X)
        if self.trees is not None:
            return self.trees.log_predictive(X)
        return log_predictive(draws_of(self.fit, self.data.X), X)

    def __getstate__(self) -> dict[str, Any]:
        """What a file holds: the fields, and nothing that is computed from them."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the file, as a whole or not at all; folders are made."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            joblib.dump(self, draft, compress=3)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
        return path


def load_fit(path: str | os.PathLike[str]) -> SavedFit:
    """A fit that `bnp-hier fit` or `SavedFit.save` wrote.

    Such files hold Python objects: loading one runs what its author wrote, so load only files that you trust.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it holds something else.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file; bnp-hier fit writes one")
    try:
        saved = joblib.load(path)
    except Exception as error:  # unpickling raises whatever the bytes lead it to
        raise ValueError(f"{path}: not readable as a fit ({error}); expected a file that bnp-hier fit wrote") from error
    if not isinstance(saved, SavedFit):
        raise ValueError(f"{path}: found a {type(saved).__name__}, expected a fit that bnp-hier fit wrote")
    return saved
