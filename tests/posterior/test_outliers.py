"""p-values of new rows: uniform for rows of the model, small for outliers, and by hand."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pandas as pd
import pytest
from numpyro.infer import MCMC
from scipy.stats import kstest
from scipy.stats import t as student
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bnp_hier as bnp
from bnp_hier.models import MixtureModel, dpm, dpm_stick_breaking
from bnp_hier.posterior.draws import draws_of
from bnp_hier.posterior.outliers import replicated_rows
from tests.parameters import few

RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 2)) + 7.0 * (np.arange(90) % 2)[:, None]


def _run() -> MCMC:
    component = bnp.NormalInverseGamma.from_data(X, learn=False)
    mcmc = MCMC(
        bnp.PartitionGibbs(partial(dpm, component=component)), num_warmup=20, num_samples=30, num_chains=2, progress_bar=False
    )
    mcmc.run(jax.random.key(0), X)
    return mcmc


FITS = {
    "MAP-DP": lambda: bnp.MAPDP(n_init=1).fit(X),
    "BHC": lambda: bnp.BHC(MixtureModel("diagonal", learn=False), progress_bar=False).fit(X),
    "Gibbs": _run,
}


@pytest.mark.parametrize("name", few(FITS, plain=0))
def test_rows_of_the_fit_have_uniform_p_values(name: str) -> None:
    """Kolmogorov-Smirnov tests with fixed keys; each fails by chance with probability 0.001."""
    fit = FITS[name]()
    draws = draws_of(fit, X, num_samples=200)
    rows = replicated_rows(draws, 500, jax.random.key(5))
    assert rows.shape == (500, 2)
    found = bnp.outlier_pvalues(fit, X, rows, random_state=1)
    assert kstest(found, "uniform").pvalue > 0.001
    holes = rows.copy()
    holes[::2, 0] = np.nan
    assert kstest(bnp.outlier_pvalues(fit, X, holes, random_state=1), "uniform").pvalue > 0.001
    far = bnp.outlier_pvalues(fit, X, [[40.0, -40.0], [np.nan, 60.0]])
    assert (far <= 5 / 1001).all()
    np.testing.assert_array_equal(found, bnp.outlier_pvalues(fit, X, rows, random_state=1))


@pytest.mark.parametrize("count", [1, 7, 25, 50])
def test_rows_come_from_all_draws_alike(count: int) -> None:
    """Two chains that differ: in every draw of the second one, all rows are in one cluster, far from those of the first one."""
    component = bnp.NormalInverseGamma(np.zeros(1), 1e-3, 50.0, 1.0)
    fit = bnp.MAPDP(partial(dpm, component=component, concentration=1e-9)).fit(np.ones((40, 1)))
    draws = draws_of(fit, np.ones((40, 1)))
    levels = np.repeat([[-9.0], [9.0]], 10, axis=0).reshape(2, 10, 1)
    mixture = SimpleNamespace(
        X=draws.X,
        slots=draws.mixture.slots,
        sites=draws.mixture.sites,
        conjugate=lambda level: draws.mixture.conjugate({})._replace(X=jnp.ones((40, 1)) * level["level"]),
    )
    many: Any = draws._replace(labels=np.zeros((2, 10, 40), int), hyperparameters={"level": levels}, mixture=mixture)
    rows = replicated_rows(many, count, jax.random.key(0))
    assert rows.shape == (count, 1) and abs(int((rows > 0).sum()) - int((rows < 0).sum())) <= 1


def test_one_cluster_by_hand() -> None:
    """A single column in a single cluster: the p-value is twice the tail of a Student distribution."""
    rows = np.random.default_rng(1).normal(size=(40, 1))
    component = bnp.NormalInverseGamma(np.zeros(1), 1e6, 3.0, 3.0)
    fit = bnp.MAPDP(partial(dpm, component=component, concentration=1e-9)).fit(rows)
    assert fit.n_clusters_ == 1
    shape, rate = 3.0 + 20.0, 3.0 + 0.5 * (rows**2).sum()  # the mean is zero, almost surely
    new = np.array([[0.1], [-1.0], [2.5]])
    expected = 2 * student.sf(np.abs(new[:, 0]), 2 * shape, scale=np.sqrt(rate / shape))
    found = bnp.outlier_pvalues(fit, rows, new, num_samples=20_000)
    np.testing.assert_allclose(found, expected, atol=5 * np.sqrt(0.25 / 20_000))


@pytest.mark.parametrize("family", few(["mixed", "poisson", "bernoulli"], plain=0, slow=3))
def test_other_families(family: str) -> None:
    rng = np.random.default_rng(2)
    counts, bits = rng.poisson(3.0, (60, 3)).astype(float), rng.integers(0, 2, (60, 2)).astype(float)
    table = {"bernoulli": bits, "poisson": counts, "mixed": np.column_stack([counts, bits])}[family]
    parts = [bnp.GammaPoisson(np.ones(3), 0.3), bnp.BetaBernoulli(np.ones(2), np.ones(2))]
    component: Any = bnp.ProductComponent(parts, [(0, 1, 2), (3, 4)])
    if family != "mixed":
        component = parts[family == "bernoulli"]
    fit = bnp.MAPDP(partial(dpm, component=component), n_init=1).fit(table)
    found = bnp.outlier_pvalues(fit, table, table)
    assert ((found > 0) & (found <= 1)).all() and 0.3 < found.mean() < 0.8
    if family != "bernoulli":
        far = table[:1].copy()
        far[0, 0] = 60.0
        assert bnp.outlier_pvalues(fit, table, far)[0] < 0.02


@pytest.mark.slow
def test_pipelines_are_their_last_step_on_transformed_rows() -> None:
    """And in other units: the p-values are those of the plain fit of the scaled rows."""
    units, rows = np.array([1000.0, 0.01]), np.array([[0.0, 0.0], [3.5, 3.5], [40.0, np.nan]])
    pipeline = make_pipeline(StandardScaler(), bnp.MAPDP(n_init=1)).fit(X * units)
    scaler, fit = StandardScaler().fit(X * units), pipeline[-1]
    expected = bnp.outlier_pvalues(fit, scaler.transform(X * units), scaler.transform(rows * units))
    assert expected[0] > 0.05 and expected[2] < 0.01
    np.testing.assert_array_equal(bnp.outlier_pvalues(pipeline, X * units, rows * units), expected)
    alone = make_pipeline(bnp.MAPDP(n_init=1)).fit(X)
    np.testing.assert_array_equal(bnp.outlier_pvalues(alone, X, rows), bnp.outlier_pvalues(alone[-1], X, rows))
    with pytest.raises(TypeError, match=r"but got Pipeline: pass its last step, pipeline\[-1\], and the data of this step"):
        bnp.describe(pipeline, X * units)
    search = GridSearchCV(pipeline, {"mapdp__n_init": [1]}, cv=2)
    with pytest.raises(NotFittedError, match="GridSearchCV"):
        bnp.outlier_pvalues(search, X * units, rows * units)
    np.testing.assert_array_equal(bnp.outlier_pvalues(search.fit(X * units), X * units, rows * units), expected)
    with pytest.raises(TypeError, match="but got GridSearchCV: pass its best_estimator_"):
        bnp.describe(search, X)


@pytest.mark.slow
def test_results_of_one_call_with_dataframes() -> None:
    """New rows are found by name and converted, as in `predict_proba`; the result keeps its data."""
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": np.where(X[:, 0] > 3, "up", "down")})
    result = bnp.cluster(frame, methods="map-dp")
    new = pd.DataFrame({"c": ["up", "up"], "b": [7.0, 90.0], "a": [7.0, -90.0], "other": ["x", "y"]})
    found = bnp.outlier_pvalues(result, frame, new)
    assert found[0] > 0.05 and found[1] < 0.01
    np.testing.assert_array_equal(bnp.outlier_pvalues(result, None, new), found)
    np.testing.assert_array_equal(bnp.outlier_pvalues(result, result.data.X, new), found)
    fit = result.fits[result.method]
    rows = np.column_stack([new["a"], new["b"], [1.0, 1.0]])
    assert result.data.feature_names[2:] == ("c=up",)
    np.testing.assert_array_equal(bnp.outlier_pvalues(fit, result.data.X, rows), found)
    for array in (rows, rows.tolist()):
        with pytest.raises(TypeError, match="new rows must be a DataFrame, because the column 'c'"):
            bnp.outlier_pvalues(result, None, array)
    with pytest.raises(TypeError, match="the fitted rows must be a DataFrame, because the column 'c'"):
        bnp.outlier_pvalues(result, rows, new)
    with pytest.raises(ValueError, match="X has 80 rows, but the estimator was fitted to 90"):
        bnp.outlier_pvalues(result, frame[:80], new)
    with pytest.raises(TypeError, match=r"but got ClusteringResult: pass one of its fits, and data\.X"):
        bnp.describe(result, result.data.X)


@pytest.mark.slow
def test_results_of_one_call_with_transformed_columns() -> None:
    """Raw values in an array could be taken for converted ones, so they are refused where any column was converted."""
    frame = pd.DataFrame({"a": np.exp(X[:, 0]), "b": X[:, 1]})
    result = bnp.cluster(frame, methods="map-dp", kinds={"a": "log"})
    fit, new = result.fits[result.method], frame[:2]
    found = bnp.outlier_pvalues(result, None, new)
    np.testing.assert_array_equal(found, bnp.outlier_pvalues(fit, result.data.X, X[:2]))
    assert (found > 0.05).all()
    with pytest.raises(TypeError, match="new rows must be a DataFrame, because the column 'a'"):
        bnp.outlier_pvalues(result, None, new.to_numpy())
    plain = bnp.cluster(X, methods="map-dp")
    expected = bnp.outlier_pvalues(plain.fits[plain.method], X, X[:2])
    np.testing.assert_array_equal(bnp.outlier_pvalues(plain, X, X[:2]), expected)
    np.testing.assert_array_equal(bnp.outlier_pvalues(plain, None, X[:2].tolist()), expected)
    with pytest.raises(ValueError, match="X has 3 columns, but 2 were fitted"):
        bnp.outlier_pvalues(plain, None, np.zeros((1, 3)))


@pytest.mark.slow
def test_several_arguments() -> None:
    """A model that observes the difference of its arguments: the p-values are those of a model of the differences."""
    component, shift = bnp.NormalInverseGamma.from_data(X, learn=False), np.linspace(-30.0, 30.0, 90)

    def model(offset: Any, rows: Any) -> None:
        z = numpyro.sample("z", bnp.ChineseRestaurantProcess(1.0, rows.shape[0]))
        numpyro.sample("X", bnp.ConjugateMixture(component, z), obs=rows - jnp.asarray(offset)[:, None])

    runs = []
    for each, arguments in ((model, (shift, X + shift[:, None])), (partial(model, np.zeros(90)), (X,))):
        run = MCMC(bnp.PartitionGibbs(each), num_warmup=10, num_samples=20, num_chains=2, progress_bar=False)
        run.run(jax.random.key(0), *arguments)
        runs.append(run)
    data = bnp.ModelArguments(shift, X + shift[:, None])
    new = bnp.ModelArguments(np.array([5.0, 5.0]), np.array([[5.0, 5.0], [40.0, -40.0]]))
    found = bnp.outlier_pvalues(runs[0], data, new)
    assert found[0] > 0.05 and found[1] < 0.01
    np.testing.assert_array_equal(runs[0].get_samples()["z"], runs[1].get_samples()["z"])
    np.testing.assert_allclose(found, bnp.outlier_pvalues(runs[1], X, np.array([[0.0, 0.0], [35.0, -45.0]])), atol=2e-3)
    with pytest.raises(ValueError, match="the model was fitted to 2 arguments"):
        bnp.outlier_pvalues(runs[0], data, X[:2])


@pytest.mark.slow
def test_bad_input() -> None:
    fit = FITS["MAP-DP"]()
    with pytest.raises(ValueError, match="num_samples must be at least 1, but it is 0"):
        bnp.outlier_pvalues(fit, X, X[:2], num_samples=0)
    with pytest.raises(ValueError, match="3 features|3 columns"):
        bnp.outlier_pvalues(fit, X, np.zeros((1, 3)))
    from numpyro.infer import NUTS

    model = partial(dpm_stick_breaking, component=bnp.NormalInverseGamma.from_data(X, learn=False), truncation=3)
    run = MCMC(NUTS(model), num_warmup=2, num_samples=2, progress_bar=False)
    run.run(jax.random.key(0), X)
    with pytest.raises(ValueError, match="outlier_pvalues needs a model whose cluster parameters are integrated out"):
        bnp.outlier_pvalues(run, X, X[:2])
