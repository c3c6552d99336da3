"""Collapsed Gibbs sampling (Neal 2000, Algorithm 3) of a normal-inverse-Wishart mixture, as a good NumPy user writes it.

Sufficient statistics are kept per cluster; `np.linalg` is called for the one cluster that an item leaves and the one that it
joins; the predictive of an item at all clusters is one vectorised expression. It is also the baseline of the benchmark.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln


class CollapsedGibbs:
    """State of a sampler: labels in slots 0, 1, ..., with room that grows; a new cluster takes the first free slot."""

    def __init__(
        self, X: np.ndarray, mean: np.ndarray, kappa: float, nu: float, scale: np.ndarray, alpha: float, labels: np.ndarray
    ) -> None:
        self.Y, self.kappa, self.nu, self.scale, self.alpha = X - mean, kappa, nu, scale, alpha
        n, d = X.shape
        self.labels = np.array(labels)
        self.used = int(self.labels.max()) + 2  # slots looked at: the last is always free
        room = max(2 * self.used, 16)
        self.count, self.total = np.zeros(room), np.zeros((room, d))
        self.outer = np.zeros((room, d, d))
        self.mean, self.inverse, self.log_det = np.zeros((room, d)), np.zeros((room, d, d)), np.zeros(room)
        sizes = np.arange(n + 1)
        # what depends on a cluster's size alone
        kappas, nus = kappa + sizes, nu + sizes
        self.shrink = kappas / (kappas + 1)
        self.constant = (
            gammaln((nus + 1) / 2) - gammaln((nus + 1 - d) / 2) - d / 2 * np.log(np.pi) + d / 2 * np.log(self.shrink)
        )
        self.log_weight = np.log(np.maximum(sizes, 1))
        for i, label in enumerate(self.labels):
            self.count[label] += 1
            self.total[label] += self.Y[i]
            self.outer[label] += np.outer(self.Y[i], self.Y[i])
        for slot in range(room):
            self._refresh(slot)

    def _refresh(self, slot: int) -> None:
        kappa = self.kappa + self.count[slot]
        mean = self.total[slot] / kappa
        posterior = self.scale + self.outer[slot] - kappa * np.outer(mean, mean)
        self.mean[slot] = mean
        self.inverse[slot] = np.linalg.inv(posterior)
        self.log_det[slot] = np.linalg.slogdet(posterior)[1]

    def _move(self, i: int, slot: int, sign: float) -> None:
        y = self.Y[i]
        self.count[slot] += sign
        self.total[slot] += sign * y
        self.outer[slot] += sign * np.outer(y, y)
        self._refresh(slot)

    def _grow(self) -> None:
        for name in ("count", "total", "outer", "mean", "inverse", "log_det"):
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros_like(old)]))
        for slot in range(len(self.count) // 2, len(self.count)):
            self._refresh(slot)

    def sweep(self, order: np.ndarray, uniforms: np.ndarray | None) -> np.ndarray:
        """Visit the items in the given order; item i is placed by inverting the distribution function at uniforms[i].

        None puts each item where its weight is largest (MAP-DP).
        """
        log_alpha = np.log(self.alpha)
        for i in order:
            self._move(i, self.labels[i], -1.0)
            k = self.used
            count = self.count[:k].astype(int)
            difference = self.Y[i] - self.mean[:k]
            square = np.einsum("ki,kij,kj->k", difference, self.inverse[:k], difference)
            weight = (
                self.log_weight[count]
                + self.constant[count]
                - self.log_det[:k] / 2
                - (self.nu + count + 1) / 2 * np.log1p(self.shrink[count] * square)
            )
            free = count == 0
            first = int(free.argmax())
            opening = weight[first] + log_alpha
            weight[free] = -np.inf
            weight[first] = opening
            if uniforms is None:
                label = int(weight.argmax())
            else:
                cumulative = np.cumsum(np.exp(weight - weight.max()))
                label = int(np.searchsorted(cumulative, uniforms[i] * cumulative[-1]))
            self.labels[i] = label
            self._move(i, label, 1.0)
            if label == self.used - 1:
                self.used += 1
                if self.used > len(self.count):
                    self._grow()
        return self.labels
