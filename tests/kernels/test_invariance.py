"""Every kernel in every configuration leaves the posterior invariant: long chains on four and five rows, by enumeration.

Each test says how small a bias in the number of clusters it would see, and fails where its chain is too short for that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from numpyro.infer import MCMC, NUTS, CustomGibbs, Gibbs
from scipy.special import gammaln
from scipy.stats import gamma as gamma_distribution

import bnp_hier as bnp
from bnp_hier.kernels import parallel_moves
from bnp_hier.models import bhmc, pitman_yor_mixture
from bnp_hier.native.availability import xla_programs
from tests.components.user_family import ExponentialGamma
from tests.kernels.small_problems import ITEMS_ALONE
from tests.oracles.hierarchies import HierarchyEnumeration
from tests.oracles.monte_carlo import batch_means, effective_draws, independent_total_variation, total_variation
from tests.oracles.partitions import Enumeration
from tests.parameters import few

pytestmark = [pytest.mark.slow, pytest.mark.optimised]

DRAWS, FEWER = 200_000, 80_000
"""Draws of a chain, and of one that mixes so well that these suffice, which the tests check."""

ROWS = np.array([[-1.5], [-1.0], [0.3], [1.2], [1.6]])
NORMAL = bnp.NormalInverseGamma(np.zeros(1), 0.4, 2.0, 0.6)
LIMIT = 4.5
"""Standard errors from the exact value at which a chain's mean fails: false-alarm rate 7e-6 a comparison, of which a test of a
partition has at most eleven and one of a tree at most 32."""

SEEN = LIMIT + 2
"""Standard errors of a bias that fails in 98 of 100 runs."""


def target(
    n: int, discount: float, *, component: Any = NORMAL, X: np.ndarray = ROWS, alpha: float = 1.0, capacity: int | None = None
) -> tuple[Enumeration, np.ndarray]:
    """All partitions of the first rows, and their probabilities given at most `capacity` clusters."""
    exact = Enumeration(n, lambda rows: component.log_evidence(X[rows]), alpha, discount)
    allowed = np.array(exact.labels).max(1) < (capacity or n)
    return exact, np.where(allowed, exact.probabilities, 0.0) / exact.probabilities[allowed].sum()


def deviations(labels: np.ndarray, exact: Enumeration, probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Errors of E[K] and of the probability of every pair of rows, and their standard errors by batch means."""
    partitions = np.array(exact.labels)

    def summaries(z: np.ndarray) -> np.ndarray:
        pairs = [z[:, i] == z[:, j] for i in range(exact.n) for j in range(i)]
        return np.column_stack([z.max(1) + 1, *pairs]).astype(float)

    mean, error = batch_means(summaries(labels))
    return mean - probabilities @ summaries(partitions), error


def assert_invariant(labels: np.ndarray, exact: Enumeration, probabilities: np.ndarray, sees: float = 0.03) -> None:
    """E[K], all pairs and the total variation are those of the posterior.

    Parameters
    ----------
    sees
        Bias of E[K] that must fail in 98 of 100 runs.
    """
    bias, error = deviations(labels, exact, probabilities)
    assert SEEN * error[0] <= sees, f"the chain is too short: it would miss a bias of {SEEN * error[0]:.4f} clusters"
    scores = bias / np.maximum(error, 1e-9)
    assert np.abs(scores).max() < LIMIT, scores
    clusters = labels.max(1)
    together = [labels[:, i] == labels[:, j] for i in range(exact.n) for j in range(i)]
    size = int(effective_draws(clusters, *together))
    independent = independent_total_variation(probabilities, size)
    # of few partitions it varies much: five standard deviations of independent draws' lie beyond all that is seen
    assert total_variation(labels, exact, probabilities) <= independent.mean() + 5 * independent.std()


