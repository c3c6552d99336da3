"""What the deterministic estimators share: reading the model, validation, prediction from clusters."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Protocol, Self, TypeVar, runtime_checkable

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int
from numpyro.util import is_prng_key
from scipy.optimize import minimize
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from bnp_hier.allocation import Prior, log_joint, log_seating
from bnp_hier.components import Component
from bnp_hier.components.base import Statistics, as_matrix
from bnp_hier.deterministic.input_rows import input_rows
from bnp_hier.distributions.conjugate_mixture import cluster_statistics
from bnp_hier.model_sites import Hyperprior, MixtureSites, MixtureValues, as_arrays, find_sites, hyperprior, read_values
from bnp_hier.model_trace import Model

__all__ = [
    "CHUNK",
    "DeterministicClustering",
    "Problem",
    "alternate",
    "check_log_weights",
    "in_chunks",
    "in_steps",
    "mixture_log_weights",
    "more_slots",
    "random_generators",
    "random_key",
    "require_count",
    "summarise",
]

CHUNK = 4096
"""Most rows predicted at once, so that memory stays bounded."""

LEAST_RISE = 1e-3
"""Rise in nats under which hyperparameters count as settled."""


def require_count(name: str, value: Any, minimum: int = 1) -> None:
    """Check that an option is a whole number of at least `minimum`.

    Raises
    ------
    ValueError
        If it is not; the message names the option.
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer) or value < minimum:
        raise ValueError(f"{name} must be a whole number of at least {minimum}, but it is {value!r}")


def random_key(random_state: int | Array) -> Array:
    """A JAX key from a whole number or a key.

    Raises
    ------
    TypeError
        If it is neither.
    """
    if isinstance(random_state, int | np.integer):
        return jax.random.key(int(random_state))
    if is_prng_key(random_state):
        return random_state
    raise TypeError(f"random_state must be a whole number or a JAX random key, but it is {type(random_state).__name__}")


def random_generators(random_state: int | Array) -> list[np.random.Generator]:
    """Two NumPy generators: for rows drawn from the data, and for seedings."""
    return np.random.default_rng(np.asarray(jax.random.key_data(random_key(random_state)))).spawn(2)


