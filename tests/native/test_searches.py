"""Searches on the host by kernels and by XLA programs: the same partitions, trees, densities and estimates."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bnp_hier as bnp
from bnp_hier.deterministic.agglomeration.greedy_merging import agglomerate
from bnp_hier.deterministic.agglomeration.leaves import cluster_leaves, row_leaves
from bnp_hier.deterministic.agglomeration.merge_scores import CRITERIA
from bnp_hier.deterministic.agglomeration.prune_and_regraft import prune_regraft
from bnp_hier.deterministic.agglomeration.tree_evidence import evidence_of, statistics_of_nodes
from bnp_hier.distributions.seating import Prior
from bnp_hier.inspection.collapsed import MixtureValues
from bnp_hier.native.agglomeration import CRITERIA as NATIVE_CRITERIA
from bnp_hier.native.availability import xla_programs
from bnp_hier.partitions.clusters import joint_and_statistics, log_predictives, packed, unpacked
from bnp_hier.partitions.incremental import seat_rows
from bnp_hier.partitions.leave_one_out import joint_and_densities
from bnp_hier.partitions.search import anneal, descend, merge_clusters
from tests.native.random_problems import FAMILIES, Problem, random_problem
from tests.parameters import few

N, D = 26, 4


def problems(family: str, count: int = 3) -> list[Problem]:
    return [random_problem(family, (seed, len(family)), N, D, 40 * N) for seed in range(count)]


def values_of(problem: Problem) -> MixtureValues:
    return MixtureValues(Prior(problem.concentration, problem.discount), problem.component, problem.X)


def both(function: Callable[[Problem], Any], family: str, count: int = 3) -> list[tuple[Any, Any]]:
    """Results of a function for each problem by kernels and by XLA programs."""
    given = problems(family, count)
    kernels = [function(problem) for problem in given]
    with xla_programs():
        return list(zip(kernels, [function(problem) for problem in given], strict=True))


def same(one: Any, other: Any) -> None:
    ones, others = jax.tree.leaves(one), jax.tree.leaves(other)
    assert len(ones) == len(others)
    for a, b in zip(ones, others, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("family", few(FAMILIES, 0, 2))
def test_descents_merges_and_annealing(family: str, x64: None) -> None:
    def search(problem: Problem) -> Any:
        draws = problem.uniforms[: 12 * N].reshape(3, 2, 2, N)
        orders, starts = np.argsort(draws[:, 0, 0], axis=1), np.stack([problem.labels, np.full(N, -1), np.zeros(N, int)])
        values = values_of(problem)
        plain, merging = (descend(values, orders, starts, 9, 30, merge=merge) for merge in (False, True))
        annealed = anneal(values, starts * (starts > 0), np.array([[2.0, 0.5]] * 3), draws, N)
        return plain, merging, annealed, merge_clusters(values, np.arange(N) // 3)

    for one, other in both(search, family):
        same(one, other)


@pytest.mark.parametrize("family", few(FAMILIES, 0, 1))
def test_trees(family: str, x64: None) -> None:
    assert NATIVE_CRITERIA == CRITERIA

    def trees(problem: Problem) -> Any:
        component, X, alpha = problem.component, problem.X, problem.concentration
        rows = [agglomerate(component, row_leaves(X), alpha, criterion) for criterion in CRITERIA]
        groups = agglomerate(component, row_leaves(X), alpha, "ratio", groups=problem.labels)
        clusters = agglomerate(component, cluster_leaves(X, np.arange(N) // 2), alpha)
        regrafted = prune_regraft(component, X, alpha, rows[2].children, np.argsort(problem.uniforms[: 2 * N - 1]))
        evidence = evidence_of(component, X, alpha, rows[0].children)
        stats = statistics_of_nodes(component, X, rows[0].children, np.array([0, N, 2 * N - 2]))
        return [merges[:2] for merges in (*rows, groups, clusters)], regrafted, evidence, stats

    for one, other in both(trees, family, 2):
        same(one, other)


@pytest.mark.parametrize("family", few(FAMILIES, 0, 2))
def test_densities(family: str, x64: None) -> None:
    def densities(problem: Problem) -> Any:
        component, X, labels, prior = problem.component, problem.X, problem.labels, Prior(problem.concentration, 0.1)
        joint, stats = joint_and_statistics(component, X[:20], np.unique(labels[:20], return_inverse=True)[1], prior)
        again = unpacked(component, packed(stats))
        program = jax.jit(partial(joint_and_densities, slots=8, max_clusters=4))
        values = values_of(problem)._replace(X=jnp.asarray(X[:20]))
        densities = program(values, jnp.asarray(labels[:20] % 5), new=jnp.asarray(X[20:]))
        seated = seat_rows(
            component, X[20:], (stats, np.bincount(np.unique(labels[:20], return_inverse=True)[1]).astype(float)), prior, 9, 2
        )
        return joint, stats, again, log_predictives(component, stats, X[20:], 20), densities, seated

    for one, other in both(densities, family):
        same(one, other)
        same(one[1], one[2])


@pytest.mark.parametrize("family", few(["normal", "mixed"], 0, 1))
def test_particle_filter(family: str) -> None:
    def estimate(problem: Problem) -> Any:
        model = partial(bnp.models.dpm, component=problem.component, concentration=problem.concentration)
        options = {"num_particles": 20, "num_orders": 2, "rejuvenation": 3, "progress_bar": False}
        return bnp.evidence.smc(model, problem.X, 1, **options).orders

    for one, other in both(estimate, family, 1):
        same(one, other)