def draw(kernel: Any, *arguments: Any, draws: int = DRAWS, seed: int = 0) -> np.ndarray:
    """Labels of one chain in order of appearance."""
    mcmc = MCMC(kernel, num_warmup=500, num_samples=draws, progress_bar=False)
    mcmc.run(jax.random.key(seed), *arguments)
    labels = np.asarray(mcmc.get_samples()["z"])
    first = (labels[:, :, None] == labels[:, None, :]).argmax(2)
    rank = np.cumsum(first == np.arange(labels.shape[1]), axis=1) - 1
    return np.take_along_axis(rank, first, axis=1)


def mixture(discount: float, component: Any = NORMAL) -> Callable[..., Any]:
    return partial(pitman_yor_mixture, component=component, concentration=1.0, discount=discount)


REPEATS = dict.fromkeys(
    [
        "no sweep",
        "no sweep, no discount",
        "no sweep, capacity",
        "no sweep, double",
        "sweep, capacity",
        "sweep, double",
        "default, from labels",
        "restricted, capacity",
        "gibbs, items alone",
        "siblings, relabel",
        "trees, default",
        "mh",
        "grafts, three levels",
        "restricted, no scans",
        "one move, double",
        "sweeps alone, discount",
    ],
    pytest.mark.exhaustive,
)
"""Configurations whose parts others have as well."""

PARALLEL = {
    "no sweep": (5, 0.6, {"sweep": False}, False),
    "no sweep, no discount": (5, 0.0, {"sweep": False}, False),
    "no sweep, double": (4, 0.6, {"sweep": False}, True),
    "sweep, double": (5, 0.6, {"sweep": True}, True),
    "default": (5, 0.0, {}, False),
    "default, from labels": (4, 0.3, {"init": [0, 1, 0, 1]}, False),
    "no sweep, capacity": (5, 0.6, {"sweep": False, "max_clusters": 3, "init": "one"}, False),
    "sweep, capacity": (4, 0.0, {"sweep": True, "max_clusters": 2, "init": "one"}, False),
}
PARTITION = {
    "default": (5, 0.6, {}, False),
    "sweeps alone": (4, 0.0, {"split_merge": 0}, False),
    "sweeps alone, discount": (5, 0.6, {"split_merge": 0}, True),
    "one move, double": (5, 0.0, {"split_merge": 1, "init": "singletons"}, True),
    "restricted": (5, 0.6, {"proposal": "restricted_gibbs"}, False),
    "restricted, no scans": (4, 0.3, {"proposal": "restricted_gibbs", "restricted_scans": 0}, False),
    "capacity": (5, 0.6, {"max_clusters": 3}, False),
    "restricted, capacity": (4, 0.0, {"max_clusters": 2, "proposal": "restricted_gibbs"}, True),
}


@pytest.mark.filterwarnings("ignore:.* reached its capacity:RuntimeWarning")
@pytest.mark.parametrize(
    ("make", "n", "discount", "options", "double"),
    [
        pytest.param(make, *case, id=f"{make.__name__}: {name}", marks=REPEATS.get(name, ()))
        for make, cases in ((bnp.ParallelSplitMerge, PARALLEL), (bnp.PartitionGibbs, PARTITION))
        for name, case in cases.items()
    ],
)
def test_partition_kernels(make: Any, n: int, discount: float, options: dict[str, Any], double: bool) -> None:
    if isinstance(options.get("init"), list):
        options = options | {"init": np.array(options["init"])}
    with jax.enable_x64(double):
        sweeps = make is bnp.ParallelSplitMerge and options.get("sweep", True)
        labels = draw(make(mixture(discount), **options), ROWS[:n], draws=FEWER if sweeps else DRAWS)
    assert_invariant(labels, *target(n, discount, capacity=options.get("max_clusters")))


@pytest.mark.filterwarnings("ignore:.* reached its capacity:RuntimeWarning")
@pytest.mark.parametrize("name", few(["restricted, capacity", "default"], plain=0, slow=0))
def test_partition_gibbs_by_xla_programs(name: str) -> None:
    with xla_programs():
        test_partition_kernels(bnp.PartitionGibbs, *PARTITION[name])


