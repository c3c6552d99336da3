"""MAP-DP: the most probable partition by single-item moves."""

from __future__ import annotations

import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bnp_hier.allocation import Prior, default_capacity, log_joint, merge_best_pair
from bnp_hier.components import Component
from bnp_hier.deterministic.base import Problem, random_key, require_count
from bnp_hier.deterministic.partition_search import Descent, descend
from bnp_hier.deterministic.streaming import StreamingClustering
from bnp_hier.model_sites import MixtureValues, Model

__all__ = ["MAPDP"]


@partial(jax.jit, static_argnames="slots")
def _merge(
    component: Component, X: Float[Array, "n d"], prior: Prior, starts: Int[Array, "r n"], slots: int
) -> tuple[Int[Array, "r n"], Array]:
    """One merge in each partition, if any raises the log joint; also says which partitions changed."""
    rows = component.suff_stats(X)
    return jax.vmap(lambda labels: merge_best_pair(component, rows, labels, prior, slots))(starts)


class MAPDP(StreamingClustering):
    """Maximum a posteriori partition of a Dirichlet-process (or Pitman-Yor) mixture (Raykov et al.).

    Items are visited one at a time: each is taken out of its cluster and put where log p(X, partition) is largest, a new
    cluster included, until a sweep moves nothing. The log joint never falls. The result depends on the order of the items,
    so several random orders are tried at once and the best is kept.

    Parameters
    ----------
    model
        NumPyro model with one `ChineseRestaurantProcess` site and one observed `ConjugateMixture` on it.
    n_restarts
        Number of orders tried; the first is the order of the rows.
    init
        "sequential": items enter an empty table in order. "single": all items in one cluster, the paper's start; it is
        seldom left again, so it warns.
    max_iter
        Most sweeps per order.
    optimize
        Whether to fit the hyperparameters that have priors, by alternating partitions with gradient steps on
        log joint + log prior; otherwise they sit at their prior medians.
    merge
        Whether to try merges of two clusters once no single item moves; False is the paper's algorithm.
    max_rounds
        Most rounds of `optimize`.
    random_state
        Whole number or JAX key for the orders.

    Attributes
    ----------
    labels_ : ndarray
        (n,) clusters, from 0, in order of appearance.
    log_joint_ : float
        log p(X, labels_) at the fitted hyperparameters (nats).
    log_joint_trace_ : ndarray
        Log joint after each sweep of the best order; never falls.
    n_iter_ : int
        Sweeps of the best order, those after merges included.
    restart_log_joints_ : ndarray
        (n_restarts,) log joint reached from each order, at the last hyperparameters tried.
    n_clusters_, component_, concentration_, hyperparameters_
        As for every estimator.

    Notes
    -----
    The paper's printed objective (its Eq. 4) can rise; what falls is −log p(X, partition), reported here.
    """

    def __init__(
        self,
        model: Model,
        n_restarts: int = 10,
        init: str = "sequential",
        max_iter: int = 100,
        optimize: bool = False,
        *,
        merge: bool = True,
        max_rounds: int = 20,
        random_state: int | Array = 0,
    ) -> None:
        self.model = model
        self.n_restarts = n_restarts
        self.init = init
        self.max_iter = max_iter
        self.optimize = optimize
        self.merge = merge
        self.max_rounds = max_rounds
        self.random_state = random_state

    def _check_options(self) -> None:
        if self.init not in ("sequential", "single"):
            raise ValueError(f'init must be "sequential" or "single", but it is {self.init!r}')
        for name in ("n_restarts", "max_iter", "max_rounds"):
            require_count(name, getattr(self, name))

    def _fit(self, problem: Problem) -> None:
        if self.init == "single":
            warnings.warn(
                'init="single" starts from one cluster, which single-item moves seldom leave; the default is "sequential"',
                UserWarning,
                stacklevel=3,
            )
        self._limit = problem.sites.max_clusters
        n = problem.X.shape[0]
        keys = jax.random.split(random_key(self.random_state), max(self.n_restarts - 1, 1))
        shuffled = jax.vmap(lambda key: jax.random.permutation(key, n))(keys)
        orders = np.concatenate([np.arange(n)[None], np.asarray(shuffled)])[: self.n_restarts]

        labels, trace = self._best(problem.values, orders)
        reached = self._objective(problem, labels) if self.optimize else -np.inf
        for _ in range(self.max_rounds if self.optimize else 0):
            before, previous = problem.unconstrained, reached
            problem.climb(_joint_at, jnp.asarray(labels))
            proposal, proposal_trace = self._best(problem.values, orders, start=labels)
            reached = self._objective(problem, proposal)
            if reached <= previous:
                problem.unconstrained = before
                break
            labels, trace = proposal, proposal_trace
            if reached - previous < 1e-3:
                break
        self.log_joint_trace_ = trace
        self.n_iter_ = len(trace)
        self._finish(problem, labels)

    def _best(
        self, values: MixtureValues, orders: np.ndarray, start: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Best partition over all orders, with its trace; `start` adds a descent from given labels."""
        n = orders.shape[1]
        starts = np.full_like(orders, 0 if self.init == "single" else -1)
        if start is not None:
            orders, starts = np.concatenate([orders, np.arange(n)[None]]), np.concatenate([starts, start[None]])
        # a capacity that the model declares is part of the model; otherwise the table grows until no item is refused
        limit = min(n, self._limit or n)
        slots = min(default_capacity(n), limit)
        prior = Prior(jnp.asarray(values.concentration, float), jnp.asarray(values.discount, float))
        X, paths = jnp.asarray(values.X), jnp.asarray(orders)
        while True:
            result = descend(values.component, X, prior, paths, jnp.asarray(starts), slots, self.max_iter)
            if slots == limit or not np.asarray(result.refused).any():
                break
            slots = min(2 * slots, limit)
        traces = [_traces(result)]
        while self.merge:
            merged, changed = _merge(values.component, X, prior, result.labels, slots)
            if not np.asarray(changed).any():
                break
            result = descend(values.component, X, prior, paths, merged, slots, self.max_iter)
            traces.append(_traces(result))
        joints = np.asarray(result.log_joint)
        best = int(joints.argmax())
        self.restart_log_joints_ = joints[: self.n_restarts]
        if not bool(result.converged[best]):
            warnings.warn(
                f"MAPDP stopped after max_iter={self.max_iter} sweeps before the partition settled; raise max_iter",
                RuntimeWarning,
                stacklevel=5,
            )
        return np.asarray(result.labels[best]), np.concatenate([trace[best] for trace in traces])

    @staticmethod
    def _objective(problem: Problem, labels: np.ndarray) -> float:
        return float(_joint_at(problem.values, jnp.asarray(labels)) + problem.prior.log_prob(problem.hyperparameters))


def _traces(result: Descent) -> list[Float[np.ndarray, " sweeps"]]:
    """Log joint after each sweep that was made, for every order."""
    return [np.asarray(row)[: int(m)] for row, m in zip(result.trace, result.sweeps, strict=True)]


def _joint_at(values: MixtureValues, labels: Int[Array, " n"]) -> Float[Array, ""]:
    """Log p(X, labels) at the hyperparameters of the values (nats)."""
    rows = values.component.suff_stats(values.X)
    prior = Prior(values.concentration, values.discount)
    return log_joint(values.component, rows, labels, prior, labels.shape[0])
