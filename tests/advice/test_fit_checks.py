"""Checks of fitted partitions: false alarms are rare, and likelihoods that do not suit a column are told."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from scipy.stats import binom, kurtosis, skew

import bnp_hier as bnp
from bnp_hier.advice.fit_checks import FitCheck, _measured, check_fit
from bnp_hier.advice.numpy_draws import drawn
from bnp_hier.models import dpm
from bnp_hier.reports.trust import LOOK, PASSED, _on_fit, checks
from tests.components.user_family import ExponentialGamma
from tests.parameters import few

Rng = np.random.Generator
N = 300


def normal(rng: Rng, d: int, covariance: str = "diagonal", apart: float = 6.0, k: int = 3, n: int = N) -> np.ndarray:
    """Rows of k clusters whose centres are `apart` standard deviations from each other, in random directions."""
    centres = rng.normal(size=(k, d))
    centres *= apart / np.sqrt(2) / np.linalg.norm(centres, axis=1, keepdims=True)
    factors = {
        "diagonal": lambda: np.diag(np.exp(0.3 * rng.normal(size=d))),
        "spherical": lambda: np.eye(d),
        "full": lambda: np.linalg.cholesky(np.cov(rng.normal(size=(d, 2 * d + 3)))),
    }
    z, each = rng.choice(k, n, p=rng.dirichlet(np.full(k, 5.0))), [factors[covariance]() for _ in range(k)]
    return centres[z] + np.einsum("nij,nj->ni", np.array(each)[z], rng.normal(size=(n, d)))


def counts(rng: Rng, d: int, k: int = 3) -> np.ndarray:
    return rng.poisson(rng.gamma(3.0, 1.5, (k, d))[rng.choice(k, N)]).astype(float)


def bits(rng: Rng, d: int, k: int = 3) -> np.ndarray:
    return (rng.random((N, d)) < rng.beta(0.7, 0.7, (k, d))[rng.choice(k, N)]).astype(float)


def mixed(rng: Rng) -> tuple[Any, np.ndarray]:
    z = rng.choice(3, N)
    X = np.hstack(
        [
            rng.normal(3.0 * rng.normal(size=(3, 3))[z], 1.0),
            rng.random((N, 3)) < rng.beta(0.7, 0.7, (3, 3))[z],
            rng.poisson(rng.gamma(3.0, 1.5, (3, 2))[z]),
            np.array([rng.multinomial(1, p) for p in rng.dirichlet(np.ones(4), 3)[z]]),
        ]
    ).astype(float)
    X[rng.random(N) < 0.05, 0] = np.nan
    families = [bnp.NormalInverseGamma, bnp.BetaBernoulli, bnp.GammaPoisson, bnp.DirichletMultinomial]
    groups = [(0, 1, 2), (3, 4, 5), (6, 7), (8, 9, 10, 11)]
    return bnp.ProductComponent.from_data(X, learn=False, families=families, columns=groups), X


def of(family: Any, X: np.ndarray, **options: Any) -> tuple[Any, np.ndarray]:
    return family.from_data(X, learn=False, **options), X


def holes(rng: Rng, X: np.ndarray) -> np.ndarray:
    return np.where(rng.random(X.shape) < 0.1, np.nan, X)


SOUND: dict[str, Callable[[Rng], tuple[Any, np.ndarray]]] = {
    "diagonal": lambda rng: of(bnp.NormalInverseGamma, normal(rng, 5)),
    "diagonal, overlapping": lambda rng: of(bnp.NormalInverseGamma, normal(rng, 5, apart=3.0)),
    "diagonal, two columns": lambda rng: of(bnp.NormalInverseGamma, normal(rng, 2, apart=3.5)),
    "diagonal, missing": lambda rng: of(bnp.NormalInverseGamma, holes(rng, normal(rng, 5))),
    "diagonal, rounded": lambda rng: of(bnp.NormalInverseGamma, np.round(2 * normal(rng, 5)) / 2),
    "full": lambda rng: of(bnp.NormalInverseWishart, normal(rng, 4, "full", 8.0)),
    "full, overlapping": lambda rng: of(bnp.NormalInverseWishart, normal(rng, 4, "full", 4.0)),
    "spherical": lambda rng: (
        bnp.NormalKnownCovariance(np.zeros(4), 5.0 * np.eye(4), np.eye(4)),
        normal(rng, 4, "spherical"),
    ),
    "poisson": lambda rng: of(bnp.GammaPoisson, counts(rng, 5)),
    "bernoulli": lambda rng: of(bnp.BetaBernoulli, bits(rng, 10)),
    "mixed": mixed,
}


def fitted(component: Any, X: np.ndarray) -> tuple[Any, np.ndarray]:
    fit = bnp.MAPDP(partial(dpm, component=component, concentration=1.0)).fit(X)
    return fit.component_, fit.labels_


def checked(component: Any, X: np.ndarray, **options: Any) -> FitCheck:
    """The check of the partition that MAP-DP finds."""
    own, labels = fitted(component, X)
    return check_fit(own, X, labels, **options)


# ---- rows that the family does not describe ---------------------------------------------------------------------------------


def apart(X: np.ndarray) -> np.ndarray:
    """Two clusters that differ in the last column."""
    X = X.astype(float)
    X[: len(X) // 2, -1] += 8.0
    return X


def correlated(rng: Rng, n: int) -> np.ndarray:
    X = rng.normal(size=(n, 3))
    X[:, 1] = 0.7 * X[:, 0] + np.sqrt(1 - 0.7**2) * X[:, 1]
    return apart(X)


def flipped(rng: Rng, n: int) -> np.ndarray:
    """Two pairs of bits that agree in nine of ten rows: clusters by a single pair would describe it exactly."""
    B = rng.integers(0, 2, (n, 8))
    return np.column_stack([B, np.where(rng.random((n, 2)) < 0.1, 1 - B[:, :2], B[:, :2])])


def thresholded(rng: Rng, n: int) -> np.ndarray:
    X = rng.normal(size=(n, 3))
    return apart(np.column_stack([X[:, 0] + 0.5 * rng.normal(size=n) > 0, X]))


class Misfitting(NamedTuple):
    family: Any
    rows: Callable[[Rng, int], np.ndarray]
    what: str
    columns: tuple[str, ...]
    advice: str


MISFITS = {
    "correlation": Misfitting(bnp.NormalInverseGamma, correlated, "correlation", ("x0", "x1"), "--family normal"),
    "t3": Misfitting(
        bnp.NormalInverseGamma, lambda rng, n: rng.standard_t(3, (n, 3)), "tails", ("x0",), "outliers may get clusters"
    ),
    "log-normal": Misfitting(
        bnp.NormalInverseGamma,
        lambda rng, n: apart(np.column_stack([rng.lognormal(size=n), rng.normal(size=(n, 2))])),
        "skewness",
        ("x0",),
        "take logarithms (log in",
    ),
    "log-normal, full": Misfitting(
        bnp.NormalInverseWishart,
        lambda rng, n: apart(np.column_stack([rng.lognormal(sigma=0.7, size=n), rng.normal(size=(n, 2))])),
        "skewness",
        ("x0",),
        "take logarithms (log in",
    ),
    "zero-inflated": Misfitting(
        bnp.GammaPoisson,
        lambda rng, n: rng.poisson(4.0, (n, 5)) * (rng.random((n, 5)) > [0.4, 0.4, 0.4, 0.0, 0.0]),
        "zeros",
        ("x0",),
        "additional column",
    ),
    "overdispersed": Misfitting(
        bnp.GammaPoisson,
        lambda rng, n: np.column_stack([rng.poisson(rng.gamma(2.0, 2.0, n)), rng.poisson(4.0, (n, 3))]),
        "dispersion",
        ("x0",),
        "log1p",
    ),
    "detector": Misfitting(
        bnp.NormalInverseGamma,
        lambda rng, n: np.column_stack([np.minimum(rng.normal(size=n), 1.0), rng.normal(size=(n, 2))]),
        "pile-up",
        ("x0",),
        "the value is 1,",
    ),
    "bits": Misfitting(bnp.BetaBernoulli, flipped, "correlation", ("x0", "x8"), "independent"),
    "bit and number": Misfitting(bnp.ProductComponent, thresholded, "correlation", ("x0", "x1"), "independent"),
}


def alarm(name: str, seed: int, n: int = 600) -> tuple[FitCheck, bool]:
    """The check of MAP-DP's partition of one table, and whether it names the column and the misfit."""
    case, rng = MISFITS[name], np.random.default_rng([seed, 11])
    component, X = of(case.family, np.asarray(case.rows(rng, n), dtype=float))
    found = checked(component, X, random_state=seed)
    return found, any((each.columns, each.what) == (case.columns, case.what) for each in found.misfits)


