"""The probabilities that reports print come true as often as they say, on tables drawn from the prior."""

from __future__ import annotations

from collections import defaultdict
from functools import partial

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.handlers import uncondition
from numpyro.infer import Predictive

import bnp_hier as bnp
from bnp_hier.methods import METHODS, RunOptions
from bnp_hier.posterior.credible_balls import large_clusters, least_share
from bnp_hier.posterior.draws import draws_of, partition_of
from bnp_hier.posterior.item_uncertainty import row_probabilities

ROWS = 30
BINS = np.array([0.0, 0.05, 0.2, 0.4, 0.6, 0.8, 0.95, 1.0 + 1e-9])
LIMIT = 4.2
"""Of |z|: a chance of 3e-5 for each of at most 35 bins, so that a false alarm has a chance of about 1e-3."""


def _zs(pairs: list[tuple[np.ndarray, np.ndarray]], *, sharpened: bool = False) -> np.ndarray:
    """z of what came true minus the probabilities: of all, and of the bins in which about three things go against the odds.

    Tables are independent; what is within them may go together, as the largest possible variance has it.
    """
    sums, sds = np.zeros((2, len(pairs), len(BINS)))
    for table, (p, y) in enumerate(pairs):
        said = p**2 / (p**2 + (1 - p) ** 2) if sharpened else p
        for where in (np.zeros(len(p), int), np.digitize(said, BINS)):
            np.add.at(sums[table], where, y - said)
            np.add.at(sds[table], where, np.sqrt(said * (1 - said)))
    variances = (sds**2).sum(0)
    enough = (variances > 3.0) | (np.arange(len(BINS)) == 0)
    return (sums.sum(0) / np.sqrt(np.maximum(variances, 1e-9)))[enough]


@pytest.mark.parametrize("tables", [pytest.param(60, marks=pytest.mark.slow), pytest.param(240, marks=pytest.mark.exhaustive)])
def test_printed_probabilities_come_true(tables: int) -> None:
    """Certainty of rows, numbers of clusters, those of at least 2 %, and the clusters of a new row, a new one among them."""
    component = bnp.NormalInverseWishart(mean=np.zeros(2), kappa=0.05, nu=6.0, scale=3.0 * np.eye(2))
    model = partial(bnp.models.dpm, component=component, concentration=dist.Gamma(2.0, 2.0))
    simulated = Predictive(uncondition(model), num_samples=tables)(jax.random.key(0), np.zeros((ROWS + 1, 2)))
    said: dict[str, list[tuple[np.ndarray, np.ndarray]]] = defaultdict(list)
    for seed, (table, z) in enumerate(zip(np.asarray(simulated["X"]), np.asarray(simulated["z"]), strict=True)):
        X, truth, new_row = table[:-1].astype(float), z[:-1], table[-1:].astype(float)
        options = RunOptions(chains=2, warmup=100, samples=400, random_state=seed, progress_bar=False)
        if seed % 5 == 4:
            jax.clear_caches()  # each program takes some of the memory maps that a process may have
        run = METHODS["gibbs"].run(model, X, options)
        draws, labels = draws_of(run, X).labels, partition_of(run, X)
        for name, least in (("number of clusters", 0.0), ("of at least 2 %", least_share(ROWS))):
            p = np.bincount(large_clusters(draws, least).ravel(), minlength=ROWS + 1) / draws[..., 0].size
            said[name].append((p, np.arange(ROWS + 1) == large_clusters(truth, least)))
        own = np.arange(ROWS), labels
        said["certainty"].append((row_probabilities(draws, labels)[own], row_probabilities(truth[None], labels)[own]))
        p = bnp.cluster_probabilities(run, X, labels, new_row, num_samples=800)[0]
        members = np.bincount(labels[truth == z[-1]], minlength=labels.max() + 1)
        shares = np.append(members, 0.0) / members.sum() if members.any() else np.append(0.0 * members, 1.0)
        said["clusters of a new row"].append((p[:-1], shares[:-1]))
        said["new cluster"].append((p[-1:], shares[-1:]))
    for name, pairs in said.items():
        zs = _zs(pairs)
        print(name, zs.round(1), _zs(pairs, sharpened=True).round(1))
        assert np.abs(zs).max() < LIMIT, (name, zs)
    assert max(np.abs(_zs(pairs, sharpened=True)).max() for pairs in said.values()) > LIMIT, "the test cannot fail"
