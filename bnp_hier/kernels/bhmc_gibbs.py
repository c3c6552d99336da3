"""Gibbs sampling for Bayesian hierarchical mixture clustering, alone or as a block of NumPyro's `Gibbs`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpyro.util import is_prng_key
from sklearn.utils._param_validation import StrOptions

from bnp_hier.components import NormalKnownCovariance
from bnp_hier.components.linear_algebra import computed_after
from bnp_hier.distributions.conjugate_mixture import cluster_statistics
from bnp_hier.distributions.model_draws import is_model_draw
from bnp_hier.distributions.nested_chinese_restaurant import Tree, read_tree
from bnp_hier.inspection.nested import (
    VARIANCE_PRIORS,
    TreeSites,
    TreeValues,
    check_tree_densities,
    find_tree_sites,
    prior_of_each,
    read_tree_values,
)
from bnp_hier.inspection.trace import Model
from bnp_hier.kernels.base import PartitionKernel, check_whole_labels
from bnp_hier.kernels.bhmc.component_hyperparameters import draw_component_hyperparameters, first_component_hyperparameters
from bnp_hier.kernels.bhmc.component_moves import split_merge_components
from bnp_hier.kernels.bhmc.franchise import Moves, Seating, climb_to_root
from bnp_hier.kernels.bhmc.hyperparameters import CONCENTRATION_PRIORS, draw_concentration, draw_variance
from bnp_hier.kernels.bhmc.initial_hierarchies import GIVEN_TREES, MOST_COLUMNS, MOST_ROWS, TREE_STARTS, starting_tree
from bnp_hier.kernels.bhmc.paths import Concentrations, Mixture, densities_of, path_sweep
from bnp_hier.kernels.bhmc.room import enlargement, is_restricted, larger_room, room_at_first, room_of
from bnp_hier.kernels.bhmc.root_prior import RootPrior
from bnp_hier.kernels.bhmc.summaries import tree_summaries
from bnp_hier.kernels.bhmc.table_counts import draw_mixing, papers_customers, tables_of_counts
from bnp_hier.kernels.bhmc.tempering import check_temperatures, check_tempered, exchange, tempered
from bnp_hier.kernels.reports import counted_hits, report_capacity, stop_if_undefined
from bnp_hier.trees import Hierarchy
from bnp_hier.utils.arrays import as_matrix, is_traced, split_arrays
from bnp_hier.utils.jax_settings import standard_settings
from bnp_hier.utils.options import WholeNumber
from bnp_hier.utils.wording import listed

__all__ = ["BHMCGibbs", "BHMCGibbsState"]

PATHS = ("gibbs", "mh")
"""How an item's path is updated."""

MIXINGS = ("exact", "paper")
"""How the proportions are updated."""

SPLIT_MERGE = 5
"""Default number of attempts per step, which is worth its cost on both data sets of tests/benchmarks/test_bhmc.py."""

NODE_MOVES = 2
"""Default attempts per step and level to split or merge nodes, and to move one with its subtree.

With them, chains on a thousand images agree on the tree (examples/reproduce/output/bhmc_modes_fashion.txt).
"""


class BHMCGibbsState(NamedTuple):
    """State of the kernel; every field but `z` and `rng_key` is label-invariant and can be collected as an extra field.

    - **z** - values of the kernel's sites: paths (n, depth), mixing (M, K), parameters (K, ...), labels (n,) and the
      hyperparameters that it samples.
    - **log_joint** - complete-data log likelihood log p(X, labels, paths | proportions, parameters) (nats); the paper reports
      its maximum over the draws.
    - **log_likelihood** - log p(X | labels, parameters) (nats).
    - **log_tree_prior** - log p(paths | α) (nats).
    - **n_nodes**, **n_leaves** - numbers of nodes, including the root, and of leaves.
    - **nodes_per_level** - number of nodes on each level below the root, (depth,).
    - **n_components** - number of components with items.
    - **entropy** - entropy of the components' shares of the items (nats).
    - **largest_branch** - share of the items under the largest child of the root.
    - **lca_depth** - level of the lowest common ancestor, averaged over pairs of items.
    - **capacity_hits** - number of times since the start that the capacity prevented a new branch, a split or, with an infinite
      root, a new component.
    - **truncated_probability** - conditional probability of the branches and components that the capacity ruled out: the mean
      over all items and sweeps so far.
    - **accepted** - numbers of splits, merges and new divisions that changed components, of accepted splits and merges of
      sibling nodes, and of grafts that changed the tree, since the start.
    - **i** - number of sweeps so far.
    - **rng_key** - random key.
    - **swap_rates** - shares of the proposed exchanges between neighbouring temperatures that were accepted, (R − 1,).
    - **replicas** - states at the higher temperatures, with a leading dimension; None with a single temperature.
    """

    z: dict[str, Array]
    log_joint: Float[Array, ""]
    log_likelihood: Float[Array, ""]
    log_tree_prior: Float[Array, ""]
    n_nodes: Int[Array, ""]
    n_leaves: Int[Array, ""]
    nodes_per_level: Int[Array, " depth"]
    n_components: Int[Array, ""]
    entropy: Float[Array, ""]
    largest_branch: Float[Array, ""]
    lca_depth: Float[Array, ""]
    capacity_hits: Int[Array, ""]
    truncated_probability: Float[Array, ""]
    accepted: Int[Array, " three"]
    i: Int[Array, ""]
    rng_key: Array
    swap_rates: Float[Array, " pairs"]
    replicas: Any


