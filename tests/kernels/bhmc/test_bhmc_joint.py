"""The sampler of hierarchical mixtures and the prior agree about everything that is drawn (Geweke 2004); wrong ones do not."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer import Predictive

import bnp_hier as bnp
from bnp_hier.distributions.nested_chinese_restaurant import read_tree
from bnp_hier.kernels import bhmc_gibbs
from bnp_hier.kernels.bhmc import component_moves, franchise
from bnp_hier.kernels.bhmc import node_moves as tree_moves
from bnp_hier.models import bhmc
from tests.kernels.small_problems import ITEMS_ALONE
from tests.oracles.monte_carlo import effective_draws
from tests.parameters import few

N = 5


def normal(variance: Any = 0.5) -> bnp.NormalKnownCovariance:
    return bnp.NormalKnownCovariance(np.zeros(1), 2.0 * np.eye(1), variance * np.eye(1))


def two_columns(variances: Any) -> bnp.NormalKnownCovariance:
    return bnp.NormalKnownCovariance(np.zeros(2), 2.0 * np.eye(2), jnp.diag(variances))


FAMILIES = {
    "normal": lambda X: normal(),
    "learned": lambda X: normal(numpyro.sample("sigma2", dist.InverseGamma(4.0, 2.0))),
    "flat": lambda X: normal(numpyro.sample("sigma2", dist.Uniform(0.2, 1.0))),
    "columns": lambda X: two_columns(numpyro.sample("sigma2", dist.InverseGamma(4.0, np.array([2.0, 5.0])).to_event(1))),
    "flat columns": lambda X: two_columns(numpyro.sample("sigma2", dist.Uniform(0.2, np.array([1.0, 2.0])))),
    "slices": lambda X: bnp.NormalInverseGamma(
        np.zeros(2),
        numpyro.sample("kappa", dist.LogNormal(-0.5, 0.7)),
        3.0,
        numpyro.sample("rate", dist.LogNormal(0.0, 0.7).expand([2]).to_event(1)),
    ),
    "diagonal": lambda X: bnp.NormalInverseGamma(np.zeros(2), 0.5, 3.0, 1.0),
    "bits": lambda X: bnp.BetaBernoulli(np.full(3, 0.6), np.full(3, 0.8)),
    "counts": lambda X: bnp.DirichletMultinomial(np.full(3, 0.7), total_count=4),
}
STEPS = 8000

WIDTHS = {
    "normal": 1,
    "learned": 1,
    "flat": 1,
    "columns": 2,
    "flat columns": 2,
    "slices": 2,
    "diagonal": 2,
    "bits": 3,
    "counts": 3,
}


def joint_statistics(values: dict, X: jax.Array, max_nodes: int) -> jax.Array:
    """Functions of everything that is drawn, none of the components' names or of those without items."""
    paths, labels = values["paths"], values["labels"]
    tree = read_tree(paths, max_nodes)
    along = jnp.concatenate([jnp.zeros_like(labels)[:, None], paths], axis=1)
    own = values["mixing"][along, labels[:, None]]  # shares of each item's component, from the root to its leaf
    parameters = jnp.tanh(values["parameters"].reshape(values["parameters"].shape[0], -1))
    names = [name for name in ("alpha", "gamma0", "gamma", "sigma2", "kappa", "rate") if name in values]
    logs = [log for name in names for log in jnp.log(values[name]).ravel()]
    return jnp.stack(
        [
            *logs,
            (tree.level >= 0).sum(),
            (tree.level == 1).sum(),
            paths[0, 0] == paths[1, 0],
            paths[0, -1] == paths[1, -1],
            labels[0] == labels[1],
            (labels[0] == labels[1]) & (paths[0, -1] != paths[1, -1]),
            *own.mean(0),
            (own[:, 0] * own[:, -1]).mean(),
            own[0, -1] * own[1, -1],
            parameters[labels].mean(),
            jnp.tanh(X).mean(),
            jnp.tanh(X[0, 0] * X[1, 0]),
            jnp.tanh(X[0, -1] * X[1, -1]),
        ]
    )


