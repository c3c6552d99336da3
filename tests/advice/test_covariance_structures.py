"""Covariance structures chosen by fits: the one that generated the data, and what `recommend` and the prior make of it."""

from __future__ import annotations

import numpy as np
import pytest

import bnp_hier as bnp
from bnp_hier.advice.covariance_structures import best_component, compare_structures, dependent_columns
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
    X = rows(kind)
    structures = compare_structures(X)
    assert {structure.family for structure in structures} == {"normal", "known", "diagonal", "spherical"}
    assert [structure.score for structure in structures] == sorted((s.score for s in structures), reverse=True)
    assert structures[0].family == kind
    assert all(structure.score < structure.log_joint for structure in structures)


@pytest.mark.slow
def test_recommend_shows_what_it_compared() -> None:
    advice = bnp.recommend(rows("known"), progress_bar=False)
    assert advice.family == "known" and len(advice.structures) == 4
    assert "shared covariance matrices fit best" in advice.family_reason
    assert "shared by all clusters" in str(advice) and "log joint" in str(advice)


@pytest.mark.slow
def test_the_form_that_was_chosen_can_be_asked_for() -> None:
    X = rows("spherical")
    found, structures = best_component(X)
    assert (
        found.name == structures[0].family == "spherical" and found.reason.count("spherical covariance matrices fit best") == 1
    )
    asked = best_component(X, "spherical")[0]
    assert repr(asked.prior) == repr(found.prior) and np.size(asked.prior.starts["within"][0]) == 1


def test_nothing_is_compared_if_there_is_no_choice() -> None:
    X = rows("known")
    assert best_component(X, "diagonal")[1] == ()
    assert best_component(X[:, :1])[1] == ()
    assert best_component((X > 0).astype(float))[1] == ()


@pytest.mark.slow
def test_many_columns_are_taken_as_independent() -> None:
    """At once: full matrices of 4,000 columns would take minutes."""
    X = np.random.default_rng(0).standard_normal((40, 4000))
    found, structures = best_component(X)
    assert found.name == "diagonal" and structures == () and "more than 100" in found.reason


@pytest.mark.parametrize("kind", few(["diagonal", "normal", "known"], plain=0))
def test_missing_values_do_not_change_the_structure(kind: str) -> None:
    X, rng = rows(kind), np.random.default_rng(1)
    X[(rng.random(X.shape) < 0.04) & (np.arange(3) != rng.integers(3))] = np.nan
    assert compare_structures(X)[0].family == kind
    suited, _ = best_component(X)
    assert suited.name == kind and "of the values missing" in suited.reason
    X[7] = np.nan
    suited, structures = best_component(X)
    assert suited.name == "diagonal" and "row 7" in suited.reason and structures == ()


def test_dependent_columns_are_found() -> None:
    X = np.random.default_rng(0).normal(size=(30, 4)) * [1.0, 1e6, 1e-6, 1.0] + [0.0, 1e7, 0.0, 5.0]
    assert dependent_columns(X) == ()
    copied = np.column_stack([X, 32 + 1.8 * X[:, 2]])
    assert dependent_columns(copied) == (2, 4)
    total = np.column_stack([X[:, 0], X[:, 3], X[:, 2], X[:, 0] + X[:, 3]])
    total[3, 1] = np.nan
    assert dependent_columns(total) == (0, 1, 3)
    assert dependent_columns(total[:5]) == ()  # these always are


@pytest.mark.slow
def test_a_copied_column_does_not_matter() -> None:
    """Temperatures in two units: densities with correlations would have no bound, and a correlation of 1 is no matrix."""
    rng = np.random.default_rng(0)
    x = np.repeat([0.0, 8.0], 20) + rng.normal(size=40)
    found, structures = best_component(np.column_stack([x, 32 + 1.8 * x]), feature_names=["celsius", "fahrenheit"])
    assert [structure.clusters for structure in structures if structure.family == found.name] == [2]
    assert {structure.family for structure in structures} == {"diagonal", "spherical"}
    assert found.reason.endswith("celsius, fahrenheit are linearly dependent: leave one of them out")
