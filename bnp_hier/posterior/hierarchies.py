"""Draws of hierarchical mixtures: their trees, representative trees, and predictions for new items."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int

from bnp_hier.capabilities import Chains
from bnp_hier.distributions.chinese_restaurant import cluster_counts
from bnp_hier.distributions.nested_chinese_restaurant import read_tree
from bnp_hier.inspection.model_arguments import Data, as_arguments, as_table
from bnp_hier.inspection.nested import TreeSites, find_tree_sites, has_tree, read_tree_values
from bnp_hier.inspection.trace import Model
from bnp_hier.kernels.bhmc.paths import log_likelihood_of, path_weights
from bnp_hier.kernels.bhmc.room import room_of
from bnp_hier.kernels.bhmc.summaries import tree_summaries
from bnp_hier.partitions.scoring import check_log_weights
from bnp_hier.posterior.partitions import coclustering
from bnp_hier.posterior.point_estimates import expected_losses
from bnp_hier.trees import Hierarchy
from bnp_hier.utils.arrays import as_matrix
from bnp_hier.utils.jax_settings import double_precision
from bnp_hier.utils.randomness import random_key

__all__ = ["HierarchyDraws", "hierarchy_draws", "is_hierarchical"]

Draw = tuple[int, int]
"""Index of a chain and of one of its draws."""

MOST_CELLS = 20_000_000
"""Maximum number of entries held at once in a table of draws by items by nodes or components."""


def is_hierarchical(fit: Any, X: Data) -> bool:
    """Whether a fit contains chains of a model with a tree."""
    model = getattr(getattr(fit, "sampler", None), "model", None)
    if not isinstance(fit, Chains) or model is None:
        return False
    with double_precision():
        data = as_arguments(X)
        try:
            return has_tree(model, data.args, data.kwargs)
        except TypeError:  # it takes other arguments: `draws_of` says so
            return False


def hierarchy_draws(fit: Chains, X: Data) -> HierarchyDraws:
    """Return the trees sampled by `BHMCGibbs`.

    Parameters
    ----------
    fit
        `MCMC` or `ResumableRun` that has run `BHMCGibbs`, alone or as a block of `Gibbs`.
    X
        The data the model was fitted to, (n, d).

    Returns
    -------
    draws
        `HierarchyDraws`; ``draws[chain, draw]`` is a `Hierarchy`.

    Raises
    ------
    TypeError, ValueError
        If the fit is of another kind or has not run, its model is not a hierarchical mixture, or X has a different number of
        rows.

    Examples
    --------
    >>> import jax
    >>> import numpy as np
    >>> from functools import partial
    >>> from numpyro.infer import MCMC
    >>> import bnp_hier as bnp
    >>> X = np.array([[-3.1], [-2.9], [-3.0], [3.0], [3.1]])
    >>> component = bnp.NormalKnownCovariance(mean=[0.0], prior_covariance=9 * np.eye(1), covariance=np.eye(1))
    >>> concentrations = {"concentration": 0.4, "root_concentration": 1.0, "mixing_concentration": 0.5}
    >>> model = partial(bnp.models.bhmc, depth=2, component=component, max_components=5, **concentrations)
    >>> mcmc = MCMC(bnp.BHMCGibbs(model, init="one_path"), num_warmup=20, num_samples=20, progress_bar=False)
    >>> mcmc.run(jax.random.key(0), X)  # doctest: +SKIP
    >>> draws = bnp.hierarchy_draws(mcmc, X)  # doctest: +SKIP
    >>> tree = draws[draws.medoid()]  # doctest: +SKIP
    >>> draws.shape, tree.depth  # doctest: +SKIP
    ((1, 20), 2)
    """
    if not isinstance(fit, Chains):
        raise TypeError(f"expected an MCMC object that has run BHMCGibbs, but got {type(fit).__name__}")
    if fit.last_state is None:
        raise ValueError("the MCMC object has no draws: call its run method first")
    model = getattr(fit.sampler, "model", None)
    if model is None:
        raise ValueError(f"the kernel {type(fit.sampler).__name__} has no model from which to read the tree")
    matrix = as_table(X)
    with double_precision():
        sites = find_tree_sites(model, (matrix,))
    samples = {name: np.asarray(value) for name, value in fit.get_samples(group_by_chain=True).items()}
    size = samples[sites.labels].shape[-1]
    if size != len(matrix):
        raise ValueError(f"X has {len(matrix)} rows, but the draws label {size} items")
    fields = fit.get_extra_fields(group_by_chain=True)
    kept = {name: np.asarray(fields[name]) for name in ("truncated_probability", "capacity_hits") if name in fields}
    if sites.mixing in samples:
        sites = room_of(sites, samples)
    return HierarchyDraws(model, sites, matrix, samples, kept)


@dataclass(frozen=True, eq=False)
class HierarchyDraws:
    """Draws of a hierarchical mixture over a tree, with the data; index with (chain, draw) to get a `Hierarchy`.

    - **model**, **sites** - the model and the names of its sites.
    - **X** - (n, d) rows.
    - **samples** - values of every latent site, (chain, draw, ...).
    - **sample_stats** - statistics that the sampler reports for each draw, (chain, draw): `truncated_probability`,
      `capacity_hits`.
    """

    model: Model
    sites: TreeSites
    X: Float[np.ndarray, "n d"]
    samples: Mapping[str, np.ndarray]
    sample_stats: Mapping[str, np.ndarray]

    @property
    def shape(self) -> tuple[int, int]:
        """Number of chains and number of draws per chain."""
        chains, draws = self.paths.shape[:2]
        return chains, draws

    @property
    def paths(self) -> Int[np.ndarray, "chain draw n depth"]:
        """Path of each item."""
        return self.samples[self.sites.paths]

    @property
    def labels(self) -> Int[np.ndarray, "chain draw n"]:
        """Component of each item."""
        return self.samples[self.sites.labels]

    def __getitem__(self, draw: Draw) -> Hierarchy:
        """Return the tree of a draw, with the items' components and the nodes' proportions."""
        return Hierarchy(self.paths[draw], self.labels[draw], self.samples[self.sites.mixing][draw])

    def summaries(self) -> dict[str, np.ndarray]:
        """Label-invariant summaries of every draw, (chain, draw, ...), in float64, as described in `BHMCGibbsState`."""

        def one(z: dict[str, Array]) -> dict[str, Array]:
            return tree_summaries(self.sites, self._read(z), z)

        return self._map(one, self.sites.size * self.sites.components)

    def log_likelihood(self) -> Float[np.ndarray, "chain draw n"]:
        """Log density of every row given the draw's tree, components and labels of the other rows, in float64 (nats).

        The row's own path and label are summed out: Σ over leaves and new branches of their probability given the other paths,
        times Σ_k β_k f_k(x). A component that no other item uses is integrated over its prior.
        """

        def one(z: dict[str, Array]) -> Array:
            values = self._read(z)
            paths, labels, mixing = (z[name] for name in (self.sites.paths, self.sites.labels, self.sites.mixing))
            logs = self._log_densities(values, z, values.X)
            alone = values.component.log_marginal(values.component.suff_stats(values.X))
            sizes = cluster_counts(labels, self.sites.components)
            tree = read_tree(paths, self.sites.max_nodes)

            def row(path: Array, label: Array, logs: Array, alone: Array) -> Array:
                others = sizes.at[label].add(-1)
                counts = tree.counts.at[path].add(-1).at[0].add(-1)
                level = jnp.where((counts > 0) | (jnp.arange(counts.shape[0]) == 0), tree.level, -1)
                prior = path_weights(
                    counts.astype(logs.dtype), jnp.maximum(tree.parent, 0), level, values.concentration, self.sites.depth
                )
                return logsumexp(jnp.where(others > 0, logs, alone), b=prior @ jnp.where((level >= 0)[:, None], mixing, 0.0))

            return jax.vmap(row)(paths, labels, logs, alone)

        return self._map(one, self.sites.size * self.sites.max_nodes)

    def replicates(self, draws: Int[np.ndarray, " kept"], random_state: int | Array) -> Float[np.ndarray, "chain kept n d"]:
        """Draw new rows from the items' components, for selected draws of every chain, in float64."""

        def one(z: dict[str, Array]) -> Array:
            values = self._read(z)
            parameters = z[self.sites.parameters][z[self.sites.labels]]
            return values.component.likelihood(parameters).sample(z["__key"])

        few = replace(self, samples={name: value[:, draws] for name, value in self.samples.items()})
        keys = jax.random.split(random_key(random_state), few.shape)
        return few._map(one, self.X.size, {"__key": keys})

    def most_probable(self) -> Draw:
        """Return the draw with the largest complete-data likelihood p(X, labels, paths | proportions, parameters).

        Huang et al. (2021), section 5, report this draw.

        Raises
        ------
        ValueError
            If the log joint of a draw is NaN.
        """
        joint = self.summaries()["log_joint"]
        if np.isnan(joint).any():
            where = np.argwhere(np.isnan(joint))[0]
            raise ValueError(f"the log joint of chain {where[0]}, draw {where[1]} is NaN: the most probable draw is undefined")
        chain, draw = np.unravel_index(joint.argmax(), self.shape)
        return int(chain), int(draw)

    def medoid(self, num_candidates: int = 100, num_samples: int = 500) -> Draw:
        """Return the draw with the smallest expected variation of information from all others, summed over the levels.

        Parameters
        ----------
        num_candidates
            Number of candidate draws, evenly spaced.
        num_samples
            Number of draws, evenly spaced, that represent the posterior.

        Raises
        ------
        ValueError
            If either number is not a whole number of at least one.
        """
        for name, value in (("num_candidates", num_candidates), ("num_samples", num_samples)):
            if value != int(value) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, but it is {value}")
        flat = self.paths.reshape(-1, *self.paths.shape[2:])
        spread = [np.unique(np.linspace(0, len(flat) - 1, int(k)).round().astype(int)) for k in (num_candidates, num_samples)]
        losses = np.zeros(len(spread[0]))
        for level in range(self.sites.depth):
            losses += expected_losses(flat[spread[0], :, level], flat[spread[1], :, level])
        chain, draw = np.unravel_index(spread[0][losses.argmin()], self.shape)
        return int(chain), int(draw)

    def support(self, tree: Hierarchy) -> Float[np.ndarray, " nodes"]:
        """For every node of a tree, return the share of the draws that contain a node with the same items.

        Raises
        ------
        ValueError
            If the number of items in the tree differs from that in the draws.
        """
        n = self.sites.size
        if tree.n_items != n:
            raise ValueError(f"the tree has {tree.n_items} items, but the draws have {n}")
        names = np.random.default_rng(0).integers(1, 2**63, size=n, dtype=np.uint64)  # their sums identify sets

        def sets(paths: Int[np.ndarray, "n depth"]) -> np.ndarray:
            numbers = np.concatenate([[np.zeros(n, dtype=np.int64)], paths.T])
            sums = np.zeros(int(numbers.max()) + 1, dtype=np.uint64)
            for column in numbers:
                np.add.at(sums, column, names)
            return sums

        mine = sets(tree.paths)
        flat = self.paths.reshape(-1, *self.paths.shape[2:])
        return np.mean([np.isin(mine, sets(paths)) for paths in flat], axis=0)

    def coclustering(self, level: int) -> Float[np.ndarray, "n n"]:
        """For every pair of items, return the share of the draws in which both are under the same node of a level.

        Levels are numbered from 1 (the root's children) to the depth.

        Raises
        ------
        ValueError
            If the level does not exist.
        """
        if not 1 <= level <= self.sites.depth:
            raise ValueError(f"level must be 1 to {self.sites.depth}, but it is {level}")
        return coclustering(self.paths[..., level - 1])

    def predict(self, X: ArrayLike, draw: Draw) -> Float[np.ndarray, "m nodes"]:
        """Return the probabilities of the paths of new items in the tree of one draw, in float64.

        Each item is added to the tree separately, given all sampled sites of the draw.

        Parameters
        ----------
        X
            New rows, (m, d).
        draw
            Chain and draw, such as the result of `most_probable` or `medoid`.

        Returns
        -------
        probabilities
            One column per node of the draw's `Hierarchy`: for a leaf, the probability that the item joins it; for an inner
            node, the probability that a new branch opens below it. Rows sum to one.

        Raises
        ------
        ValueError
            If the rows are not valid for the model.
        """
        tree = self[draw]
        with double_precision():
            z = {name: _double(value[draw]) for name, value in self.samples.items()}
            prior, mixing, logs = self._new_items(z, self._new_rows(X))
            check_log_weights(np.asarray(logs), np.asarray(X, float))
            table = np.asarray(prior[None] * (jnp.exp(logs - logs.max(1, keepdims=True)) @ mixing.T))
        numbers = np.zeros(tree.n_nodes, dtype=int)  # number of every node in the draw's own paths
        numbers[tree.paths] = self.paths[draw]
        table = table[:, numbers]
        return table / table.sum(1, keepdims=True)

    def log_predictive(self, X: ArrayLike) -> Float[np.ndarray, " m"]:
        """Log predictive density of new rows, averaged over the draws (nats), in float64.

        The density given one draw is Σ over leaves and new branches of their probability given the paths, times
        Σ_k β_k f_k(x). A component without items is integrated over its prior.

        Parameters
        ----------
        X
            New rows, (m, d); each row is scored separately.

        Raises
        ------
        ValueError
            If the rows are not valid for the model.
        """
        with double_precision():
            rows = self._new_rows(X)

        def one(z: dict[str, Array]) -> Array:
            prior, mixing, logs = self._new_items(z, rows)
            return logsumexp(logs, axis=1, b=(prior @ mixing)[None])

        scores = self._map(one, len(rows) * self.sites.components)
        check_log_weights(scores.reshape(-1, len(rows)).T, np.asarray(rows))
        return np.logaddexp.reduce(scores, axis=(0, 1)) - np.log(np.prod(self.shape))

    def _new_rows(self, X: ArrayLike) -> Array:
        """Check new rows and return them as an array; call in double precision."""
        rows = as_matrix(X)
        first = {name: _double(value[0, 0]) for name, value in self.samples.items()}
        component = self._read(first).component
        if rows.shape[1] != component.dim:
            raise ValueError(f"X has {rows.shape[1]} columns, but the model has {component.dim}")
        component.validate(rows)
        return jnp.asarray(rows)

    def _new_items(self, z: Mapping[str, Array], rows: Array) -> tuple[Array, Array, Array]:
        """Node probabilities of one additional item (nodes,), mixtures at the nodes (nodes, k), and log densities (m, k)."""
        values = self._read(z)
        nodes = read_tree(z[self.sites.paths], self.sites.max_nodes)
        prior = path_weights(
            nodes.counts.astype(float), jnp.maximum(nodes.parent, 0), nodes.level, values.concentration, self.sites.depth
        )
        mixing = jnp.where((nodes.level >= 0)[:, None], z[self.sites.mixing].astype(float), 0.0)
        alone = values.component.log_marginal(values.component.suff_stats(rows))
        occupied = cluster_counts(z[self.sites.labels], self.sites.components) > 0
        return prior, mixing, jnp.where(occupied, self._log_densities(values, z, rows), alone[:, None])

    def _read(self, z: Mapping[str, Array]) -> Any:
        return read_tree_values(self.model, self.sites, z, (self.X,))

    def _log_densities(self, values: Any, z: Mapping[str, Array], X: Array | np.ndarray) -> Float[Array, "m k"]:
        return log_likelihood_of(values.component, values.component.suff_stats(X), X, z[self.sites.parameters])

    def _map(self, function: Any, cells: int, more: Mapping[str, Array] | None = None) -> Any:
        """Apply a function to the values of every draw, in float64; results have the leading dimensions (chain, draw)."""
        with double_precision():
            flat = {name: _double(value).reshape(-1, *value.shape[2:]) for name, value in self.samples.items()} | {
                name: value.reshape(-1) for name, value in (more or {}).items()
            }
            batch = int(max(1, min(64, MOST_CELLS // cells)))
            found = jax.jit(partial(jax.lax.map, function, batch_size=batch))(flat)
            return jax.tree.map(lambda leaf: np.asarray(leaf).reshape(*self.shape, *leaf.shape[1:]), found)


def _double(value: np.ndarray | np.generic) -> Array:
    """Draws in double precision, and whole numbers as they are; call in double precision."""
    return jnp.asarray(value, None if value.dtype.kind in "iu" else jnp.float64)