@pytest.mark.parametrize("name", MISFITS)
def test_misfits_are_told_in_their_columns(name: str) -> None:
    """Of the partition that MAP-DP fits, which has more clusters than there are where the family does not suit a column."""
    found, is_told = alarm(name, 0)
    assert is_told, found
    (sentence,) = (each for each in found.sentences if MISFITS[name].advice in each)
    assert all(repr(column) in sentence for column in MISFITS[name].columns) and found.unchecked == {}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", MISFITS)
def test_power(name: str) -> None:
    """At least 17 of 20 tables of 600 rows."""
    told = sum(alarm(name, seed)[1] for seed in range(20))
    print(f"{name}: told in {told} of 20")
    assert told >= 17


@pytest.mark.parametrize("name", SOUND)
def test_tables_of_the_model_raise_no_alarm(name: str) -> None:
    component, X = SOUND[name](np.random.default_rng(1))
    found = checked(component, X)
    assert found.misfits == () and found.unchecked == {}


@pytest.mark.parametrize("tables", few([12, 100], plain=0))
def test_false_alarms_are_rare(tables: int) -> None:
    """At most 1 in 100 tables that are drawn from the model: the test fails with probability 0.002 if it is exactly one."""
    alarms = dict.fromkeys(SOUND, 0)
    for name in SOUND:
        for seed in range(tables):
            component, X = SOUND[name](np.random.default_rng([seed, 7]))
            found = checked(component, X, random_state=seed)
            assert found.unchecked == {}, found
            alarms[name] += bool(found.misfits)
        print(f"{name}: {alarms[name]} of {tables}")
    assert sum(alarms.values()) <= binom.ppf(0.999, tables * len(SOUND), 0.01)
    assert max(alarms.values()) <= binom.ppf(1 - 0.001 / len(SOUND), tables, 0.01)


