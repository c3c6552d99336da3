"""MAP-DP: the most probable partition by single-item moves."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int
from sklearn.utils._param_validation import StrOptions

from bnp_hier.components import Component
from bnp_hier.deterministic.agglomeration.partition_search import Descent, descend
from bnp_hier.deterministic.alternation import alternate, labels_and_slots
from bnp_hier.deterministic.hard_assignment.free_energies import LOG_JOINTS
from bnp_hier.deterministic.hard_assignment.splits import seeded, spaces_of
from bnp_hier.deterministic.streaming import StreamingClustering
from bnp_hier.inspection.collapsed import MixtureValues
from bnp_hier.inspection.problem import Problem
from bnp_hier.inspection.trace import Model
from bnp_hier.models import dpm
from bnp_hier.partitions.capacities import default_capacity
from bnp_hier.partitions.leave_one_out import leave_one_out_densities
from bnp_hier.partitions.merging import merge_best_pair
from bnp_hier.partitions.seating import Prior
from bnp_hier.partitions.sweeps import check_seated
from bnp_hier.utils.labels import canonical_labels
from bnp_hier.utils.options import RANDOM_STATE, WholeNumber
from bnp_hier.utils.randomness import random_generators, random_key

__all__ = ["MAPDP"]


@partial(jax.jit, static_argnames="slots")
def _merge(
    component: Component, X: Float[Array, "n d"], prior: Prior, starts: Int[Array, "r n"], slots: int
) -> tuple[Int[Array, "r n"], Array]:
    """One merge in each partition, if any raises the log joint; also says which partitions changed."""
    rows = component.suff_stats(X)
    return jax.vmap(lambda labels: merge_best_pair(component, rows, labels, prior, slots))(starts)


INITS = ("sequential", "single", "k-means++")
"""Named initialisations."""

SEEDINGS = (2, 4, 8, 16)
"""Numbers of clusters of k-means++ seedings, by turns."""


class _Found(NamedTuple):
    """Result of descents from every initialisation.

    - **labels** - (n,) clusters of the best, in order of appearance.
    - **trace** - its log joint after each sweep.
    - **reached** - (r,) log joint reached from each initialisation.
    - **converged** - whether the best one settled.
    """

    labels: Int[np.ndarray, " n"]
    trace: Float[np.ndarray, " sweeps"]
    reached: Float[np.ndarray, " r"]
    converged: bool


def _log_leave_one_out(
    values: MixtureValues, labels: Int[Array, " n"], table: Float[Array, " slots"], limit: int
) -> Float[Array, ""]:
    prior = Prior(values.concentration, values.discount)
    return leave_one_out_densities(values.component, jnp.asarray(values.X), labels, prior, table.shape[0], limit).sum()


class MAPDP(StreamingClustering):
    """Maximum a posteriori partition of a Dirichlet-process (or Pitman-Yor) mixture (Raykov et al.).

    Items are visited one at a time: each is taken out of its cluster and put where log p(X, partition) is largest, a new
    cluster included, until a sweep gains nothing. The log joint never falls. The result depends on the order of the items,
    so several random orders are tried at once and the best is kept.

    Parameters
    ----------
    model
        NumPyro model with one `ChineseRestaurantProcess` site and one observed `ConjugateMixture` on it. By
        default normals of any covariance under `NormalInverseWishart.from_data`, and concentration 1.
    n_init
        Number of orders tried; the first is the order of the rows.
    init
        "sequential": items enter an empty table in order. "k-means++": seedings with 2, 4, 8 and 16 clusters by turns.
        "single": all items in one cluster, the paper's initialisation; it is seldom left again, so it warns. Or labels, (n,)
        whole numbers, −1 for a row that has none yet.
    max_iter
        Most sweeps per order.
    optimize
        True: the hyperparameters that have priors are fitted by alternating partitions with gradient steps on log joint +
        log prior. "leave_one_out": with steps on the leave-one-out log predictive density + log prior. False: they sit at
        their prior medians.
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
        log p(X, `labels_`) at the fitted hyperparameters (nats).
    objective_trace_ : ndarray
        Log joint after each sweep of the best order; never falls.
    n_iter_ : int
        Sweeps of the best order, those after merges included.
    converged_ : bool
        Whether a sweep of the best order gained nothing within `max_iter`; otherwise `fit` warns.
    init_log_joints_ : ndarray
        (n_init,) log joint reached from each order.
    n_clusters_, component_, concentration_, hyperparameters_
        As for every estimator.

    Notes
    -----
    The paper's printed objective (its Eq. 4) can rise; what falls is −log p(X, partition), reported here.

    Examples
    --------
    >>> import numpy as np
    >>> from functools import partial
    >>> import bnp_hier as bnp
    >>> component = bnp.NormalKnownCovariance(mean=[0.0], prior_covariance=9 * np.eye(1), covariance=np.eye(1))
    >>> bnp.MAPDP(partial(bnp.models.dpm, component=component)).fit([[0.0], [0.2], [0.1], [6.0], [6.1]]).labels_
    array([0, 0, 0, 1, 1])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **StreamingClustering._parameter_constraints,
        "n_init": [WholeNumber()],
        "init": [StrOptions(set(INITS)), "array-like"],
        "max_iter": [WholeNumber()],
        "optimize": ["boolean", StrOptions({"leave_one_out"})],
        "merge": ["boolean"],
        "max_rounds": [WholeNumber()],
        "random_state": RANDOM_STATE,
    }

    def __init__(
        self,
        model: Model = dpm,
        n_init: int = 10,
        init: str | ArrayLike = "sequential",
        max_iter: int = 100,
        optimize: bool | str = False,
        *,
        merge: bool = True,
        max_rounds: int = 20,
        random_state: int | Array = 0,
    ) -> None:
        self.model = model
        self.n_init = n_init
        self.init = init
        self.max_iter = max_iter
        self.optimize = optimize
        self.merge = merge
        self.max_rounds = max_rounds
        self.random_state = random_state

    def _fit(self, problem: Problem) -> None:
        if isinstance(self.init, str) and self.init == "single":
            warnings.warn(
                'init="single" starts from one cluster, which single-item moves seldom leave; the default is "sequential"',
                UserWarning,
                stacklevel=4,
            )
        n = problem.X.shape[0]
        keys = jax.random.split(random_key(self.random_state), max(self.n_init - 1, 1))
        shuffled = jax.vmap(lambda key: jax.random.permutation(key, n))(keys)
        orders = np.concatenate([np.arange(n)[None], np.asarray(shuffled)])[: self.n_init]
        # a capacity that the model declares is part of the model
        limit = min(n, problem.sites.max_clusters or n)
        starts = self._starts(problem.values, limit)

        def again(values: MixtureValues, before: _Found) -> _Found:
            return self._descended(values, np.vstack([orders, np.arange(n)]), np.vstack([starts, before.labels]), limit)

        objective = partial(_log_leave_one_out, limit=limit) if self.optimize == "leave_one_out" else LOG_JOINTS["dp"]
        first = self._descended(problem.values, orders, starts, limit)
        found, _ = alternate(problem, first, again, objective, labels_and_slots, self.max_rounds if self.optimize else 0)
        if not found.converged:
            warnings.warn(
                f"MAPDP stopped after max_iter={self.max_iter} sweeps before the partition settled; raise max_iter",
                RuntimeWarning,
                stacklevel=4,
            )
        self.objective_trace_ = found.trace
        self.n_iter_, self.converged_ = len(found.trace), found.converged
        self.init_log_joints_ = found.reached[: self.n_init]
        self._finish(problem, found.labels)

    def _starts(self, values: MixtureValues, limit: int) -> Int[np.ndarray, "r n"]:
        """Labels to start from, one row for each order."""
        X = np.asarray(values.X)
        shape = (self.n_init, len(X))
        if not isinstance(self.init, str):
            return np.broadcast_to(_checked_labels(self.init, len(X), limit), shape)
        if self.init != "k-means++":
            return np.full(shape, 0 if self.init == "single" else -1)
        spaces = spaces_of(values.component, X)
        rng = random_generators(self.random_state)[1]
        most = min(len(np.unique(spaces[0], axis=0)), limit)
        turns = [(points, min(clusters, most)) for clusters in SEEDINGS for points in spaces]
        starts = [canonical_labels(seeded(*turns[r % len(turns)], rng)) for r in range(self.n_init)]
        return np.stack(starts)

    def _descended(self, values: MixtureValues, orders: np.ndarray, starts: np.ndarray, limit: int) -> _Found:
        """The best partition over all orders and initialisations."""
        # the table grows until no item is refused
        slots = min(max(default_capacity(orders.shape[1]), 2 * int(starts.max()) + 2), limit)
        prior = Prior(jnp.asarray(values.concentration, float), jnp.asarray(values.discount, float))
        X, paths = jnp.asarray(values.X), jnp.asarray(orders)
        while True:
            result = descend(values.component, X, prior, paths, jnp.asarray(starts), slots, self.max_iter)
            if slots == limit or not np.asarray(result.refused).any():
                break
            slots = min(2 * slots, limit)
        check_seated(values.component, np.asarray(result.labels))
        traces = [_traces(result)]
        # every round lowers the number of clusters or raises the log joint; rounding errors must not make it go on
        for _ in range(X.shape[0] if self.merge else 0):
            merged, changed = _merge(values.component, X, prior, result.labels, slots)
            check_seated(values.component, np.asarray(merged))
            if not np.asarray(changed).any():
                break
            result = descend(values.component, X, prior, paths, merged, slots, self.max_iter)
            check_seated(values.component, np.asarray(result.labels))
            traces.append(_traces(result))
        joints = np.asarray(result.log_joint)
        best = int(joints.argmax())
        trace = np.concatenate([trace[best] for trace in traces])
        return _Found(np.asarray(result.labels[best]), trace, joints, bool(result.converged[best]))


def _checked_labels(init: ArrayLike, n: int, limit: int) -> Int[np.ndarray, " n"]:
    """Initial labels as whole numbers from 0, −1 kept."""
    labels = np.asarray(init)
    if labels.shape != (n,) or not np.issubdtype(labels.dtype, np.integer) or labels.min() < -1:
        whole = labels.size and np.issubdtype(labels.dtype, np.integer)
        what = f"shape {labels.shape}, {labels.dtype}" + (f", least {labels.min()}" if whole else "")
        raise ValueError(f"init must hold one whole number of at least -1 for each of the {n} rows, but it has {what}")
    seated = labels >= 0
    found = np.full(n, -1)
    found[seated] = canonical_labels(labels[seated])
    if found.max() >= limit:
        raise ValueError(f"init has {found.max() + 1} clusters, but the model allows {limit}")
    return found


def _traces(result: Descent) -> list[Float[np.ndarray, " _"]]:
    """Log joint after each sweep that was made, for every order."""
    return [np.asarray(row)[: int(m)] for row, m in zip(result.trace, result.sweeps, strict=True)]
