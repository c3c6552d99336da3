"""Data-informed priors of Kurihara & Welling (2009), Eqs. 21 and 22."""

from __future__ import annotations

import numpy as np
import pytest

import bnp_hier as bnp
from bnp_hier.components.checks import close_distance

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 2)) * [1.0, 3.0] + [5.0, 0.0]


def test_close_distance_is_the_mean_of_the_three_closest_pairs_when_all_rows_are_asked() -> None:
    gaps = np.linalg.norm(X[:, None] - X, axis=2) + np.diag(np.full(30, np.inf))
    assert close_distance(X, 0, share=1.0) == pytest.approx(np.sort(gaps.min(1))[:3].mean(), rel=1e-12)


def test_close_distance_ignores_equal_rows_and_depends_on_the_seed_alone() -> None:
    doubled = np.repeat(X, 4, axis=0)
    assert close_distance(doubled, 0, share=1.0) == pytest.approx(close_distance(X, 0, share=1.0), rel=1e-12)
    assert close_distance(X, 1) == close_distance(X, 1) > 0
    assert len({close_distance(X, seed) for seed in range(5)}) > 1


def test_rules() -> None:
    square = close_distance(X, 3) ** 2
    me = bnp.NormalInverseWishart.from_data(X, rule="me", random_state=3, learn=False)
    assert (me.kappa, me.nu) == (0.1, 2.0)
    np.testing.assert_allclose(me.mean, X.mean(0))
    covariance = np.cov(X.T, bias=True)
    np.testing.assert_allclose(me.scale, square * 2 * covariance / covariance.trace())
    bottom_up = bnp.NormalInverseWishart.from_data(X, rule="agglomerative", random_state=3, learn=False)
    assert (bottom_up.kappa, bottom_up.nu) == (0.01, 2.0)
    np.testing.assert_allclose(bottom_up.scale, 0.01 * square * np.eye(2))
    assert bnp.NormalInverseWishart.from_data(X, rule="me", kappa=0.5, nu=7.0, learn=False).nu == 7.0


def test_one_column() -> None:
    one = bnp.NormalInverseWishart.from_data(X[:, :1], rule="me", learn=False)
    np.testing.assert_allclose(one.scale, [[close_distance(X[:, :1], 0) ** 2]])


@pytest.mark.parametrize("rule", ["me", "agglomerative"])
def test_bad_input(rule: str) -> None:
    with pytest.raises(ValueError, match="X is constant in column 0"):
        bnp.NormalInverseWishart.from_data(np.ones((5, 2)), rule=rule, learn=False)
    holed = np.where(np.arange(2) == np.arange(len(X))[:, None], np.nan, X)
    with pytest.raises(ValueError, match=f"rule='{rule}' needs complete rows, but X has a missing value at row 0, column 0"):
        bnp.NormalInverseWishart.from_data(holed, rule=rule, learn=False)
    with pytest.raises(ValueError, match="all 5 rows of X are equal"):
        close_distance(np.ones((5, 2)), 0)
    with pytest.raises(ValueError, match="rule must be one of within, me, agglomerative, but it is 'best'"):
        bnp.NormalInverseWishart.from_data(X, rule="best", learn=False)
