"""Kurihara & Welling's top-down Bayesian k-means for full-covariance normal clusters, in plain NumPy, one loop at a time."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from scipy.special import digamma, gammaln

from bnp_hier import NormalInverseWishart
from tests.oracles.problems import log_marginal


class TopDown:
    """One cluster, then splits and merges; the Dirichlet-process free energy (Eq. 23) and cost (Eq. 24)."""

    def __init__(self, component: NormalInverseWishart, X: np.ndarray, alpha: float) -> None:
        self.component, self.X, self.alpha = component, X, alpha

    def free_energy(self, labels: np.ndarray) -> float:
        sizes = np.bincount(labels)
        sizes = sizes[sizes > 0]
        seats = len(sizes) * np.log(self.alpha) + gammaln(sizes).sum() + gammaln(self.alpha) - gammaln(self.alpha + len(labels))
        return -seats - sum(log_marginal(self.component, self.X[labels == k]) for k in np.unique(labels))

    def posterior(self, rows: np.ndarray) -> tuple[np.ndarray, float, float, np.ndarray]:
        """m, ξ, η and B of Eq. 18."""
        n, mean = len(rows), rows.mean(0)
        xi, eta = float(self.component.kappa) + n, float(self.component.nu) + n
        prior_mean = np.asarray(self.component.mean)
        scatter = (rows - mean).T @ (rows - mean)
        shift = mean - prior_mean
        scale = np.asarray(self.component.scale) + scatter + n * float(self.component.kappa) / xi * np.outer(shift, shift)
        return (n * mean + float(self.component.kappa) * prior_mean) / xi, xi, eta, scale

    def cost(self, rows: np.ndarray) -> np.ndarray:
        """Eq. 24 of every data row for the cluster of these rows."""
        m, xi, eta, scale = self.posterior(rows)
        d = self.X.shape[1]
        y = self.X - m
        square = (y @ np.linalg.inv(scale) * y).sum(1)
        digammas = digamma((eta + 1 - np.arange(1, d + 1)) / 2).sum()
        return eta / 2 * square + np.linalg.slogdet(scale)[1] / 2 + d / (2 * xi) - digammas / 2 - digamma(len(rows))

    def settle(self, labels: np.ndarray) -> np.ndarray:
        while True:
            used = np.unique(labels)
            new = used[np.stack([self.cost(self.X[labels == k]) for k in used]).argmin(0)]
            if self.free_energy(new) >= self.free_energy(labels) - 1e-9:
                return labels
            labels = new

    def responsibilities(self, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log density at the mean parameters (precision η B⁻¹), and probability of each cluster."""
        logs, sizes = [], []
        for k in np.unique(labels):
            m, _, eta, scale = self.posterior(self.X[labels == k])
            precision = eta * np.linalg.inv(scale)
            y = self.X - m
            norm = np.linalg.slogdet(precision)[1] - self.X.shape[1] * np.log(2 * np.pi)
            logs.append(norm / 2 - (y @ precision * y).sum(1) / 2)
            sizes.append((labels == k).sum())
        density = np.stack(logs, axis=1)
        joint = density + np.log(sizes)
        weight = np.exp(joint - joint.max(1, keepdims=True))
        return density, weight / weight.sum(1, keepdims=True)

    def split(self, labels: np.ndarray, k: int) -> np.ndarray:
        rows = self.X[labels == k]
        if len(rows) < 2:
            return labels
        values, vectors = np.linalg.eigh(np.cov(rows.T, bias=True).reshape(rows.shape[1], -1))
        d = vectors[:, -1] * np.sqrt(max(values[-1], 0.0))
        center = rows.mean(0)
        nearer = ((rows - center - d) ** 2).sum(1) < ((rows - center + d) ** 2).sum(1)
        new = labels.copy()
        new[np.flatnonzero(labels == k)[nearer]] = labels.max() + 1
        return new

    def run(self) -> np.ndarray:
        labels = np.zeros(len(self.X), int)
        while True:
            labels = self.splits(labels)
            merged = self.merge(labels)
            if merged is None:
                return labels
            labels = merged

    def splits(self, labels: np.ndarray) -> np.ndarray:
        while True:
            _, labels = np.unique(labels, return_inverse=True)
            density, weight = self.responsibilities(labels)
            share = weight / weight.sum(0)
            terms = np.where(share > 0, share * (np.log(np.maximum(share, 1e-300)) - density), 0.0).sum(0)
            for k in np.argsort(-terms):
                proposal = self.settle(self.split(labels, k))
                if self.free_energy(proposal) < self.free_energy(labels) - 1e-6:
                    labels = proposal
                    break
            else:
                return labels

    def merge(self, labels: np.ndarray) -> np.ndarray | None:
        _, labels = np.unique(labels, return_inverse=True)
        _, weight = self.responsibilities(labels)
        norm = np.linalg.norm(weight, axis=0)
        alike = weight.T @ weight / np.outer(norm, norm)
        for one, other in sorted(combinations(range(len(norm)), 2), key=lambda pair: -alike[pair]):
            proposal = self.settle(np.where(labels == other, one, labels))
            if self.free_energy(proposal) < self.free_energy(labels) - 1e-6:
                return proposal
        return None