OF_VALUES = BHMCGibbsState._fields[: BHMCGibbsState._fields.index("capacity_hits")]
"""Fields of the state that replicas exchange."""


class BHMCGibbs(PartitionKernel):
    """Gibbs sampler for a hierarchical mixture over a tree (Huang et al. 2021) whose steps leave the posterior invariant.

    Each step visits all items once in random order and draws their paths and labels, with the parameters of empty components
    integrated out. Given table counts, it then draws α, γ0 and γ, and the proportions of all nodes jointly. Finally, it draws
    the components' parameters and their variance. All these draws are from conditional distributions.

    Parameters
    ----------
    model
        NumPyro model such as `bnp_hier.models.bhmc`: a site with a `NestedChineseRestaurantProcess`, one with a `TreeMixing`
        on its paths, parameters in a plate over the components, labels in a plate over the items, and an observed
        `ComponentLikelihood`.
    path
        "gibbs" draws each item's path from its conditional, with its label summed out. "mh" is the step of the paper: a
        proposal from the nested Chinese restaurant process, accepted by the ratio of the likelihoods.
    mixing
        "exact" draws the proportions given table counts. "paper" draws them by Eqs. 3-4 of the paper, which treat all items
        below a node as draws from its proportions; this does not leave the posterior invariant and is provided only to
        reproduce the paper.
    init
        Initial tree and components of each chain, unless `init_params` of `MCMC.run` contains paths and labels:

        - "overdispersed": one of the options below, chosen by the key of the chain.
        - "one_path": all items on one path, in one component.
        - "prior": a draw from the prior.
        - "map_dp": components found by a few greedy sweeps, each on its own branch.
        - "bhc": the tree of Bayesian hierarchical clustering, with its clusters as leaves.
        - "ward": the tree of Ward's method, cut to √n leaves.

        The last two have one component per leaf, and numbers of nodes that grow geometrically with the level. With more than 64
        columns, "overdispersed" leaves out "map_dp" and "bhc", which are slow there; with more than 1,000 rows it leaves out
        "bhc", and with more than 5,000 rows "ward".
    split_merge
        Number of attempts per step to split a component in two, to merge two, or to divide the items of two anew, item by item;
        None means 5, or 0 with mixing="paper". Without these moves, a chain may keep its initial number of components.
    relabel
        Whether each step redraws the component of every table at every node, for all items that the table represents. Requires
        a finite number of components; None means True if it is finite, but False with mixing="paper".
    sibling_split_merge
        Number of attempts per step and level to split a node in two, or merge two children of the same parent; None means 2, or
        0 with mixing="paper".
    prune_regraft
        Number of times per step and level that a random node is moved elsewhere in the tree, with its subtree; None means 2, or
        0 with mixing="paper". Without these two moves, chains on a thousand rows did not agree on the tree.
    temperatures
        Temperatures of parallel tempering, increasing from 1. Each belongs to a replica of the chain, whose target is the prior
        times the likelihood to the power 1/T and which makes the same steps. Afterwards, neighbouring replicas propose to
        exchange their values. The draws are those at temperature 1. The cost is proportional to the number of temperatures;
        `swap_rates` of the state should be well above zero. Requires `NormalKnownCovariance`, of whose hyperparameters only a
        variance may have a prior.

    Raises
    ------
    ValueError
        If an option is out of range, the temperatures do not increase from 1, or mixing="paper" is combined with temperatures
        or with moves that require mixing="exact". At `init`, if the model does not have this form, the data are invalid, a
        latent site that belongs to no other block has no conditional of known form, `relabel` is True although the number of
        components is infinite, or the model does not allow several temperatures.

    Warns
    -----
    UserWarning
        If mixing is "paper".

    Notes
    -----
    Used alone under `MCMC`, the kernel samples α, γ0 and γ if they have Gamma, Exponential or Uniform priors, and a variance
    that scales the covariance of `NormalKnownCovariance`, or a vector of variances, one per column, if they have an
    InverseGamma or Uniform prior. Other continuous sites on which nothing but the component depends, such as those of
    `from_data`, are updated by slice sampling, with the components' parameters integrated out. Any other hyperparameters, or
    all of them, can be sampled by another block:
    ``Gibbs([(BHMCGibbs(model), ["paths", "mixing", "parameters", "labels"]), (NUTS(model), None)])``.
    If the model restricts its trees to `max_nodes` nodes, so does the target. Otherwise, there is room for n nodes at first
    (at least 128), and with an infinite root for 64 components; under `ResumableRun`, steps that lacked room are repeated with
    twice as much. As a block of `Gibbs`, the kernel has room for everything that the model allows. Reaching a capacity is
    counted in `capacity_hits` of the state, measured by `truncated_probability`, and raises a warning.

    Examples
    --------
    >>> import jax
    >>> import numpy as np
    >>> from functools import partial
    >>> from numpyro.infer import MCMC
    >>> import bnp_hier as bnp
    >>> X = np.array([[-3.1], [-2.9], [-3.0], [3.0], [3.1]])
    >>> component = bnp.NormalKnownCovariance(mean=[0.0], prior_covariance=9 * np.eye(1), covariance=np.eye(1))
    >>> concentrations = {"concentration": 0.4, "root_concentration": 1.0, "mixing_concentration": 0.5}
    >>> model = partial(bnp.models.bhmc, depth=2, component=component, max_components=5, **concentrations)
    >>> mcmc = MCMC(bnp.BHMCGibbs(model, init="one_path"), num_warmup=20, num_samples=20, progress_bar=False)
    >>> mcmc.run(jax.random.key(0), X)  # doctest: +SKIP
    >>> mcmc.get_samples()["paths"].shape, bnp.point_estimate(mcmc.get_samples()["labels"])  # doctest: +SKIP
    ((20, 5, 2), array([0, 0, 0, 1, 1]))
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "model": [callable],
        "path": [StrOptions(set(PATHS))],
        "mixing": [StrOptions(set(MIXINGS))],
        "init": [StrOptions(set(TREE_STARTS))],
        "split_merge": [WholeNumber(0), None],
        "relabel": ["boolean", None],
        "sibling_split_merge": [WholeNumber(0), None],
        "prune_regraft": [WholeNumber(0), None],
        "temperatures": ["array-like"],
    }

    def __init__(
        self,
        model: Model,
        path: str = "gibbs",
        mixing: str = "exact",
        *,
        init: str = "overdispersed",
        split_merge: int | None = None,
        relabel: bool | None = None,
        sibling_split_merge: int | None = None,
        prune_regraft: int | None = None,
        temperatures: Sequence[float] = (1.0,),
    ) -> None:
        super().__init__(model)
        if mixing == "paper":
            warnings.warn(
                'mixing="paper" does not leave the posterior invariant: its draws are not from the posterior. Use it only to '
                'reproduce the paper, and mixing="exact" for everything else',
                UserWarning,
                stacklevel=2,
            )
        self._temperatures = check_temperatures(temperatures)
        own = [SPLIT_MERGE, NODE_MOVES, NODE_MOVES] if mixing == "exact" else [0, 0, 0]
        given = (split_merge, sibling_split_merge, prune_regraft)
        split_merge, siblings, grafts = (int(value if each is None else each) for value, each in zip(own, given, strict=True))
        self._split_merge, self._relabel = split_merge, relabel
        self._moves = Moves(bool(relabel), siblings, grafts)
        if mixing == "paper" and (split_merge or any(self._moves)):
            raise ValueError('split_merge, relabel, sibling_split_merge and prune_regraft require mixing="exact"')
        if mixing == "paper" and len(self._temperatures) > 1:
            raise ValueError('temperatures require mixing="exact"')
        self._path, self._mixing, self._start = path, mixing, init
        self._with_others = False  # a block of `Gibbs`, whose other blocks need values of the shapes in the model
        self._sites: TreeSites | None = None
        self._program: tuple[Any, Callable[..., BHMCGibbsState]] | None = None  # of `init`, with its key
        self._checked: Any = None  # arguments and sites for which the model's densities were checked

    @property
    def default_fields(self) -> tuple[str, ...]:
        """Fields collected by `MCMC`: the values of the sites, and the capacity statistics."""
        return ("z", "truncated_probability", "capacity_hits")

    def get_diagnostics_str(self, state: BHMCGibbsState) -> str:
        """Describe the current state: nodes, components, log joint and, if any, capacity hits and truncated probability."""
        return f"{int(state.n_nodes)} nodes, {int(state.n_components)} components{self._joint_and_hits(state)}"

    @property
    def capacity_advice(self) -> str:
        """Advice on how to allow larger trees."""
        sites = self._sites
        assert sites is not None
        if not is_restricted(sites):
            return "run it with ResumableRun, which gives it more room, or set max_nodes of the model"
        advice = f'raise max_nodes of the site "{sites.paths}"'
        return advice + (f', or components of "{sites.mixing}"' if sites.infinite else "")

    @standard_settings()
    def init(
        self,
        rng_key: Array,
        num_warmup: int,
        init_params: Mapping[str, Any] | None,
        model_args: tuple[Any, ...],
        model_kwargs: Mapping[str, Any] | None,
    ) -> BHMCGibbsState:
        """Return the state at `init_params` (values of the kernel's sites) or at the kernel's `init` option."""
        sites = self._sites = find_tree_sites(self._model, model_args, model_kwargs)
        values = read_tree_values(self._model, sites, {}, model_args, model_kwargs)
        self._check_hyperparameters(sites, values)
        if self._relabel is None:
            self._moves = self._moves._replace(relabel=self._mixing == "exact" and not sites.infinite)
        if sites.infinite and self._moves.relabel:
            raise ValueError('relabel=True requires a finite number of components: use TreeMixing(..., root="finite")')
        if sites.component and len(self._temperatures) > 1:
            raise ValueError(
                f"temperatures require a component with fixed hyperparameters or a variance that scales its covariance, but "
                f'this one depends on the sites "{listed(sites.component, 8)}"'
            )
        if len(self._temperatures) > 1:
            check_tempered(values.component)
        if not is_traced(values.X):
            as_matrix(values.X)
            values.component.validate(values.X)
            values.component.check_precision(values.X, parameters=True)
        arrays, fill, shapes = split_arrays((model_args, dict(model_kwargs or {})))
        if self._checked != (shapes, sites):
            check_tree_densities(self._model, sites, model_args, model_kwargs)
            self._checked = shapes, sites
        self._sample_fn = self._sample_one
        names = {sites.paths, sites.mixing, sites.labels, sites.parameters, *sites.hyperparameters, *sites.component}
        own = {name: value for name, value in (init_params or {}).items() if name in names}
        tree = {name: own[name] for name in (sites.paths, sites.labels) if name in own}
        if is_model_draw(own.get(sites.paths)):  # without values from the user, `Gibbs` passes a draw from the model
            tree = own = {}
        if len(tree) == 1:
            raise ValueError(f'init_params has "{next(iter(tree))}" but must have both "{sites.paths}" and "{sites.labels}"')
        if tree and not is_traced(tree):
            self._check_start(sites, tree)
        own = {name: jnp.asarray(value) for name, value in own.items()}
        sites = sites if self._with_others else room_at_first(sites, own)
        given = {} if sites.paths in own else self._given_trees(sites, values, model_args, model_kwargs)
        # as one program, because compiling the many small operations one by one takes longer
        batched = not is_prng_key(rng_key)
        if self._program is None or self._program[0] != (batched, shapes, sites):
            begin = partial(self._begin, sites)
            chain = jax.vmap(begin, (0, 0, None, None, None)) if batched else begin

            def program(key: Array, own: Any, given: Any, arrays: Any) -> BHMCGibbsState:
                return chain(key, own, given, *fill(arrays))

            self._program = (batched, shapes, sites), jax.jit(program)
        return self._program[1](rng_key, own, given, arrays)

    def _begin(self, sites: TreeSites, key: Array, *given: Any) -> BHMCGibbsState:
        """Return the first state of a chain, with its replicas; see `_begin_one`."""
        higher = len(self._temperatures) - 1
        if not higher:
            return self._begin_one(sites, key, *given)
        keys = jax.random.split(key, higher + 1)
        replicas = jax.vmap(lambda key: self._begin_one(sites, key, *given))(keys[1:])
        return self._begin_one(sites, keys[0], *given)._replace(replicas=replicas, swap_rates=jnp.zeros(higher))

    def _begin_one(
        self,
        sites: TreeSites,
        key: Array,
        own: dict[str, Array],
        given: Mapping[str, tuple[Array, Array]],
        args: Any,
        kwargs: Any,
    ) -> BHMCGibbsState:
        """Return the first state of one replica, using the values of sites that are given."""
        key, key_hyper, key_tree, key_mixing, key_parameters = jax.random.split(key, 5)
        priors = read_tree_values(self._model, sites, {}, args, kwargs)
        hyper = self._starting_hyperparameters(sites, priors, own, key_hyper)
        hyper |= first_component_hyperparameters(self._model, sites, own, args, kwargs, jax.random.fold_in(key_hyper, 1))
        now = read_tree_values(self._model, sites, hyper, args, kwargs)
        if sites.paths in own:
            paths, labels = own[sites.paths].astype(int), own[sites.labels].astype(int)
        else:
            paths, labels = starting_tree(self._start, sites, now, key_tree, given)
        mixing = own.get(sites.mixing)
        if mixing is None:
            customers = papers_customers(paths, labels, sites.max_nodes, sites.components)
            root = RootPrior(now.root_concentration, sites.components, sites.infinite)
            mixing = draw_mixing(customers, read_tree(paths, sites.max_nodes), root, now.mixing_concentration, key_mixing)
        parameters = own.get(sites.parameters)
        if parameters is None:
            stats = cluster_statistics(now.component.suff_stats(now.X), labels, sites.components)
            parameters = now.component.sample_parameters(key_parameters, stats)
        z = {sites.paths: paths, sites.mixing: mixing, sites.parameters: parameters, sites.labels: labels, **hyper}
        zero = jnp.zeros((), int)
        return BHMCGibbsState(
            z,
            **tree_summaries(sites, now, z),
            capacity_hits=zero,
            truncated_probability=jnp.zeros(()),
            accepted=jnp.zeros(3, int),
            i=zero,
            rng_key=key,
            swap_rates=jnp.zeros(0),
            replicas=None,
        )

    def _given_trees(
        self, sites: TreeSites, values: TreeValues, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None
    ) -> dict[str, tuple[Array, Array]]:
        """Build the starts in NumPy that may be needed, at the hyperparameters' prior medians."""
        rows, columns = values.X.shape
        wanted = [self._start] if self._start in GIVEN_TREES else []
        if is_traced(values):
            if wanted:
                raise ValueError(f'init="{self._start}" requires concrete data, but the data are traced by JAX: choose another')
        elif self._start == "overdispersed":
            wanted = [name for name in GIVEN_TREES if rows <= MOST_ROWS[name] and (columns <= MOST_COLUMNS or name == "ward")]
        if not wanted:
            return {}
        key = jax.random.key(0)
        medians = {
            name: jnp.median(prior.sample(key, (101,)), axis=0)
            for name, prior in zip(sites.hyperparameters, values.priors, strict=True)
            if prior is not None
        }
        medians |= first_component_hyperparameters(self._model, sites, medians, args, kwargs, key, typical=True)
        component = read_tree_values(self._model, sites, medians, args, kwargs).component
        sizes = sites.depth, sites.components - sites.infinite, sites.max_nodes
        trees = {name: GIVEN_TREES[name](component, np.asarray(values.X), *sizes) for name in wanted}
        return jax.tree.map(jnp.asarray, trees)

    def _starting_hyperparameters(
        self, sites: TreeSites, values: TreeValues, own: Mapping[str, Array], key: Array
    ) -> dict[str, Array]:
        """Return the given values, and draws from the prior for all others."""
        priors = {name: prior for name, prior in zip(sites.hyperparameters, values.priors, strict=True) if prior is not None}
        keys = jax.random.split(key, max(len(priors), 1))
        return {
            name: own[name] if name in own else prior.sample(key)
            for key, (name, prior) in zip(keys, priors.items(), strict=False)
        }

    def _check_start(self, sites: TreeSites, tree: Mapping[str, Any]) -> None:
        """Raise `ValueError` if the initial paths or labels are invalid."""
        paths, labels = np.asarray(tree[sites.paths]), np.asarray(tree[sites.labels])
        check_whole_labels(labels, sites.size, sites.components - sites.infinite)
        shape = (sites.size, sites.depth)
        if paths.shape[-2:] != shape or not np.issubdtype(paths.dtype, np.integer):
            raise ValueError(
                f"initial paths must be whole numbers of shape {shape}, but they have shape {paths.shape} and type "
                f"{paths.dtype}"
            )
        if paths.min() < 1 or paths.max() >= sites.max_nodes:
            raise ValueError(
                f"initial paths must contain node numbers 1, ..., {sites.max_nodes - 1}, but they span {paths.min()} to "
                f"{paths.max()}"
            )
        for chain in paths.reshape(-1, *shape):
            Hierarchy(chain)

    def _sample_one(
        self, state: BHMCGibbsState, model_args: tuple[Any, ...], model_kwargs: Mapping[str, Any] | None
    ) -> BHMCGibbsState:
        if state.replicas is None:
            return self._step(state, None, model_args, model_kwargs)
        rates, temperatures = state.swap_rates, jnp.asarray(self._temperatures, state.log_likelihood.dtype)
        lowest = state._replace(replicas=None, swap_rates=state.replicas.swap_rates[0])
        both = jax.tree.map(lambda one, others: jnp.concatenate([one[None], others]), lowest, state.replicas)
        both = jax.vmap(lambda one, temperature: self._step(one, temperature, model_args, model_kwargs))(both, temperatures)
        key, key_exchange = jax.random.split(both.rng_key[0])
        order, accepted, attempted = exchange(both.log_likelihood, temperatures, state.i % 2 == 1, key_exchange)
        both = both._replace(**{name: jax.tree.map(lambda leaf: leaf[order], getattr(both, name)) for name in OF_VALUES})
        number = (state.i + 2 - jnp.arange(len(accepted)) % 2) // 2  # of proposals to each pair so far, with this one
        change = (accepted.astype(rates.dtype) - rates) / jnp.maximum(number, 1).astype(rates.dtype)
        lowest, others = (jax.tree.map(itemgetter(part), both) for part in (0, slice(1, None)))
        return lowest._replace(rng_key=key, replicas=others, swap_rates=jnp.where(attempted, rates + change, rates))

    def _step(
        self,
        state: BHMCGibbsState,
        temperature: Float[Array, ""] | None,
        model_args: tuple[Any, ...],
        model_kwargs: Mapping[str, Any] | None,
    ) -> BHMCGibbsState:
        """Make one step of one replica; a temperature of None is 1."""
        assert self._sites is not None, "`init` must be called before `sample`"
        sites = room_of(self._sites, state.z)
        keys = _Keys(*jax.random.split(state.rng_key, 12))
        values = read_tree_values(self._model, sites, state.z, model_args, model_kwargs)
        root = RootPrior(values.root_concentration, sites.components, sites.infinite)
        concentrations = Concentrations(values.concentration, root, values.mixing_concentration)
        mixture = Mixture(*(state.z[name] for name in (sites.paths, sites.labels, sites.mixing, sites.parameters)))
        component, X = values.component, values.X
        if temperature is not None:
            component = tempered(component, temperature)
        stats = component.suff_stats(X)

        # paths and labels of the items, one by one
        items = densities_of(component, X, keys.items)
        mixture = mixture._replace(parameters=computed_after(mixture.parameters, items.alone))
        swept = path_sweep(component, items, mixture, concentrations, keys.sweep, metropolis=self._path == "mh")
        mixture = Mixture(swept.paths, swept.labels, swept.mixing, swept.parameters)
        # tables of the franchise, from the leaves up, and moves of whole nodes
        seating = climb_to_root(component, stats, X, mixture, concentrations, self._moves, keys.seats)
        tree = read_tree(seating.paths, sites.max_nodes)
        # α, γ0 and γ given the tables, then all proportions jointly
        concentrations, drawn = _draw_concentrations(sites, values, concentrations, seating, tree, keys)
        customers = seating.customers
        if self._mixing == "paper":
            customers = papers_customers(seating.paths, seating.labels, *customers.shape)
        mixing = draw_mixing(customers, tree, concentrations.root, concentrations.mixing, keys.mixing)
        mixture = Mixture(seating.paths, seating.labels, mixing, mixture.parameters)
        divided = lacking = jnp.zeros((), int)
        if self._split_merge:
            labels, mixing, divided, lacking = split_merge_components(
                component, X, mixture, tree, concentrations, self._split_merge, keys.divide
            )
            mixture = mixture._replace(labels=labels, mixing=mixing)
        # the component's hyperparameters with its parameters integrated out, these, and their variance given these
        if sites.component:
            key_component, key_parameters = jax.random.split(keys.parameters)
            arguments = self._model, sites, state.z, mixture.labels, model_args, model_kwargs, key_component
            drawn |= draw_component_hyperparameters(*arguments)
            keys = keys._replace(parameters=key_parameters)
            now = read_tree_values(self._model, sites, dict(state.z) | drawn, model_args, model_kwargs)
            component, X = now.component, now.X
            values, stats = values._replace(component=component, X=X), component.suff_stats(X)
        own = cluster_statistics(stats, mixture.labels, sites.components)
        mixture = mixture._replace(parameters=component.sample_parameters(keys.parameters, own))
        drawn |= _draw_variance(sites, values, state.z, mixture, 1.0 if temperature is None else temperature, keys.variance)

        z = dict(state.z) | drawn
        z |= dict(zip((sites.paths, sites.labels, sites.mixing, sites.parameters), mixture, strict=True))
        z = {name: value.astype(state.z[name].dtype) for name, value in z.items()}
        summaries = tree_summaries(sites, read_tree_values(self._model, sites, z, model_args, model_kwargs), z)
        summaries["log_joint"] = stop_if_undefined("BHMCGibbs", summaries["log_joint"])
        lost = swept.hits + seating.refused + (lacking if sites.infinite else 0)  # with a finite root, K is the model's
        labels, hits, mass = counted_hits(self, _in_words(sites), state, z[sites.labels], lost, swept.refused)
        return BHMCGibbsState(
            z | {sites.labels: labels},
            **summaries,
            capacity_hits=hits,
            truncated_probability=mass,
            accepted=state.accepted + jnp.append(divided, seating.accepted).astype(state.accepted.dtype),
            i=state.i + 1,
            rng_key=keys.following,
            swap_rates=state.swap_rates,
            replicas=None,
        )

    @property
    def grows(self) -> bool:
        """Whether the model allows more nodes or components than there is room for at first."""
        assert self._sites is not None, "`init` must be called first"
        return self._sites.infinite or not is_restricted(self._sites)

    def growth(self, before: BHMCGibbsState, after: BHMCGibbsState) -> Callable[[Mapping[str, Any]], dict[str, Any]] | None:
        """Return how the values of the sites are given more room; see `ModelKernel.growth`.

        Warns
        -----
        RuntimeWarning
            If there can be no more room, at the first time.
        """
        assert self._sites is not None, "`init` must be called first"
        old, new, n_nodes, n_components = (
            np.concatenate([np.ravel(getattr(part, name)) for part in (state, state.replicas) if part is not None])
            for state, name in (
                (before, "capacity_hits"),
                (after, "capacity_hits"),
                (after, "n_nodes"),
                (after, "n_components"),
            )
        )
        if not (new > old).any():
            return None
        grow = larger_room(self._sites, before.z, n_nodes, n_components)
        if grow is None and not old.any():
            report_capacity(self, _in_words(self._sites), after.truncated_probability.max())
        return grow

    def enlarged(self, state: BHMCGibbsState, grow: Callable[[Mapping[str, Any]], dict[str, Any]]) -> BHMCGibbsState:
        """Return the state, and its replicas, in larger arrays; see `growth`."""
        state = super().enlarged(state, grow)
        return state if state.replicas is None else state._replace(replicas=super().enlarged(state.replicas, grow))

    def alike(self, states: Sequence[BHMCGibbsState]) -> list[BHMCGibbsState]:
        """Return the states with as much room as the one with the most: given trees may differ in their numbers of nodes."""
        assert self._sites is not None, "`init` must be called first"
        rooms = [room_of(self._sites, state.z) for state in states]
        most = max(room.max_nodes for room in rooms), max(room.components for room in rooms)
        ways = [enlargement(self._sites, state.z, *most) for state in states]
        return [state if grow is None else self.enlarged(state, grow) for state, grow in zip(states, ways, strict=True)]

    def wrap_model(self, wrapper: Callable[[Model], Model]) -> BHMCGibbs:
        """Return a copy of the kernel for the wrapped model."""
        kernel = super().wrap_model(wrapper)
        kernel._program, kernel._checked, kernel._with_others = None, None, True
        return kernel

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_program": None, "_checked": None}

    def _check_hyperparameters(self, sites: TreeSites, values: TreeValues) -> None:
        """Raise `ValueError` if a latent site belongs to no block."""
        unknown = list(sites.others)
        for name, prior in zip(sites.hyperparameters, values.priors, strict=True):
            known = VARIANCE_PRIORS if name == sites.hyperparameters.variance else CONCENTRATION_PRIORS
            if prior is not None and not isinstance(prior_of_each(prior), known):
                unknown.append(name)
        if unknown:
            own = [sites.paths, sites.mixing, sites.parameters, sites.labels]
            raise ValueError(
                f"BHMCGibbs has no update for the latent sites {unknown}: use "
                f"Gibbs([(BHMCGibbs(model), {own}), (NUTS(model), None)])"
            )


class _Keys(NamedTuple):
    """Random keys of one step, by purpose; `following` is the key of the next step."""

    following: Array
    items: Array
    sweep: Array
    seats: Array
    root: Array
    mixing: Array
    divide: Array
    parameters: Array
    concentration: Array
    root_concentration: Array
    mixing_concentration: Array
    variance: Array


def _in_words(sites: TreeSites) -> str:
    """The capacity; the last component of an infinite root represents all the others."""
    return f"{sites.max_nodes} nodes" + (f" or {sites.components - 1} components" if sites.infinite else "")


def _draw_concentrations(
    sites: TreeSites, values: TreeValues, now: Concentrations, seating: Seating, tree: Tree, keys: _Keys
) -> tuple[Concentrations, dict[str, Array]]:
    """Draw those of α, γ0 and γ that have priors, given the tree and its tables (Escobar & West 1995)."""
    names, priors = sites.hyperparameters, values.priors
    alpha, gamma0, gamma = now.tree, now.root.concentration, now.mixing
    drawn: dict[str, Array] = {}
    if priors.concentration is not None:
        inner = (tree.level >= 0) & (tree.level < sites.depth)
        groups = jnp.where(inner, tree.counts, 0).astype(alpha.dtype)
        alpha = drawn[names.concentration] = draw_concentration(
            priors.concentration, alpha, groups, (tree.level > 0).sum(), keys.concentration
        )
    if priors.root_concentration is not None:
        at_root = seating.customers[0]
        tables = (at_root > 0).astype(at_root.dtype)  # with an infinite root, every component is drawn once
        if not sites.infinite:
            tables = tables_of_counts(at_root, now.root.shares, sites.size, keys.root)
        gamma0 = drawn[names.root_concentration] = draw_concentration(
            priors.root_concentration, gamma0, at_root.sum(keepdims=True), tables.sum(), keys.root_concentration
        )
    if priors.mixing_concentration is not None:
        below = seating.customers.at[0].set(0.0).sum(1)
        gamma = drawn[names.mixing_concentration] = draw_concentration(
            priors.mixing_concentration, gamma, below, seating.tables.sum(), keys.mixing_concentration
        )
    return Concentrations(alpha, now.root._replace(concentration=gamma0), gamma), drawn


def _draw_variance(
    sites: TreeSites, values: TreeValues, z: Mapping[str, Array], mixture: Mixture, temperature: float | Array, key: Array
) -> dict[str, Array]:
    """Draw the scale of the known covariance from its conditional given the components' means, if it has a prior.

    At temperature T, every squared deviation counts as 1/T of one.
    """
    if values.priors.variance is None:
        return {}
    means, variance = mixture.parameters[mixture.labels], z[sites.hyperparameters.variance]
    if variance.ndim:  # one variance per column
        assert isinstance(values.component, NormalKnownCovariance)
        distances = jnp.square(values.X - means).sum(0) / jnp.diagonal(values.component.covariance)
        count = values.X.shape[0]
    else:  # Mahalanobis distances, from the densities here and at the mean
        rows = values.component.likelihood(means)
        distances = (2.0 * (rows.log_prob(means) - rows.log_prob(values.X))).sum()
        count = values.X.size
    squares = variance * distances / temperature
    found = draw_variance(values.priors.variance, variance, squares, count / temperature, key)
    return {sites.hyperparameters.variance: found}
