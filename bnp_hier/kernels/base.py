"""Common parts of the kernels: the interface to NumPyro, and the label-invariant summaries and capacity of a partition."""

from __future__ import annotations

import copy
import inspect
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import jax
import numpy as np
from numpyro.infer.mcmc import MCMCKernel
from numpyro.util import identity, is_prng_key

from bnp_hier.inspection.trace import Model
from bnp_hier.kernels.spread_rows import filled
from bnp_hier.utils.compilation_cache import keep_programs
from bnp_hier.utils.jax_settings import standard_settings
from bnp_hier.utils.options import check_options

__all__ = [
    "ModelKernel",
    "PartitionKernel",
    "check_whole_labels",
]


class ModelKernel(MCMCKernel):
    """Kernel of sites of a model, alone under `MCMC` or as a block of `numpyro.infer.Gibbs`.

    A subclass implements `init`, which sets `_sites` and `_sample_fn`, and `_sample_one`, one step of one chain. Its state is a
    `NamedTuple` with at least `z`, the constrained values of its sites, and `rng_key`; and `rows`, if arguments of the model
    may be distributed over processes (see `spread_rows`).
    """

    sample_field = "z"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {"model": [callable]}

    constructor_options: dict[str, Any]
    """The arguments of the constructor, except the model."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Record the arguments as given, so that a saved run can report them; copies and pickles are made without arguments."""
        self = super().__new__(cls)
        given = inspect.signature(cls.__init__).bind_partial(self, *args, **kwargs)
        given.apply_defaults()
        self.constructor_options = {name: value for name, value in list(given.arguments.items())[1:] if name != "model"}
        return self

    def __init__(self, model: Model) -> None:
        check_options(type(self).__name__, self._parameter_constraints, {"model": model, **self.constructor_options})
        keep_programs()
        self._model = model
        # static metadata resolved at `init`
        self._sites: Any = None
        self._sample_fn: Callable[..., Any] | None = None
        self._places: tuple[str, ...] = ()
        """Where the state's `rows` belong among the arguments."""

    @property
    def model(self) -> Model:
        """The model."""
        return self._model

    @property
    def default_fields(self) -> tuple[str, ...]:
        """Fields collected by `MCMC`: the values of the sites."""
        return ("z",)

    @standard_settings()
    def sample(self, state: Any, model_args: tuple[Any, ...], model_kwargs: Mapping[str, Any] | None) -> Any:
        """Advance every chain in the state by one step."""
        step, rows = self._sample_one, getattr(state, "rows", ())
        if rows:
            model_args, model_kwargs = filled(model_args, model_kwargs, self._places, rows)
            state = state._replace(rows=())
        if is_prng_key(state.rng_key):
            state = step(state, model_args, model_kwargs)
        else:
            state = jax.vmap(lambda one: step(one, model_args, model_kwargs))(state)
        return state._replace(rows=rows) if rows else state

    @abstractmethod
    def _sample_one(self, state: Any, model_args: tuple[Any, ...], model_kwargs: Mapping[str, Any] | None) -> Any:
        """Advance one chain by one step."""

    def refresh(self, state: Any, model_args: tuple[Any, ...], model_kwargs: Mapping[str, Any] | None) -> Any:
        """Identity: the state has no cached values to recompute."""
        return state

    @property
    def grows(self) -> bool:
        """Whether the values of the sites can be given more room; see `growth`."""
        return False

    def growth(self, before: Any, after: Any) -> Callable[[Mapping[str, Any]], dict[str, Any]] | None:
        """Return how the values of the sites are given more room, if the steps between two states reached a capacity.

        The result maps values of sites, with any leading dimensions, to the same ones in larger arrays. None: the room
        sufficed, or there can be no more.
        """
        return None

    def enlarged(self, state: Any, grow: Callable[[Mapping[str, Any]], dict[str, Any]]) -> Any:
        """Return the state with the values of its sites in larger arrays; see `growth`."""
        return state._replace(z=jax.tree.map(jax.numpy.asarray, grow(state.z)))

    def alike(self, states: Sequence[Any]) -> list[Any]:
        """Return the states of several chains with arrays of the same shapes."""
        return list(states)

    def wrap_model(self, wrapper: Callable[[Model], Model]) -> Self:
        """Return a copy of the kernel for the wrapped model."""
        kernel = copy.copy(self)
        kernel._model, kernel._sites, kernel._sample_fn = wrapper(self._model), None, None
        return kernel

    def get_constrain_fn(self, model_args: tuple[Any, ...], model_kwargs: Mapping[str, Any] | None) -> Callable[[Any], Any]:
        """Identity: the values in the state are constrained."""
        return identity

    def postprocess_fn(self, model_args: tuple[Any, ...], model_kwargs: Mapping[str, Any] | None) -> Callable[[Any], Any]:
        """Identity."""
        return identity

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sample_fn": None}


class PartitionKernel(ModelKernel):
    """Kernel of a model's partition site.

    Its state has at least `z`, `log_joint`, `n_clusters`, `capacity_hits` and `rng_key`.
    """

    def __init__(self, model: Model, max_clusters: int | None = None) -> None:
        super().__init__(model)
        self._max_clusters = None if max_clusters is None else int(max_clusters)

    def get_diagnostics_str(self, state: Any) -> str:
        """Describe the current state: clusters, log joint and, if any, capacity hits with the truncated probability."""
        return f"{int(state.n_clusters)} clusters{self._joint_and_hits(state)}"

    @staticmethod
    def _joint_and_hits(state: Any) -> str:
        hits, mass, joint = int(state.capacity_hits), getattr(state, "truncated_probability", None), float(state.log_joint)
        truncated = "" if mass is None else f", truncated probability {float(mass):.1e}"
        return f", log joint {joint:.1f}" + (f", {hits} capacity hits{truncated}" if hits else "")

    @property
    def capacity_advice(self) -> str:
        """What to raise if the capacity is reached: `max_clusters` of the kernel or of the model, whichever is smaller."""
        assert self._sites is not None, "`init` must be called first"
        own, model = self._max_clusters, self._sites.max_clusters
        places = []
        if model is None or own is not None and own <= model:
            places.append(f"{type(self).__name__}(..., max_clusters=...)")
        if model is not None and (own is None or model <= own):
            places.append(f'max_clusters of the site "{self._sites.partition}"')
        return f"raise {' and '.join(places)}"

    def _refuse_other_sites(self, partition: str, others: Sequence[str]) -> None:
        """Raise `ValueError` if the model has latent sites that no block owns."""
        if others:
            kernel = type(self).__name__
            raise ValueError(
                f"{kernel} samples only the partition, but the model has the latent sites {list(others)}: "
                f'use Gibbs([({kernel}(model), ["{partition}"]), (NUTS(model), None)])'
            )


def check_whole_labels(labels: np.ndarray, size: int, below: int) -> None:
    """Check the initial labels of one or several chains.

    Raises
    ------
    ValueError
        If they are not `size` whole numbers in 0, ..., `below` − 1.
    """
    if labels.shape[-1:] != (size,) or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(
            f"initial labels must be {size} whole numbers, but they have shape {labels.shape} and type {labels.dtype}"
        )
    if labels.min() < 0 or labels.max() >= below:
        raise ValueError(f"initial labels must lie in 0, ..., {below - 1}, but they span {labels.min()} to {labels.max()}")
