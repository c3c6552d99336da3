"""Rivals of Bayesian k-means in Kurihara & Welling (2009), Table 1, that find the number of clusters themselves.

k-means + BIC, mixture of Gaussians + BIC and the variational mixture share one search by splits and merges, the paper's, and
differ in the fit and in its cost. G-means has its own.
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
from bnp_hier.deterministic.hard_assignment.free_energies import free_energy, scores_from
from bnp_hier.deterministic.variational_dp import soft_statistics
from bnp_hier.partitions.seating import Prior

CRITICAL = 1.8692
"""Anderson-Darling statistic above which G-means splits: significance 0.0001, mean and variance estimated."""

FEWEST_TESTED = 8
"""Rows below which G-means does not test a cluster: the statistic's correction for small samples breaks down."""

LEAST_OVERLAP = 1e-3
"""Cosine of two components' responsibilities under which merging them is not tried."""

LEAST_GAIN = 1e-6
"""Fall of the cost (nats) under which a split or a merge is refused."""

TOLERANCE = 1e-4
"""Gain per row and step (nats) under which fits of soft mixtures stop."""


class Mixture(NamedTuple):
    """A fitted mixture.

    - **cost** - what the search lowers (nats).
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
        """The fit that starts from these responsibilities; None if it is refused."""


class Proposals:
    """Splits and merges from one mixture to the next; what was refused once for the same rows is not proposed again.

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
        """The first split that lowers the cost, worst described components first.

        Eq. 47, corrected to Σ_i w_i [log w_i − log p(x_i | k)], w the responsibilities of component k scaled to sum to one:
        where these are posteriors and the weights their means, it is −Σ_i w_i log p(x_i) but for a constant.
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
        """The first merge that lowers the cost, most similar responsibilities (Eq. 50) first."""
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
    """The rows whose most probable component is each one, as a key."""
    return [np.packbits(fit.labels == k).tobytes() for k in range(fit.n_clusters)]


def _halves(X: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The weights on either side of the plane through their mean, across their principal direction.

    That is one step of k-means from two centres on that axis (appendix D.3).
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
    """Splits from one component on, then a merge, and again, until neither lowers the cost (section 6)."""
    start = method(np.ones((len(method.X), 1)))
    if start is None:
        raise ValueError(f"one component cannot be fitted to {len(method.X)} rows of {method.X.shape[1]} columns")
    fit, proposals = start, Proposals(method)
    while (following := proposals.split(fit) or proposals.merge(fit)) is not None:
        fit = following
    return fit


class KMeansBIC:
    """k-means whose cost is half the BIC of spherical Gaussians with one variance and hard labels (Pelleg & Moore 2000).

    K − 1 weights, K d means and the variance at maximum likelihood; the published variance lacks the division by d.
    Responsibilities, for ranking splits and merges only, are the posteriors under these Gaussians.
    """

    def __init__(self, X: np.ndarray) -> None:
        self.X = X

    def __call__(self, responsibilities: np.ndarray) -> Mixture | None:
        """Lloyd's iterations from the means under the responsibilities; refused if the rows coincide with the centres."""
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

    A component needs more rows than columns: with fewer its covariance is singular and the likelihood has no bound.
    """

    def __init__(self, X: np.ndarray, max_iter: int = 100) -> None:
        self.X, self.max_iter = X, max_iter
        self.floor = 1e-6 * float(X.var(0).mean())

    def __call__(self, responsibilities: np.ndarray) -> Mixture | None:
        """EM from the moments under the responsibilities; refused if a component has too few rows."""
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

    Its updates are those of Bayesian k-means with responsibilities in the place of hard labels: E_q[log p(x, label)] of Eq. 20,
    and the energy of Eq. 19 at soft statistics less the entropy of the labels. Components with less than one row are dropped.
    """

    def __init__(self, X: np.ndarray, component: bnp.NormalInverseWishart, concentration: float, max_iter: int = 200) -> None:
        self.X, self.component, self.max_iter = X, component, max_iter
        with jax.enable_x64(True):
            self.prior = Prior(jnp.asarray(concentration))
            self.rows = component.suff_stats(jnp.asarray(X))

    def __call__(self, responsibilities: np.ndarray) -> Mixture | None:
        """Updates from these responsibilities until the free energy hardly falls."""
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
    """Rows that sum to one; those without any weight are shared out evenly."""
    total = r.sum(1, keepdims=True)
    return np.where(total > 0, r / np.where(total > 0, total, 1.0), 1.0 / r.shape[1])


@jax.jit
def _variational_step(
    component: bnp.NormalInverseWishart, rows: Statistics, r: Float[Array, "n k"], prior: Prior
) -> tuple[Float[Array, ""], Float[Array, "n k"]]:
    """Free energy at these responsibilities with the best q of the parameters, and E_q[log p(x, label)] there (nats)."""
    stats, counts = soft_statistics(rows, r), r.sum(0)
    entropy = -jnp.where(r > 0, r * jnp.log(jnp.where(r > 0, r, 1.0)), 0.0).sum()
    scores = scores_from(component, stats, counts, prior, "finite")
    products = jax.tree.map(
        lambda row, natural: row.reshape(len(r), -1) @ natural.reshape(len(counts), -1).T, rows, scores.natural
    )
    joint = sum(jax.tree.leaves(products)) + scores.log_weight
    return free_energy(component, stats, counts, prior, "finite") - entropy, joint


def g_means(X: np.ndarray) -> np.ndarray:
    """Labels of G-means (Hamerly & Elkan 2003): clusters are split while a projection of their rows is not normal.

    All clusters are tested, the centres of those that fail replaced by two, and k-means run on all rows, until none fails.
    """
    centers = X.mean(0)[None]
    while True:
        found = KMeans(len(centers), init=centers, n_init=1, random_state=0).fit(X)
        parts = [_tested(X[found.labels_ == k], center) for k, center in enumerate(found.cluster_centers_)]
        if len(following := np.concatenate(parts)) == len(centers):
            return found.labels_
        centers = following


def _tested(rows: np.ndarray, center: np.ndarray) -> np.ndarray:
    """The centre, or two if the rows' projection on the line through these fails the Anderson-Darling test."""
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
