"""A plain sampler of hierarchical mixtures: a dictionary of nodes, one item and one table at a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

__all__ = ["PlainBHMC"]


class PlainBHMC:
    """Gibbs sampling of paths, labels, proportions and normal means; variance and concentrations are fixed.

    Means have the prior N(0, prior_variance I), rows N(mean, variance I).
    """

    def __init__(
        self,
        X: np.ndarray,
        depth: int,
        components: int,
        alpha: float,
        root_concentration: float,
        concentration: float,
        variance: float,
        prior_variance: float,
        seed: int,
    ) -> None:
        self.X, self.depth, self.K = np.asarray(X, float), depth, components
        self.alpha, self.gamma0, self.gamma = alpha, root_concentration, concentration
        self.variance, self.prior_variance = variance, prior_variance
        self.rng = np.random.default_rng(seed)
        self.n, self.d = self.X.shape
        self.labels = np.zeros(self.n, int)
        self.children: dict[int, list[int]] = {0: []}
        self.parent: dict[int, int] = {}
        self.counts: dict[int, int] = {0: 0}
        self.beta: dict[int, np.ndarray] = {0: np.full(components, 1.0 / components)}
        self.names = 0
        self.paths: list[list[int]] = []
        path = self._open(0, np.zeros(components))
        for _ in range(self.n):
            self.paths.append(list(path))
            for node in (0, *path):
                self.counts[node] += 1
        self.means = np.zeros((components, self.d))
        self._draw_means()
        self._draw_mixing()

    def take(self, paths: np.ndarray, labels: np.ndarray) -> None:
        """Start anew from these paths, node numbers from 1, and labels."""
        self.labels = np.array(labels)
        self.paths = [list(map(int, path)) for path in paths]
        self.children, self.parent, self.counts = {0: []}, {}, {0: self.n}
        for path in self.paths:
            for above, node in zip((0, *path), path, strict=False):
                if node not in self.counts:
                    self.children[above].append(node)
                    self.children[node], self.parent[node], self.counts[node] = [], above, 0
                self.counts[node] += 1
        self.names = max(self.counts)
        self._draw_means()
        even = np.full(self.K, 1.0 / self.K)
        self.beta = {node: even for node in self.counts}
        self._draw_mixing()

    def _dirichlet(self, a: np.ndarray) -> np.ndarray:
        logs = np.full(len(a), -np.inf)
        # log Γ(a) variates: one of Γ(a + 1) and a uniform number to the power 1/a
        kept = a > 1e-300
        logs[kept] = np.log(self.rng.gamma(a[kept] + 1.0)) + np.log(self.rng.random(kept.sum())) / a[kept]
        weights = np.exp(logs - logs.max())
        return weights / weights.sum()

    def _open(self, above: int, pseudo_count: np.ndarray) -> list[int]:
        """A chain of new nodes below one, their proportions given what is known of their first customer."""
        level = 0
        at = above
        while at != 0:
            level, at = level + 1, self.parent[at]
        path = []
        for _ in range(level, self.depth):
            self.names += 1
            node = self.names
            self.children[above].append(node)
            self.children[node], self.parent[node], self.counts[node] = [], above, 0
            self.beta[node] = self._dirichlet(self.gamma * self.beta[above] + pseudo_count)
            path.append(node)
            above = node
        return path

    def _densities(self, x: np.ndarray, occupied: np.ndarray) -> np.ndarray:
        variances = np.where(occupied, self.variance, self.variance + self.prior_variance)
        means = np.where(occupied[:, None], self.means, 0.0)
        logs = -((x - means) ** 2).sum(1) / (2 * variances) - self.d / 2 * np.log(variances)
        return np.exp(logs - logs.max())

    def _remove(self, i: int) -> None:
        for node in self.paths[i]:
            self.counts[node] -= 1
        self.counts[0] -= 1
        for node in reversed(self.paths[i]):
            if self.counts[node] == 0:
                self.children[self.parent[node]].remove(node)
                for table in (self.children, self.parent, self.counts, self.beta):
                    del table[node]
        self.labels[i] = -1

    def _candidates(
        self, node: int, level: int, weight: float, ancestors: list[int], f: np.ndarray
    ) -> Iterator[tuple[list[int], float]]:
        """Leaves to join and inner nodes to branch off, with the way to them and their weights."""
        s = self.beta[node] @ f
        if level == self.depth:
            yield ancestors, weight * s
            return
        total = self.counts[node] + self.alpha
        yield ancestors, weight * self.alpha / total * s
        for child in self.children[node]:
            yield from self._candidates(child, level + 1, weight * self.counts[child] / total, [*ancestors, child], f)

    def step(self) -> None:
        """One sweep over all items, then everything else."""
        for i in self.rng.permutation(self.n):
            self._remove(i)
            occupied = np.bincount(self.labels[self.labels >= 0], minlength=self.K) > 0
            f = self._densities(self.X[i], occupied)
            candidates = list(self._candidates(0, 0, 1.0, [], f))
            weights = [weight for _, weight in candidates]
            choice = self.rng.choice(len(weights), p=np.array(weights) / sum(weights))
            path = list(candidates[choice][0])
            at = path[-1] if path else 0
            p = self.beta[at] * f
            label = self.rng.choice(self.K, p=p / p.sum())
            path += self._open(at, np.eye(self.K)[label])
            if not occupied[label]:
                precision = 1 / self.prior_variance + 1 / self.variance
                self.means[label] = self.X[i] / self.variance / precision + self.rng.normal(size=self.d) / np.sqrt(precision)
            self.labels[i], self.paths[i] = label, path
            for node in (0, *path):
                self.counts[node] += 1
        self._draw_means()
        self._draw_mixing()

    def _draw_means(self) -> None:
        for k in range(self.K):
            rows = self.X[self.labels == k]
            precision = 1 / self.prior_variance + len(rows) / self.variance
            mean = rows.sum(0) / self.variance / precision
            self.means[k] = mean + self.rng.normal(size=self.d) / np.sqrt(precision)

    def _draw_mixing(self) -> None:
        customers = {node: np.zeros(self.K, int) for node in self.counts}
        for path, label in zip(self.paths, self.labels, strict=True):
            customers[path[-1]][label] += 1

        def seat(node: int) -> None:
            for child in self.children[node]:
                seat(child)
                for k in range(self.K):
                    a = self.gamma * self.beta[node][k]
                    for i in range(customers[child][k]):
                        customers[node][k] += i == 0 or self.rng.random() < a / (a + i)

        def draw(node: int) -> None:
            for child in self.children[node]:
                self.beta[child] = self._dirichlet(self.gamma * self.beta[node] + customers[child])
                draw(child)

        seat(0)
        self.beta[0] = self._dirichlet(self.gamma0 / self.K + customers[0])
        draw(0)

    @property
    def n_nodes(self) -> int:
        """Nodes, the root included."""
        return len(self.counts)

    @property
    def n_components(self) -> int:
        """Components with items."""
        return len(np.unique(self.labels))