class Problem:
    """A mixture model on a data set, at hyperparameter values that can be moved; float64 throughout.

    Parameters
    ----------
    model
        NumPyro model with one partition site and one `ConjugateMixture` on it.
    X
        Data, (n, d), handed to the model as its only argument.
    min_rows
        Fewest rows accepted.

    Raises
    ------
    ValueError
        If the model lacks the sites, or the data do not fit the component.
    """

    def __init__(self, model: Model, X: ArrayLike, min_rows: int = 2) -> None:
        self.model, self.X = model, as_matrix(X, min_rows=min_rows)
        self.sites: MixtureSites = find_sites(model, (self.X,))
        self.prior: Hyperprior = hyperprior(model, self.sites, (self.X,))
        self.unconstrained: dict[str, Any] = dict(self.prior.start)
        self._gradients: dict[Callable[..., Any], Any] = {}
        values = self.values
        values.component.validate(values.X)
        values.component.check_precision(values.X)

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """Current values of the hyperparameter sites."""
        return self.prior.constrain(self.unconstrained)

    @property
    def values(self) -> MixtureValues:
        """Partition prior, component and data at the current hyperparameters."""
        return self.values_at(self.hyperparameters)

    def values_at(self, hyperparameters: Mapping[str, Any]) -> MixtureValues:
        """Partition prior, component and data at given hyperparameters."""
        return as_arrays(read_values(self.model, self.sites, hyperparameters, (self.X,)))

    def climb(self, objective: Callable[..., Float[Array, ""]], *fixed: Array, max_iter: int = 100) -> float:
        """Move the hyperparameters to a maximum of objective + log prior, by L-BFGS on JAX gradients.

        The objective takes the values and the `fixed` arrays; it is compiled once per problem and shapes. The log prior is
        the density in the sites' own space. The hyperparameters never end lower than they began.

        Returns
        -------
        value
            objective + log prior at the end (nats).
        """
        names = list(self.unconstrained)
        flat, unravel = jax.flatten_util.ravel_pytree(self.unconstrained)

        def loss(vector: Float[Array, " p"], *fixed: Array) -> Float[Array, ""]:
            values = self.prior.constrain(unravel(vector))
            return -(objective(self.values_at(values), *fixed) + self.prior.log_prob(values))

        if objective not in self._gradients:
            self._gradients[objective] = jax.jit(jax.value_and_grad(loss))
        value_and_grad = self._gradients[objective]

        def evaluate(vector: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = value_and_grad(jnp.asarray(vector), *fixed)
            finite = np.isfinite(value) and np.isfinite(gradient).all()
            # a step out of the range of floating point is refused by the line search
            return (float(value), np.asarray(gradient)) if finite else (1e300, np.zeros_like(vector))

        start = np.asarray(flat, dtype=np.float64)
        before, _ = evaluate(start)
        if not names:
            return -before
        result = minimize(evaluate, start, jac=True, method="L-BFGS-B", options={"maxiter": max_iter})
        if result.fun < before:
            self.unconstrained = jax.tree.map(np.asarray, unravel(jnp.asarray(result.x)))
            return -float(result.fun)
        return -before


@runtime_checkable
class _Labelled(Protocol):
    @property
    def labels(self) -> Int[np.ndarray, " n"]:
        """(n,) clusters, from 0."""


_R = TypeVar("_R", bound=_Labelled)


def alternate(
    problem: Problem,
    find: Callable[[MixtureValues, Int[np.ndarray, " n"] | None], _R],
    objective: Callable[[MixtureValues, Int[Array, " n"], Float[Array, " slots"]], Float[Array, ""]],
    max_rounds: int,
) -> _R:
    """Partitions and gradient steps on the hyperparameters by turns, as long as objective + log prior rises.

    Parameters
    ----------
    problem
        Left at the hyperparameters of the result.
    find
        Gives a fit at hyperparameter values; also takes the labels found before, None at first.
    objective
        Of values, labels and an array as long as there are slots for clusters (nats).
    max_rounds
        Most rounds after the first fit; 0 leaves the hyperparameters as they are.

    Returns
    -------
    fit
        Of the best round.
    """
    best = find(problem.values, None)

    def fixed(fit: _R) -> tuple[Array, Array]:
        return jnp.asarray(fit.labels), jnp.zeros(in_steps(int(fit.labels.max()) + 1))

    def value(fit: _R) -> float:
        at = objective(problem.values, *fixed(fit))
        return float(at + problem.prior.log_prob(problem.hyperparameters))

    reached = value(best) if max_rounds else -np.inf
    for _ in range(max_rounds):
        before = problem.unconstrained
        problem.climb(objective, *fixed(best))
        proposal = find(problem.values, best.labels)
        gain = value(proposal) - reached
        if not gain > 0:
            problem.unconstrained = before
            break
        best, reached = proposal, reached + gain
        if gain < LEAST_RISE:
            break
    return best


def in_steps(clusters: int) -> int:
    """Slots for so many clusters, in steps of 16, so that similar fits share a compiled program."""
    return -(-clusters // 16) * 16


def more_slots(stats: Statistics, extra: int) -> Statistics:
    """The clusters' statistics with empty slots after them."""
    # in NumPy: padding arrays of ever new lengths would compile as many programs
    return jax.tree.map(lambda leaf: np.pad(leaf, [(0, extra)] + [(0, 0)] * (np.ndim(leaf) - 1)), stats)


def in_chunks(
    function: Callable[[Float[Array, "c d"]], Float[Array, "c k"]], X: Float[np.ndarray, "m d"]
) -> Float[np.ndarray, "m k"]:
    """Apply a rowwise function to chunks of one size, so that a large batch compiles it once."""
    m = X.shape[0]
    if m <= CHUNK:
        return np.asarray(function(jnp.asarray(X)))
    padded = np.concatenate([X, np.broadcast_to(X[:1], (-m % CHUNK, X.shape[1]))])
    parts = [np.asarray(function(jnp.asarray(part))) for part in np.split(padded, len(padded) // CHUNK)]
    return np.concatenate(parts)[:m]


def check_log_weights(log_weights: Float[np.ndarray, "m k"], X: Float[np.ndarray, "m d"]) -> Float[np.ndarray, "m k"]:
    """The log weights of new rows at their clusters, which must say something about every row.

    Raises
    ------
    ValueError
        If those of a row are NaN, infinite, or all −inf, as they are where the squares of a cell overflow; the row and its
        largest cell are named.
    """
    highest = log_weights.max(axis=1, initial=-np.inf)  # NaN if any is
    wrong = ~np.isfinite(highest)
    if wrong.any():
        row = int(wrong.argmax())
        cells = np.nan_to_num(X[row])
        column = int(np.abs(cells).argmax())
        what = "not a number" if np.isnan(highest[row]) else "infinite" if highest[row] > 0 else "0 under every cluster"
        raise ValueError(
            f"the predictive density of row {row} is {what} in the range of floating point; its largest cell is "
            f"{cells[column]:g}, in column {column}"
        )
    return log_weights


@jax.jit
def mixture_log_weights(
    component: Component,
    stats: Statistics,
    counts: Float[Array, " k"],
    prior: Prior,
    X: Float[Array, "m d"],
    max_clusters: ArrayLike = np.inf,
) -> Float[Array, "m k1"]:
    """Log of (seating probability × predictive density) of new rows at each cluster and, last, at a new one (nats).

    Once there are `max_clusters`, no new one has any.
    """
    rows = component.suff_stats(X)
    cache = component.cache(jax.tree.map(lambda leaf, zero: jnp.concatenate([leaf, zero[None]]), stats, component.empty()))
    log_predictive = jax.vmap(lambda row: component.cached_log_predictive(cache, row))(rows)
    return log_predictive + log_seating(counts, prior, max_clusters)[None]


@partial(jax.jit, static_argnames="slots")
def summarise(
    component: Component, X: Float[Array, "n d"], labels: Int[Array, " n"], prior: Prior, slots: int
) -> tuple[Float[Array, ""], Statistics]:
    """Log p(X, labels) in nats, and the clusters' statistics."""
    rows = component.suff_stats(X)
    return log_joint(component, rows, labels, prior, slots), cluster_statistics(rows, labels, slots)


class DeterministicClustering(ClusterMixin, BaseEstimator):
    """Base of the estimators: a subclass fits `labels_`, from which everything here follows.

    Fitted attributes: `labels_` (n,) whole numbers from 0; `counts_`, rows of each cluster; `n_clusters_`; `component_`;
    `concentration_`; `discount_`; `hyperparameters_`, a dictionary of the model's hyperparameter sites; `log_joint_`,
    log p(X, `labels_`) (nats); `n_features_in_`; `feature_names_in_`, if X is a frame; `fit_seconds_`.
    """

    model: Model
    optimize: bool | str

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {"model": [callable], "optimize": ["boolean"]}

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True  # what may be missing is the component's to say
        return tags

    def _finish(self, problem: Problem, labels: Int[np.ndarray, " n"]) -> None:
        """Set the attributes that every estimator has."""
        values = self._describe(problem)
        self.labels_ = np.asarray(labels, dtype=np.int64)
        self.counts_ = np.bincount(self.labels_)
        self.n_clusters_ = len(self.counts_)
        slots = in_steps(self.n_clusters_)
        prior = Prior(self.concentration_, self.discount_)
        joint, stats = summarise(self.component_, values.X, jnp.asarray(self.labels_), prior, slots)
        self.log_joint_ = float(joint)
        if np.isnan(self.log_joint_):
            marginals = np.asarray(self.component_.log_marginal(stats))
            rows = np.flatnonzero(np.isnan(marginals)[self.labels_])
            raise ValueError(
                f"log p(X, labels) is NaN: {type(self.component_).__name__} gives no log marginal likelihood to the cluster of "
                f"the rows {', '.join(map(str, rows[:5]))}{', ...' if len(rows) > 5 else ''}"
            )
        self._stats_ = jax.tree.map(lambda leaf: np.asarray(leaf)[: self.n_clusters_], stats)

    def _describe(self, problem: Problem) -> MixtureValues:
        """Set the attributes that do not depend on the partition."""
        values = problem.values
        self._max_clusters_ = problem.sites.max_clusters
        self.component_ = jax.tree.map(lambda leaf: np.asarray(leaf, dtype=np.float64), values.component)
        self.concentration_, self.discount_ = float(values.concentration), float(values.discount)
        self.hyperparameters_ = {name: np.asarray(value)[()] for name, value in problem.hyperparameters.items()}
        return values

    def _new_rows(self, X: ArrayLike) -> np.ndarray:
        check_is_fitted(self, "counts_")
        matrix = input_rows(self, X, reset=False)
        self.component_.validate(matrix)
        return matrix

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Fit to the rows of X.

        Parameters
        ----------
        X
            Data, (n, d), n ≥ 2, as the model's component wants them.
        y
            Ignored.

        Raises
        ------
        ValueError
            If an option, the model or the data are unfit, or `optimize` finds no hyperparameter with a prior.
        """
        started = time.perf_counter()
        self._check_options()
        with jax.enable_x64(True):
            self._fit_rows(X)
        self.fit_seconds_ = time.perf_counter() - started
        return self

    def _fit_rows(self, X: ArrayLike) -> Problem:
        problem = Problem(self.model, input_rows(self, X, reset=True, min_rows=2))
        if self.optimize and not problem.unconstrained:
            raise ValueError(f"optimize={self.optimize!r}, but no hyperparameter of the model has a prior")
        self._fit(problem)
        return problem

    def _check_options(self) -> None:
        """Raise ValueError if an option is not as `_parameter_constraints` declares it, or does not suit another."""
        self._validate_params()

    @abstractmethod
    def _fit(self, problem: Problem) -> None:
        """Set the fitted attributes; runs inside ``jax.enable_x64``."""

    def fit_predict(self, X: ArrayLike, y: Any = None, **kwargs: Any) -> Int[np.ndarray, " n"]:
        """Fit, and return `labels_`."""
        return self.fit(X).labels_

    def _log_weights(self, X: ArrayLike) -> Float[np.ndarray, "m k1"]:
        matrix = self._new_rows(X)
        with jax.enable_x64(True):
            counts = jnp.asarray(self.counts_, dtype=float)
            prior = Prior(self.concentration_, self.discount_)
            most = float(self._max_clusters_ or np.inf)
            log_weights = in_chunks(
                lambda rows: mixture_log_weights(self.component_, self._stats_, counts, prior, rows, most), matrix
            )
        return check_log_weights(log_weights, matrix)

    def predict_proba(self, X: ArrayLike) -> Float[np.ndarray, "m k1"]:
        """Probability that each new row belongs to each cluster of `labels_` and, in the last column, to a new one.

        Raises
        ------
        NotFittedError, ValueError
            Before `fit`; or if the rows do not fit the component.
        """
        check_is_fitted(self, "counts_")
        log_weights = self._log_weights(X)
        return np.exp(log_weights - np.logaddexp.reduce(log_weights, axis=1, keepdims=True))

    def predict(self, X: ArrayLike) -> Int[np.ndarray, " m"]:
        """Most probable cluster of each new row; `n_clusters_` stands for a new cluster.

        Raises
        ------
        NotFittedError, ValueError
            Before `fit`; or if the rows do not fit the component.
        """
        return self.predict_proba(X).argmax(axis=1)

    def score_samples(self, X: ArrayLike) -> Float[np.ndarray, " m"]:
        """Log predictive density of each new row given the fitted clusters (nats).

        p(x|D, v) = Σ_k (n_k − δ)/(n + α) p(x|D_k) + (α + Kδ)/(n + α) p(x), each row on its own; the discount δ is 0 for
        the Dirichlet process. Where the model's `max_clusters` is reached, no new one opens, and the other weights are
        divided by their sum.

        Raises
        ------
        NotFittedError, ValueError
            Before `fit`; or if the rows do not fit the component.
        """
        check_is_fitted(self, "counts_")
        return np.logaddexp.reduce(self._log_weights(X), axis=1)

    def score(self, X: ArrayLike, y: Any = None) -> float:
        """Mean of `score_samples`, for scikit-learn's model selection."""
        return float(self.score_samples(X).mean())
