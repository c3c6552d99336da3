"""Starts are the same from kernels and from XLA programs, and so are draws from the partition prior."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bnp_hier.distributions.chinese_restaurant import seat_customers
from bnp_hier.distributions.seating import Prior
from bnp_hier.kernels.initial_labels import starting_labels
from bnp_hier.partitions.gibbs_steps import partition_diagnostics
from bnp_hier.partitions.seats import Seating
from tests.native.both_engines import arguments_of, both, problems_of, same
from tests.native.random_problems import FAMILIES
from tests.parameters import few


@pytest.mark.parametrize("slots", [4, 40])
def test_draws_from_the_partition_prior(slots: int, x64: None) -> None:
    rng = np.random.default_rng(slots)
    parameters = [(rng.random(40), 8 * rng.random(), rng.choice([0.0, 0.6])) for _ in range(50)]
    kernels, programs = both(
        lambda u, alpha, discount: seat_customers(u, alpha, discount, slots), *zip(*parameters, strict=True)
    )
    same(kernels, programs)
    assert len({labels.max() for labels in kernels}) > 1


@pytest.mark.parametrize("family", few(FAMILIES, 2, 5))
def test_starts_with_their_summaries(family: str, x64: None) -> None:
    def start(component: Any, X: Any, alpha: Any, discount: Any, labels: Any, uniforms: Any) -> Any:
        seating = Seating(component, X, Prior(alpha, discount))
        found = starting_labels("overdispersed", seating, uniforms, 5)
        return found, *partition_diagnostics(seating, found, 5)

    problems = problems_of(family, 20, 3, 21)
    same(*both(start, *arguments_of(problems)))