def draw_rows(family: str, values: dict, key: jax.Array) -> jax.Array:
    component = handlers.substitute(FAMILIES[family], data=values)(None)
    return component.likelihood(values["parameters"][values["labels"]]).sample(key)


def learned(family: str, depth: int, root: str) -> partial:
    """The model with random hyperparameters, but for its capacities."""
    hyper = {"concentration": dist.Gamma(3.0, 2.0), "root_concentration": dist.Gamma(3.5, 2.0)}
    hyper["mixing_concentration"] = dist.Uniform(0.2, 1.5)
    return partial(bhmc, depth=depth, component=FAMILIES[family], root=root, **hyper)


@cache
def prior_statistics(family: str, depth: int, root: str, components: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Statistics of draws from the prior, and numbers of nodes of their trees."""
    wide = 1 + N * depth
    key, key_rows = jax.random.split(jax.random.key(1))
    model = partial(learned(family, depth, root), max_nodes=wide, max_components=components)
    values = Predictive(model, num_samples=STEPS)(key, jnp.ones((N, WIDTHS[family])))

    def statistics(values: dict, key: jax.Array) -> jax.Array:
        return joint_statistics(values, draw_rows(family, values, key), wide)

    found = np.asarray(jax.jit(jax.vmap(statistics))(values, jax.random.split(key_rows, STEPS)), float)
    return found, np.asarray(jax.vmap(lambda paths: (read_tree(paths, wide).level >= 0).sum())(values["paths"]))


def scores(family: str, depth: int, max_nodes: int | None, root: str = "finite", **options: Any) -> np.ndarray:
    """z-scores of the means of statistics: the kernel alternating with fresh data, against the prior (Geweke 2004)."""
    X0 = jnp.ones((N, WIDTHS[family]))
    capacity, infinite = max_nodes or 1 + N * depth, root == "infinite"
    room = N + 1 if infinite else 3
    model = partial(learned(family, depth, root), max_nodes=capacity, max_components=room)
    kernel = bnp.BHMCGibbs(model, init="prior", **(ITEMS_ALONE | options))
    key, key_chain = jax.random.split(jax.random.key(0))
    state = kernel.init(key, 0, None, (X0,), {})

    def step(state: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        X = draw_rows(family, state.z, key)
        state = kernel.sample(state, (X,), {})
        return state, joint_statistics(state.z, X, capacity)

    _, drawn = jax.jit(lambda s: jax.lax.scan(step, s, jax.random.split(key_chain, STEPS)))(state)
    prior, sizes = prior_statistics(family, depth, root, None if infinite else room)
    prior, successive = prior[sizes <= capacity], np.asarray(drawn, float)
    found = []
    for column in range(prior.shape[1]):
        size = effective_draws(successive[:, column])
        error = np.sqrt(prior[:, column].var() / len(prior) + successive[:, column].var() / size)
        found.append((prior[:, column].mean() - successive[:, column].mean()) / error if error > 0 else 0.0)
    return np.array(found)


MOVES = {"split_merge": 2, "relabel": True, "sibling_split_merge": 2, "prune_regraft": 2}
CASES = [
    ("learned", 2, None, {"path": "mh"}),
    ("slices", 2, None, MOVES),
    ("diagonal", 2, None, {"root": "infinite", "split_merge": 2}),
    # each of these is met by one above in part, or by a configuration of test_invariance.py
    ("columns", 2, None, {"split_merge": 2}),
    ("normal", 3, None, {"split_merge": 2}),
    ("flat", 3, 9, {"path": "mh"}),
    ("counts", 2, None, {"path": "mh"}),
    ("slices", 2, None, {"split_merge": 2}),
    ("bits", 2, 7, MOVES),
    ("slices", 2, None, {"root": "infinite"}),
    ("flat columns", 2, None, {}),
    ("normal", 3, None, {}),
    ("normal", 2, 6, {}),
    ("diagonal", 2, None, {}),
    ("bits", 3, 10, {}),
    *[("normal", 3, None, {name: value}) for name, value in MOVES.items() if name != "split_merge"],
    ("normal", 3, 9, {"root": "infinite", "path": "mh"}),
]


@pytest.mark.filterwarnings("ignore:BHMCGibbs reached its capacity:RuntimeWarning")
@pytest.mark.parametrize(("family", "depth", "max_nodes", "options"), few(CASES, plain=0, slow=2))
def test_joint_distribution(family: str, depth: int, max_nodes: int | None, options: dict[str, Any]) -> None:
    """Twenty statistics or so, |z| < 4.5 each: a false-alarm rate of about 1e-4 a case."""
    found = scores(family, depth, max_nodes, **options)
    assert np.abs(found).max() < 4.5, found


def of_the_other_column(draw: Any) -> Any:
    """Variances from the deviations of the wrong columns."""
    return lambda prior, value, squares, count, key: draw(prior, value, squares[::-1], count, key)


def off_by_a_nat(divide: Any) -> Any:
    """The split or merge with a wrong ratio."""

    def wrong(*arguments: Any) -> Any:
        division = divide(*arguments)
        return division._replace(log_ratio=division.log_ratio + 1.0)

    return wrong


def drawn_more_often(allocate: Any) -> Any:
    """The split of components as if it were drawn e times as often."""

    def wrong(*arguments: Any) -> Any:
        allocation = allocate(*arguments)
        return allocation._replace(log_probability=allocation.log_probability + 1.0)

    return wrong


def without_shares(relabel: Any) -> Any:
    """Relabelling as if all components had one share."""
    return lambda logs, group, labels, shares, key: relabel(logs, group, labels, jnp.ones_like(shares), key)


def blind(log_polya_of_few: Any) -> Any:
    """Grafting without a look at the components."""
    return lambda customers, shares: 0.0 * log_polya_of_few(customers, shares)


WRONG = {
    "split_merge": (component_moves, "allocate", drawn_more_often),
    "relabel": (franchise, "relabel_tables", without_shares),
    "sibling_split_merge": (tree_moves, "divide", off_by_a_nat),
    "prune_regraft": (tree_moves, "log_polya_of_few", blind),
}


@pytest.mark.parametrize(
    ("move", "root"), few([*((move, "finite") for move in sorted(MOVES)), ("split_merge", "infinite")], plain=0, slow=1)
)
def test_joint_distribution_finds_wrong_moves(move: str, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The power of the test above: a ratio that is wrong by a nat, and the like."""
    module, name, wrong = WRONG[move]
    monkeypatch.setattr(module, name, wrong(getattr(module, name)))
    found = scores("normal", 3, None, root=root, **{move: MOVES[move]})
    assert np.abs(found).max() > 6, found


def larger(draw: Any) -> Any:
    """Draws that are larger by a quarter."""
    return lambda *arguments: {name: 1.25 * value for name, value in draw(*arguments).items()}


WRONG_HYPERPARAMETERS = {
    "columns": ("draw_variance", of_the_other_column),
    "slices": ("draw_component_hyperparameters", larger),
}


@pytest.mark.parametrize("family", few(["slices", "columns"], plain=0))
def test_joint_distribution_finds_wrong_hyperparameters(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, wrong = WRONG_HYPERPARAMETERS[family]
    monkeypatch.setattr(bhmc_gibbs, name, wrong(getattr(bhmc_gibbs, name)))
    found = scores(family, 2, None)
    assert np.abs(found).max() > 6, found


@pytest.mark.slow
def test_joint_distribution_finds_the_papers_proportions() -> None:
    with pytest.warns(UserWarning, match="does not leave the posterior invariant"):
        found = scores("normal", 2, None, mixing="paper")
    assert np.abs(found).max() > 8, found
