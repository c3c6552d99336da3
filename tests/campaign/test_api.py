"""Fits and evidence of generated data: what is accepted is right by an oracle, what is refused is so clearly.

The slow run takes 180 of them, the exhaustive one 1,000 more; outcomes are counted at the end of a run.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
import numpyro
import pandas as pd
import polars as pl
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from scipy.special import logsumexp

import bnp_hier as bnp
from bnp_hier.components.incomplete_rows import DependentColumns
from bnp_hier.models import dpm, pitman_yor_mixture
from tests.campaign.families import FAMILIES, Family
from tests.oracles.partitions import Enumeration, all_partitions, log_prior
from tests.parameters import few

pytestmark = [pytest.mark.slow]

N = 7
RNG = np.random.default_rng(0)
PARTITIONS = list(all_partitions(N))
CAMPAIGN: dict[str, Any] = {
    "deadline": None,
    "database": None,
    "phases": [Phase.generate],
    "suppress_health_check": list(HealthCheck),
}

ESTIMATORS: dict[str, Callable[..., Any]] = {
    "BHC": bnp.BHC,
    "BHC, greedy": partial(bnp.BHC, refine=None),
    "MAP-DP": partial(bnp.MAPDP, n_init=2),
    "Bayesian k-means": bnp.BayesianKMeans,
    "agglomerative": bnp.AgglomerativeBayesianClustering,
    "variational": partial(bnp.VariationalDP, truncation=4),
}

SETTINGS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "no types promoted": lambda: jax.numpy_dtype_promotion("strict"),
    "no ranks promoted": lambda: jax.numpy_rank_promotion("raise"),
    "NaN is an error": lambda: jax.debug_nans(True),
    "leaks are errors": jax.checking_leaks,
    "double precision": lambda: jax.enable_x64(True),
    "no transfers": lambda: jax.transfer_guard("disallow"),
}
"""Settings of JAX that a user may have made, under which results are the same."""


class OwnPrior(bnp.distributions.ChineseRestaurantProcess):
    """A prior that methods would not know."""

    def log_prob(self, value: Any) -> Any:
        return 2.0 * super().log_prob(value)


def own_prior(X: Any, component: Any, concentration: float) -> None:
    z = numpyro.sample("z", OwnPrior(concentration, len(X)))
    numpyro.sample("x", bnp.distributions.ConjugateMixture(component, z), obs=X)


class Data(NamedTuple):
    """What a user hands over.

    - **X** - as it is handed over.
    - **rows** - what it says: float64 with NaN for missing values; None if it must be refused.
    - **centre** - of the prior.
    - **error** - types of the refusal.
    - **may_refuse** - whether a ValueError that names the column is right as well.
    - **imputed** - whether estimators impute missing values, although exact methods refuse them.
    """

    X: Any
    rows: np.ndarray | None
    center: float = 0.0
    error: tuple[type[Exception], ...] = (ValueError, TypeError)
    may_refuse: bool = False
    imputed: bool = False


def _imputed(family: Family, rows: np.ndarray) -> bool:
    """Whether all rows and columns have a value, and the family's columns depend on each other."""
    there = ~np.isnan(rows)
    return isinstance(family.component(0.0), DependentColumns) and bool(there.any(0).all() and there.any(1).all())


