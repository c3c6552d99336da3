"""Dirichlet-process and Pitman-Yor mixtures of conjugate components."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.typing import ArrayLike
from jaxtyping import Array, Num

from bnp_hier.components import Component, LearnedPrior, NormalInverseWishart
from bnp_hier.distributions import ChineseRestaurantProcess, ConjugateMixture, FiniteMixture, PartitionPrior, StickBreaking
from bnp_hier.distributions.missing_values import rows_for

__all__ = ["DEFAULT_CONCENTRATION", "dpm", "dpm_stick_breaking", "pitman_yor_mixture"]

Hyperparameter: TypeAlias = ArrayLike | dist.Distribution
ComponentLike: TypeAlias = Component | LearnedPrior | Callable[[Any], Component] | None

DEFAULT_CONCENTRATION = dist.Gamma(2.0, 20.0)
"""Default prior of the concentration α, with mean 0.1: one cluster is the most probable number, a priori."""


def dpm(
    X: Num[Array | np.ndarray, "n d"],
    component: ComponentLike = None,
    concentration: Hyperparameter | None = None,
    prior: Callable[[int], PartitionPrior] | None = None,
) -> None:
    """Dirichlet-process mixture, or one with another partition prior, with cluster parameters integrated out.

    Sites: `alpha` (if `concentration` is a distribution), those of the component's hyperparameters, `z` (the partition, (n,)
    labels), `missing` (the NaN cells of X in columns that depend on each other under the component), `X` (observed).

    Parameters
    ----------
    X
        Data, (n, d).
    component
        Conjugate component of a cluster: one with fixed hyperparameters; one whose hyperparameters are learned, as `from_data`
        returns; or a function of X that returns one and may place priors on its hyperparameters with `numpyro.sample`. None
        uses `NormalInverseWishart.from_data(X)`.
    concentration
        Concentration α of the Dirichlet process: a number or a prior distribution. None: `DEFAULT_CONCENTRATION`, Gamma(2, 20),
        if the hyperparameters of the component are learned, by `from_data` or because `component` is None, and 1 otherwise.
    prior
        Function that returns another prior for a number of rows, such as
        ``lambda n: MixtureOfFiniteMixtures(n, dist.Poisson(3.0))``; it may sample the parameters of the prior as sites of the
        model. None: a `ChineseRestaurantProcess` with this concentration.

    Raises
    ------
    ValueError
        If both a concentration and a prior are given.

    Examples
    --------
    >>> import numpy as np
    >>> import numpyro.distributions as dist
    >>> from functools import partial
    >>> import bnp_hier as bnp
    >>> component = bnp.NormalKnownCovariance(mean=[0.0], prior_covariance=9 * np.eye(1), covariance=np.eye(1))
    >>> model = partial(bnp.models.dpm, component=component, concentration=0.5)
    >>> bnp.MAPDP(model).fit([[0.0], [0.2], [0.1], [6.0], [6.1]]).labels_
    array([0, 0, 0, 1, 1])
    >>> finite = partial(model, concentration=None, prior=lambda n: bnp.MixtureOfFiniteMixtures(n, dist.Poisson(1.0)))
    >>> bnp.MAPDP(finite).fit([[0.0], [0.2], [0.1], [6.0], [6.1]]).labels_
    array([0, 0, 0, 1, 1])
    """
    if prior is not None and concentration is not None:
        raise ValueError("give the concentration or the prior of the partition, not both")
    partition = ChineseRestaurantProcess(_concentration(concentration, component), len(X)) if prior is None else prior(len(X))
    component = _component(component, X)
    z = numpyro.sample("z", partition)
    numpyro.sample("X", ConjugateMixture(component, z), obs=rows_for(component, X))


def pitman_yor_mixture(
    X: Num[Array | np.ndarray, "n d"],
    component: ComponentLike = None,
    concentration: Hyperparameter | None = None,
    discount: Hyperparameter = 0.25,
) -> None:
    """Pitman-Yor mixture with cluster parameters integrated out, which favours more small clusters than a Dirichlet process.

    Sites: `alpha` and `discount` (if distributions), those of the component's hyperparameters, `z` (the partition, (n,)
    labels), `missing` as in `dpm`, `X` (observed).

    Parameters
    ----------
    X, component, concentration
        As in `dpm`.
    discount
        Discount in [0, 1): a number or a prior distribution.

    Examples
    --------
    >>> import numpy as np
    >>> from functools import partial
    >>> import bnp_hier as bnp
    >>> component = bnp.NormalKnownCovariance(mean=[0.0], prior_covariance=9 * np.eye(1), covariance=np.eye(1))
    >>> model = partial(bnp.models.pitman_yor_mixture, component=component, concentration=0.5, discount=0.1)
    >>> bnp.MAPDP(model).fit([[0.0], [0.2], [0.1], [6.0], [6.1]]).labels_
    array([0, 0, 0, 1, 1])
    """
    alpha = _concentration(concentration, component)
    component = _component(component, X)
    d = _hyperparameter("discount", discount)
    z = numpyro.sample("z", ChineseRestaurantProcess(alpha, X.shape[0], discount=d))
    numpyro.sample("X", ConjugateMixture(component, z), obs=rows_for(component, X))


def dpm_stick_breaking(
    X: Num[Array | np.ndarray, "n d"],
    component: ComponentLike = None,
    concentration: Hyperparameter | None = None,
    truncation: int = 20,
) -> None:
    """Truncated stick-breaking mixture with explicit parameters and labels summed out, for NUTS.

    Sites: `alpha` (if `concentration` is a distribution), those of the component's hyperparameters, `weights` (truncation,),
    `parameters` (truncation, ...), one array per component as drawn from `component.prior()`, and `X` (observed). Label
    switching makes convergence diagnostics of the sites meaningless; compare only label-invariant summaries.
    `bnp_hier.recover_labels` draws the labels afterwards.

    Parameters
    ----------
    X
        Data, (n, d). Missing values are possible only if the component allows them (`allows_missing`); they are not completed.
    component, concentration
        As in `dpm`.
    truncation
        Number of components K ≥ 1; the last weight is the rest of the stick.

    Raises
    ------
    ValueError
        If the data do not fit the component (see `Component.validate`).

    Examples
    --------
    >>> import numpy as np
    >>> from functools import partial
    >>> from numpyro.infer.inspect import get_model_relations
    >>> import bnp_hier as bnp
    >>> X = np.array([[0.0], [0.2], [0.1], [6.0], [6.1]])
    >>> component = bnp.NormalKnownCovariance(mean=[0.0], prior_covariance=9 * np.eye(1), covariance=np.eye(1))
    >>> model = partial(bnp.models.dpm_stick_breaking, component=component, truncation=4)
    >>> get_model_relations(model, (X,))["sample_dist"]
    {'weights': 'StickBreaking', 'parameters': 'MultivariateNormal', 'X': 'FiniteMixture'}
    """
    alpha = _concentration(concentration, component)
    component = _component(component, X)
    component.validate(X)  # the density of an incomplete row would be NaN or 0
    weights = numpyro.sample("weights", StickBreaking(alpha, truncation))
    with numpyro.plate("components", truncation):
        parameters = numpyro.sample("parameters", component.prior())
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("X", FiniteMixture(component, weights, parameters), obs=X)


def _concentration(value: Hyperparameter | None, component: ComponentLike) -> Any:
    if value is None:
        value = DEFAULT_CONCENTRATION if component is None or isinstance(component, LearnedPrior) else 1.0
    return _hyperparameter("alpha", value)


def _hyperparameter(name: str, value: Hyperparameter) -> Any:
    return numpyro.sample(name, value) if isinstance(value, dist.Distribution) else value


def _component(component: ComponentLike, X: Any) -> Component:
    if component is None:
        component = NormalInverseWishart.from_data(X)
    return component if isinstance(component, Component) else component(X)
