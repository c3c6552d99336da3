"""Variational Dirichlet-process mixtures: responsibilities and lower bounds on the evidence."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, ClassVar, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import xlogy
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int
from sklearn.utils._param_validation import StrOptions

from bnp_hier.components import Component
from bnp_hier.components.base import Statistics
from bnp_hier.deterministic.base import DeterministicClustering
from bnp_hier.deterministic.learned_hyperparameters import learn, starting_hyperparameters
from bnp_hier.deterministic.variational.responsibilities import (
    Inference,
    expected_weights,
    label_scores,
    log_label_prior,
    log_stick_pieces,
)
from bnp_hier.inspection.collapsed import MixtureValues
from bnp_hier.inspection.problem import Objective, Problem, by_gradient
from bnp_hier.inspection.trace import Model
from bnp_hier.models import dpm
from bnp_hier.partitions.incomplete_rows import log_densities_of_observed
from bnp_hier.partitions.scoring import check_log_weights, in_chunks, log_weighted_densities
from bnp_hier.partitions.search import descend
from bnp_hier.utils.arrays import pack
from bnp_hier.utils.blas_threads import blas_on_one_core
from bnp_hier.utils.jax_settings import double_precision
from bnp_hier.utils.labels import canonical_labels
from bnp_hier.utils.options import RANDOM_STATE, PositiveNumber, WholeNumber
from bnp_hier.utils.padding import padded
from bnp_hier.utils.randomness import random_generators

__all__ = ["VariationalDP"]

SEARCHED = 1000
"""Number of rows among which the hyperparameters to start from are searched for; a fit to all rows corrects them."""


class _Ascent(NamedTuple):
    """Result of the ascents from several initialisations.

    - **responsibilities** - (r, n, k) q(z_i = k).
    - **bound** - (r,) lower bounds (nats).
    - **trace** - (r, rounds) bound after each round, NaN after the last.
    - **iterations** - (r,) number of updates.
    - **converged** - (r,) whether the last round increased the bound by no more than the tolerance.
    """

    responsibilities: Float[Array, "r n k"]
    bound: Float[Array, " r"]
    trace: Float[Array, "r rounds"]
    iterations: Int[Array, " r"]
    converged: Array


def soft_statistics(rows: Statistics, responsibilities: Float[Array, "n k"]) -> Statistics:
    """Sums of the rows' statistics weighted by their responsibilities, with leading dimension k."""
    return jax.tree.map(lambda leaf: jnp.tensordot(responsibilities, leaf, ((0,), (0,))), rows)


def log_likelihood_term(component: Component, rows: Statistics, responsibilities: Float[Array, "n k"]) -> Float[Array, ""]:
    """Σ_k log m(S_k) at the soft statistics S_k: E_q[log p(X|z, θ)] − KL(q(θ) ‖ prior) at the optimal q(θ) (nats).

    This holds for every conjugate exponential family, because its log m is a difference of log normalisers plus terms linear
    in the statistics. The derivative with respect to the responsibility r_ik is therefore E_q[log p(x_i|θ_k)].
    """
    return component.log_marginal(soft_statistics(rows, responsibilities)).sum()


def lower_bound(
    component: Component,
    rows: Statistics,
    responsibilities: Float[Array, "n k"],
    concentration: ArrayLike,
    inference: Inference,
    infinite: bool = False,
) -> Float[Array, ""]:
    """Evidence lower bound (nats) for the given q(z), with all other factors optimised or integrated out."""
    return (
        log_likelihood_term(component, rows, responsibilities)
        + log_label_prior(responsibilities, concentration, inference, infinite)
        - xlogy(responsibilities, responsibilities).sum()
    )


def _update(
    component: Component,
    rows: Statistics,
    responsibilities: Float[Array, "n k"],
    concentration: ArrayLike,
    inference: Inference,
) -> Float[Array, "n k"]:
    """Update the responsibilities of all rows simultaneously; those of padding remain zero."""
    natural = component.expected_natural_parameters(soft_statistics(rows, responsibilities))
    likelihoods = pack(rows, 1) @ pack(natural, 1).T
    updated = jax.nn.softmax(likelihoods + label_scores(responsibilities, concentration, inference), axis=1)
    return jnp.where(responsibilities.sum(1, keepdims=True) > 0, updated, 0.0)


