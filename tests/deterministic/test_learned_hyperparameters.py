"""Gradients of the bound on a fixed tree, for every family; and what `optimize` reaches with the tree search on."""

from __future__ import annotations

import dataclasses
from functools import partial
from math import gamma

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import bnp_hier as bnp
from bnp_hier.deterministic.agglomeration.greedy_merging import greedy_tree
from bnp_hier.deterministic.agglomeration.tree_evidence import single_cluster_mass, tree_bound, tree_masses
from bnp_hier.models import dpm
from tests.oracles.problems import random_problem
from tests.parameters import few


@pytest.mark.parametrize("family", few(["niw", "bernoulli", "nig", "multinomial"], 2))
def test_gradients_equal_finite_differences(family: str, x64: None) -> None:
    problem = random_problem(family, 15, 3)
    children = jnp.asarray(greedy_tree(problem.component, problem.X, problem.alpha)[0])
    given = {f.name: getattr(problem.component, f.name) for f in _numbers(problem.component)}
    fields = {name: np.asarray(value, float) for name, value in given.items() if value is not None}
    rng = np.random.default_rng(0)

    @jax.jit
    def value(fields: dict, alpha: float) -> jax.Array:
        return tree_bound(type(problem.component)(**fields), jnp.asarray(problem.X), alpha, children)

    by_field, by_alpha = jax.grad(value, argnums=(0, 1))(fields, problem.alpha)
    step = 1e-5
    slope = (value(fields, problem.alpha + step) - value(fields, problem.alpha - step)) / (2 * step)
    assert float(by_alpha) == pytest.approx(float(slope), rel=1e-5, abs=1e-6)
    for name, field in fields.items():
        direction = rng.normal(size=field.shape)
        if field.ndim == 2:
            direction = direction + direction.T  # a scale matrix stays symmetric
        up, down = ({**fields, name: field + sign * step * direction} for sign in (1.0, -1.0))
        slope = (value(up, problem.alpha) - value(down, problem.alpha)) / (2 * step)
        assert float((np.asarray(by_field[name]) * direction).sum()) == pytest.approx(float(slope), rel=1e-5, abs=1e-6), name


def _numbers(component: bnp.Component) -> list[dataclasses.Field]:
    return [f for f in dataclasses.fields(component) if not f.metadata.get("static", False)]  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", few(range(4), 2))
def test_gradient_for_the_concentration_equals_the_papers_recursion(seed: int, x64: None) -> None:
    """Heller & Ghahramani (2005), section 3: ∂d, ∂π and ∂p(D|T) bottom-up, in plain numbers."""
    problem = random_problem("nig", 7, seed)
    n, alpha = problem.n, problem.alpha
    children, _ = greedy_tree(problem.component, problem.X, alpha)
    members = [[i] for i in range(n)]
    d, d_slope = [alpha] * n, [1.0] * n
    p, p_slope = [float(np.exp(problem.log_marginal([i]))) for i in range(n)], [0.0] * n
    for left, right in children:
        rows = members[left] + members[right]
        members.append(rows)
        one = float(np.exp(problem.log_marginal(rows)))
        d.append(alpha * gamma(len(rows)) + d[left] * d[right])
        d_slope.append(gamma(len(rows)) + d_slope[left] * d[right] + d[left] * d_slope[right])
        pi = alpha * gamma(len(rows)) / d[-1]
        pi_slope = pi / alpha - pi / d[-1] * d_slope[-1]
        apart = p[left] * p[right]
        p.append(pi * one + (1 - pi) * apart)
        p_slope.append(pi_slope * (one - apart) + (1 - pi) * (p_slope[left] * p[right] + p[left] * p_slope[right]))

    def log_evidence(alpha: jax.Array) -> jax.Array:
        """Log p(D|T): the bound without the share of the tree's partitions in the prior."""
        component, X, merges = problem.component, jnp.asarray(problem.X), jnp.asarray(children)
        masses = single_cluster_mass(component, X, alpha, merges)
        sizes = jnp.array([len(rows) for rows in members], float)
        prior = jnp.log(alpha) + jax.scipy.special.gammaln(sizes)
        return tree_masses(masses, merges)[0][-1] - tree_masses(prior, merges)[0][-1]

    assert float(jnp.exp(log_evidence(jnp.asarray(alpha)))) == pytest.approx(p[-1], rel=1e-10)
    assert float(jax.grad(log_evidence)(jnp.asarray(alpha))) == pytest.approx(p_slope[-1] / p[-1], rel=1e-8)


def _learned(X: np.ndarray) -> None:
    alpha = numpyro.sample("alpha", dist.Gamma(2.0, 1.0))
    spread = numpyro.sample("spread", dist.LogNormal(0.0, 1.0))
    kappa = numpyro.sample("kappa", dist.LogNormal(-2.0, 1.0))
    z = numpyro.sample("z", bnp.ChineseRestaurantProcess(alpha, X.shape[0]))
    component = bnp.NormalInverseWishart(np.zeros(2), kappa, 5.0, spread * jnp.eye(2))
    numpyro.sample("X", bnp.ConjugateMixture(component, z), obs=X)


@pytest.mark.slow
def test_optimize_with_search_never_ends_below_its_start() -> None:
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(40, 2)) * rng.choice([0.3, 2.0]) + 4.0 * rng.integers(0, 3, (40, 1))
        fixed, learned = bnp.BHC(_learned, optimize=False).fit(X), bnp.BHC(_learned, optimize=True).fit(X)
        assert (np.diff(learned.objective_trace_) >= -1e-9).all()
        assert learned.objective_trace_[-1] > fixed.objective_trace_[-1]
        assert learned.log_evidence_bound_ > fixed.log_evidence_bound_
        log_prior = sum(
            float(d.log_prob(learned.hyperparameters_[name]))
            for name, d in {
                "alpha": dist.Gamma(2.0, 1.0),
                "spread": dist.LogNormal(0.0, 1.0),
                "kappa": dist.LogNormal(-2.0, 1.0),
            }.items()
        )
        # single precision of the prior's density here
        assert learned.objective_trace_[-1] == pytest.approx(learned.log_evidence_bound_ + log_prior, abs=1e-4)


@pytest.mark.slow
def test_one_row_and_a_large_batch_have_the_same_density() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2)) + 6.0 * (np.arange(60) % 2)[:, None]
    model = partial(dpm, component=bnp.NormalInverseWishart.from_data(X, learn=False), concentration=1.0)
    bhc = bnp.BHC(model).fit(X)
    new = rng.uniform(-4.0, 10.0, size=(100_000, 2))
    scores, shares, labels = bhc.score_samples(new), bhc.predict_proba(new), bhc.predict(new)
    assert scores.shape == (100_000,) and shares.shape == (100_000, bhc.n_clusters_ + 1)
    np.testing.assert_allclose(shares.sum(1), 1.0, atol=1e-12)
    for i in (0, 4095, 4096, 99_999):
        assert bhc.score_samples(new[i : i + 1])[0] == pytest.approx(scores[i], abs=1e-12)
        assert bhc.predict(new[i : i + 1])[0] == labels[i] == shares[i].argmax()
    # Monte Carlo integral of the density over the square, which holds nearly all of it: standard error about 0.006
    assert np.exp(scores).mean() * 14.0**2 == pytest.approx(1.0, abs=0.05)
