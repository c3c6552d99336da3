"""Splits, merges and new divisions of components on a fixed tree, by themselves: the labels against sums over all of them."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bnp_hier as bnp
from bnp_hier.distributions import TreeMixing
from bnp_hier.distributions.nested_chinese_restaurant import read_tree
from bnp_hier.kernels.bhmc import component_moves
from bnp_hier.kernels.bhmc.paths import Concentrations, Mixture
from bnp_hier.kernels.bhmc.root_prior import RootPrior
from bnp_hier.native.availability import xla_programs
from tests.oracles.hierarchies import first_come, log_labels
from tests.oracles.monte_carlo import batch_means
from tests.parameters import few

ROWS = np.array([[-1.0], [-0.7], [0.2], [0.8], [1.1]])
PATHS = np.array([[1, 3], [1, 3], [1, 4], [2, 5], [2, 5]])
COMPONENT = bnp.NormalKnownCovariance(np.zeros(1), 2.0 * np.eye(1), 0.5 * np.eye(1))
GAMMA0, GAMMA = 1.5, 0.8
LIMIT = 4.5
"""Standard errors: a false-alarm rate of 2e-4 a case, of at most 30 comparisons."""


def exact(infinite: bool, divided: bool) -> dict[tuple[int, ...], float]:
    """Probabilities of the labels (with an infinite root, of partitions) with at most two components, or exactly two."""
    logs = {}
    for labels in product(range(2), repeat=len(ROWS)):
        if (infinite and labels != first_come(labels)) or (divided and len(set(labels)) < 2):
            continue
        rows = [ROWS[np.array(labels) == k] for k in set(labels)]
        prior = log_labels(PATHS.tolist(), labels, 2, GAMMA0, GAMMA, infinite)
        logs[labels] = prior + sum(float(COMPONENT.log_evidence(part)) for part in rows)
    total = np.logaddexp.reduce(list(logs.values()))
    return {labels: float(np.exp(value - total)) for labels, value in logs.items()}


def largest_score(infinite: bool, divided: bool, draws: int) -> float:
    """Largest deviation of the probability of any not too rare labels in a chain of such attempts alone (standard errors)."""
    nodes, components = 6, 3 if infinite else 2
    paths = jnp.asarray(PATHS)
    root = RootPrior(jnp.asarray(GAMMA0), components, infinite)
    prior = TreeMixing(paths, GAMMA0, GAMMA, components, nodes, "infinite" if infinite else "finite")
    labels = jnp.array([0, 0, 0, 1, 1])
    mixing = prior.sample(jax.random.key(1))
    concentrations = Concentrations(jnp.ones(()), root, jnp.asarray(GAMMA))
    tree, parameters = read_tree(paths, nodes), jnp.zeros((components, 1))

    def step(state: Any, key: jax.Array) -> Any:
        labels, mixing = state
        labels, mixing, _, _ = component_moves.split_merge_components(
            COMPONENT, ROWS, Mixture(paths, labels, mixing, parameters), tree, concentrations, 1, key
        )
        return (labels, mixing), labels

    chain = jax.jit(lambda keys: jax.lax.scan(step, (labels, mixing), keys)[1])
    found = np.asarray(chain(jax.random.split(jax.random.key(0), draws + 100)))[100:]
    target = exact(infinite, divided)
    often = np.array(list(target.values())) > 0.003
    assert often.sum() >= 4
    names = {labels: place for place, labels in enumerate(target)}
    places = np.array([names[first_come(labels) if infinite else tuple(labels.tolist())] for labels in found])
    mean, error = batch_means((places[:, None] == np.arange(len(target))).astype(float))
    return float(np.abs((mean - np.array(list(target.values()))) / np.maximum(error, 1e-9))[often].max())


@pytest.mark.optimised
@pytest.mark.parametrize(
    ("root", "native"), few([("finite", True), ("infinite", True), ("finite", False), ("infinite", False)], plain=0, slow=2)
)
def test_labels_on_a_fixed_tree(root: str, native: bool) -> None:
    with nullcontext() if native else xla_programs():
        assert largest_score(root == "infinite", False, 60_000) < LIMIT


def as_if_uniform(allocate: Any) -> Any:
    """Allocations as if all were drawn equally often."""
    return lambda *arguments: (allocation := allocate(*arguments))._replace(log_probability=0.0 * allocation.log_probability)


@pytest.mark.optimised
@pytest.mark.parametrize("wrong", [False, True], ids=["right", "wrong"])
@pytest.mark.parametrize("root", few(["finite", "infinite"], plain=0, slow=1))
def test_new_divisions_alone(root: str, wrong: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two components are never merged, so that both always have items; a ratio without probabilities of the draws fails."""
    monkeypatch.setattr(component_moves, "ANEW", 1.0)
    if wrong:
        monkeypatch.setattr(component_moves, "allocate", as_if_uniform(component_moves.allocate))
    with xla_programs():
        score = largest_score(root == "infinite", True, 60_000)
    assert score > 10.0 if wrong else score < LIMIT