@pytest.mark.slow
def test_parallel_moves_by_likelihood_alone() -> None:
    """A family that gives no natural parameters goes by its likelihood instead of matrix products."""
    component, X = ExponentialGamma(np.full(1, 2.0), np.full(1, 1.0)), np.exp(ROWS)
    labels = draw(bnp.ParallelSplitMerge(mixture(0.3, component), sweep=False, init="one"), X, draws=FEWER)
    assert_invariant(labels, *target(5, 0.3, component=component, X=X), sees=0.07)


def test_an_order_that_the_moves_change_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs decided before single clusters: a quarter of the draws sees it, in the number of clusters."""
    monkeypatch.setattr(parallel_moves, "_turns", lambda units: jnp.arange(units.anchors.shape[0]))
    labels = draw(bnp.ParallelSplitMerge(mixture(0.6), sweep=False, init="one"), ROWS, draws=DRAWS // 4)
    bias, error = deviations(labels, *target(5, 0.6))
    assert bias[0] < -LIMIT * error[0], (bias[0], error[0])


@pytest.mark.exhaustive
def test_rows_on_two_devices_give_the_draws_of_one() -> None:
    """So that what holds for one device holds for several."""
    rows = ROWS[:4]
    spread = jax.device_put(rows, NamedSharding(Mesh(np.array(jax.devices()), ("rows",)), PartitionSpec("rows")))
    draws = [draw(bnp.ParallelSplitMerge(mixture(0.6), sweep=False, init="one"), X, draws=500) for X in (rows, spread)]
    assert len(np.unique(draws[0], axis=0)) > 10
    np.testing.assert_array_equal(*draws)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(bnp.PartitionGibbs, id="PartitionGibbs", marks=pytest.mark.exhaustive),
        pytest.param(partial(bnp.ParallelSplitMerge, sweep=False), id="ParallelSplitMerge", marks=pytest.mark.exhaustive),
    ],
)
def test_concentration_under_nuts(make: Any) -> None:
    """α ~ Gamma(2, 1) is integrated out by quadrature."""
    n = 4
    exact, _ = target(n, 0.0)
    sizes = [np.bincount(z) for z in exact.labels]
    marginals = exact.log_joint - np.array([gammaln(s).sum() - gammaln(n + 1) for s in sizes])
    alphas = gamma_distribution(2.0).ppf((np.arange(4000) + 0.5) / 4000)
    priors = [len(s) * np.log(alphas) + gammaln(s).sum() + gammaln(alphas) - gammaln(n + alphas) for s in sizes]
    log_joint = marginals + np.logaddexp.reduce(np.array(priors), axis=1)
    model = partial(pitman_yor_mixture, component=NORMAL, concentration=dist.Gamma(2.0, 1.0), discount=0.0)
    # long enough steps for α, and few of them
    nuts = NUTS(model, step_size=1.0, adapt_step_size=False, adapt_mass_matrix=False, max_tree_depth=2)
    labels = draw(Gibbs([(make(model), ["z"]), (nuts, None)]), ROWS[:n])
    assert_invariant(labels, exact, np.exp(log_joint - np.logaddexp.reduce(log_joint)), sees=0.03)


def normal_means(alpha: float, discount: float, n: int, slots: int) -> None:
    """A mixture with the clusters' means as a site, for `AuxiliaryGibbs`."""
    z = numpyro.sample("z", bnp.ChineseRestaurantProcess(alpha, n, discount, max_clusters=slots))
    with numpyro.plate("clusters", slots):
        loc = numpyro.sample("loc", dist.Normal(0.0, 2.0))
    with numpyro.plate("rows", n):
        numpyro.sample("X", dist.Normal(loc[z], 1.0), obs=jnp.asarray(ROWS[:n, 0]))


def exact_means(rng_key: jax.Array, gibbs_sites: dict, hmc_sites: dict, n: int) -> dict:
    """The means given the labels in closed form."""
    z, slots = hmc_sites["z"], gibbs_sites["loc"].shape[0]
    precision = 0.25 + jax.ops.segment_sum(jnp.ones(n), z, slots)
    mean = jax.ops.segment_sum(jnp.asarray(ROWS[:n, 0], jnp.result_type(float)), z, slots) / precision
    return {"loc": mean + jax.random.normal(rng_key, (slots,)) / jnp.sqrt(precision)}