def _holes(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.where(rng.random(rows.shape) < 0.3, np.nan, rows)


def _masked(rows: np.ndarray, rng: np.random.Generator) -> np.ma.MaskedArray:
    missing = rng.random(rows.shape) < 0.3
    return np.ma.MaskedArray(np.where(missing, 1e6, rows), missing)


SHAPES: dict[str, Callable[[np.ndarray], Any]] = {
    "array": lambda rows: rows,
    "list": lambda rows: rows.tolist(),
    "frame": lambda rows: pd.DataFrame(rows, columns=["[b]", "a b"]),
    "columns first": np.asfortranarray,
    "every second": lambda rows: np.repeat(rows, 2, axis=0)[::2],
    "objects": lambda rows: rows.astype(object),
    "read only": lambda rows: np.frombuffer(rows.tobytes()).reshape(rows.shape),
}
REFUSED: dict[str, tuple[Callable[[np.ndarray], Any], tuple[type[Exception], ...]]] = {
    "infinite": (lambda rows: np.where(np.eye(*rows.shape) > 0, np.inf, rows), (ValueError,)),
    "complex": (lambda rows: rows + 1j, (TypeError, ValueError)),
    "dates": (lambda rows: rows.astype("datetime64[s]"), (TypeError,)),
    "durations": (lambda rows: rows.astype("timedelta64[s]"), (TypeError,)),
    "words": (lambda rows: np.where(rows > 0, "much", "little"), (ValueError, TypeError)),
    "one dimension": (lambda rows: rows[:, 0], (ValueError,)),
    "three dimensions": (lambda rows: rows[None], (ValueError,)),
    "no rows": (lambda rows: rows[:0], (ValueError,)),
    "another width": (lambda rows: np.hstack([rows, rows]), (ValueError,)),
    "nothing": (lambda rows: None, (ValueError, TypeError)),
    "a column": (lambda rows: pd.Series(rows[:, 0]), (ValueError, TypeError)),
    "sparse": (csr_matrix, (ValueError, TypeError)),
    "lazy": (lambda rows: pl.DataFrame({"a": rows[:, 0], "b": rows[:, 1]}).lazy(), (ValueError, TypeError)),
    "records": (lambda rows: np.array([tuple(row) for row in rows], [("a", float), ("b", float)]), (ValueError, TypeError)),
    "dictionaries": (lambda rows: [{"a": 1.0}] * len(rows), (ValueError, TypeError)),
}


@st.composite
def data(draw: st.DrawFn, family: Family) -> Data:
    """Rows that suit the family, in a strange form or far away; or something that nobody can cluster."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = family.rows(rng, N)
    kinds = ["plain", "plain", "ties", "constant", "single", "missing", "masked", "refused", "whole"]
    kinds += ["together", "away", "scaled"] if family.shifts else ["fractions", "negative", "large"]
    match draw(st.sampled_from(kinds)):
        case "ties":
            rows = rows[rng.integers(0, 2, N)]
        case "constant":
            rows = np.repeat(rows[:1], N, axis=0)
        case "single":
            rows = rows.astype(np.float32)
            return Data(rows, rows.astype(float))
        case "whole":
            rows = rows.round()
            return Data(rows.astype(draw(st.sampled_from(["int8", "int64", "uint64" if (rows >= 0).all() else "int32"]))), rows)
        case "missing":
            rows = _holes(rows, rng)
            whole = not np.isnan(rows).any()
            return Data(rows, rows if family.missing or whole else None, error=(ValueError,), imputed=_imputed(family, rows))
        case "masked":
            masked = _masked(rows, rng)
            rows = masked.filled(np.nan)
            exact = family.missing or not masked.mask.any()
            return Data(masked, rows if exact else None, error=(ValueError,), imputed=_imputed(family, rows))
        case "refused":
            make, error = REFUSED[draw(st.sampled_from(sorted(REFUSED)))]
            return Data(make(rows), None, error=error)
        case "together":
            center = 2.0 ** draw(st.integers(3, 40))
            rows = np.round(rows * 1024) / 1024 + center
            return Data(rows, rows, center)
        case "away":
            rows = rows + 10.0 ** draw(st.integers(1, 4)) * rng.choice([-1.0, 1.0])
            return Data(rows, rows, may_refuse=True)
        case "scaled":
            rows = rows * 10.0 ** draw(st.integers(-160, 3))
            return Data(rows, rows, may_refuse=True)
        case "fractions":
            return Data(rows + 0.5, None, error=(ValueError,))
        case "negative":
            return Data(-1.0 - rows, None, error=(ValueError,))
        case "large":
            if family is FAMILIES["bits"]:
                return Data(rows + 1.0, rows + 1.0 if (rows == 0).all() else None, error=(ValueError,))
            rows = rows * 10.0 ** draw(st.integers(1, 6))
    return Data(SHAPES[draw(st.sampled_from(sorted(SHAPES)))](rows), rows)


def block_marginals(family: Family, given: Data) -> Callable[[list[int]], float]:
    assert given.rows is not None
    near = given.rows - given.center  # exact, so that the oracle loses no digits
    return lambda members: family.log_marginal(near[members])


def check_refusal(given: Data, error: Exception, fit: Any) -> None:
    assert isinstance(error, given.error if given.rows is None else ValueError), repr(error)
    message = str(error)
    assert message and "Traceback" not in message
    if given.rows is not None:
        assert given.may_refuse and "column" in message, message
    results = {name for name in vars(fit) if name.endswith("_")} - {"n_features_in_", "feature_names_in_"}
    assert not results, f"a refused fit left {results}"


@pytest.mark.parametrize(("block", "cases"), few([(0, 100), *((block, 200) for block in range(1, 4))], plain=0, slow=1))
def test_estimators(block: int, cases: int, record_property: Callable[[str, object], None]) -> None:
    @seed(block)
    @settings(max_examples=cases, **CAMPAIGN)
    @given(st.sampled_from(sorted(FAMILIES)), st.sampled_from(sorted(ESTIMATORS)), st.data())
    def each(name: str, method: str, choices: st.DataObject) -> None:
        record_property("fits", fitted(name, method, choices))

    each()


def fitted(name: str, method: str, choices: st.DataObject) -> str:
    """Fit a method to data that are drawn, compare with the oracle, and say what came of it."""
    family = FAMILIES[name]
    given = choices.draw(data(family))
    alpha = choices.draw(st.sampled_from([0.05, 1.0, 20.0]))
    model = partial(dpm, component=family.component(given.center), concentration=alpha)
    make = ESTIMATORS[method] if method == "agglomerative" else partial(ESTIMATORS[method], random_state=0)
    setting = choices.draw(st.sampled_from(["none"] * 2 * len(SETTINGS) + sorted(SETTINGS)))
    if choices.draw(st.sampled_from([False] * 19 + [True])):
        with pytest.raises(TypeError, match="OwnPrior"):
            make(partial(own_prior, component=family.component(0.0), concentration=alpha)).fit(family.rows(RNG, N))
        return "prior unknown to the methods refused"
    fit = make(model)
    try:
        with SETTINGS.get(setting, nullcontext)():
            fit.fit(given.X)
    except (ValueError, TypeError) as error:
        check_refusal(given, error, fit)
        return "refused where that is right as well" if given.may_refuse else "refused"
    labels = fit.labels_
    assert labels.shape == (N,) and labels.dtype.kind == "i"
    assert set(labels) == set(range(fit.n_clusters_))
    if given.rows is None:
        assert given.imputed, "accepted what nobody can cluster"
        assert np.isfinite(fit.log_joint_) and np.isfinite(fit.missing_values_).all() and (fit.missing_std_ > 0).all()
        np.testing.assert_allclose(fit.predict_proba(given.X).sum(1), 1.0, rtol=1e-9)
        return "missing values imputed"
    canonical = tuple(np.unique(labels, return_index=True)[1].argsort().argsort()[labels])
    members = [np.flatnonzero(labels == k).tolist() for k in range(fit.n_clusters_)]
    marginal = block_marginals(family, given)
    expected = log_prior(canonical, alpha) + sum(map(marginal, members))
    np.testing.assert_allclose(fit.log_joint_, expected, rtol=1e-7, atol=1e-6)
    if method.startswith("BHC"):
        exact = Enumeration(N, marginal, alpha)
        assert fit.log_joint_ <= exact.log_evidence + 1e-8 * abs(exact.log_evidence)
        assert fit.log_evidence_bound_ <= exact.log_evidence + 1e-8 * abs(exact.log_evidence)
    probabilities = fit.predict_proba(given.X)
    np.testing.assert_allclose(probabilities.sum(1), 1.0, rtol=1e-9)
    assert (probabilities >= 0).all() and probabilities.shape == (N, fit.n_clusters_ + 1)
    assert set(fit.predict(given.X)) <= set(range(fit.n_clusters_ + 1))  # the last stands for a new cluster
    scores = fit.score_samples(given.X)
    assert scores.shape == (N,) and not np.isnan(scores).any()
    return "right" if setting == "none" else "right under settings of JAX"


@pytest.mark.parametrize(("block", "cases"), few([(0, 80), (1, 200), (2, 200)], plain=0, slow=1))
def test_evidence(block: int, cases: int, record_property: Callable[[str, object], None]) -> None:
    """Exact evidence by enumeration, whatever the order of the rows; bounds of a tree below it."""

    @seed(block)
    @settings(max_examples=cases, **CAMPAIGN)
    @given(st.sampled_from(sorted(FAMILIES)), st.sampled_from([0.0, 0.5]), st.data())
    def each(name: str, discount: float, choices: st.DataObject) -> None:
        record_property("evidence", of_evidence(name, discount, choices))

    each()


def of_evidence(name: str, discount: float, choices: st.DataObject) -> str:
    """Compare the evidence of data that are drawn with the oracle, and say what came of it."""
    family = FAMILIES[name]
    given = choices.draw(data(family))
    component = family.component(given.center)
    model = partial(pitman_yor_mixture, component=component, concentration=1.0, discount=discount)
    try:
        value = bnp.evidence.exact(model, given.X)
    except (ValueError, TypeError) as error:
        assert isinstance(error, given.error if given.rows is None else ValueError), repr(error)
        assert given.rows is None or (given.may_refuse and "column" in str(error)), str(error)
        return "refused where that is right as well" if given.may_refuse else "refused"
    assert given.rows is not None, "accepted what nobody can cluster"
    exact = Enumeration(N, block_marginals(family, given), 1.0, discount)
    np.testing.assert_allclose(value, exact.log_evidence, rtol=1e-8, atol=1e-7)
    order = np.random.default_rng(0).permutation(N)
    np.testing.assert_allclose(bnp.evidence.exact(model, given.rows[order]), value, rtol=1e-9, atol=1e-9)
    assert value >= logsumexp(exact.log_joint[:1]) - 1e-9 * abs(value)
    if discount == 0.0:
        bhc = bnp.BHC(partial(dpm, component=component, concentration=1.0), refine=None).fit(given.X)
        for kind in ("bhc", "alternatives", "recursive", "pairs", "intervals"):
            bound = bnp.evidence.tree_bound(bhc, kind)
            assert bound <= value + 1e-8 * abs(value), (kind, float(bound), value)
    return "right"
