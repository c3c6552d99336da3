"""The sampler of hierarchical mixtures draws from the posterior: by enumeration, and against a plain one."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC

import bnp_hier as bnp
from bnp_hier.models import bhmc
from tests.kernels.small_problems import ITEMS_ALONE
from tests.oracles.bhmc import PlainBHMC
from tests.oracles.hierarchies import HierarchyEnumeration, log_labels
from tests.oracles.monte_carlo import effective_draws, independent_total_variation
from tests.oracles.trees import in_order_of_opening, log_nested_crp
from tests.parameters import few

ALPHA, GAMMA0, GAMMA = 0.9, 1.5, 0.8
FIXED = {"concentration": ALPHA, "root_concentration": GAMMA0, "mixing_concentration": GAMMA}


def normal(d: int = 1, variance: float = 0.5) -> bnp.NormalKnownCovariance:
    return bnp.NormalKnownCovariance(np.zeros(d), 2.0 * np.eye(d), variance * np.eye(d))


COUNTED = ("split_merge", "sibling_split_merge", "prune_regraft")
"""Moves whose acceptance the state counts."""

ROWS = np.array([[-1.2], [-0.7], [1.4], [0.3]])


def chain(model: Any, X: np.ndarray, steps: int, warmup: int = 200, seed: int = 0, **options: Any) -> tuple[dict, dict]:
    """Draws and label-invariant fields of one chain."""
    fields = ("log_joint", "n_nodes", "n_components", "log_tree_prior", "capacity_hits", "truncated_probability", "accepted")
    mcmc = MCMC(bnp.BHMCGibbs(model, **(ITEMS_ALONE | options)), num_warmup=warmup, num_samples=steps, progress_bar=False)
    mcmc.run(jax.random.key(seed), X, extra_fields=fields)
    return jax.tree.map(np.asarray, mcmc.get_samples()), jax.tree.map(np.asarray, mcmc.get_extra_fields())


def excess(exact: HierarchyEnumeration, draws: dict, fields: dict) -> float:
    """Total variation from the exact posterior over the mean of that of as many independent draws as the effective size."""
    index = np.array([exact.state_of(paths, labels) for paths, labels in zip(draws["paths"], draws["labels"], strict=True)])
    shares = np.bincount(index, minlength=len(exact.states)) / len(index)
    together = [
        (part[:, i] == part[:, j]).astype(float)
        for part in (draws["paths"][:, :, 0], draws["paths"][:, :, -1], draws["labels"])
        for i in range(part.shape[1])
        for j in range(i)
    ]
    series = [fields["n_nodes"], fields["n_components"], fields["log_tree_prior"], *together]
    size = int(effective_draws(*series))
    observed = np.abs(shares - exact.probabilities).sum() / 2
    return float(observed / independent_total_variation(exact.probabilities, size).mean())


EXACT = [
    ("gibbs", 3, 2, {}),
    ("mh", 3, 3, {"split_merge": 1, "relabel": True, "sibling_split_merge": 1, "prune_regraft": 1}),
    ("mh", 4, 2, {}),
    ("gibbs", 4, 2, {"split_merge": 2}),
    ("gibbs", 3, 3, {}),
]


@pytest.mark.parametrize(("path", "n", "depth", "moves"), few(EXACT, plain=0))
def test_exact(path: str, n: int, depth: int, moves: dict[str, Any]) -> None:
    """All states of tree and partition by component: the excess over independent draws is at most 1.3.

    At these sizes that lies more than eight standard deviations above the mean of independent draws.
    """
    component, X = normal(), ROWS[:n]
    exact = HierarchyEnumeration(n, depth, 3, ALPHA, GAMMA0, GAMMA, lambda rows: component.log_evidence(X[rows]))
    model = partial(bhmc, depth=depth, component=component, max_components=3, max_nodes=1 + n * depth, **FIXED)
    draws, fields = chain(model, X, 10_000, path=path, **moves)
    assert excess(exact, draws, fields) <= 1.3
    assert not fields["capacity_hits"].any()
    assert ((fields["accepted"][-1] > 0) == [moves.get(name, 0) > 0 for name in COUNTED]).all()


@pytest.mark.exhaustive
def test_the_papers_proportions_are_caught() -> None:
    """The same test fails for the paper's Eqs. 3-4, which treat every item below a node as a draw from its proportions."""
    component, X = normal(), ROWS[:4]
    exact = HierarchyEnumeration(4, 2, 3, ALPHA, GAMMA0, 0.3, lambda rows: component.log_evidence(X[rows]))
    fixed = {**FIXED, "mixing_concentration": 0.3}
    model = partial(bhmc, depth=2, component=component, max_components=3, max_nodes=9, **fixed)
    with pytest.warns(UserWarning, match="does not leave the posterior invariant"):
        draws, fields = chain(model, X, 60_000, mixing="paper")
    assert excess(exact, draws, fields) > 2


@pytest.mark.parametrize("path", few(["gibbs", "mh"], plain=0, slow=1))
def test_capacity_restricts_the_target_and_is_never_silent(path: str) -> None:
    """Trees of at most five nodes: the posterior restricted to them, hits counted and warned about."""
    component, X = normal(), ROWS[:3]
    exact = HierarchyEnumeration(3, 2, 3, ALPHA, GAMMA0, GAMMA, lambda rows: component.log_evidence(X[rows]), max_nodes=5)
    model = partial(bhmc, depth=2, component=component, max_components=3, max_nodes=5, **FIXED)
    with pytest.warns(RuntimeWarning, match="BHMCGibbs reached its capacity of 5 nodes: .* raise max_nodes of the site"):
        draws, fields = chain(model, X, 10_000, path=path)
    assert excess(exact, draws, fields) <= 1.3
    assert fields["capacity_hits"][-1] > 0 and 0 < fields["truncated_probability"][-1] < 1