@pytest.mark.filterwarnings("ignore:AuxiliaryGibbs reached its capacity:RuntimeWarning")
@pytest.mark.parametrize(
    ("n", "discount", "slots", "means", "double"),
    few(
        [(5, 0.4, 3, "exact", True), (5, 0.0, 5, "exact", False), (4, 0.4, 7, "exact", False), (4, 0.0, 4, "nuts", False)],
        plain=0,
    ),
)
def test_auxiliary_gibbs(n: int, discount: float, slots: int, means: str, double: bool) -> None:
    component = bnp.NormalKnownCovariance(np.zeros(1), 4.0 * np.eye(1), np.eye(1))
    model = partial(normal_means, discount=discount, n=n, slots=slots)
    block: Any = CustomGibbs(partial(exact_means, n=n))
    if means == "nuts":
        block = NUTS(model, step_size=0.8, adapt_step_size=False, adapt_mass_matrix=False, max_tree_depth=2)
    with jax.enable_x64(double):
        labels = draw(Gibbs([(bnp.AuxiliaryGibbs(model), ["z"]), (block, ["loc"])]), 1.0)
    assert_invariant(labels, *target(n, discount, component=component, capacity=slots), sees=0.05)


FIXED = {"concentration": 0.9, "root_concentration": 1.5, "mixing_concentration": 0.8}
MOVES = {"split_merge": 1, "sibling_split_merge": 1, "prune_regraft": 1}
TREES = {
    "trees, default": (4, 2, {}, {}),
    "gibbs, items alone": (5, 2, ITEMS_ALONE, {"max_components": 2}),
    "mh": (4, 2, ITEMS_ALONE | {"path": "mh"}, {}),
    "siblings, relabel": (4, 2, ITEMS_ALONE | {"sibling_split_merge": 2, "relabel": True}, {}),
    "grafts, three levels": (4, 3, ITEMS_ALONE | {"prune_regraft": 2}, {}),
    "all moves, capacity": (4, 2, MOVES | {"relabel": True}, {"max_nodes": 6}),
    "infinite root": (4, 2, MOVES, {"root": "infinite"}),
}
TREE_CASES = [pytest.param(*case, id=name, marks=REPEATS.get(name, ())) for name, case in TREES.items()]


@pytest.mark.filterwarnings("ignore:BHMCGibbs reached its capacity:RuntimeWarning")
@pytest.mark.parametrize(("n", "depth", "options", "tree"), TREE_CASES)
def test_bhmc(n: int, depth: int, options: dict[str, Any], tree: dict[str, Any]) -> None:
    """Means of nodes, components, and of pairs of items in one branch, one leaf and one component."""
    component, X = bnp.NormalKnownCovariance(np.zeros(1), 2.0 * np.eye(1), 0.5 * np.eye(1)), ROWS[:n]
    infinite = tree.get("root") == "infinite"
    sizes = {"max_components": n + 1 if infinite else 3, "max_nodes": 1 + n * depth} | tree
    exact = HierarchyEnumeration(
        n,
        depth,
        n if infinite else sizes["max_components"],
        *FIXED.values(),
        lambda rows: component.log_evidence(X[rows]),
        infinite=infinite,
        max_nodes=sizes["max_nodes"],
    )
    kernel = bnp.BHMCGibbs(partial(bhmc, depth=depth, component=component, **sizes, **FIXED), **options)
    mcmc = MCMC(kernel, num_warmup=500, num_samples=FEWER // 2, progress_bar=False)
    mcmc.run(jax.random.key(0), X)
    draws = mcmc.get_samples()
    mean, error = batch_means(exact.summaries(np.asarray(draws["paths"]), np.asarray(draws["labels"])))
    assert SEEN * error[:2].max() <= 0.1, f"the chain is too short: it would miss a bias of {SEEN * error[:2].max():.3f}"
    scores = (mean - exact.expected_summaries()) / np.maximum(error, 1e-9)
    assert np.abs(scores).max() < LIMIT, scores
