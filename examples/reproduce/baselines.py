"""The competitors of Bayesian k-means in Kurihara & Welling (2009), Table 1, that infer the number of clusters.

k-means + BIC, the mixture of Gaussians + BIC and the variational mixture share the paper's split-merge search and differ in
the fit and in its cost. G-means has its own search.
"""

from __future__ import annotations

import warnings
from itertools import combinations
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Array, Float
from scipy.special import logsumexp
from scipy.stats import anderson
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

import bnp_hier as bnp
from bnp_hier.components.base import Statistics
from bnp_hier.deterministic.hard_assignment.free_energies import label_log_prior, scores_from
from bnp_hier.deterministic.variational_dp import soft_statistics
from bnp_hier.distributions.seating import Prior

CRITICAL = 1.8692
"""Anderson-Darling statistic above which G-means splits: significance 0.0001, mean and variance estimated."""

FEWEST_TESTED = 8
"""G-means does not test clusters with fewer rows: the statistic's small-sample correction breaks down."""

LEAST_OVERLAP = 1e-3
"""Cosine similarity of two components' responsibilities below which a merge is not tried."""

LEAST_GAIN = 1e-6
"""Decrease of the cost (nats) below which a split or a merge is rejected."""

TOLERANCE = 1e-4
"""Gain per row and step (nats) below which fits of soft mixtures stop."""


class Mixture(NamedTuple):
    """A fitted mixture.

    - **cost** - the objective that the search minimises (nats).
    - **responsibilities** - (n, k) posterior probability of each component.
    - **log_density** - (n,) log density of each row under the mixture (nats).
    """

    cost: float
    responsibilities: np.ndarray
    log_density: np.ndarray

    @property
    def n_clusters(self) -> int:
        """Number of components."""
        return self.responsibilities.shape[1]

    @property
    def labels(self) -> np.ndarray:
        """Most probable component of each row."""
        return self.responsibilities.argmax(1)


class Method(Protocol):
    """A way to fit a mixture to the rows of `X`."""

    X: np.ndarray

    def __call__(self, responsibilities: np.ndarray) -> Mixture | None:
        """Return the fit that starts from these responsibilities, or None if it is rejected."""


class Proposals:
    """Split and merge proposals; a proposal that was rejected once is not repeated for the same rows.

    Kurihara & Welling (2009), section 6 and appendix D.
    """

    def __init__(self, method: Method) -> None:
        self.method, self.refused = method, set[tuple[bytes, ...]]()

    def _better(self, responsibilities: np.ndarray, fit: Mixture, changed: tuple[bytes, ...]) -> Mixture | None:
        if changed in self.refused:
            return None
        proposal = self.method(responsibilities)
        if proposal is not None and proposal.cost < fit.cost - LEAST_GAIN:
            return proposal
        self.refused.add(changed)
        return None

    def split(self, fit: Mixture) -> Mixture | None:
        """Return the first split that lowers the cost, trying the components with the worst fit first.

        The fit is Eq. 47, corrected to Σ_i w_i [log w_i − log p(x_i | k)], where w are the responsibilities of component k
        scaled to sum to one. For posteriors, with the weights as their means, it equals −Σ_i w_i log p(x_i) up to a constant.
        """
        r, rows = fit.responsibilities, _members(fit)
        misfit = -(fit.log_density @ r) / r.sum(0)
        for k in np.argsort(-misfit, kind="stable"):
            if np.count_nonzero(fit.labels == k) > 1:
                proposal = np.column_stack([np.delete(r, k, axis=1), _halves(self.method.X, r[:, k])])
                found = self._better(proposal, fit, (rows[k],))
                if found is not None:
                    return found
        return None

    def merge(self, fit: Mixture) -> Mixture | None:
        """Return the first merge that lowers the cost, trying the most similar responsibilities (Eq. 50) first."""
        r, rows = fit.responsibilities, _members(fit)
        unit = r / np.linalg.norm(r, axis=0)
        alike = unit.T @ unit
        for j, k in sorted(combinations(range(fit.n_clusters), 2), key=lambda pair: -alike[pair]):
            if alike[j, k] < LEAST_OVERLAP:
                break
            proposal = np.column_stack([np.delete(r, [j, k], axis=1), r[:, j] + r[:, k]])
            found = self._better(proposal, fit, (rows[j], rows[k]))
            if found is not None:
                return found
        return None


