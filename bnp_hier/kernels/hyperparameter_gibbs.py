"""Slice sampling of a mixture's hyperparameters given its partition, as a block of NumPyro's `Gibbs`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int
from numpyro import handlers
from numpyro.infer.gibbs import prototype_trace
from numpyro.util import is_prng_key

from bnp_hier.distributions import ChineseRestaurantProcess, ConjugateMixture
from bnp_hier.inspection.conditionals import find_continuous_sites, read_conditional
from bnp_hier.inspection.trace import TRACING, Model, run_model
from bnp_hier.kernels.base import ModelKernel
from bnp_hier.kernels.reports import stop_if_undefined
from bnp_hier.kernels.slice_sampling import SliceAdaptation, SlicePoint, adapted, directions_of, slice_sweep, unadapted
from bnp_hier.kernels.spread_rows import spread_arguments
from bnp_hier.utils.jax_settings import standard_settings
from bnp_hier.utils.options import PositiveNumber, WholeNumber

__all__ = ["HyperparameterGibbs", "HyperparameterGibbsState"]


class HyperparameterGibbsState(NamedTuple):
    """State of the kernel; every field but `z` and `rng_key` can be collected as an extra field.

    - **z** - dictionary with the constrained values of the hyperparameter sites.
    - **log_density** - log joint density of the model, with the log Jacobian determinant of the constraining transforms (nats);
      −inf before the first step.
    - **evaluations** - number of evaluations of the density in the last step.
    - **adapt_state** - directions and widths of the slices, which are adapted in the first `num_warmup` steps.
    - **num_warmup** - number of warm-up steps.
    - **i** - number of steps so far.
    - **rng_key** - random key.
    - **rows** - arguments of the model that are distributed over devices; usually none.
    """

    z: dict[str, Array]
    log_density: Float[Array, ""]
    evaluations: Int[Array, ""]
    adapt_state: SliceAdaptation
    num_warmup: Int[Array, ""]
    i: Int[Array, ""]
    rng_key: Array
    rows: tuple[Array, ...] = ()


class HyperparameterGibbs(ModelKernel):
    """Slice sampler for the hyperparameters of a mixture given its partition (Neal 2003).

    Each step updates the concentration and the sites on which the parameters of the component depend, by univariate slice
    sampling of their unconstrained coordinates. Rows are summed once per step. Each evaluation of the density then needs only
    the statistics of the clusters, so that its cost is proportional to the number of clusters, not of rows, and no gradients
    are computed. The kernel is a block of `numpyro.infer.Gibbs`, beside one for the partition:
    ``Gibbs([(PartitionGibbs(model), ["z"]), (HyperparameterGibbs(model), None)])``.

    Parameters
    ----------
    model
        NumPyro model whose sites that belong to no other block are continuous. Any such model is supported, but evaluations
        cost time proportional to the number of rows unless the rows have a `ConjugateMixture` on a `ChineseRestaurantProcess`
        whose component has an `anchor`, as all families of this package with proper priors do.
    width
        Initial width of the intervals, in unconstrained units (for a positive number, those of its logarithm).
    max_steps_out
        Maximum number of steps, each of one width, by which an interval is expanded.
    sweeps
        Number of updates of each coordinate per step.
    random_order
        Whether the coordinates are updated in a new random order in each sweep, instead of in the order of the sites.
    adapt
        Whether warm-up adapts the slices. The coordinates become those in which the draws of warm-up are uncorrelated, as in
        the factor slice sampler (Tibbits et al. 2014), and their widths three times the mean distance moved. Both are fixed
        after warm-up, so that the chain then leaves the posterior invariant.

    Raises
    ------
    ValueError
        If an option is out of range. At `init`, if the sites that belong to no other block include a discrete one, or if there
        are none.

    Notes
    -----
    The target is the joint density of the model times the Jacobian determinant of the constraining transforms. Values with an
    undefined density are never accepted; a run that starts from one and finds no other stops with an error.

    Examples
    --------
    >>> import jax
    >>> import numpy as np
    >>> import numpyro.distributions as dist
    >>> from functools import partial
    >>> from numpyro.infer import MCMC, Gibbs
    >>> import bnp_hier as bnp
    >>> X = np.array([[0.0], [0.2], [0.1], [6.0], [6.1]])
    >>> component = bnp.NormalKnownCovariance(mean=[0.0], prior_covariance=9 * np.eye(1), covariance=np.eye(1))
    >>> model = partial(bnp.models.dpm, component=component, concentration=dist.Gamma(2.0, 2.0))
    >>> kernel = Gibbs([(bnp.PartitionGibbs(model), ["z"]), (bnp.HyperparameterGibbs(model), None)])
    >>> mcmc = MCMC(kernel, num_warmup=20, num_samples=50, progress_bar=False)
    >>> mcmc.run(jax.random.key(0), X)
    >>> {name: draws.shape for name, draws in mcmc.get_samples().items()}
    {'alpha': (50,), 'z': (50, 5)}
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "model": [callable],
        "width": [PositiveNumber()],
        "max_steps_out": [WholeNumber(0)],
        "sweeps": [WholeNumber()],
        "random_order": ["boolean"],
        "adapt": ["boolean"],
    }

    def __init__(
        self,
        model: Model,
        width: float = 2.0,
        *,
        max_steps_out: int = 10,
        sweeps: int = 1,
        random_order: bool = True,
        adapt: bool = True,
    ) -> None:
        super().__init__(model)
        self._width, self._max_steps_out, self._sweeps = float(width), int(max_steps_out), int(sweeps)
        self._random_order, self._adapt = bool(random_order), bool(adapt)
        self._sites: tuple[str, ...] | None = None

    @standard_settings()
    def init(
        self,
        rng_key: Array,
        num_warmup: int,
        init_params: Mapping[str, Any] | None,
        model_args: tuple[Any, ...],
        model_kwargs: Mapping[str, Any] | None,
    ) -> HyperparameterGibbsState:
        """Return the state at `init_params` (constrained values of the sites), or at draws from the prior."""
        model_args, model_kwargs, self._places, spread, there = spread_arguments(model_args, model_kwargs)
        sites = find_continuous_sites(self._model, model_args, model_kwargs)
        self._sites, self._sample_fn = sites, self._sample_one
        if there is not None:
            self._check_padding(there.shape, model_args, model_kwargs)

        def begin(key: Array, given: Mapping[str, Any]) -> HyperparameterGibbsState:
            key, key_start = jax.random.split(key)
            values = dict(given)
            if len(values) < len(sites):
                with TRACING:
                    partly = handlers.condition(self._model, data=values)
                    trace = prototype_trace(partly, key_start, model_args, dict(model_kwargs or {}))
                values = {name: trace[name]["value"] for name in sites}
            z = {name: jnp.asarray(values[name], float) for name in sites}
            unconstrained = lambda z: read_conditional(self._model, z, model_args, model_kwargs).unconstrained  # noqa: E731
            p = sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(unconstrained, z)))
            zero, warmup = jnp.zeros((), int), jnp.asarray(num_warmup, int)
            unknown = jnp.full((), -jnp.inf, float)
            return HyperparameterGibbsState(z, unknown, zero, unadapted(p, self._width), warmup, zero, key)

        given = {name: value for name, value in (init_params or {}).items() if name in sites}
        state = begin(rng_key, given) if is_prng_key(rng_key) else jax.vmap(begin)(rng_key, given)
        return state._replace(rows=spread)

    def _check_padding(self, rows: tuple[int, ...], args: tuple[Any, ...], kwargs: Mapping[str, Any] | None) -> None:
        """Raise ValueError if the model observes rows one by one, where padding would count."""
        with TRACING:
            trace = run_model(self._model, args, kwargs or {}, lambda site: None)
        for name, site in trace.items():
            if site["type"] != "sample" or isinstance(site["fn"], ConjugateMixture | ChineseRestaurantProcess):
                continue
            if site["is_observed"] and jnp.shape(site["value"])[:1] == rows:
                raise ValueError(
                    f"the model observes {name!r} besides a ConjugateMixture, but the table has rows without values, which "
                    "would count there; give every process the same number of rows"
                )

    def get_diagnostics_str(self, state: HyperparameterGibbsState) -> str:
        """Describe the current state: log density, and evaluations per update of a coordinate in the last step."""
        updates = self._sweeps * state.adapt_state.mean.shape[-1]
        return f"log density {float(state.log_density):.1f}, {int(state.evaluations) / updates:.1f} evaluations per update"

    def _sample_one(
        self, state: HyperparameterGibbsState, model_args: tuple[Any, ...], model_kwargs: Mapping[str, Any] | None
    ) -> HyperparameterGibbsState:
        assert self._sites is not None, "`init` must be called before `sample`"
        conditional = read_conditional(self._model, state.z, model_args, model_kwargs)
        x, unravel = ravel_pytree(conditional.unconstrained)
        directions = directions_of(state.adapt_state)
        key, key_step = jax.random.split(state.rng_key)

        def log_density(x: Float[Array, " p"]) -> Float[Array, ""]:
            return conditional.log_density(unravel(x))

        def sweep(point: SlicePoint, key: Array) -> tuple[SlicePoint, Array]:
            widths = state.adapt_state.widths
            return slice_sweep(log_density, point, directions, widths, self._max_steps_out, key, self._random_order)

        start = SlicePoint(x, log_density(x), jnp.ones((), int))
        point, distances = jax.lax.scan(sweep, start, jax.random.split(key_step, self._sweeps))
        adaptation = state.adapt_state
        if self._adapt:
            new = adapted(adaptation, point.x, distances.mean(0), state.i)
            adaptation = jax.tree.map(partial(jnp.where, state.i < state.num_warmup), new, adaptation)
        return HyperparameterGibbsState(
            {name: value.astype(state.z[name].dtype) for name, value in conditional.constrain(unravel(point.x)).items()},
            stop_if_undefined("HyperparameterGibbs", point.log_density),
            point.evaluations,
            adaptation,
            state.num_warmup,
            state.i + 1,
            key,
        )
