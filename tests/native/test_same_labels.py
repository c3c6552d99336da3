"""Kernels and XLA programs find the same labels, item by item, from the same uniform draws."""

from __future__ import annotations

from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bnp_hier.distributions.seating import Prior
from bnp_hier.partitions.gibbs_steps import draws_per_step, gibbs_step
from bnp_hier.partitions.seats import Seating
from bnp_hier.partitions.split_merge import split_or_merge
from bnp_hier.partitions.sweeps import sweep
from tests.native.both_engines import arguments_of, both, problems_of, same
from tests.native.random_problems import FAMILIES, random_problem
from tests.parameters import few

SIZES = ((12, 1, 12), (30, 3, 6), (24, 7, 24))
"""Rows, columns and slots."""


@pytest.mark.parametrize(("size", "family"), few(product(SIZES, FAMILIES), plain=2, slow=5))
def test_steps(size: tuple[int, int, int], family: str, x64: None) -> None:
    """A sweep followed by moves with sequential allocation; the log joint and all summaries are the same, too."""
    n, d, slots = size
    draws = draws_per_step(n, 3)

    def step(component: Any, X: Any, alpha: Any, discount: Any, labels: Any, uniforms: Any) -> Any:
        return gibbs_step(Seating(component, X, Prior(alpha, discount)), labels, uniforms, slots, 3)

    kernels, programs = both(step, *arguments_of(problems_of(family, n, d, draws)))
    same(kernels, programs)


@pytest.mark.parametrize("family", few(FAMILIES, 0, 2))
def test_restricted_gibbs_proposals(family: str, x64: None) -> None:
    n, d, slots, scans = 20, 3, 8, 2
    draws = draws_per_step(n, 4, scans)

    def step(component: Any, X: Any, alpha: Any, discount: Any, labels: Any, uniforms: Any) -> Any:
        return gibbs_step(Seating(component, X, Prior(alpha, discount)), labels, uniforms, slots, 4, scans)

    kernels, programs = both(step, *arguments_of(problems_of(family, n, d, draws)))
    same(kernels, programs)
    accepted = kernels[5::8]
    assert sum(accepted) > 0


@pytest.mark.parametrize("drawn", few([True, False]))
@pytest.mark.parametrize("family", few(FAMILIES, 1, 2))
def test_sweeps_of_some_items(family: str, drawn: bool, x64: None) -> None:
    """Items without a cluster, items that do not move, a temperature, further rows by slot, and too few slots."""
    n, d, slots = 24, 4, 6

    def once(component: Any, X: Any, alpha: Any, discount: Any, labels: Any, uniforms: Any) -> Any:
        seating = Seating(component, X, Prior(alpha, discount))
        others = jax.tree.map(
            lambda leaf: leaf[:slots] * (jnp.arange(slots) < 2).reshape(-1, *[1] * (leaf.ndim - 1)), seating.rows
        )
        start = jnp.where(uniforms[n : 2 * n] < 0.3, -1, labels)
        order, counts = jnp.argsort(uniforms[:n])[: n - 5], (jnp.arange(slots) < 2).astype(float)
        return sweep(seating, start, order, uniforms[2 * n :] if drawn else None, slots, 1.7, (others, counts))

    problems = [problem._replace(concentration=30.0 * problem.concentration) for problem in problems_of(family, n, d, 3 * n)]
    kernels, programs = both(once, *arguments_of(problems))
    same(kernels, programs)
    assert sum(kernels[1::2]) > 0 or not drawn  # slots were lacking


@pytest.mark.parametrize("family", few(FAMILIES, 2, 5))
def test_moves_of_the_first_items(family: str, x64: None) -> None:
    n, d, seated = 18, 3, 11

    def move(component: Any, X: Any, alpha: Any, discount: Any, labels: Any, uniforms: Any) -> Any:
        seen = jnp.where(jnp.arange(n) < seated, labels, -1)
        return split_or_merge(Seating(component, X, Prior(alpha, discount)), seen, uniforms, n, seated)

    kernels, programs = both(move, *arguments_of(problems_of(family, n, d, 3 + 2 * n)))
    same(kernels, programs)


def test_batches_and_single_precision() -> None:
    """Under vmap, one level or two, chains find what each finds alone; labels and uniforms are 32-bit numbers."""
    n = 20
    problems = [random_problem("normal", seed, n, 2, 6 * draws_per_step(n, 2)) for seed in range(2)]
    component, X = problems[0].component, problems[0].X

    def chain(labels: Any, uniforms: Any, alpha: Any) -> Any:
        return gibbs_step(Seating(component, X, Prior(alpha)), labels, uniforms, n, 2)

    labels = jnp.stack([jnp.asarray(problem.labels) for problem in problems])
    uniforms = jnp.asarray(problems[0].uniforms).reshape(3, 2, -1)
    alphas = jnp.array([0.5, 1.0, 2.0])
    assert labels.dtype == jnp.int32 and uniforms.dtype == jnp.float32
    inner = jax.vmap(chain, (0, 0, None))
    together = jax.jit(jax.vmap(inner, (None, 0, 0)))(labels, uniforms, alphas)
    for a in range(3):
        for b in range(2):
            alone = jax.jit(chain)(labels[b], uniforms[a, b], alphas[a])
            for one, many in zip(alone, together, strict=True):
                np.testing.assert_array_equal(one, many[a, b])