# ---- statistics --------------------------------------------------------------------------------------------------------------


def test_statistics_are_those_of_scipy_in_each_cluster() -> None:
    """Pooled over clusters, for one that is alone in having other means, and with missing cells."""
    rng = np.random.default_rng(2)
    labels = np.repeat([0, 1, 2], [40, 60, 3])
    X = np.column_stack([rng.gamma(2.0, 1.0, (103, 2)), rng.poisson(2.0, 103)]) + 5 * (labels == 1)[:, None]
    X[rng.random(X.shape) < 0.1] = np.nan
    looked = {
        "pile-up": [(0,), (1,), (2,)],
        "zeros": [(2,)],
        "dispersion": [(2,)],
        "skewness": [(0,), (1,)],
        "tails": [(0,), (1,)],
        "correlation": [(0, 1), (0, 2), (1, 2)],
    }
    cells = ~np.isnan(X) & (labels < 2)[:, None]
    found = _measured(X[None], cells, np.array([0, 40, 100]), looked)
    own = [[X[(labels == k) & cells[:, j], j] for k in range(2)] for j in range(3)]
    sizes = np.array([[len(x) for x in column] for column in own])
    for j in range(2):
        skewness, tails = ([f(x) for x in own[j]] for f in (skew, partial(kurtosis, fisher=False)))
        assert found["skewness"][0, j] == pytest.approx(np.average(skewness, weights=sizes[j]))
        assert found["tails"][0, j] == pytest.approx(np.average(tails, weights=sizes[j]))
    squares = sum(x.var() * len(x) for x in own[2])
    assert found["dispersion"][0, 0] == pytest.approx(squares / sum((len(x) - 1) * x.mean() for x in own[2]))
    counts = np.concatenate(own[2])
    assert found["zeros"][0, 0] == pytest.approx((counts == 0).mean())
    assert found["pile-up"][0, 2] == pytest.approx(np.unique(counts, return_counts=True)[1].max() / len(counts))
    scaled = [np.full(103, np.nan) for _ in range(3)]
    for j in range(3):
        for k in range(2):
            at = (labels == k) & cells[:, j]
            scaled[j][at] = (X[at, j] - X[at, j].mean()) / (X[at, j].std() if j < 2 else 1.0)
    for place, (i, j) in enumerate(looked["correlation"]):
        both = ~np.isnan(scaled[i]) & ~np.isnan(scaled[j])
        x, y = scaled[i][both], scaled[j][both]
        assert found["correlation"][0, place] == pytest.approx((x * y).sum() / np.sqrt((x**2).sum() * (y**2).sum()))


