"""Draws of hierarchical mixtures: summaries, densities, point estimates, clade support, new items and ArviZ groups."""

from __future__ import annotations

import warnings
from functools import partial

import arviz as az
import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC
from scipy.stats import norm

import bnp_hier as bnp
from bnp_hier.models import bhmc, dpm

ROWS = np.random.default_rng(0).normal([[-2.0, 0.0], [2.0, 0.0], [2.0, 2.0]], 0.4, (4, 3, 2)).reshape(-1, 2)
NAMES = [f"item {i}" for i in range(12)]
COMPONENT = bnp.NormalKnownCovariance(np.zeros(2), 4.0 * np.eye(2), 0.3 * np.eye(2))
MODEL = partial(
    bhmc, depth=2, component=COMPONENT, root_concentration=1.5, mixing_concentration=dist.Uniform(0.2, 2.0), max_components=5
)


@pytest.fixture(scope="module")
def fit() -> MCMC:
    mcmc = MCMC(
        bnp.BHMCGibbs(partial(MODEL, max_nodes=25)),
        num_warmup=50,
        num_samples=40,
        num_chains=2,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(0), ROWS, extra_fields=("log_joint", "n_nodes", "lca_depth"))
    return mcmc


@pytest.fixture(scope="module")
def draws(fit: MCMC) -> bnp.HierarchyDraws:
    return bnp.hierarchy_draws(fit, ROWS)


@pytest.mark.slow
def test_summaries_are_those_of_the_state(fit: MCMC, draws: bnp.HierarchyDraws) -> None:
    fields, ours = fit.get_extra_fields(group_by_chain=True), draws.summaries()
    for name in ("log_joint", "n_nodes", "lca_depth"):
        np.testing.assert_allclose(ours[name], fields[name], rtol=1e-4)
    tree = draws[1, 7]
    assert ours["n_nodes"][1, 7] == tree.n_nodes and ours["n_leaves"][1, 7] == (tree.levels == 2).sum()
    assert ours["largest_branch"][1, 7] == pytest.approx(tree.sizes[tree.levels == 1].max() / 12)
    meeting = [(draws.paths[1, 7, i] == draws.paths[1, 7, j]).sum() for i in range(12) for j in range(i)]
    np.testing.assert_allclose(ours["lca_depth"][1, 7], np.mean(meeting))


def normal_densities(rows: np.ndarray, draws: bnp.HierarchyDraws, at: tuple[int, int], sizes: np.ndarray) -> np.ndarray:
    """Density of rows under every component of a draw; of one without items that integrated over its prior."""
    means = draws.samples["parameters"][at].astype(float)
    own = norm.pdf(rows[:, None], means, np.sqrt(0.3)).prod(-1)
    return np.where(sizes > 0, own, norm.pdf(rows, 0.0, np.sqrt(4.3)).prod(-1)[:, None])


def branch_weights(paths: list[tuple[int, ...]], alpha: float) -> dict[tuple[int, ...], float]:
    """Probability that one item more walks to each leaf, or opens a branch below a node; nodes named by the way to them."""
    found = {}
    nodes = {path[:length] for path in paths for length in range(3)} | {()}
    for node in nodes:
        weight = 1.0
        for length in range(1, len(node) + 1):
            above = [path for path in paths if path[: length - 1] == node[: length - 1]]
            weight *= sum(path[:length] == node[:length] for path in above) / (len(above) + alpha)
        below = sum(path[: len(node)] == node for path in paths)
        found[node] = weight if len(node) == 2 else weight * alpha / (below + alpha)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("at", [(0, 3), pytest.param((1, 39), marks=pytest.mark.exhaustive)])
