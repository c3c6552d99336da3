"""Dirichlet-process and Pitman-Yor mixtures of conjugate components."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.typing import ArrayLike
from jaxtyping import Array, Num

from bnp_hier.components import Component, NormalInverseWishart
from bnp_hier.distributions import ChineseRestaurantProcess, ConjugateMixture, FiniteMixture, StickBreaking

__all__ = ["dpm", "dpm_stick_breaking", "pitman_yor_mixture"]

Hyperparameter: TypeAlias = ArrayLike | dist.Distribution
ComponentLike: TypeAlias = Component | Callable[[Any], Component] | None


def dpm(X: Num[Array | np.ndarray, "n d"], component: ComponentLike = None, concentration: Hyperparameter = 1.0) -> None:
    """Dirichlet-process mixture with cluster parameters integrated out.

    Sites: `alpha` (if `concentration` is a distribution), `z` (the partition, (n,) labels), `X` (observed).

    Parameters
    ----------
    X
        Data, (n, d).
    component
        Conjugate component of a cluster, or a function of X that returns one and may place priors on its hyperparameters with
        `numpyro.sample`. None uses `NormalInverseWishart.from_data(X)`.
    concentration
        Concentration α of the Dirichlet process: a number or a prior distribution.
    """
    component = _component(component, X)
    alpha = _hyperparameter("alpha", concentration)
    z = numpyro.sample("z", ChineseRestaurantProcess(alpha, X.shape[0]))
    numpyro.sample("X", ConjugateMixture(component, z), obs=X)


def pitman_yor_mixture(
    X: Num[Array | np.ndarray, "n d"],
    component: ComponentLike = None,
    concentration: Hyperparameter = 1.0,
    discount: Hyperparameter = 0.25,
) -> None:
    """Pitman-Yor mixture with cluster parameters integrated out, which favours more small clusters than a Dirichlet process.

    Sites: `alpha` and `discount` (if distributions), `z` (the partition, (n,) labels), `X` (observed).

    Parameters
    ----------
    X, component, concentration
        As in `dpm`.
    discount
        Discount in [0, 1): a number or a prior distribution.
    """
    component = _component(component, X)
    alpha = _hyperparameter("alpha", concentration)
    d = _hyperparameter("discount", discount)
    z = numpyro.sample("z", ChineseRestaurantProcess(alpha, X.shape[0], discount=d))
    numpyro.sample("X", ConjugateMixture(component, z), obs=X)


def dpm_stick_breaking(
    X: Num[Array | np.ndarray, "n d"],
    component: ComponentLike = None,
    concentration: Hyperparameter = 1.0,
    truncation: int = 20,
) -> None:
    """Truncated stick-breaking mixture with explicit parameters and labels summed out, for NUTS.

    Sites: `alpha` (if `concentration` is a distribution), `weights` (truncation,), `parameters` (truncation, ...), one
    array per component as drawn from `component.prior()`, and `X` (observed). Label switching makes convergence diagnostics of
    the sites meaningless; compare only label-invariant summaries. `bnp_hier.recover_labels` draws the labels afterwards.

    Parameters
    ----------
    X, component, concentration
        As in `dpm`.
    truncation
        Number of components K ≥ 1; the last weight is the rest of the stick.
    """
    component = _component(component, X)
    alpha = _hyperparameter("alpha", concentration)
    weights = numpyro.sample("weights", StickBreaking(alpha, truncation))
    with numpyro.plate("components", truncation):
        parameters = numpyro.sample("parameters", component.prior())
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("X", FiniteMixture(component, weights, parameters), obs=X)


def _hyperparameter(name: str, value: Hyperparameter) -> Any:
    return numpyro.sample(name, value) if isinstance(value, dist.Distribution) else value


def _component(component: ComponentLike, X: Any) -> Component:
    if component is None:
        return NormalInverseWishart.from_data(X)
    return component if isinstance(component, Component) else component(X)
