"""A family without a number for some sets of rows: every search ends, with an error that names them."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest

import bnp_hier as bnp
from bnp_hier.models import dpm
from tests.components.user_family import ExponentialGamma, WaitingTimes

X = np.array([[0.3, 2.0], [1.2, 0.1], [0.4, 5.0], [2.2, 0.7], [0.9, 1.1], [1.0, 0.4]])


class Undefined(ExponentialGamma):
    """Waiting times whose log marginal likelihood is `value` once a cluster's first column sums to more than `above`."""

    above: float = dataclasses.field(metadata={"static": True})
    value: float = dataclasses.field(default=np.nan, metadata={"static": True})

    def log_marginal(self, stats: WaitingTimes) -> jnp.ndarray:
        """As its base, or `value`."""
        return jnp.where(stats.total[..., 0] > self.above, self.value, super().log_marginal(stats))


def model(above: float, value: float = np.nan) -> partial:
    return partial(dpm, component=Undefined(np.full(2, 2.5), np.full(2, 1.5), above, value))


@pytest.mark.slow
def test_merges_without_a_number_end() -> None:
    """Rows 1 and 3 alone sum to 3.4; in a process of its own, for without a guard neither search returns."""
    program = """
import bnp_hier as bnp
from tests.deterministic.test_undefined_scores import X, model
for estimator in (bnp.BHC(model(3.3)), bnp.AgglomerativeBayesianClustering(model(3.3))):
    try:
        estimator.fit(X)
    except ValueError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    message = (
        "the score of merging row 1 and row 3 is not finite: the log marginal likelihood of Undefined is not finite for one of "
        "them or for their union"
    )
    assert done.stdout.splitlines() == [message] * 2


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("engine", ["row_best", "conga_line"])
def test_both_engines_name_the_pair(engine: str, value: float) -> None:
    """Past 4.5 only unions of several rows have no number: trees are named by what is in them."""
    with pytest.raises(ValueError, match=r"the score of merging .*row \d.* and .*row \d.* is not finite: .* of Undefined"):
        bnp.AgglomerativeBayesianClustering(model(4.5, value), engine=engine).fit(X)


def test_a_row_of_many_is_named_by_its_place() -> None:
    """The randomized tree works on subsets, the message counts in all rows."""
    many = np.random.default_rng(0).exponential(size=(400, 2))
    many[321] = 50.0
    with pytest.raises(ValueError, match=r"row 321"):
        bnp.BHC(model(49.0), method="randomized", refine=None, random_state=6).fit(many)


class Hole(ExponentialGamma):
    """Waiting times without a log marginal likelihood for three rows whose first column sums to `total`."""

    total: float = dataclasses.field(metadata={"static": True})

    def log_marginal(self, stats: WaitingTimes) -> jnp.ndarray:
        """As its base, or NaN."""
        hole = (stats.count == 3) & (jnp.abs(stats.total[..., 0] - self.total) < 1e-9)
        return jnp.where(hole, jnp.nan, super().log_marginal(stats))


def without(rows: list[int]) -> partial:
    return partial(dpm, component=Hole(np.full(2, 2.5), np.full(2, 1.5), float(X[rows, 0].sum())))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "rows", "named"),
    [
        ("pairs", [0, 1, 5], "rows 0, 1, 5"),
        ("intervals", [1, 2, 3], r"cluster of row \d and some of the rows before it in the tree's leaf order"),
    ],
)
def test_a_bound_that_needs_an_undefined_union_says_so(kind: str, rows: list[int], named: str) -> None:
    """The tree itself has scores everywhere, and its own bound; kinds that do not need the union keep theirs."""
    fitted = bnp.BHC(without(rows), refine=None, progress_bar=False).fit(X)
    everywhere = bnp.BHC(partial(dpm, component=ExponentialGamma(np.full(2, 2.5), np.full(2, 1.5))), refine=None).fit(X)
    assert float(bnp.evidence.tree_bound(fitted, "bhc")) == pytest.approx(float(bnp.evidence.tree_bound(everywhere, "bhc")))
    assert np.isfinite(bnp.evidence.tree_bound(everywhere, kind))
    with pytest.raises(ValueError, match=named):
        bnp.evidence.tree_bound(fitted, kind)


@pytest.mark.slow
def test_regrafting_and_streams_say_it_too() -> None:
    """Places that only `refine="full"` tries, and rows that only a later batch brings."""
    with pytest.raises(ValueError, match="prune and regraft failed: the log marginal likelihood of Hole is NaN"):
        bnp.BHC(without([0, 1, 5]), refine="full", progress_bar=False, random_state=1).fit(X)
    stream = bnp.MAPDP(model(2.1)).partial_fit(X[:2])
    with pytest.raises((ValueError, FloatingPointError), match="row 1 fits no cluster"):
        stream.partial_fit(X[2:4])