@pytest.mark.slow
@pytest.mark.parametrize(
    "component",
    [
        bnp.NormalInverseGamma([0.0, 3.0], 2.0, [4.0, 5.0], [3.0, 8.0]),
        bnp.NormalInverseWishart([0.0, 3.0], 2.0, 8.0, np.array([[4.0, 1.0], [1.0, 2.0]])),
        bnp.NormalKnownCovariance([0.0, 3.0], 2.0 * np.eye(2), np.array([[4.0, 1.0], [1.0, 2.0]])),
        bnp.GammaPoisson([3.0, 5.0], [1.0, 0.5]),
        bnp.BetaBernoulli([3.0, 1.0], [1.0, 2.0]),
        bnp.DirichletMultinomial([3.0, 1.0], total_count=4),
        ExponentialGamma([5.0, 6.0], [1.0, 2.0]),
    ],
    ids=lambda component: type(component).__name__,
)
def test_draws_have_the_moments_of_the_distributions(component: Any) -> None:
    """Parameters and rows, against NumPyro's own draws: means within five standard errors, for each of up to nine numbers."""
    count, rng = 20_000, np.random.default_rng(3)
    with jax.enable_x64(True):
        for of in (component.prior(), component.likelihood(component.prior().sample(jax.random.key(1)))):
            own = drawn(of, count, rng).reshape(count, -1)
            theirs = np.asarray(of.sample(jax.random.key(2), (count,)), dtype=float).reshape(count, -1)
            for power in (1, 2):
                one, two = np.abs(own) ** (power / 2), np.abs(theirs) ** (power / 2)  # whose moments exist
                error = np.sqrt((one.var(0) + two.var(0)) / count) + 1e-12
                assert (np.abs(one.mean(0) - two.mean(0)) < 5 * error).all()


# ---- what is not checked -----------------------------------------------------------------------------------------------------


def test_columns_that_cannot_be_checked_are_told() -> None:
    rng = np.random.default_rng(4)
    bags = rng.poisson(1.0, (60, 5)).astype(float)
    found = checked(*of(bnp.DirichletMultinomial, bags))
    assert not found.misfits and not found.made and "totals differ between rows" in found.unchecked["x0"]
    X = rng.normal(size=(40, 2))
    component = bnp.NormalInverseGamma.from_data(X, learn=False)
    alone = check_fit(component, X, np.arange(40))
    assert not alone.made and set(alone.unchecked.values()) == {"every cluster is too small"}
    X[20:, 1] = np.nan
    few = check_fit(component, X, np.zeros(40, int))
    assert few.made["tails"] == ("x0",) and few.unchecked == {"x1": "too few values in clusters that are not small"}
    with pytest.raises(ValueError, match="one label for each of the 40 rows"):
        check_fit(component, X, np.zeros(39, int))


def test_families_of_users() -> None:
    """Their own draws are used; a family without draws is not checked."""
    waits = np.random.default_rng(5).exponential(size=(200, 2))
    labels = np.repeat([0, 1], 100)
    component = ExponentialGamma(np.ones(2), np.ones(2))
    found = check_fit(component, waits, labels)
    assert found.misfits == () and found.unchecked == {} and set(found.made["skewness"]) == {"x0", "x1"}
    waits[:, 1] = np.minimum(waits[:, 1], 1.0)
    assert [each.columns for each in check_fit(component, waits, labels).misfits] == [("x1",)]

    class Silent(ExponentialGamma):
        def likelihood(self, parameters: Any) -> Any:
            raise NotImplementedError("no draws")

    silent = check_fit(Silent(np.ones(2), np.ones(2)), waits, labels)
    assert silent.made == {} and silent.unchecked == dict.fromkeys(("x0", "x1"), "rows cannot be simulated (no draws)")


def test_a_result_tells_what_its_clusters_do_not_fit() -> None:
    """In the warnings, the summary and the table of the report, which says what was checked."""
    rng = np.random.default_rng(6)
    X = correlated(rng, 600)
    result = bnp.cluster(X, family="diagonal", methods=["map-dp"], progress_bar=False)
    (sentence,) = result.fit_check.sentences
    assert sentence in result.warnings and "'x0' and 'x1'" in sentence and "Correlation" not in sentence
    assert "the clusters do not fit the likelihood" in " ".join(str(result).split()).lower()
    table = checks(result.findings)
    assert table.loc["the data and the model", "what to do"].lower() == sentence.lower()
    passed, other = _on_fit(FitCheck((), {"tails": ("x",), "correlation": ("x", "z")}, {"y": "no values"}))
    assert passed[1:3] == (PASSED, "tails and correlation as in simulated tables, in 2 columns")
    assert other[1:3] == (LOOK, "not checked in 'y': no values")
