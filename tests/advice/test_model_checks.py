"""Choices that look wrong are told, and sound ones are not."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest

import bnp_hier as bnp
from bnp_hier.models import dpm, pitman_yor_mixture
from tests.components.user_family import ExponentialGamma

RNG = np.random.default_rng(0)
X = RNG.normal(size=(100, 3)) * [1.0, 2.0, 0.5] + [0.0, 5.0, -1.0]
COUNTS = RNG.poisson(3.0, (100, 2)).astype(float)
BITS = RNG.integers(0, 2, (100, 3)).astype(float)
SPIKE = np.where(RNG.random((100, 1)) < 0.4, 0.0, RNG.normal(size=(100, 1)))


def niw(d: int = 3, kappa: float = 0.1, nu: float | None = None, mean: float = 0.0) -> bnp.NormalInverseWishart:
    return bnp.NormalInverseWishart(np.full(d, mean), kappa, nu or d + 2.0, np.eye(d))


def nig(d: int = 3, shape: float = 2.0, rate: float = 1.0, kappa: float = 0.1, mean: float = 0.0) -> bnp.NormalInverseGamma:
    return bnp.NormalInverseGamma(np.full(d, mean), kappa, shape, rate)


SOUND: dict[str, tuple[Any, np.ndarray]] = {
    "normal": (bnp.NormalInverseWishart.from_data(X, learn=False), X),
    "diagonal": (bnp.NormalInverseGamma.from_data(X, learn=False), X),
    "known": (bnp.NormalKnownCovariance.from_data(X, learn=False), X),
    "bernoulli": (bnp.BetaBernoulli.from_data(BITS, learn=False), BITS),
    "poisson": (bnp.GammaPoisson.from_data(COUNTS, learn=False), COUNTS),
    "multinomial": (bnp.DirichletMultinomial.from_data(COUNTS, learn=False), COUNTS),
    "mixed": (bnp.ProductComponent.from_data(np.hstack([X, BITS]), learn=False), np.hstack([X, BITS])),
    "own family": (ExponentialGamma(np.ones(2), np.ones(2)), RNG.exponential(size=(100, 2))),
}


@pytest.mark.parametrize("name", SOUND)
def test_priors_read_off_the_data_are_sound(name: str) -> None:
    component, rows = SOUND[name]
    assert bnp.check_model(partial(dpm, component=component, concentration=1.0), rows) == ()


@pytest.mark.parametrize(
    ("component", "rows", "message"),
    [
        (
            bnp.NormalInverseWishart.from_data(COUNTS, learn=False),
            COUNTS,
            "'x0', 'x1' contain counts, but .*Wishart .*GammaPoisson",
        ),
        (
            bnp.NormalInverseGamma.from_data(BITS, learn=False),
            BITS,
            "contain only 0 and 1, but NormalInverseGamma.*--family bernoulli",
        ),
        (niw(mean=2.0), X * [1.0, 1.0, 0.1], "wider than all rows together in column 'x2'.*standardise"),
        (niw(mean=2.0), X * [1.0, 50.0, 1.0], "far narrower than the spread of all rows in column 'x1'"),
        (nig(rate=900.0), X, "wider than all rows together"),
        (niw(mean=900.0), X, "the prior mean is far from the data in columns 'x0', 'x1', 'x2'"),
        (niw(kappa=50.0), X, "outweighs the data: kappa counts as 50 rows"),
        (niw(nu=80.0), X, "outweighs the data: nu - d counts as 77 rows"),
        (nig(shape=30.0, rate=30.0), X, "outweighs the data: 2 shape counts as 60 rows"),
        (bnp.BetaBernoulli(np.full(3, 40.0), np.full(3, 40.0)), BITS, "outweighs the data: a . b counts as 80 rows"),
        (bnp.GammaPoisson(np.full(2, 300.0), np.full(2, 100.0)), COUNTS, "outweighs the data: shape counts as 300 events"),
        (bnp.DirichletMultinomial(np.full(2, 500.0)), COUNTS, "outweighs the data: the total concentration counts as"),
        (
            bnp.NormalInverseWishart.from_data(X[:5], learn=False),
            X[:5],
            "5 rows are few for the full covariance matrix of 3 columns",
        ),
        (bnp.NormalInverseGamma.from_data(np.exp(2 * X), learn=False), np.exp(2 * X), "long right tail.*take logarithms"),
        (
            bnp.NormalInverseGamma.from_data(SPIKE, learn=False),
            SPIKE,
            "column .x0. contains the same number in more than 30% of the rows",
        ),
    ],
)
def test_choices_that_look_wrong(component: bnp.Component, rows: np.ndarray, message: str) -> None:
    found = bnp.check_model(partial(dpm, component=component, concentration=1.0), rows)
    assert any(pd.Series([warning]).str.contains(message).all() for warning in found), found


def test_telling_columns_are_named() -> None:
    table = pd.DataFrame({"id": np.arange(1, 101), "a": X[:, 0], "b": X[:, 1], "flag": np.ones(100)})
    table.loc[:70, "b"] = np.nan
    found = bnp.check_model(partial(dpm, component=bnp.ProductComponent.from_data(table, learn=False)), table)
    assert any(
        "column 'id' tells rows apart (identifier: 1, 2, ..., 100" in warning and "(drop=['id'], or --drop id)" in warning
        for warning in found
    )
    assert any("column 'flag' contains only one value" in warning for warning in found)
    assert any("column 'b' lacks a value in more than half" in warning for warning in found)


@pytest.mark.parametrize(
    ("alpha", "words"), [(200.0, "expects 81 clusters among 100 rows"), (1e-4, "a single cluster almost surely")]
)
def test_concentrations(alpha: float, words: str) -> None:
    component = bnp.NormalInverseWishart.from_data(X, learn=False)
    (found,) = bnp.check_model(partial(dpm, component=component, concentration=alpha), X)
    assert words in found
    assert bnp.check_model(partial(pitman_yor_mixture, component=component, discount=0.1), X) == ()


def test_values_that_are_missing_where_another_column_is_high() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    by_chance = np.where((np.arange(3) == 1) & (rng.random((200, 1)) < 0.3), np.nan, X)
    by_value = np.where((np.arange(3) == 1) & (X[:, :1] > 0.8), np.nan, X)
    names = ("income", "age", "height")
    model = partial(dpm, component=bnp.NormalInverseWishart.from_data(by_value))
    (found,) = (text for text in bnp.check_model(model, by_value, names) if "missing more often" in text)
    assert "'age' are missing more often where 'income' is high" in found
    model = partial(dpm, component=bnp.NormalInverseWishart.from_data(by_chance))
    assert not any("missing more often" in text for text in bnp.check_model(model, by_chance, names))


def test_grades_and_given_kinds() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"stars": rng.binomial(4, 0.7, 100) + 1.0, "visits": rng.poisson(3.0, 100), "x": rng.normal(size=100)})
    model = partial(dpm, component=bnp.NormalInverseGamma.from_data(table, learn=False))
    found = bnp.check_model(model, table)
    assert any("column 'stars' contains a few different numbers, perhaps grades or codes" in warning for warning in found)
    assert any("--kinds stars=ordered" in warning for warning in found)
    assert any("column 'visits' contains counts" in warning for warning in found)
    given = bnp.check_model(model, table, kinds={"stars": "continuous", "visits": "continuous"})
    assert not any("stars" in warning or "visits" in warning for warning in given)