def test_log_likelihood_sums_over_paths_and_labels(draws: bnp.HierarchyDraws, at: tuple[int, int]) -> None:
    """Against plain sums over everything where the row could be."""
    paths, labels = draws.paths[at], draws.labels[at]
    mixing = draws.samples["mixing"][at].astype(float)
    alpha = float(draws.samples["alpha"][at])
    ours = draws.log_likelihood()[at]
    for i in range(12):
        others = [tuple(path) for path in np.delete(paths, i, 0).tolist()]
        weights = branch_weights(others, alpha)
        assert abs(sum(weights.values()) - 1.0) < 1e-9
        sizes = np.bincount(np.delete(labels, i), minlength=5)
        f = normal_densities(ROWS[i : i + 1], draws, at, sizes)[0]
        total = sum(weight * (mixing[node[-1] if node else 0] @ f) for node, weight in weights.items())
        assert abs(ours[i] - np.log(total)) < 1e-4


@pytest.mark.slow
def test_predict(draws: bnp.HierarchyDraws) -> None:
    at = draws.most_probable()
    rows = np.array([[-2.0, 0.1], [9.0, -9.0]])
    ours = draws.predict(rows, at)
    tree = draws[at]
    assert ours.shape == (2, tree.n_nodes)
    np.testing.assert_allclose(ours.sum(1), 1.0)
    weights = branch_weights([tuple(path) for path in tree.paths.tolist()], float(draws.samples["alpha"][at]))
    f = normal_densities(rows, draws, at, np.bincount(draws.labels[at], minlength=5))
    expected = np.zeros_like(ours)
    for node, weight in weights.items():
        number = node[-1] if node else 0
        expected[:, number] = weight * (f @ tree.weights[number])
    np.testing.assert_allclose(ours, expected / expected.sum(1, keepdims=True), rtol=1e-4)
    with pytest.raises(ValueError, match="X has 3 columns, but the model has 2"):
        draws.predict(np.zeros((1, 3)), at)


@pytest.mark.slow
def test_log_predictive(draws: bnp.HierarchyDraws) -> None:
    """Against plain sums over the nodes of every draw; and it is a density: its integral over a wide grid is one."""
    rows = np.array([[-2.0, 0.1], [9.0, -9.0]])
    densities = []
    for at in np.ndindex(draws.shape):
        paths = [tuple(path) for path in draws.paths[at].tolist()]
        f = normal_densities(rows, draws, at, np.bincount(draws.labels[at], minlength=5))
        mixing = draws.samples["mixing"][at].astype(float)
        weights = branch_weights(paths, float(draws.samples["alpha"][at]))
        densities.append(sum(weight * (f @ mixing[node[-1] if node else 0]) for node, weight in weights.items()))
    np.testing.assert_allclose(draws.log_predictive(rows), np.log(np.mean(densities, axis=0)), rtol=1e-5)
    axis = np.linspace(-14.0, 14.0, 141)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    assert np.exp(draws.log_predictive(grid)).sum() * 0.2**2 == pytest.approx(1.0, abs=1e-4)
    with pytest.raises(ValueError, match="X has 3 columns, but the model has 2"):
        draws.log_predictive(np.zeros((1, 3)))


def variation_of_information(a: np.ndarray, b: np.ndarray) -> float:
    table = np.array([[((a == i) & (b == j)).mean() for j in np.unique(b)] for i in np.unique(a)])
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.nansum(table * (2 * np.log(table) - np.log(table.sum(1))[:, None] - np.log(table.sum(0)))) * -1)


@pytest.mark.slow
def test_central_draw(draws: bnp.HierarchyDraws) -> None:
    """The least sum over levels of the mean variation of information, by plain counting."""
    flat = draws.paths.reshape(-1, 12, 2)
    losses = [sum(variation_of_information(a[:, level], b[:, level]) for b in flat for level in range(2)) for a in flat]
    chain, draw = draws.medoid()
    assert losses[40 * chain + draw] == pytest.approx(min(losses), abs=1e-6)
    with pytest.raises(ValueError, match="num_candidates must be a whole number of at least 1"):
        draws.medoid(0)


