"""Covariance structures chosen by fits: the one that generated the data, and what `recommend` and the prior make of it."""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import bnp_hier as bnp
from bnp_hier.advice.column_kinds import STRUCTURES
from bnp_hier.advice.covariance_structures import best_component
from bnp_hier.deterministic import MAPDP
from bnp_hier.inspection.problem import Problem
from tests.parameters import few

MEANS = np.repeat([[0.0, 0.0, 0.0], [6.0, 0.0, 3.0], [0.0, 7.0, -3.0]], 50, axis=0)


def rows(kind: str) -> np.ndarray:
    rng = np.random.default_rng(0)
    noise = rng.normal(size=MEANS.shape)
    if kind == "spherical":
        return MEANS + noise * MEANS.std(0) / 4
    if kind == "diagonal":
        return MEANS + noise * np.repeat([[0.3, 1.0, 2.0], [2.0, 0.3, 0.5], [1.0, 1.0, 0.2]], 50, axis=0)
    shared = np.array([[1.0, 0.9, 0.0], [0.0, 0.45, 0.6], [0.0, 0.0, 0.5]])
    if kind == "known":
        return MEANS + noise @ shared
    turned = np.stack([shared, shared[:, [1, 2, 0]] * [1, -1, 2], shared[:, [2, 0, 1]] * [-1, 0.3, 1]])
    return MEANS + np.einsum("ni,nij->nj", noise, turned[np.repeat(np.arange(3), 50)])


@pytest.mark.parametrize("kind", few(["diagonal", "normal", "known", "spherical"], plain=0, slow=2))
def test_the_structure_of_the_data_is_chosen(kind: str) -> None:
    choice = best_component(rows(kind))
    structures = choice.structures
    assert {structure.family for structure in structures} == set(STRUCTURES)
    assert [structure.score for structure in structures] == sorted((s.score for s in structures), reverse=True)
    assert structures[0].family == choice.family.name == kind and choice.left_out == {}
    assert all(structure.score < structure.log_joint < structure.leave_one_out for structure in structures)


@pytest.mark.slow
def test_recommend_shows_what_it_compared() -> None:
    advice = bnp.recommend(rows("known"), progress_bar=False)
    assert advice.family == "known" and len(advice.structures) == 5
    assert "shared covariance matrices fit best" in advice.family_reason
    assert "shared by all clusters" in str(advice) and "leave one out" in str(advice)


@pytest.mark.slow
def test_the_form_that_was_chosen_can_be_asked_for() -> None:
    X = rows("spherical")
    choice = best_component(X)
    assert choice.family.name == choice.structures[0].family == "spherical"
    assert choice.family.reason.count("spherical covariance matrices fit best") == 1
    asked = best_component(X, "spherical").family
    assert repr(asked.prior) == repr(choice.family.prior) and np.size(asked.prior.starts["within"][0]) == 1


def test_nothing_is_compared_if_there_is_no_choice() -> None:
    X = rows("known")
    assert best_component(X, "diagonal").structures == ()
    assert best_component(X[:, :1]).structures == ()
    assert best_component((X > 0).astype(float)).structures == ()
    many = best_component(np.random.default_rng(0).standard_normal((40, 4000)))  # full matrices would take minutes
    assert many.family.name == "diagonal" and many.structures == () and "more than 100" in many.family.reason


def test_structures_that_the_rows_cannot_bear_are_left_out() -> None:
    """Ten rows in fifty columns: two groups, four standard deviations apart in each."""
    which = np.repeat([0, 1], 5)
    choice = best_component(np.random.default_rng(0).normal(size=(10, 50)) + 4.0 * which[:, None])
    assert set(choice.left_out) == {STRUCTURES["normal"], STRUCTURES["known"]}
    assert all("10 rows are too few for the correlations of 50 columns" in reason for reason in choice.left_out.values())
    assert choice.labels is not None and adjusted_rand_score(which, choice.labels) == 1.0


