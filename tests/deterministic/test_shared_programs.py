"""Fits to similar numbers of rows share compiled programs, because rows are padded; the padding changes no result."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.flatten_util import ravel_pytree

import bnp_hier as bnp
from bnp_hier.deterministic import map_dp, variational_dp
from bnp_hier.deterministic.agglomeration import tree_ascent, tree_evidence
from bnp_hier.deterministic.agglomeration.greedy_merging import greedy_tree
from bnp_hier.deterministic.hard_assignment import free_energies
from bnp_hier.deterministic.variational.responsibilities import INFERENCES
from bnp_hier.inspection.problem import Problem
from bnp_hier.utils import padding
from tests.components import test_families, test_missing_values
from tests.parameters import few

N = 37
FAMILIES = {
    **{str(case): (case.component, case.X) for case in test_families.CASES},
    **{f"missing {name}": (family(), X) for name, (family, X) in test_missing_values.CASES.items()},
}


def _learned(X: np.ndarray) -> bnp.Component:
    kappa = numpyro.sample("kappa", dist.LogNormal(-2.0, 1.0))
    return bnp.NormalInverseWishart(X.mean(0), kappa, 5.0, 0.3 * np.diag(X.var(0)))


learned = partial(bnp.models.dpm, component=_learned, concentration=dist.Gamma(2.0, 1.0))

ESTIMATORS: dict[str, Callable[[], Any]] = {
    "BayesianKMeans": bnp.BayesianKMeans,
    "BayesianKMeans, finite": partial(bnp.BayesianKMeans, learned, "finite", optimize=True),
    "VariationalDP": bnp.VariationalDP,
    "VariationalDP, learned": partial(bnp.VariationalDP, learned, "collapsed_stick_breaking", optimize=True),
    "BHC": bnp.BHC,
    "BHC, learned": partial(bnp.BHC, learned, optimize=True),
    "MAPDP": bnp.MAPDP,
    "MAPDP, learned": partial(bnp.MAPDP, learned, optimize=True),
    "MAPDP, leave-one-out": partial(bnp.MAPDP, learned, optimize="leave_one_out"),
}


@pytest.mark.parametrize("name", few([*ESTIMATORS][::2] + [*ESTIMATORS][1::2], plain=0, slow=1))
def test_subsets_of_similar_sizes_share_programs(name: str, compilations: list[str]) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(110, 2)) + 9.0 * rng.integers(0, 3, (110, 1))
    ESTIMATORS[name]().fit(X).score_samples(X[:40])
    compilations.clear()
    for n in range(101, 110):
        ESTIMATORS[name]().fit(X[:n]).score_samples(X[:n][-41:])
        assert not compilations, n
    jax.jit(lambda x: x * 2.75 + 23.0)(jnp.ones(43))
    assert compilations, "the counter does not count"


def without_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (padding, tree_evidence):
        monkeypatch.setattr(module, "padded_size", lambda n: n)


def rows_of(family: str) -> np.ndarray:
    X = FAMILIES[family][1]
    return X[np.random.default_rng(0).integers(0, len(X), N)]


def objectives(family: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Values and gradients of all objectives in the hyperparameters: α, and a factor of the component's parameters."""

    def scaled(X: np.ndarray) -> bnp.Component:
        factor = numpyro.sample("factor", dist.LogNormal(0.1, 0.5))
        return jax.tree.map(lambda leaf: leaf * factor, FAMILIES[family][0])

    rng, X = np.random.default_rng(1), rows_of(family)
    problem = Problem(partial(bnp.models.dpm, component=scaled, concentration=dist.Gamma(2.0, 1.0)), X)
    labels, soft = rng.integers(0, 3, N), rng.dirichlet(np.ones(4), N)
    hard, (children, _) = (padding.padded(labels, 3), np.zeros(3)), greedy_tree(FAMILIES[family][0], X, 1.0)
    given: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
        **{name: (log_joint, hard) for name, log_joint in free_energies._LOG_JOINTS.items()},
        "leave-one-out": (partial(map_dp._log_leave_one_out, limit=np.inf), hard),
        "tree": (tree_ascent._bound_at, tree_evidence.padded_tree(children)),
        **{name: (partial(variational_dp._bound_at, name), (padding.padded(soft, 0.0),)) for name in INFERENCES},
    }
    flat, _ = ravel_pytree(problem.unconstrained)
    return {
        name: tuple(map(np.asarray, problem._value_and_gradient(objective, *fixed)(flat, *fixed)))
        for name, (objective, fixed) in given.items()
    }


@pytest.mark.parametrize("family", few(FAMILIES, plain=0))
def test_padding_changes_neither_objectives_nor_gradients(family: str, monkeypatch: pytest.MonkeyPatch, x64: None) -> None:
    found = objectives(family)
    without_padding(monkeypatch)
    for name, (value, gradient) in objectives(family).items():
        assert np.isfinite(gradient).all() and gradient.all(), name
        np.testing.assert_allclose(found[name][0], value, rtol=1e-12, err_msg=name)
        np.testing.assert_allclose(found[name][1], gradient, rtol=1e-9, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("family", few([*FAMILIES][::-1], plain=0))
def test_padding_changes_no_fit(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, X = partial(bnp.models.dpm, component=FAMILIES[family][0]), rows_of(family)

    def fits() -> list[Any]:
        soft = [bnp.VariationalDP(model, inference, truncation=5, n_init=3) for inference in INFERENCES]
        return [estimator.fit(X) for estimator in (bnp.BayesianKMeans(model), bnp.BayesianKMeans(model, "finite"), *soft)]

    with_padding = fits()
    without_padding(monkeypatch)
    for one, other in zip(with_padding, fits(), strict=True):
        np.testing.assert_array_equal(one.labels_, other.labels_)
        np.testing.assert_allclose(one.objective_trace_[-1], other.objective_trace_[-1], rtol=1e-9)
        np.testing.assert_allclose(one.score_samples(X), other.score_samples(X), rtol=1e-6, atol=1e-12)
