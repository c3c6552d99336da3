"""Warnings about fits with learned hyperparameters: values far in a prior's tail, and a single cluster."""

from __future__ import annotations

import warnings

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jaxtyping import Array, Float

import bnp_hier as bnp
from tests.parameters import few

TWO_GROUPS = np.array([[-0.3], [-0.1], [0.0], [0.2], [5.8], [6.0], [6.1], [6.3]])


def model(X: Float[Array, "n d"], wide: bool = True) -> None:
    """Known variance; the prior of the spread of the means is wide, or far below what the data show."""
    spread = numpyro.sample("spread", dist.LogNormal(0.0, 1.0) if wide else dist.LogNormal(-1.0, 0.05))
    component = bnp.NormalKnownCovariance(np.zeros(1), spread**2 * np.eye(1), 0.1 * np.eye(1))
    z = numpyro.sample("z", bnp.ChineseRestaurantProcess(1.0, len(X)))
    numpyro.sample("obs", bnp.ConjugateMixture(component, z), obs=X)


def narrow(X: Float[Array, "n d"]) -> None:
    model(X, wide=False)


@pytest.mark.parametrize("estimator", few([bnp.MAPDP(model), bnp.BHC(model, progress_bar=False), bnp.VariationalDP(model)]))
def test_nothing_is_said_of_values_that_the_prior_expects(estimator: bnp.MAPDP | bnp.BHC | bnp.VariationalDP) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert estimator.fit(TWO_GROUPS).n_clusters_ == 2


def test_a_value_held_back_by_its_prior_is_named() -> None:
    with pytest.warns(RuntimeWarning, match=r"the learned spread is 0\.\d+, at the edge of its prior"):
        fit = bnp.MAPDP(narrow).fit(TWO_GROUPS)
    assert fit.hyperparameters_["spread"] > np.exp(-1.0 + 5 * 0.05)


def test_one_cluster_is_a_warning_only_if_hyperparameters_were_learned() -> None:
    X = np.random.default_rng(0).normal(size=(60, 2))
    with pytest.warns(UserWarning, match="all 60 rows are in one cluster"):
        assert bnp.MAPDP().fit(X).n_clusters_ == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bnp.MAPDP(optimize=False).fit(X)


def test_values_given_as_a_dictionary_are_kept() -> None:
    learned = bnp.MAPDP(model).fit(TWO_GROUPS)
    again = bnp.MAPDP(model, optimize=learned.hyperparameters_).fit(TWO_GROUPS)
    np.testing.assert_allclose(again.hyperparameters_["spread"], learned.hyperparameters_["spread"], rtol=1e-12)
    np.testing.assert_allclose(again.log_joint_, learned.log_joint_, rtol=1e-9)
    with pytest.raises(ValueError, match="spreads"):
        bnp.MAPDP(model, optimize={"spreads": 1.0}).fit(TWO_GROUPS)