INFINITE = [("mh", {}), ("gibbs", {"split_merge": 1, "sibling_split_merge": 1, "prune_regraft": 1})]


@pytest.mark.parametrize(("path", "moves"), few(INFINITE, plain=0, slow=1))
def test_exact_with_an_infinite_root(path: str, moves: dict[str, Any]) -> None:
    """As above; births need room for as many components as items, and one more for the rest."""
    component, X = normal(), ROWS[:3]
    exact = HierarchyEnumeration(3, 2, 3, ALPHA, GAMMA0, GAMMA, lambda rows: component.log_evidence(X[rows]), infinite=True)
    model = partial(bhmc, depth=2, component=component, max_components=4, max_nodes=7, root="infinite", **FIXED)
    draws, fields = chain(model, X, 10_000, path=path, **moves)
    assert excess(exact, draws, fields) <= 1.3
    assert not fields["capacity_hits"].any() and draws["labels"].max() < 3


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:BHMCGibbs reached its capacity:RuntimeWarning")
def test_an_infinite_root_with_few_components() -> None:
    """Two components of infinitely many: the posterior restricted to at most two, and births that are refused count."""
    component, X = normal(), ROWS[:3]
    exact = HierarchyEnumeration(3, 2, 2, ALPHA, GAMMA0, GAMMA, lambda rows: component.log_evidence(X[rows]), infinite=True)
    model = partial(bhmc, depth=2, component=component, max_components=3, max_nodes=7, root="infinite", **FIXED)
    draws, fields = chain(model, X, 10_000, split_merge=2)
    assert excess(exact, draws, fields) <= 1.3
    assert fields["capacity_hits"][-1] > 0 and 0 < fields["truncated_probability"][-1] < 1


@pytest.mark.slow
def test_exact_with_a_learned_component() -> None:
    """As above, with the evidence of each state integrated over the hyperparameter by quadrature."""
    X, centre, spread = ROWS[:3], -0.5, 1.2

    def component(kappa: Any) -> bnp.NormalInverseGamma:
        return bnp.NormalInverseGamma(np.zeros(1), kappa, 2.0, 0.3)

    points, weights = np.polynomial.hermite_e.hermegauss(12)
    joints, total = [], weights.sum()
    for point in points:
        family = component(float(np.exp(centre + spread * point)))
        exact = HierarchyEnumeration(3, 2, 3, ALPHA, GAMMA0, GAMMA, lambda rows, f=family: f.log_evidence(X[rows]))
        joints.append(exact.log_joint)
    exact.log_joint = np.logaddexp.reduce(np.array(joints) + np.log(weights / total)[:, None])
    exact.log_evidence = float(np.logaddexp.reduce(exact.log_joint))
    exact.probabilities = np.exp(exact.log_joint - exact.log_evidence)

    def learned(X: Any) -> bnp.NormalInverseGamma:
        return component(numpyro.sample("kappa", dist.LogNormal(centre, spread)))

    model = partial(bhmc, depth=2, component=learned, max_components=3, max_nodes=7, **FIXED)
    draws, fields = chain(model, X, 10_000, split_merge=1)
    assert excess(exact, draws, fields) <= 1.3


def test_the_tree_does_not_know_which_components_are_alike() -> None:
    """Exchanging components of the same size, with the paths of their items, changes no probability.

    Six items, two in each component: the components' pairs (0, 1), (0, 2) and (1, 2) are equally probable as siblings.
    """
    labels = np.repeat(np.arange(3), 2)
    probabilities = []
    for alone in range(3):
        branch = np.where(labels == alone, 1, 2)
        paths = np.column_stack([branch, np.where(labels == alone, 3, 4 + labels)])
        tree = in_order_of_opening(paths.tolist())
        probabilities.append(log_nested_crp(tree, ALPHA) + log_labels(paths.tolist(), labels, 3, GAMMA0, GAMMA))
    np.testing.assert_allclose(probabilities, probabilities[0], rtol=1e-12)


@pytest.mark.exhaustive
def test_agrees_with_a_plain_sampler() -> None:
    """Ten rows, three levels: posterior means of nodes, components and pairs within five standard errors (below 1e-5)."""
    X = np.concatenate([np.random.default_rng(0).normal(c, 0.6, (5, 2)) for c in (-1.5, 1.5)])
    plain = PlainBHMC(X, 3, 5, ALPHA, GAMMA0, GAMMA, 0.5, 2.0, seed=1)
    for _ in range(200):
        plain.step()
    series: dict[str, list[float]] = {"nodes": [], "components": [], "together": [], "same leaf": []}
    for _ in range(3000):
        plain.step()
        series["nodes"].append(plain.n_nodes)
        series["components"].append(plain.n_components)
        series["together"].append(plain.labels[0] == plain.labels[1])
        series["same leaf"].append(plain.paths[0][-1] == plain.paths[5][-1])
    model = partial(bhmc, depth=3, component=normal(2), max_components=5, max_nodes=31, **FIXED)
    draws, fields = chain(model, X, 10_000)
    ours = {
        "nodes": fields["n_nodes"],
        "components": fields["n_components"],
        "together": draws["labels"][:, 0] == draws["labels"][:, 1],
        "same leaf": draws["paths"][:, 0, -1] == draws["paths"][:, 5, -1],
    }
    for name, values in series.items():
        one, other = np.asarray(values, float), np.asarray(ours[name], float)
        error = np.hypot(*(part.std() / np.sqrt(effective_draws(part)) for part in (one, other)))
        assert abs(one.mean() - other.mean()) < 5 * error, (name, one.mean(), other.mean(), error)
        assert min(map(effective_draws, (one, other))) > 200, name