def _reordered(responsibilities: Float[Array, "n k"], concentration: ArrayLike) -> Float[Array, "n k"]:
    """Reorder the components so that the stick-breaking prior's term of the bound is as large as possible.

    Swapping neighbours shows that decreasing expected size is optimal except for the last component: its stick proportion is
    not Beta(1, α), because it takes the rest of the stick, and for α > 1 a larger component may gain from this position.
    Therefore every choice of the last component is tried. The collapsed form uses the order that is optimal without
    collapsing.
    """
    k = responsibilities.shape[1]
    counts = responsibilities.sum(0)
    ranked = jnp.argsort(-counts)
    last = jnp.arange(k)[:, None]
    places = jnp.arange(k)[None]
    orders = ranked[jnp.where(places == k - 1, last, places + (places >= last).astype(int))]
    terms = jax.vmap(lambda order: log_stick_pieces(counts[order], concentration)[:-1].sum())(orders)
    best = terms.argmax()
    better = terms[best] > log_stick_pieces(counts, concentration)[:-1].sum()
    return jnp.where(better, responsibilities[:, orders[best]], responsibilities)


@partial(jax.jit, static_argnames=("inference", "max_iter"))
def _ascend(
    component: Component,
    X: Float[Array, "n d"],
    concentration: Float[Array, ""],
    starts: Float[Array, "r n k"],
    tol: Float[Array, ""],
    inference: Inference,
    max_iter: int,
) -> _Ascent:
    """Run rounds of updates from every initialisation until a round no longer increases the bound; it never decreases.

    Rows whose initial responsibilities are zero, which pad the data, are left out.
    """
    rows = component.suff_stats(X)
    # the exact expectations of the collapsed forms cost as much as several updates
    per_round = 1 if inference == "stick_breaking" else 10
    bound_of = partial(lower_bound, component, rows, concentration=concentration, inference=inference)

    def one(start: Float[Array, "n k"]) -> _Ascent:
        def unfinished(state: Any) -> Array:
            _, _, _, iterations, _, converged = state
            return ~converged & (iterations < max_iter)

        def step(state: Any) -> Any:
            old, bound, trace, iterations, rounds, _ = state
            steps = jnp.minimum(per_round, max_iter - iterations)
            new = jax.lax.fori_loop(0, steps, lambda _, r: _update(component, rows, r, concentration, inference), old)
            if inference != "collapsed_dirichlet":
                new = _reordered(new, concentration)
            reached = bound_of(new)
            # collapsed updates are approximate and simultaneous: near convergence a round can lower the bound and is rejected
            rises = reached > bound
            new, kept = jnp.where(rises, new, old), jnp.where(rises, reached, bound)
            trace = trace.at[rounds].set(kept)
            return new, kept, trace, iterations + steps, rounds + 1, ~(reached > bound + tol)

        trace = jnp.full(-(-max_iter // per_round), jnp.nan)
        state = (start, bound_of(start), trace, jnp.int64(0), jnp.int64(0), jnp.bool_(False))
        responsibilities, bound, trace, iterations, _, converged = jax.lax.while_loop(unfinished, step, state)
        return _Ascent(responsibilities, bound, trace, iterations, converged)

    return jax.vmap(one)(starts)


class _Summary(NamedTuple):
    """Quantities computed from the fitted responsibilities.

    - **infinite_bound** - lower bound on the evidence of the Dirichlet process (nats); NaN for the finite Dirichlet.
    - **stats** - soft statistics of the components.
    - **weights** - (k,) probability that the next row belongs to each component.
    """

    infinite_bound: Float[Array, ""]
    stats: Statistics
    weights: Float[Array, " k"]


@partial(jax.jit, static_argnames="inference")
def _summarize(
    component: Component,
    X: Float[Array, "n d"],
    responsibilities: Float[Array, "n k"],
    concentration: Float[Array, ""],
    inference: Inference,
) -> _Summary:
    rows = component.suff_stats(X)
    if inference == "collapsed_dirichlet":
        bound = jnp.asarray(jnp.nan)
    else:  # decreasing size is the optimal order if the last stick proportion is Beta(1, α) like the others
        ordered = responsibilities[:, jnp.argsort(-responsibilities.sum(0))]
        bound = lower_bound(component, rows, ordered, concentration, inference, infinite=True)
    return _Summary(
        bound,
        soft_statistics(rows, responsibilities),
        expected_weights(responsibilities, concentration, inference),
    )


_log_densities = jax.jit(log_weighted_densities)


def _bound_at(inference: Inference, values: MixtureValues, responsibilities: Float[Array, "n k"]) -> Float[Array, ""]:
    """Lower bound at the hyperparameters in `values` (nats)."""
    rows = values.component.suff_stats(values.X)
    return lower_bound(values.component, rows, responsibilities, values.concentration, inference)


@lru_cache(maxsize=64)
def _objective(inference: Inference) -> Callable[..., Float[Array, ""]]:
    """The same function for the same inference, so that later problems need not trace it again."""
    return partial(_bound_at, inference)


class VariationalDP(DeterministicClustering):
    """Variational inference for a Dirichlet-process mixture truncated at K components.

    Fits responsibilities and a lower bound on the evidence. q(labels) factorises over rows and q(parameters) is conjugate.
    Given q(labels), the optimal q(parameters) is available in closed form, and its contribution to the bound is the
    component's log marginal likelihood at soft statistics; hence every conjugate family works, including user-defined ones.

    Parameters
    ----------
    model
        NumPyro model with one `ChineseRestaurantProcess` site (discount 0, no `max_clusters`) and one observed
        `ConjugateMixture` on it. The default has normal clusters with unrestricted covariances; its
        hyperparameters, those of `NormalInverseWishart.from_data` and the concentration, have weakly informative priors.
    inference
        Approximation of the Dirichlet process. "stick_breaking": truncated stick-breaking, in which the last of the K
        components receives the rest of the stick, with a factor q for each stick proportion (Blei & Jordan 2006).
        "collapsed_stick_breaking": the same model with the stick proportions integrated out, a tighter bound (Kurihara,
        Welling & Teh 2007). "collapsed_dirichlet": a finite mixture with weights ~ Dirichlet(α/K) integrated out (same
        paper).
    truncation
        Number of components K ≥ 1; it may exceed the number of rows.
    n_init
        Number of initialisations, run in parallel; the one with the best bound is kept. The first is a greedy pass over the
        rows in their order; the others alternate between random responsibilities and greedy passes in random orders.
    max_iter
        Maximum number of updates of all responsibilities per initialisation.
    tol
        Convergence tolerance: an initialisation has converged when a round increases its bound by no more than this many
        nats. A round is one update for "stick_breaking" and ten updates for the collapsed forms.
    optimize
        "auto": fit the hyperparameters that have priors, if there are any, by alternating variational updates with gradient
        steps on bound + log prior, from the best of several starts: the prior medians, values that sites declare, and a fit by
        single-row moves. True: the same, and raise an error if there are none. False: fix them at their prior medians. A
        dictionary: fix them at these values, such as the `hyperparameters_` of another fit.
    max_rounds
        Maximum number of rounds of `optimize`.
    random_state
        Integer or JAX key for the initialisations.

    Attributes
    ----------
    responsibilities_ : ndarray
        (n, K) q(label of row i = k). Stick-breaking components are in order of decreasing expected size, except for the
        last, which takes the rest of the stick.
    labels_ : ndarray
        (n,) most probable component of each row, renumbered 0, 1, ... in order of appearance.
    label_components_ : ndarray
        (`n_clusters_`,) for each cluster of `labels_`, its column of `responsibilities_`.
    weights_ : ndarray
        (K,) probability that a new row belongs to each component; sums to one.
    log_evidence_bound_ : float
        Lower bound on log p(X) under the model described by `bound_target_`, at the fitted hyperparameters (nats).
    bound_target_ : str
        "truncated stick-breaking" or "finite Dirichlet".
    bound_kind_ : str
        "variational, " followed by `bound_target_`.
    infinite_bound_ : float or None
        Lower bound on log p(X) under the Dirichlet process itself (nats), from the same q(labels) with the components in order
        of decreasing size and a Beta(1, α) proportion for the last one too. None for "collapsed_dirichlet".
    bound_space_ : str
        "labels": the bounds are on the sum over labellings, whereas `log_joint_` is that of a single partition.
    objective_trace_ : ndarray
        Bound after each round for the best initialisation (nats); never decreases.
    init_bounds_ : ndarray
        (n_init,) final bound for each initialisation, at the hyperparameters from which the fit started.
    n_iter_ : int
        Number of updates for the best initialisation.
    converged_ : bool
        Whether the best initialisation converged within `max_iter`; if not, `fit` raises a warning.
    n_clusters_, component_, concentration_, hyperparameters_, log_joint_
        Number of clusters, component, concentration, dictionary of the hyperparameters, and log p(X, `labels_`) under the
        Dirichlet process (nats).

    Notes
    -----
    Every reported bound uses the exact value of E_q[log p(labels)]. In the collapsed forms, the counts have Poisson-binomial
    distributions, and a second-order approximation similar to the Gaussian one of the paper, which need not yield a bound, is
    used only in the updates; a round of updates that would lower the exact bound is rejected.

    The labels of the finite Dirichlet model can be permuted without changing p(X, labels), and there are K!/(K − K₊)! ways to
    assign labels to the K₊ non-empty components. A q concentrated on one of these labellings misses the others, so its bound
    can be lower, by up to the log of this number, than a bound on the sum over partitions. Stick-breaking breaks the symmetry;
    its components are kept in the order that is best for the bound.

    Examples
    --------
    >>> import numpy as np
    >>> from functools import partial
    >>> import bnp_hier as bnp
    >>> component = bnp.NormalKnownCovariance(mean=[0.0], prior_covariance=9 * np.eye(1), covariance=np.eye(1))
    >>> model = partial(bnp.models.dpm, component=component)
    >>> fit = bnp.VariationalDP(model, truncation=4).fit([[0.0], [0.2], [0.1], [6.0], [6.1]])
    >>> fit.labels_, fit.responsibilities_.shape, round(fit.log_evidence_bound_, 2)
    (array([0, 0, 0, 1, 1]), (5, 4), -14.86)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **DeterministicClustering._parameter_constraints,
        "inference": [StrOptions(set(get_args(Inference)))],
        "truncation": [WholeNumber()],
        "n_init": [WholeNumber()],
        "max_iter": [WholeNumber()],
        "tol": [PositiveNumber()],
        "max_rounds": [WholeNumber()],
        "random_state": RANDOM_STATE,
    }

    def __init__(
        self,
        model: Model = dpm,
        inference: str = "stick_breaking",
        truncation: int = 20,
        n_init: int = 5,
        max_iter: int = 500,
        tol: float = 1e-6,
        optimize: bool | str | Mapping[str, ArrayLike] = "auto",
        *,
        max_rounds: int = 20,
        random_state: int | Array = 0,
    ) -> None:
        self.model = model
        self.inference = inference
        self.truncation = truncation
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.optimize = optimize
        self.max_rounds = max_rounds
        self.random_state = random_state

    def _fit(self, problem: Problem) -> None:
        values = problem.values
        if np.asarray(values.discount) != 0:
            raise ValueError("VariationalDP needs a Dirichlet process: the model's discount must be the number 0")
        if problem.sites.max_clusters is not None and problem.sites.max_clusters < problem.sites.size:
            raise ValueError("VariationalDP sets its own truncation: the model must not set max_clusters")

        def first(values: MixtureValues) -> _Ascent:
            found = self._ascend(values, self._starts(values))
            self.init_bounds_ = np.asarray(found.bound)
            if np.isnan(self.init_bounds_).any():
                name = type(values.component).__name__
                raise ValueError(
                    f"the bound of initialisation {np.isnan(self.init_bounds_).argmax()} is NaN: the log marginal likelihood "
                    f"of {name} is NaN for the rows weighted by their responsibilities"
                )
            return jax.tree.map(lambda leaf: np.asarray(leaf)[self.init_bounds_.argmax()], found)

        def again(values: MixtureValues, before: _Ascent) -> _Ascent:
            found = self._ascend(values, np.asarray(before.responsibilities)[None])
            return jax.tree.map(lambda leaf: np.asarray(leaf)[0], found)

        objective: Objective[_Ascent] = by_gradient(
            problem, _objective(self._inference), lambda fit: (padded(fit.responsibilities, 0.0),)
        )
        rounds = self._rounds(problem)
        rng = random_generators(self.random_state)[0]
        starts = starting_hyperparameters(problem, rng, most_rows=SEARCHED)[0] if rounds else ()
        best, _ = learn(problem, first, again, objective, rounds, starts)
        if not best.converged:
            warnings.warn(
                f"VariationalDP did not converge within max_iter={self.max_iter} updates; increase max_iter",
                RuntimeWarning,
                stacklevel=4,
            )
        self._report(problem, best)

    def _restate(self, values: MixtureValues, added: Statistics) -> None:
        concentration, shares = np.asarray(values.concentration, float), self.responsibilities_
        summary = _summarize(values.component, padded(values.X), padded(shares, 0.0), concentration, self._inference)
        self.weights_ = np.asarray(summary.weights)
        self._soft_stats_: Statistics = jax.tree.map(
            lambda total, part: np.asarray(total) + np.tensordot(shares, part, ((0,), (0,))), summary.stats, added
        )

    @property
    def _inference(self) -> Inference:
        return self.inference  # type: ignore[return-value]

    def _starts(self, values: MixtureValues) -> Float[np.ndarray, "r n k"]:
        """Initial responsibilities, alternating between a greedy pass over the rows and random values.

        The first pass takes the rows in their order, the others in random orders.
        """
        n, k = len(values.X), self.truncation
        rng_orders, rng_random = random_generators(self.random_state)
        orders = np.stack([rng_orders.permutation(n) if start else np.arange(n) for start in range(0, self.n_init, 2)])
        labels = descend(values, orders, np.full(orders.shape, -1), k, 1).labels
        starts = rng_random.dirichlet(np.ones(k), (self.n_init, n))
        for start, order, found in zip(starts[::2], orders, labels, strict=True):
            start[order] = np.eye(k)[canonical_labels(found[order])]  # components in the order in which the pass opened them
        return starts

    def _ascend(self, values: MixtureValues, starts: Float[np.ndarray, "r n k"]) -> _Ascent:
        X, concentration, tol = padded(values.X), np.asarray(values.concentration, float), np.asarray(self.tol, float)
        given = np.stack([padded(start, 0.0) for start in starts])  # a row without responsibilities has no effect
        found = _ascend(values.component, X, concentration, given, tol, self._inference, self.max_iter)
        return found._replace(responsibilities=np.asarray(found.responsibilities)[:, : len(values.X)])

    def _report(self, problem: Problem, best: _Ascent) -> None:
        """Set the fitted attributes."""
        values, responsibilities = problem.values, np.asarray(best.responsibilities)
        concentration = np.asarray(values.concentration, float)
        summary = _summarize(values.component, padded(values.X), padded(responsibilities, 0.0), concentration, self._inference)
        finite = self.inference == "collapsed_dirichlet"
        self.responsibilities_ = responsibilities
        self.weights_ = np.asarray(summary.weights)
        self.log_evidence_bound_ = float(best.bound)
        self.infinite_bound_ = None if finite else float(summary.infinite_bound)
        self.bound_target_ = "finite Dirichlet" if finite else "truncated stick-breaking"
        self.bound_kind_ = f"variational, {self.bound_target_}"
        self.bound_space_ = "labels"
        self.objective_trace_ = np.asarray(best.trace)[~np.isnan(best.trace)]
        self.n_iter_, self.converged_ = int(best.iterations), bool(best.converged)
        chosen = responsibilities.argmax(axis=1)
        labels = canonical_labels(chosen)
        self.label_components_ = chosen[np.unique(labels, return_index=True)[1]]
        self._soft_stats_ = jax.tree.map(np.asarray, summary.stats)
        self._finish(problem, labels)

    def _log_weights(self, X: ArrayLike) -> Float[np.ndarray, "m k1"]:
        matrix = self._new_rows(X)
        absent = self.component_.incomplete_cells(matrix)
        with double_precision(), blas_on_one_core():
            parts = in_chunks(
                lambda rows: _log_densities(self.component_, self._soft_stats_, jnp.log(self.weights_), rows),
                np.where(absent, 0.0, matrix),
            )
            incomplete = absent.any(axis=1)
            if incomplete.any():
                seen = lambda rows: log_densities_of_observed(self.component_, self._soft_stats_, rows)  # noqa: E731
                parts[incomplete] = in_chunks(seen, matrix[incomplete]) + np.log(self.weights_)
        others = np.delete(parts, self.label_components_, axis=1)
        with np.errstate(invalid="ignore"):  # the check below names the row
            rest = np.logaddexp.reduce(others, axis=1, initial=-np.inf)
        return check_log_weights(np.column_stack([parts[:, self.label_components_], rest]), matrix)

    def predict_proba(self, X: ArrayLike) -> Float[np.ndarray, "m k1"]:
        """Probability that each new row belongs to each cluster of `labels_` and, in the last column, to none of them.

        The last column is the total probability of the components that are not the most probable one for any fitted row.
        Most of them are empty, so that their predictive density is that of the prior and they represent a new cluster.

        Raises
        ------
        NotFittedError, ValueError
            If the estimator is not fitted, or the rows are invalid for the component.
        """
        return super().predict_proba(X)

    def score_samples(self, X: ArrayLike) -> Float[np.ndarray, " m"]:
        """Log predictive density of each new row (nats): log Σ_k weights_k p(x|S_k), with soft statistics S_k.

        p(x|S_k) is the likelihood integrated over q(parameters of k). The weights are those of the K components of the
        truncated (or finite) model, so that the density integrates to one without a term for a new cluster.

        Raises
        ------
        NotFittedError, ValueError
            If the estimator is not fitted, or the rows are invalid for the component.
        """
        return super().score_samples(X)
