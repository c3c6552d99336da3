"""Statistics restated for other hyperparameters against statistics of the rows themselves."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bnp_hier as bnp
from bnp_hier.components.linear_algebra import UNROLLED_UP_TO
from tests.components.user_family import ExponentialGamma
from tests.parameters import few


def covariance(d: int, scale: float) -> np.ndarray:
    root = np.random.default_rng(int(10 * scale)).normal(size=(d, d))
    return scale * (root @ root.T + np.eye(d))


def normal(seed: int, origin: float | None) -> bnp.NormalInverseWishart:
    rng = np.random.default_rng(seed)
    return bnp.NormalInverseWishart(
        rng.normal(size=3),
        0.1 + seed,
        4.5 + seed,
        covariance(3, 1 + seed),
        origin=None if origin is None else np.full(3, origin),
    )


def known(seed: int, origin: float | None) -> bnp.NormalKnownCovariance:
    rng = np.random.default_rng(seed)
    return bnp.NormalKnownCovariance(
        rng.normal(size=3), covariance(3, 2.0), covariance(3, 1 + seed), origin=None if origin is None else np.full(3, origin)
    )


def columns(seed: int, origin: float | None) -> bnp.NormalInverseGamma:
    rng = np.random.default_rng(seed)
    rate = rng.gamma(2.0, size=3)
    return bnp.NormalInverseGamma(
        rng.normal(size=3), 0.2 + seed, 2.0 + seed, rate, origin=None if origin is None else np.full(3, origin)
    )


def bits(seed: int, origin: float | None) -> bnp.BetaBernoulli:
    rng = np.random.default_rng(seed)
    return bnp.BetaBernoulli(rng.gamma(2.0, size=3), rng.gamma(2.0, size=3))


def counts(seed: int, origin: float | None) -> bnp.GammaPoisson:
    rng = np.random.default_rng(seed)
    return bnp.GammaPoisson(rng.gamma(2.0, size=3), rng.gamma(2.0, size=3))


def categories(seed: int, origin: float | None) -> bnp.DirichletMultinomial:
    rng = np.random.default_rng(seed)
    return bnp.DirichletMultinomial(rng.gamma(2.0, size=3))


def mixed(seed: int, origin: float | None) -> bnp.ProductComponent:
    rng = np.random.default_rng(seed)
    return bnp.ProductComponent(
        [bnp.NormalInverseGamma(np.ones(2), 0.3, 2.0, rng.gamma(2.0, size=2)), bnp.BetaBernoulli([1.0 + seed], [0.5])],
        [(0, 2), (1,)],
    )


CASES = [(normal, "real"), (known, "real"), (columns, "missing"), (bits, "bits"), (counts, "counts"), (categories, "counts")]


def rows(kind: str) -> np.ndarray:
    rng = np.random.default_rng(9)
    if kind == "bits":
        return rng.integers(2, size=(9, 3)).astype(float)
    if kind == "counts":
        return rng.poisson(3.0, size=(9, 3)).astype(float)
    X = rng.normal(1.0, 2.0, size=(9, 3))
    if kind == "mixed":
        X[:, 1] = rng.integers(2, size=9)
    if kind == "missing":
        X[rng.random(X.shape) < 0.2] = np.nan
    return X


@pytest.mark.parametrize("origin", [None, 1.5])
@pytest.mark.parametrize(("make", "kind"), [*CASES, (mixed, "mixed")], ids=lambda case: getattr(case, "__name__", case))
def test_restated_statistics_are_those_of_the_rows(make: Any, kind: str, origin: float | None, x64: None) -> None:
    X = rows(kind)
    one, other = make(0, origin), make(3, None)
    anchor = one.anchor()
    summed = jax.tree.map(lambda leaf: leaf.reshape(3, 3, *leaf.shape[1:]).sum(1), anchor.suff_stats(X))
    wanted = jax.tree.map(lambda leaf: leaf.reshape(3, 3, *leaf.shape[1:]).sum(1), other.suff_stats(X))
    found = other.restated(summed, anchor)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9), found, wanted)
    np.testing.assert_allclose(other.log_marginal(found), other.log_marginal(wanted), rtol=1e-10)


@pytest.mark.parametrize("family", few([bnp.NormalInverseWishart, bnp.NormalKnownCovariance], plain=0, slow=2))
@pytest.mark.parametrize("origin", [None, 1.5])
def test_log_marginals_of_many_columns(family: Any, origin: float | None, x64: None) -> None:
    """They are computed in another way, and so are their derivatives; with an empty cluster, and as a part of a product."""
    d, rng = UNROLLED_UP_TO + 3, np.random.default_rng(4)
    A, B, shift = rng.normal(size=(d, d)), rng.normal(size=(d, d)), rng.normal(size=d)
    normal = family is bnp.NormalInverseWishart
    about = None if origin is None else np.full(d, origin)
    one = family(shift, *(0.5, d + 2.0) * normal, *(A @ A.T + np.eye(d),) * (2 - normal), origin=about)

    def other(width: Any) -> bnp.Component:
        scale = width * B @ B.T + 0.3 * np.eye(d)
        return family(2 * shift, *(2.0, d + 5.5), scale) if normal else family(2 * shift, np.eye(d) + A.T @ A, scale)

    anchor = one.anchor()
    stats = jax.tree.map(lambda leaf: leaf.reshape(3, 5, *leaf.shape[1:]).sum(1), anchor.suff_stats(rng.normal(size=(15, d))))
    stats = jax.tree.map(lambda leaf, none: jnp.concatenate([leaf, none[None]]), stats, anchor.empty())
    plain = lambda width: other(width).log_marginal(other(width).restated(stats, anchor))  # noqa: E731
    found = lambda width: other(width).log_marginal_of_restated(stats, anchor)  # noqa: E731
    np.testing.assert_allclose(found(1.7), plain(1.7), rtol=1e-10, atol=1e-9)
    np.testing.assert_allclose(found(1.7)[-1], 0.0, atol=1e-9)
    np.testing.assert_allclose(jax.jacobian(found)(1.7), jax.jacobian(plain)(1.7), rtol=1e-8, atol=1e-8)
    places = [tuple(range(d)), tuple(range(d, 2 * d))]
    both, source = (bnp.ProductComponent([part, part], places) for part in (other(1.7), anchor))
    np.testing.assert_allclose(both.log_marginal_of_restated((stats, stats), source), 2 * plain(1.7), rtol=1e-10, atol=1e-9)


def test_a_family_of_ones_own_has_no_anchor_and_says_so() -> None:
    family = ExponentialGamma(np.ones(1), np.ones(1))
    assert family.anchor() is None
    assert bnp.ProductComponent([family, bnp.BetaBernoulli([1.0], [1.0])], [(0,), (1,)]).anchor() is None
    with pytest.raises(NotImplementedError, match="ExponentialGamma does not convert statistics"):
        family.restated(family.suff_stats(np.ones((2, 1))), family)
