"""Draws of cluster parameters, which the methods integrate out, and of replicated data."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int, Num

from bnp_hier.distributions.conjugate_mixture import cluster_statistics
from bnp_hier.inspection.collapsed import MixtureValues
from bnp_hier.posterior.draws import Draws, draws_of
from bnp_hier.posterior.explicit_mixtures import SlotMixture
from bnp_hier.posterior.partitions import one_partition
from bnp_hier.utils.randomness import random_key

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["cluster_parameters", "replicated_data"]


def cluster_parameters(
    fit: Any, X: ArrayLike, estimate: ArrayLike, *, num_samples: int = 1000, random_state: int | Array = 0
) -> xr.Dataset:
    """Draw each cluster's parameters from their posterior given the cluster's rows, in float64.

    If the hyperparameters were sampled, each draw of the parameters uses one of their draws: the clusters are fixed at the
    estimate, while the hyperparameters keep their full posterior uncertainty.

    Parameters
    ----------
    fit
        `MCMC` that has run a kernel with a partition site (one draw of the parameters per posterior draw), or a fitted
        estimator (`num_samples` draws in one chain, at its hyperparameters).
    X
        The data the model was fitted to, (n, d).
    estimate
        (n,) whole numbers, such as a `point_estimate`, or an estimator's `labels_`.
    num_samples
        Number of draws, for an estimator.
    random_state
        Whole number or JAX key for the draws.

    Returns
    -------
    parameters
        Dataset with the variable `parameters`, (chain, draw, cluster, followed by the dimensions of the component's parameter
        array), the labels of the estimate as coordinate `cluster`, and the cluster sizes as coordinate `size`. It can be
        passed to ArviZ functions.

    Raises
    ------
    NotFittedError, ValueError, TypeError
        If the fit has not run, does not match X or is of an unknown kind, or the estimate is not n whole numbers.
    """
    import xarray as xr

    draws = draws_of(fit, X, num_samples=1)
    names, labels, sizes = np.unique(one_partition(estimate, len(draws.X)), return_inverse=True, return_counts=True)
    shape = draws.labels.shape[:2]
    if shape == (1, 1):  # one partition and one value of the hyperparameters, used for all draws
        shape = (1, num_samples)
        values = {name: np.broadcast_to(v, (*shape, *v.shape[2:])) for name, v in draws.hyperparameters.items()}
        draws = draws._replace(hyperparameters=values)
    draws = draws._replace(labels=np.broadcast_to(labels, (*shape, len(labels))))
    key = random_key(random_state)
    found = _map_draws(lambda key, values, labels: _parameters(key, values, labels, len(names)), draws, key)
    dims = ("chain", "draw", "cluster", *(f"parameter_dim_{i}" for i in range(found.ndim - 3)))
    coords = {"chain": np.arange(shape[0]), "draw": np.arange(shape[1]), "cluster": names, "size": ("cluster", sizes)}
    return xr.Dataset({"parameters": (dims, found)}, coords, {"inference_library": "bnp_hier", "method": type(fit).__name__})


def replicated_data(draws: Draws, random_state: int | Array = 0) -> Float[np.ndarray, "chain draw n d"]:
    """Draw replicated data for each draw: cluster parameters given their rows, then new rows with the draw's labels.

    If the cluster parameters are sites of the model, what it observes is drawn at their values, given the covariates.

    Parameters
    ----------
    draws
        Draws on the fitted data.
    random_state
        Whole number or JAX key.

    Raises
    ------
    ValueError
        If the component cannot sample rows, or the model has no conjugate component.
    """
    slots, mixture = int(draws.labels.max()) + 1, draws.mixture
    key = jax.random.fold_in(random_key(random_state), 1)  # the key itself may have been used to draw partitions
    if isinstance(mixture, SlotMixture):
        return _map_items(mixture.replicated, draws, key)

    def table(key: Array, values: MixtureValues, labels: Int[Array, " n"]) -> Num[Array, "n d"]:
        key_parameters, key_rows = jax.random.split(key)
        parameters = _parameters(key_parameters, values, labels, slots)
        return values.component.likelihood(parameters[labels]).sample(key_rows)

    return _map_draws(table, draws, key)


def _parameters(key: Array, values: MixtureValues, labels: Int[Array, " n"], slots: int) -> Float[Array, "k ..."]:
    stats = cluster_statistics(values.component.suff_stats(values.X), labels, slots)
    return values.component.sample_parameters(key, stats)


def _map_draws(
    function: Callable[[Array, MixtureValues, Array], Array], draws: Draws, key: Array
) -> Float[np.ndarray, "chain draw ..."]:
    """Apply a function of (key, values at the draw's hyperparameters, labels) to every draw, in float64."""
    return _map_items(
        lambda key, labels, hyperparameters: function(key, draws.mixture.conjugate(hyperparameters), labels), draws, key
    )


def _map_items(
    function: Callable[[Array, Array, dict[str, Array]], Array], draws: Draws, key: Array
) -> Float[np.ndarray, "chain draw ..."]:
    """Apply a function of (key, labels, hyperparameters) to every draw, in float64."""
    shape = draws.labels.shape[:2]

    def one(item: tuple[Array, Array, dict[str, Array]]) -> Array:
        return function(*item)

    with jax.enable_x64(True):
        flat = jax.tree.map(lambda leaf: jnp.asarray(leaf).reshape(-1, *leaf.shape[2:]), (draws.labels, draws.hyperparameters))
        items = (jax.random.split(key, shape[0] * shape[1]), *flat)
        results = np.asarray(jax.jit(lambda items: jax.lax.map(one, items))(items), dtype=np.float64)
    return results.reshape(*shape, *results.shape[1:])