@pytest.mark.slow
def test_support_and_coclustering(draws: bnp.HierarchyDraws) -> None:
    tree = draws[0, 5]
    support = draws.support(tree)
    clades = [draws[divmod(i, 40)].clades() for i in range(80)]
    expected = [np.mean([frozenset(tree.items(node).tolist()) in each for each in clades]) for node in range(tree.n_nodes)]
    np.testing.assert_allclose(support, expected)
    assert support[0] == 1.0
    together = draws.coclustering(1)
    assert together[0, 3] == np.mean(draws.paths[:, :, 0, 0] == draws.paths[:, :, 3, 0])
    with pytest.raises(ValueError, match="level must be 1 to 2, but it is 3"):
        draws.coclustering(3)
    with pytest.raises(ValueError, match="the tree has 1 items, but the draws have 12"):
        draws.support(bnp.Hierarchy(np.array([[1]])))


@pytest.mark.slow
def test_arviz(fit: MCMC, draws: bnp.HierarchyDraws) -> None:
    idata = bnp.to_arviz(fit, ROWS, item_names=NAMES, posterior_predictive=5)
    posterior = idata["posterior"]
    np.testing.assert_array_equal(posterior["paths"].values, draws.paths)
    assert posterior["paths"].dims == ("chain", "draw", "item", "level")
    assert set(posterior["item"].values) == set(NAMES)
    np.testing.assert_allclose(posterior["nodes_per_level"].sum("level") + 1, posterior["n_nodes"])
    np.testing.assert_allclose(idata["log_likelihood"]["X"].values, draws.log_likelihood())
    np.testing.assert_array_equal(idata["sample_stats"]["capacity_hits"].values, 0)
    np.testing.assert_array_equal(idata["sample_stats"]["truncated_probability"].values, 0)
    replicated = idata["posterior_predictive"]["X"].values
    assert replicated.shape == (2, 5, 12, 2)
    kept = idata["posterior_predictive"]["draw"].values
    means = np.stack([draws.samples["parameters"][c, s][draws.labels[c, s]] for c in range(2) for s in kept])
    assert abs((replicated.reshape(10, 12, 2) - means).std() - np.sqrt(0.3)) < 0.1
    table = bnp.diagnostics(idata)
    assert {"alpha", "gamma", "log_joint", "n_nodes", "n_components", "lca_depth"} <= set(table.index)
    assert not {"paths", "labels"} & {name.split("[")[0] for name in table.index}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # few draws
        elpd = bnp.loo(fit, ROWS)
    assert np.isfinite(float(elpd.iloc[0] if hasattr(elpd, "iloc") else elpd.elpd))
    assert float(az.ess(posterior[["alpha"]])["alpha"]) > 4


@pytest.mark.slow
def test_bad_input(fit: MCMC) -> None:
    with pytest.raises(ValueError, match="X has 11 rows, but the draws label 12 items"):
        bnp.hierarchy_draws(fit, ROWS[:-1])
    with pytest.raises(ValueError, match="whose draws are trees: read them with bnp_hier.hierarchy_draws"):
        bnp.compare({"BHMC": fit}, ROWS)
    with pytest.raises(TypeError, match="expected an MCMC object that has run BHMCGibbs, but got str"):
        bnp.hierarchy_draws("fit", ROWS)
    fresh = MCMC(bnp.BHMCGibbs(MODEL), num_warmup=1, num_samples=1)
    with pytest.raises(ValueError, match="has no draws: call its run method first"):
        bnp.hierarchy_draws(fresh, ROWS)
    flat = MCMC(bnp.PartitionGibbs(partial(dpm, component=COMPONENT)), num_warmup=1, num_samples=1, progress_bar=False)
    flat.run(jax.random.key(0), ROWS)
    with pytest.raises(ValueError, match="the model has 0 latent sites with a NestedChineseRestaurantProcess"):
        bnp.hierarchy_draws(flat, ROWS)