def _members(fit: Mixture) -> list[bytes]:
    """For each component, a key that identifies the rows for which it is the most probable one."""
    return [np.packbits(fit.labels == k).tobytes() for k in range(fit.n_clusters)]


def _halves(X: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Split the weights at the plane through their mean, orthogonal to their principal direction.

    This is one step of k-means from two centres on that axis (appendix D.3).
    """
    _, direction, centred = _principal_axis(X, weight)
    side = centred @ direction > 0
    return np.column_stack([weight * side, weight * ~side])


def _principal_axis(X: np.ndarray, weight: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Largest eigenvalue of the weighted covariance, its eigenvector, and the centred rows."""
    share, d = weight / weight.sum(), X.shape[1]
    centred = X - share @ X
    values, vectors = scipy.linalg.eigh((centred.T * share) @ centred, subset_by_index=[d - 1, d - 1])
    return max(float(values[0]), 0.0), vectors[:, 0], centred


def split_merge(method: Method) -> Mixture:
    """Split from one component on, merge when no split lowers the cost, and repeat until neither does (section 6)."""
    start = method(np.ones((len(method.X), 1)))
    if start is None:
        raise ValueError(f"one component cannot be fitted to {len(method.X)} rows with {method.X.shape[1]} columns")
    fit, proposals = start, Proposals(method)
    while (following := proposals.split(fit) or proposals.merge(fit)) is not None:
        fit = following
    return fit


class KMeansBIC:
    """k-means whose cost is half the BIC of spherical Gaussians with one variance and hard labels (Pelleg & Moore 2000).

    The parameters are K − 1 weights, K d means and one variance, at maximum likelihood; the published variance lacks the
    division by d. The responsibilities are the posteriors under these Gaussians and serve only to rank splits and merges.
    """

    def __init__(self, X: np.ndarray) -> None:
        self.X = X

    def __call__(self, responsibilities: np.ndarray) -> Mixture | None:
        """Run Lloyd's algorithm from the means under the responsibilities; None if the rows coincide with the centres."""
        X, (n, d), k = self.X, self.X.shape, responsibilities.shape[1]
        counts = responsibilities.sum(0)
        if counts.min() <= 0:
            return None
        found = KMeans(k, init=responsibilities.T @ X / counts[:, None], n_init=1, random_state=0).fit(X)
        sizes = np.bincount(found.labels_, minlength=k)
        if found.inertia_ <= 0 or sizes.min() == 0:
            return None
        variance = found.inertia_ / (n * d)
        log_normal = -0.5 * d * np.log(2 * np.pi * variance) - found.transform(X) ** 2 / (2 * variance)
        joint = np.log(sizes / n) + log_normal
        log_density = logsumexp(joint, axis=1)
        hard = joint[np.arange(n), found.labels_].sum()
        return Mixture(float(-hard + k * (d + 1) / 2 * np.log(n)), np.exp(joint - log_density[:, None]), log_density)


class GaussiansBIC:
    """Mixture of Gaussians with full covariances by EM; the cost is half its BIC.

    A component needs more rows than columns: with fewer, its covariance is singular and the likelihood is unbounded.
    """

    def __init__(self, X: np.ndarray, max_iter: int = 100) -> None:
        self.X, self.max_iter = X, max_iter
        self.floor = 1e-6 * float(X.var(0).mean())

    def __call__(self, responsibilities: np.ndarray) -> Mixture | None:
        """Run EM from the moments under the responsibilities; None if a component has too few rows."""
        X, (n, d), k = self.X, self.X.shape, responsibilities.shape[1]
        counts = responsibilities.sum(0)
        if counts.min() <= d:
            return None
        means = responsibilities.T @ X / counts[:, None]
        covariances = [np.cov(X.T, aweights=weight, bias=True).reshape(d, d) for weight in responsibilities.T]
        precisions = np.linalg.inv(np.array(covariances) + self.floor * np.eye(d))
        model = GaussianMixture(
            k,
            weights_init=counts / n,
            means_init=means,
            precisions_init=precisions,
            tol=TOLERANCE,
            max_iter=self.max_iter,
            reg_covar=self.floor,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X)
        fitted = model.predict_proba(X)
        if fitted.sum(0).min() <= d:
            return None
        return Mixture(float(model.bic(X)) / 2, fitted, model.score_samples(X))


class VariationalGaussians:
    """Variational mixture of Gaussians in the model of Bayesian k-means (Eq. 15); the cost is its free energy.

    Its updates are those of Bayesian k-means with responsibilities in place of hard labels: E_q[log p(x, label)] of Eq. 20,
    and the energy of Eq. 19 at soft statistics minus the entropy of the labels. Components with less than one row are dropped.
    """

    def __init__(self, X: np.ndarray, component: bnp.NormalInverseWishart, concentration: float, max_iter: int = 200) -> None:
        self.X, self.component, self.max_iter = X, component, max_iter
        with jax.enable_x64(True):
            self.prior = Prior(jnp.asarray(concentration))
            self.rows = component.suff_stats(jnp.asarray(X))

    def __call__(self, responsibilities: np.ndarray) -> Mixture | None:
        """Update from these responsibilities until the free energy hardly decreases."""
        r, cost = responsibilities, np.inf
        for _ in range(self.max_iter):
            if not (there := r.sum(0) >= 1.0).all():
                if not there.any():
                    return None
                r, cost = _normalized(r[:, there]), np.inf
            energy, joint = self._step(r)
            if cost - energy < TOLERANCE * len(self.X):
                break
            cost, log_density = energy, logsumexp(joint, axis=1)
            r = np.exp(joint - log_density[:, None])
        return Mixture(energy, r, logsumexp(joint, axis=1))

    def _step(self, r: np.ndarray) -> tuple[float, np.ndarray]:
        k = r.shape[1]
        slots = max(8, 1 << (k - 1).bit_length())  # so that few programs are compiled
        with jax.enable_x64(True):
            energy, joint = _variational_step(self.component, self.rows, np.pad(r, ((0, 0), (0, slots - k))), self.prior)
            return float(energy), np.asarray(joint)[:, :k]


def _normalized(r: np.ndarray) -> np.ndarray:
    """Scale the rows to sum to one; rows without any weight get equal weights."""
    total = r.sum(1, keepdims=True)
    return np.where(total > 0, r / np.where(total > 0, total, 1.0), 1.0 / r.shape[1])


@jax.jit
def _variational_step(
    component: bnp.NormalInverseWishart, rows: Statistics, r: Float[Array, "n k"], prior: Prior
) -> tuple[Float[Array, ""], Float[Array, "n k"]]:
    """Return the free energy at these responsibilities with the best q of the parameters, and E_q[log p(x, label)] (nats)."""
    stats, counts = soft_statistics(rows, r), r.sum(0)
    entropy = -jnp.where(r > 0, r * jnp.log(jnp.where(r > 0, r, 1.0)), 0.0).sum()
    scores = scores_from(component, stats, counts, prior, "finite")
    products = jax.tree.map(
        lambda row, natural: row.reshape(len(r), -1) @ natural.reshape(len(counts), -1).T, rows, scores.natural
    )
    joint = sum(jax.tree.leaves(products)) + scores.log_weight
    return -label_log_prior(counts, prior, "finite") - component.log_marginal(stats).sum() - entropy, joint


def g_means(X: np.ndarray) -> np.ndarray:
    """Return the labels of G-means (Hamerly & Elkan 2003), which splits clusters whose projected rows are not normal.

    All clusters are tested, the centre of each that fails is replaced by two, and k-means is run on all rows, until none fails.
    """
    centers = X.mean(0)[None]
    while True:
        found = KMeans(len(centers), init=centers, n_init=1, random_state=0).fit(X)
        parts = [_tested(X[found.labels_ == k], center) for k, center in enumerate(found.cluster_centers_)]
        if len(following := np.concatenate(parts)) == len(centers):
            return found.labels_
        centers = following


def _tested(rows: np.ndarray, center: np.ndarray) -> np.ndarray:
    """Return the centre, or two if the projection of the rows on the line through them fails the Anderson-Darling test."""
    n = len(rows)
    if n < FEWEST_TESTED:
        return center[None]
    value, direction, _ = _principal_axis(rows, np.ones(n))
    step = direction * np.sqrt(2.0 * value / np.pi)
    pair = KMeans(2, init=np.array([center - step, center + step]), n_init=1, random_state=0).fit(rows).cluster_centers_
    line = rows @ (pair[1] - pair[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # on p-values, which are not used
        statistic = anderson(line).statistic * (1.0 + 4.0 / n - 25.0 / n**2)
    return pair if statistic > CRITICAL else center[None]
