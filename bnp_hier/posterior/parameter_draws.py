"""Draws of the parameters of an estimate's clusters, integrated out or sites of the model, and of replicated data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int, Num

from bnp_hier.capabilities import Chains
from bnp_hier.distributions.conjugate_mixture import cluster_statistics
from bnp_hier.inspection.collapsed import MixtureValues
from bnp_hier.inspection.model_arguments import Data
from bnp_hier.posterior.draws import Draws, draws_of
from bnp_hier.posterior.explicit_mixtures import SlotMixture, StickMixture
from bnp_hier.posterior.partitions import one_partition
from bnp_hier.posterior.renumbering import renumbered_sites
from bnp_hier.posterior.slot_parameters import MatchedSlots, match_slots, sites_of_clusters
from bnp_hier.utils.jax_settings import double_precision
from bnp_hier.utils.programs import compiled
from bnp_hier.utils.randomness import random_key

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["cluster_means", "cluster_parameters", "replicated_data"]


def cluster_parameters(
    fit: Any,
    X: Data,
    estimate: ArrayLike,
    *,
    sites: str | Sequence[str] | None = None,
    num_samples: int = 1000,
    random_state: int | Array = 0,
) -> xr.Dataset:
    """Return draws of the parameters of each cluster of an estimate, in float64, which do not depend on cluster numbers.

    If the model has a conjugate component, its parameters are drawn from their posterior given the rows of each cluster. If
    the hyperparameters were sampled, each draw of the parameters uses one of their draws: the clusters are fixed at the
    estimate, while the hyperparameters keep their full posterior uncertainty.

    If the parameters are sites of the model (`AuxiliaryGibbs`), they have been drawn together with the labels. In each draw,
    a cluster C of the estimate has the parameters of the draw's cluster B with the most rows in common with it,
    ``B = argmax |C ∩ B|`` (of several, the smallest; of the same size, that of the first row). These parameters vary with the
    rows of B, so that they show the uncertainty of the partition, too. Where `overlap` is far below 1, most draws have no
    cluster like C.

    Parameters
    ----------
    fit
        `MCMC` or `ResumableRun` that has run a kernel with a partition site (one draw of the parameters per posterior draw),
        or a fitted estimator (`num_samples` draws in one chain, at its hyperparameters).
    X
        The data the model was fitted to, (n, d), or `ModelArguments` of a model with several data arguments.
    estimate
        (n,) whole numbers, such as a `point_estimate`, or an estimator's `labels_`.
    sites
        If the parameters are sites of the model: the names of some with one entry per slot, deterministic sites included. By
        default, all of which the model shows that their entries are renumbered with the clusters: vectors over the columns or
        the rows are left out, even if they have as many entries.
    num_samples
        Number of draws, for an estimator.
    random_state
        Whole number or JAX key for the draws of parameters that are integrated out.

    Returns
    -------
    parameters
        Dataset with the labels of the estimate as coordinate `cluster`, and the cluster sizes as coordinate `size`. Its
        variable is `parameters`, (chain, draw, cluster, followed by the dimensions of the component's parameter array), or
        there is one for each site, (chain, draw, cluster, followed by the dimensions of the parameter), and the coordinate
        `overlap`, the mean over the draws of ``|C ∩ B| / |C ∪ B|``. ArviZ functions accept it: ``az.summary(parameters)`` shows
        means, standard deviations, intervals and R-hat.

    Raises
    ------
    NotFittedError, ValueError, TypeError
        If the fit has not run, does not match X or is of an unknown kind, the estimate is not n whole numbers, there are no
        such sites, or the model does not show which they are and `sites` does not name them.

    Examples
    --------
    >>> import numpy as np
    >>> import bnp_hier as bnp
    >>> X = np.concatenate([np.linspace(0.0, 1.0, 50), np.linspace(7.0, 8.0, 50)])[:, None]
    >>> fit = bnp.MAPDP().fit(X)
    >>> found = bnp.cluster_parameters(fit, X, fit.labels_)["parameters"]
    >>> found.mean(["chain", "draw"]).values[:, 0, 0].round(1)  # the means of the clusters
    array([0.5, 7.5])
    """
    import xarray as xr

    draws = draws_of(fit, X, num_samples=1)
    names, labels, sizes = np.unique(one_partition(estimate, len(draws.X)), return_inverse=True, return_counts=True)
    coords = {"cluster": names, "size": ("cluster", sizes)}
    attributes = {"inference_library": "bnp_hier", "method": type(fit).__name__}
    if sites is not None or not draws.mixture.integrated:
        matched = match_slots(draws.labels, labels)
        variables = _of_sites(fit, draws, matched, sites)
        coords["overlap"] = "cluster", matched.overlap.mean((0, 1))
    else:
        found = _drawn_given_rows(draws, labels, num_samples, random_state)
        variables = {"parameters": (("cluster", *(f"parameter_dim_{i}" for i in range(found.ndim - 3))), found)}
    shape = next(iter(variables.values()))[1].shape[:2]
    coords |= {"chain": np.arange(shape[0]), "draw": np.arange(shape[1])}
    full = {name: (("chain", "draw", *dims), values) for name, (dims, values) in variables.items()}
    return xr.Dataset(full, coords, attributes)


def _drawn_given_rows(
    draws: Draws, labels: Int[np.ndarray, " n"], num_samples: int, random_state: int | Array
) -> Float[np.ndarray, "chain draw k ..."]:
    """Parameters of a conjugate component, from their posterior given the rows of each cluster."""
    draws = _repeated(draws._replace(labels=np.broadcast_to(labels, draws.labels.shape)), num_samples)
    slots = int(labels.max()) + 1
    return _map_draws(lambda key, values, labels: _parameters(key, values, labels, slots), draws, random_key(random_state))


def _repeated(draws: Draws, num_samples: int) -> Draws:
    """One partition and one value of the hyperparameters, used for all draws; several draws as they are."""
    if draws.labels.shape[:2] != (1, 1):
        return draws
    values = {name: np.broadcast_to(v, (1, num_samples, *v.shape[2:])) for name, v in draws.hyperparameters.items()}
    return draws._replace(
        labels=np.broadcast_to(draws.labels, (1, num_samples, draws.labels.shape[-1])), hyperparameters=values
    )


def cluster_means(
    draws: Draws, labels: Int[np.ndarray, " n"], num_samples: int, random_state: int | Array
) -> Float[np.ndarray, "s k q"]:
    """Draw the mean parameters of the rows of each cluster of an estimate, in the columns that the model observes.

    In each draw, parameters of its clusters are drawn from their posterior given their rows, and the expected values of a row
    are averaged over the clusters to which the rows of the estimate's cluster belong there. So the draws show the uncertainty
    of the parameters and that of the partition.

    Parameters
    ----------
    draws
        Draws of a model with a conjugate component, with labels from 0.
    labels
        (n,) the estimate, with clusters 0, ..., K − 1.
    num_samples
        Number of draws of the parameters if there is only one partition.
    random_state
        Whole number or JAX key.

    Raises
    ------
    NotImplementedError
        If the likelihood of the component has no mean.
    """
    draws, slots, sizes = _repeated(draws, num_samples), int(draws.labels.max()) + 1, np.bincount(labels).astype(float)

    def of_draw(key: Array, values: MixtureValues, drawn: Int[Array, " n"]) -> Float[Array, "k q"]:
        means = values.component.likelihood(_parameters(key, values, drawn, slots)).mean
        shared = jnp.zeros((len(sizes), slots)).at[labels, drawn].add(1.0)
        return shared / sizes[:, None] @ jnp.where(shared.any(0)[:, None], means, 0.0)

    found = _map_draws(of_draw, draws, random_key(random_state))
    return found.reshape(-1, *found.shape[2:])


def _of_sites(
    fit: Any, draws: Draws, matched: MatchedSlots, sites: str | Sequence[str] | None
) -> dict[str, tuple[tuple[str, ...], Float[np.ndarray, "chain draw k ..."]]]:
    """Parameters that are sites of the model, and their dimensions, which have the names that `to_arviz` uses."""
    mixture = draws.mixture
    if mixture.entries is None or not isinstance(fit, Chains):
        raise ValueError(
            f"sites={sites!r} names sites with the parameters of each cluster, but the model has none: its component "
            "integrates them out; leave out sites="
        )
    samples = {name: np.asarray(values) for name, values in fit.get_samples(group_by_chain=True).items()}
    samples.pop(draws.partition, None)
    if isinstance(mixture, StickMixture) and sites is None:
        samples.pop(mixture.sites.weights)
    chosen = sites_of_clusters(samples, mixture.entries, sites)
    if sites is None:
        chosen = {name: chosen[name] for name in renumbered_sites(draws, chosen)}
    return {
        name: (("cluster", *(f"{name}_dim_{i}" for i in range(1, values.ndim - 2))), matched.take(values))
        for name, values in chosen.items()
    }


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


FEW_CELLS = 2_000_000
"""Number of cells of the tables of all draws up to which a program of them takes longer to optimise than to run."""


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

    with double_precision():
        flat = jax.tree.map(lambda leaf: jnp.asarray(leaf).reshape(-1, *leaf.shape[2:]), (draws.labels, draws.hyperparameters))
        items = (jax.random.split(key, shape[0] * shape[1]), *flat)
        run = compiled(
            lambda items: jax.lax.map(one, items), items, few_calls=draws.labels.size * draws.X.shape[-1] <= FEW_CELLS
        )
        results = np.asarray(run(items), dtype=np.float64)
    return results.reshape(*shape, *results.shape[1:])
