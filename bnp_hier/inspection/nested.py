"""Find the tree, its mixtures and the data in a hierarchical mixture model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float, Num

from bnp_hier.components import Component, ComponentLikelihood, NormalKnownCovariance
from bnp_hier.distributions import NestedChineseRestaurantProcess, TreeMixing
from bnp_hier.inspection.trace import (
    Model,
    base_distribution,
    feasible,
    influences,
    is_scaled,
    listed_sites,
    refuse_scales,
    run_model,
    sample_sites,
    sources_of,
)
from bnp_hier.utils.arrays import is_traced, own_arrays
from bnp_hier.utils.quick_compilation import compiled_quickly

__all__ = [
    "VARIANCE_PRIORS",
    "TreeHyperparameters",
    "TreeSites",
    "TreeValues",
    "check_tree_densities",
    "find_tree_sites",
    "has_tree",
    "prior_of_each",
    "read_tree_values",
]

VARIANCE_PRIORS = (dist.InverseGamma, dist.Uniform)
"""Priors of a variance with a conditional of known form."""


class TreeHyperparameters(NamedTuple):
    """One entry, or None, for each hyperparameter of a hierarchical mixture whose conditional has a known form.

    - **concentration** - for α of the tree.
    - **root_concentration** - for γ0 of the root's proportions.
    - **mixing_concentration** - for γ of the other proportions.
    - **variance** - for a number that scales the known covariance of a normal component, or for a vector, one entry per column,
      that scales a diagonal one; it affects nothing else in the component.
    """

    concentration: Any
    root_concentration: Any
    mixing_concentration: Any
    variance: Any


class TreeSites(NamedTuple):
    """Names of the sites of a hierarchical mixture over a tree.

    - **paths**, **mixing** - the sites whose distributions are a `NestedChineseRestaurantProcess` and a `TreeMixing` on it.
    - **labels** - the site of the items' component labels, in a plate over the items.
    - **parameters** - the site of the component parameters, in a plate over the components.
    - **observed** - the observed site whose distribution is a `ComponentLikelihood` with those parameters.
    - **hyperparameters** - the sites of the hyperparameters; None where the model uses a fixed or computed value.
    - **component** - continuous sites on which the component depends, and nothing else, in the order of the model.
    - **others** - the other latent sites, in the order of the model.
    - **size**, **depth**, **max_nodes**, **components** - n, L, M and K.
    - **infinite** - whether the root has the components of a Dirichlet process, with the last of the K standing for the rest.
    """

    paths: str
    mixing: str
    labels: str
    parameters: str
    observed: str
    hyperparameters: TreeHyperparameters
    component: tuple[str, ...]
    others: tuple[str, ...]
    size: int
    depth: int
    max_nodes: int
    components: int
    infinite: bool


class TreeValues(NamedTuple):
    """Concentrations, component, data and priors of a hierarchical mixture at given hyperparameters.

    - **concentration**, **root_concentration**, **mixing_concentration** - α, γ0 and γ.
    - **component** - the conjugate component.
    - **X** - the observed table.
    - **priors** - priors of the hyperparameters that are latent sites.
    """

    concentration: Float[Array, ""]
    root_concentration: Float[Array, ""]
    mixing_concentration: Float[Array, ""]
    component: Component
    X: Num[Array | np.ndarray, "n d"]
    priors: TreeHyperparameters


def _stand_in(site: dict[str, Any]) -> Any:
    """A valid value of a latent site; the proportions of the root alone, because those of all possible nodes are many."""
    fn = base_distribution(site["fn"]) if site["type"] == "sample" else None
    if isinstance(fn, TreeMixing):
        return jnp.full((*fn.batch_shape, 1, fn.components), 1.0 / fn.components)
    return feasible(site)


def has_tree(model: Model, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> bool:
    """Whether the model has a latent site with a `TreeMixing`."""
    trace: dict[str, Any] = {}
    jax.eval_shape(lambda: trace.update(run_model(model, args, kwargs or {}, feasible)))
    return any(isinstance(base_distribution(site["fn"]), TreeMixing) for site in sample_sites(trace)[1].values())


def find_tree_sites(model: Model, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> TreeSites:
    """Find the tree, its mixtures and the data by running the model once on the given arguments.

    Raises
    ------
    ValueError
        If the model does not have exactly one of each site listed in `TreeSites`, if their sizes disagree or their densities
        are scaled, or if anything else depends on the tree, the proportions, the labels or the parameters.
    """
    trace: dict[str, Any] = {}
    shapes: dict[str, tuple[int, ...]] = {}

    def run() -> None:
        trace.update(run_model(model, args, kwargs or {}, _stand_in))
        likelihoods = {name: base_distribution(site["fn"]) for name, site in trace.items() if site["type"] == "sample"}
        for name, fn in likelihoods.items():
            if isinstance(fn, ComponentLikelihood):
                shapes[name] = fn.component.prior().event_shape

    jax.eval_shape(run)
    samples, latent = sample_sites(trace)

    def only(what: str, names: list[str]) -> str:
        if len(names) != 1:
            raise ValueError(f"the model has {len(names)} {what}; expected exactly one (its sites are {listed_sites(samples)})")
        return names[0]

    def of_kind(kind: type, sites: Mapping[str, Any]) -> list[str]:
        return [name for name, site in sites.items() if isinstance(base_distribution(site["fn"]), kind)]

    paths = only("latent sites with a NestedChineseRestaurantProcess", of_kind(NestedChineseRestaurantProcess, latent))
    mixing = only("latent sites with a TreeMixing", of_kind(TreeMixing, latent))
    seen = {name: site for name, site in samples.items() if site["is_observed"]}
    observed = only("observed sites with a ComponentLikelihood", of_kind(ComponentLikelihood, seen))
    tree, mixture = samples[paths]["fn"], samples[mixing]["fn"]
    n, components = tree.size, mixture.components
    rest = {name: site for name, site in latent.items() if name not in (paths, mixing)}
    labels = only(
        f"latent sites with integer values in a plate over the {n} items",
        [name for name, site in rest.items() if site["fn"].support.is_discrete and site["fn"].shape() == (n,)],
    )
    dim = shapes[observed]
    parameters = only(
        f"latent sites with component parameters of shape {dim} in a plate over the {components} components",
        [name for name, site in rest.items() if site["cond_indep_stack"] and site["fn"].shape() == (components, *dim)],
    )
    if mixture.max_nodes != tree.max_nodes:
        raise ValueError(
            f'site "{mixing}" has max_nodes={mixture.max_nodes}, but the tree "{paths}" has max_nodes={tree.max_nodes}; '
            "expected the same number"
        )
    shape = jnp.shape(samples[observed]["value"])
    if len(shape) != 2 or shape[0] != n:
        raise ValueError(
            f'site "{observed}" is observed with shape {shape}, but the tree has {n} items; expected ({n}, columns)'
        )

    uses = _uses(model, samples, (paths, mixing, observed), args, kwargs or {})
    _check_uses(samples, uses, (paths, mixing, labels, parameters, observed))
    latents = {name: site for name, site in rest.items() if name not in (labels, parameters)}
    roles = _sites_of_concentrations(latents, uses, tree, mixture, (paths, mixing))
    left = [name for name in latents if name not in roles.values()]
    conjugate = [
        name
        for name in left
        if isinstance(prior_of_each(latents[name]["fn"]), VARIANCE_PRIORS)
        and not is_scaled(latents[name])
        and uses[name] <= {_site(observed), _site(parameters)}
    ]
    scales = (name for name in conjugate if _scales_the_covariance(model, name, observed, left, args, kwargs or {}))
    names = TreeHyperparameters(roles.get(0), roles.get(1), roles.get(2), next(scales, None))
    left = [name for name in left if name != names.variance]
    apart = {observed, parameters, *left}
    continuous = [name for name in left if not latents[name]["fn"].support.is_discrete]
    own = tuple(name for name in continuous if _leaves_the_rest(model, name, apart, args, kwargs or {}))
    others = tuple(name for name in left if name not in own)
    sizes = n, tree.depth, tree.max_nodes, components
    return TreeSites(paths, mixing, labels, parameters, observed, names, own, others, *sizes, mixture.root == "infinite")


def _sites_of_concentrations(
    latents: Mapping[str, Any],
    uses: Mapping[str, set[str]],
    tree: NestedChineseRestaurantProcess,
    mixture: TreeMixing,
    names: tuple[str, str],
) -> dict[int, str]:
    """Map the numbers of the concentrations (0: tree, 1: root, 2: below it) to the sites that are these and nothing else.

    A site that is used in two roles, or for anything else, has no conditional of known form.
    """
    values = (tree.concentration, mixture.root_concentration, mixture.concentration)
    densities = [{_site(name), what} for name, what in zip((names[0], names[1], names[1]), CONCENTRATIONS, strict=True)]
    serves = {name: [role for role, value in enumerate(values) if value is latents[name]["value"]] for name in latents}
    return {
        roles[0]: name
        for name, roles in serves.items()
        if len(roles) == 1 and not is_scaled(latents[name]) and uses[name] <= densities[roles[0]]
    }


ROWS, CONCENTRATIONS = "the observed table", ("the concentration of the tree", "that of the root", "that below the root")
"""Results in `_uses` that are no sites."""


def _uses(
    model: Model, samples: Mapping[str, Any], names: tuple[str, str, str], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, set[str]]:
    """For every latent site, the other sites whose densities depend on it, and which of the observed table and concentrations.

    The names are those of the paths, the proportions and the observed site.
    """
    paths, mixing, observed = names

    def read(values: Mapping[str, Any]) -> dict[str, Any]:
        def at(site: dict[str, Any]) -> Any:
            return values[site["name"]] if site["name"] in values else _stand_in(site)

        trace = run_model(model, args, kwargs, at)
        densities: dict[str, Any] = {_site(name): sources_of(trace[name]) for name in samples}
        tree, mixture = trace[paths]["fn"], trace[mixing]["fn"]
        given = (tree.concentration, mixture.root_concentration, mixture.concentration)
        return densities | dict(zip(CONCENTRATIONS, given, strict=True)) | {ROWS: trace[observed]["value"]}

    latent = {name: site["value"] for name, site in samples.items() if not site["is_observed"]}
    found = influences(read, {name: jax.ShapeDtypeStruct(value.shape, value.dtype) for name, value in latent.items()})
    return {name: {what for what, sources in found.items() if name in sources} - {_site(name)} for name in latent}


def _site(name: str) -> str:
    """The name of a site in `_uses`."""
    return f'site "{name}"'


def _check_uses(samples: Mapping[str, Any], uses: Mapping[str, set[str]], names: tuple[str, str, str, str, str]) -> None:
    """Raise `ValueError` if a density is scaled, or the tree, proportions, labels or parameters affect other sites."""
    refuse_scales(samples, names)
    paths, mixing, labels, parameters, observed = names
    allowed = {paths: (mixing, labels), mixing: (labels,), labels: (observed,), parameters: (observed,)}
    for name, those in allowed.items():
        for what in sorted(uses[name] - set(map(_site, those))):
            raise ValueError(
                f'{what} depends on the site "{name}", which would be ignored: in a hierarchical mixture, nothing but '
                f"{' and '.join(map(_site, those))} may depend on it"
            )


MOST_NUMBERS = 1_000_000
"""Most numbers in parameters that `check_tree_densities` makes up."""


def check_tree_densities(
    model: Model, sites: TreeSites, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None
) -> None:
    """Check numerically that labels, parameters and rows have the distributions from which they are sampled.

    Raises
    ------
    ValueError
        If the labels are not drawn from the proportions at the leaves, the parameters not from the component's prior, or the
        rows not from the components of their labels.
    """
    n, depth, components = sites.size, sites.depth, sites.components
    few = min(sites.max_nodes, 2 * depth + 1)  # two paths if there is room
    paths = np.arange(1, depth + 1) + np.where(np.arange(n) % 2 & (few > 2 * depth), depth, 0)[:, None]
    mixing = np.random.default_rng(0).dirichlet(np.full(components, 2.0), few) + 1e-3
    mixing /= mixing.sum(1, keepdims=True)
    labels = np.arange(n) % components

    def run(given: Mapping[str, Any]) -> dict[str, Any]:
        return run_model(
            model, args, kwargs or {}, lambda site: given[site["name"]] if site["name"] in given else _stand_in(site)
        )

    kinds: list[type] = []

    def of_model() -> dict[str, tuple[Any, Any]]:
        given: dict[str, Any] = {sites.paths: paths, sites.mixing: jnp.asarray(mixing, float), sites.labels: labels}
        shape = run(given)[sites.parameters]["fn"].shape()
        numbers = np.arange(components).reshape(-1, *[1] * (len(shape) - 1))
        few_numbers = np.prod(shape[1:]) * (n + components) <= MOST_NUMBERS
        if few_numbers:  # each component's parameters consist of its number
            given |= {sites.parameters: jnp.broadcast_to(jnp.asarray(numbers, float), shape)}
        trace = run(given)
        rows = base_distribution(trace[sites.observed]["fn"])
        own, prior = base_distribution(trace[sites.parameters]["fn"]), rows.component.prior()
        kinds.extend(map(type, (own, prior)))
        return {
            "labels": (trace[sites.labels]["fn"].log_prob(labels), jnp.log(given[sites.mixing])[paths[:, -1], labels]),
            "parameters": (jax.tree.leaves(own), jax.tree.leaves(prior)),
            "rows": (rows.parameters, jnp.asarray(numbers[labels], float)) if few_numbers else ((), ()),
        }

    def of_parameters() -> dict[str, tuple[Any, Any]]:
        trace = run({})
        prior = base_distribution(trace[sites.observed]["fn"]).component.prior()
        drawn = prior.sample(jax.random.key(0), (components,))
        return {"parameters": (trace[sites.parameters]["fn"].log_prob(drawn), prior.log_prob(drawn))}

    def found(densities: Callable[[], Any]) -> dict[str, bool]:
        # compiled ahead of time, so that it runs on concrete values even where a chain method traces `init`
        values = compiled_quickly(jax.jit(densities).lower())()
        return {name: _alike(one, other) for name, (one, other) in values.items()}

    if is_traced(args, kwargs):
        return
    same = found(of_model)
    if not same["parameters"] or kinds[0] is not kinds[1]:
        same |= found(of_parameters)
    expected = {
        "labels": f'the distribution of "{sites.labels}" is not that of the proportions "{sites.mixing}" at the leaves of '
        f'"{sites.paths}"; expected dist.Categorical(probs={sites.mixing}[{sites.paths}[:, -1]])',
        "parameters": f'the prior of "{sites.parameters}" is not that of the component of "{sites.observed}", which would '
        "replace it; expected component.prior()",
        "rows": f'the parameters of the rows "{sites.observed}" are not those of the components of their labels; expected '
        f"ComponentLikelihood(component, {sites.parameters}[{sites.labels}])",
    }
    for name, text in expected.items():
        if not same[name]:
            raise ValueError(text)


def _alike(one: Any, other: Any) -> bool:
    """Whether the arrays of two trees have the same numbers, up to rounding."""
    both = jax.tree.leaves(one), jax.tree.leaves(other)
    return len(both[0]) == len(both[1]) and all(
        np.allclose(a, b, rtol=1e-3, atol=1e-3, equal_nan=True) for a, b in zip(*both, strict=True)
    )


def prior_of_each(prior: dist.Distribution) -> dist.Distribution:
    """The prior of independent numbers without `to_event` and plates."""
    while isinstance(prior, dist.Independent | dist.ExpandedDistribution):
        prior = prior.base_dist
    return prior


def _any_value(site: dict[str, Any], seed: int) -> Any:
    """A draw from the prior, or any valid value if the prior is improper."""
    try:
        return site["fn"].sample(jax.random.key(seed))
    except NotImplementedError:
        return feasible(site)


def _scales_the_covariance(
    model: Model, name: str, observed: str, free: list[str], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> bool:
    """Whether the component's known covariance is proportional to the site's value, and the rest does not depend on it.

    A vector must have one entry for each column, and the covariance matrix must be diagonal. The other `free` sites have any
    values.
    """

    def component(low: float, high: float) -> tuple[np.ndarray, Component | None]:
        """Values of the site, different in all entries, and the component at them."""
        found: list[np.ndarray] = []

        def at(site: dict[str, Any]) -> Any:
            if site["name"] != name:
                return _any_value(site, 0) if site["name"] in free else _stand_in(site)
            shape = site["fn"].shape()
            found.append(np.linspace(low, high, int(np.prod(shape))).reshape(shape))
            return jnp.asarray(found[0], jnp.result_type(float))

        fn = base_distribution(run_model(model, args, kwargs, at)[observed]["fn"])
        return found[0], fn.component

    with jax.ensure_compile_time_eval():  # with concrete values, even where a chain method traces `init`
        (value, one), (other, two) = component(0.5, 0.5), component(0.75, 0.9)
    if not (isinstance(one, NormalKnownCovariance) and isinstance(two, NormalKnownCovariance)):
        return False
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((one, two))):
        return False
    covariance = np.asarray(one.covariance)
    if value.shape not in ((), (one.dim,)) or value.ndim and np.any(covariance != np.diag(np.diagonal(covariance))):
        return False
    same = all(np.allclose(getattr(one, part), getattr(two, part)) for part in ("mean", "prior_covariance"))
    return same and np.allclose(other / value * covariance, two.covariance, rtol=1e-5)


def _leaves_the_rest(model: Model, name: str, apart: set[str], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether a site has draws, and the distributions of all sites but those in `apart` are the same at two of them."""

    def rest(seed: int) -> tuple[Any, list[Any]]:
        def at(site: dict[str, Any]) -> Any:
            return _any_value(site, seed) if site["name"] == name else feasible(site)

        samples, _ = sample_sites(run_model(model, args, kwargs, at))
        others = [site["fn"] for other, site in samples.items() if other not in apart]
        return samples[name]["value"], jax.tree.leaves(others)

    with jax.ensure_compile_time_eval():
        (value, one), (other, two) = rest(0), rest(1)
    if any(isinstance(leaf, jax.core.Tracer) for leaf in (value, other, *one, *two)):
        return False
    same = all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one, two, strict=True))
    return same and not np.array_equal(value, other)


def read_tree_values(
    model: Model,
    sites: TreeSites,
    values: Mapping[str, Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
) -> TreeValues:
    """Return the concentrations, the component, the data and the priors at given hyperparameters; works under ``jit``."""
    trace = run_model(
        model, args, kwargs or {}, lambda site: values[site["name"]] if site["name"] in values else _stand_in(site)
    )
    tree, mixture, rows = trace[sites.paths]["fn"], trace[sites.mixing]["fn"], trace[sites.observed]
    given = (tree.concentration, mixture.root_concentration, mixture.concentration)
    component, X = own_arrays((base_distribution(rows["fn"]).component.centered_on(rows["value"]), rows["value"]))

    def prior(name: str | None) -> dist.Distribution | None:
        return None if name is None or trace[name]["is_observed"] else trace[name]["fn"]

    priors = TreeHyperparameters._make(map(prior, sites.hyperparameters))
    alpha, gamma0, gamma = (jnp.asarray(value, jnp.result_type(float)) for value in given)
    return TreeValues(alpha, gamma0, gamma, component, X, priors)