@pytest.mark.parametrize("kind", few(["diagonal", "normal", "known"], plain=0))
def test_missing_values_do_not_change_the_structure(kind: str) -> None:
    X, rng = rows(kind), np.random.default_rng(1)
    X[(rng.random(X.shape) < 0.04) & (np.arange(3) != rng.integers(3))] = np.nan
    choice = best_component(X)
    assert choice.family.name == choice.structures[0].family == kind and "of the values missing" in choice.family.reason


def _measured_animals(n: int = 160, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Five measurements, correlated at .98 within each of four groups, and the sex, which two groups each have in common."""
    rng, which = np.random.default_rng(seed), np.arange(n) % 4
    size, shape = rng.normal(size=n), np.array([[0, 0, 0], [0, 1.2, 0], [1.2, 0, 0.6], [1.2, 1.2, 0]])[which]
    measured = 5 * size[:, None] + np.column_stack([shape, np.zeros((n, 2))]) + 0.25 * rng.normal(size=(n, 5))
    return np.column_stack([measured, which % 2]), which


def test_columns_of_other_kinds_do_not_switch_off_covariances() -> None:
    X, which = _measured_animals()
    choice = best_component(X)
    assert choice.family.name == "mixed" and choice.structures[0].family in ("normal", "known")
    assert "of the continuous ones" in choice.family.reason
    parts = choice.family.component.parts
    assert {type(part) for part in parts} < {bnp.NormalInverseWishart, bnp.NormalKnownCovariance, bnp.BetaBernoulli}
    assert choice.labels is not None and adjusted_rand_score(which, choice.labels) > 0.9
    independent = next(each for each in choice.structures if each.family == "diagonal")
    assert independent.score < choice.structures[0].score - 100


def test_a_structure_that_fails_does_not_end_the_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = MAPDP.fit

    def fit(self: MAPDP, X: np.ndarray) -> MAPDP:
        if self.model.keywords["component"].family is bnp.NormalInverseWishart:
            raise ValueError("row 0 fits no cluster")
        return whole(self, X)

    monkeypatch.setattr(MAPDP, "fit", fit)
    choice = best_component(rows("spherical")[::3])
    assert choice.left_out == {"full": "it could not be fitted: row 0 fits no cluster"}
    assert {structure.family for structure in choice.structures} == set(STRUCTURES) - {"normal"}


def _objective(model: partial, X: np.ndarray, fit: MAPDP) -> float:
    """Log joint and log prior of the hyperparameters."""
    with jax.enable_x64(True):
        return fit.log_joint_ + float(Problem(model, X).prior.log_prob(fit.hyperparameters_))


@pytest.mark.parametrize("seed", few([3, 4, 5], plain=1))
def test_the_fit_that_is_shown_is_the_best_that_was_found(seed: int) -> None:
    rng = np.random.default_rng(seed)
    which = np.repeat(range(4), 20)
    X = rng.normal(size=(80, 3)) @ rng.normal(size=(3, 3)) + 3.0 * rng.normal(size=(4, 3))[which]
    result = bnp.cluster(X, methods="map-dp", progress_bar=False)
    advice, fit = result.plan.advice, result.fits["MAP-DP"]
    best = MAPDP(advice.model, init=advice.choice.labels, optimize=advice.choice.hyperparameters, max_iter=1).fit(X)
    assert _objective(advice.model, X, fit) >= _objective(advice.model, X, best) - 1e-6
    assert best.log_joint_ >= advice.structures[0].log_joint - 1e-6


@pytest.mark.parametrize(
    "X",
    [
        np.concatenate([np.random.default_rng(0).normal(size=(12, 2)), *[np.random.default_rng(0).normal(size=(2, 2))] * 9]),
        np.minimum(np.random.default_rng(1).normal(size=(150, 3)), 0.0),
    ],
    ids=["repeated rows", "a limit"],
)
def test_repeated_values_have_finite_scores_in_every_structure(X: np.ndarray) -> None:
    choice = best_component(X)
    assert choice.left_out == {} and len(choice.structures) == len(STRUCTURES)
    bound = X.size * np.log(1e4)  # no cluster is narrower than about a thousandth of the columns' standard deviations
    assert all(np.isfinite(each.score) and each.log_joint < bound for each in choice.structures)
