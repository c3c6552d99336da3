"""Starts of learned fits: as good as the best fit at any fixed start, and not misled by many narrow clusters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import bnp_hier as bnp
from bnp_hier.inspection.problem import Problem
from tests.parameters import few


def grid(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Twenty clusters of 15 rows on a grid, neighbours six standard deviations apart."""
    centers = 6.0 * np.stack(np.meshgrid(np.arange(5), np.arange(4)), axis=-1).reshape(-1, 2)
    truth = np.repeat(np.arange(20), 15)
    return centers[truth] + rng.normal(size=(300, 2)), truth


@pytest.mark.parametrize(
    "estimator", few([bnp.MAPDP, partial(bnp.BHC, progress_bar=False), bnp.BayesianKMeans], plain=0, slow=2)
)
def test_many_narrow_clusters_are_found(estimator: Callable[[], bnp.MAPDP]) -> None:
    """At the medians of the priors and the declared starts, clusters are so wide that four to six of them are found."""
    X, truth = grid(np.random.default_rng(0))
    fit = estimator().fit(X)
    assert adjusted_rand_score(truth, fit.labels_) > 0.9
    given = bnp.MAPDP(init=truth).fit(X)  # which starts from the truth
    assert fit.log_joint_ > given.log_joint_ - 10.0


@pytest.mark.parametrize("name", few(["iris", "wine", "grid"], plain=0, slow=2))
def test_a_learned_fit_is_no_worse_than_the_best_at_a_fixed_start(name: str) -> None:
    """In log joint + log prior, with as many orders of the rows at each of the starts."""
    X = grid(np.random.default_rng(1))[0] if name == "grid" else bnp.datasets.load(name).X
    fit = bnp.MAPDP().fit(X)
    with jax.enable_x64(True):
        prior = Problem(fit.model, X).prior
        starts = [prior.constrain(start) for start in (prior.start, *prior.starts)]
        assert len(starts) >= 4
        densities = [float(prior.log_prob(values)) for values in starts]
    fixed = [bnp.MAPDP(fit.model, optimize=jax.tree.map(np.asarray, values)).fit(X).log_joint_ for values in starts]
    assert fit.objective_trace_[-1] >= max(map(sum, zip(fixed, densities, strict=True)))
