"""An MCMC run that can be stopped, saved and resumed, with the same draws as an uninterrupted run."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from copy import copy
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jaxtyping import Array
from numpyro.infer import MCMC, Gibbs
from numpyro.infer.mcmc import MCMCKernel
from numpyro.util import is_prng_key, nested_attrgetter

from bnp_hier.inspection.parameters import difference, model_parameters
from bnp_hier.inspection.trace import TRACING
from bnp_hier.kernels.base import ModelKernel
from bnp_hier.kernels.kernel_options import described_options
from bnp_hier.kernels.partition_gibbs import PartitionGibbs
from bnp_hier.kernels.reports import undefined_in_one_line
from bnp_hier.kernels.spread_rows import SpreadArguments, filled, spread_arguments
from bnp_hier.native.cores import on_cores
from bnp_hier.partitions.engine import has_calls
from bnp_hier.runs.checkpoint_file import Checkpoint, fingerprint, read_checkpoint, restore, write_checkpoint
from bnp_hier.runs.distributed_parts import (
    agreed,
    as_parts,
    as_whole,
    asked_to_end,
    check_processes,
    failing_together,
    is_common,
    other_process_named,
    placed_like,
    placed_on,
    read_distributed,
    shard_fingerprint,
    write_distributed,
)
from bnp_hier.utils.arrays import is_traced
from bnp_hier.utils.blas_threads import blas_on_one_core
from bnp_hier.utils.interruption import interruptible
from bnp_hier.utils.progress_bars import ProgressBar
from bnp_hier.utils.quick_compilation import compiled_quickly
from bnp_hier.utils.sharded_arrays import any_sharded

__all__ = ["ResumableRun"]

SAME = ("num_warmup", "num_chains", "thinning")
"""Options of `MCMC` that must not change when a run is loaded; `num_samples` may be increased."""


class _Progress(NamedTuple):
    """Progress of a run; replaced as a whole, so that an interruption never leaves an incomplete chunk.

    - **steps** - number of completed steps, including warm-up.
    - **state** - state of the kernel, for all chains.
    - **draws** - for each chunk after warm-up, a mapping field -> arrays (chain, draw, ...).
    """

    steps: int
    state: Any
    draws: tuple[dict[str, Any], ...]


class ResumableRun:
    """Run an `MCMC` object in chunks, so that warm-up and sampling can be stopped at any time and resumed later.

    The draws are those of a single `mcmc.run` with the same key, bit for bit if the compiled programs round in the same way.
    Ctrl-C or an error loses at most the current chunk; `resume` continues from the last completed one. Results are accessed
    as for an `MCMC` object that has been run, with `get_samples`, `get_extra_fields`, `last_state` and `sampler`, and
    `to_arviz`, `loo` and `compare` accept the run in place of one. All chunks of the same length share a compiled program, and
    chains of the chain method "sequential" run on as many cores as there are.

    Parameters
    ----------
    mcmc
        Specifies kernel, numbers of steps and chains, chain method, thinning, and whether to show a progress bar. It is not run
        itself. The data are compiled into the program as constants, as with `jit_model_args=False`, except for rows that are
        distributed over devices or processes, which are its arguments.
    checkpoint_every
        Length of a chunk: the number of steps of each chain between checkpoints, a multiple of the thinning.
    path
        File to which the run is saved after each chunk, so that a killed process also loses at most one chunk. All draws so
        far are written each time, so use long chunks if draws are large.
    time_limit
        Time limit in seconds for each call of `run` and `resume`, compilation included, or None for no limit. The call returns
        without an error before a chunk that would exceed it, judging by the last one, but not before it has completed a chunk
        and there are draws; `finished` reports whether the run is complete.
    chunk_fields
        Fields of the kernel's state that are collected once per chunk, at its end, and returned among the extra fields: for
        example "z", the labels of a very large number of rows, if the kernel does not collect them at every step.
    enough
        Function of the run that returns whether there are enough draws, in which case the run is finished; `num_samples` is
        then the largest number of samples. It is called after `first_check` samples and whenever their number has doubled,
        also by a resumed run, which ends at the same draw; it is not saved.
    first_check
        Number of samples after which `enough` is called first, a multiple of `checkpoint_every`.

    Notes
    -----
    If the rows are distributed over processes, all of them call the same methods. Labels stay distributed, in the draws and in
    the files: process 0 writes the file at `path`, with everything that all processes share, and each process a file with its
    part of the labels, whose name begins with that of `path`. Put them in a folder that all processes see. To go on after a
    process has ended, start as many processes again, each with the same rows.

    Raises
    ------
    ValueError
        If there are no chains, `checkpoint_every` is not a positive multiple of the thinning or `first_check` one of
        `checkpoint_every`, the time limit is not positive, a chunk field is already collected at every step, or the kernel
        updates an ensemble of chains jointly.

    Examples
    --------
    >>> run = ResumableRun(MCMC(kernel, num_warmup=500, num_samples=1000), path="run.npz")  # doctest: +SKIP
    >>> run.run(jax.random.key(0), X)  # doctest: +SKIP
    >>> run = ResumableRun.load("run.npz", MCMC(kernel, num_warmup=500, num_samples=1000), X)  # doctest: +SKIP
    >>> run.resume(X)  # doctest: +SKIP
    """

    def __init__(
        self,
        mcmc: MCMC,
        checkpoint_every: int = 100,
        *,
        path: str | os.PathLike[str] | None = None,
        time_limit: float | None = None,
        chunk_fields: tuple[str, ...] = (),
        enough: Callable[[ResumableRun], bool] | None = None,
        first_check: int | None = None,
    ) -> None:
        if mcmc.num_chains < 1:
            raise ValueError(f"a run needs at least one chain, but num_chains is {mcmc.num_chains}")
        if checkpoint_every != int(checkpoint_every) or checkpoint_every < 1 or checkpoint_every % mcmc.thinning:
            raise ValueError(
                f"checkpoint_every must be a positive multiple of the thinning, {mcmc.thinning}, but it is {checkpoint_every}"
            )
        if time_limit is not None and not time_limit > 0:
            raise ValueError(f"time_limit must be a positive number of seconds or None, but it is {time_limit!r}")
        if (
            (enough is None) != (first_check is None)
            or first_check is not None
            and not 0 < first_check == (first_check // checkpoint_every * checkpoint_every)
        ):
            raise ValueError(
                f"enough and first_check, a positive multiple of checkpoint_every={checkpoint_every}, are given together, but "
                f"first_check is {first_check!r}"
            )
        if mcmc.sampler.is_ensemble_kernel:
            raise ValueError(f"{type(mcmc.sampler).__name__} updates an ensemble of chains jointly, which cannot be resumed")
        if twice := set(chunk_fields) & {mcmc.sampler.sample_field, *mcmc.sampler.default_fields}:
            raise ValueError(f"chunk_fields contains {sorted(twice)}, which the kernel already collects at every step")
        self.mcmc = mcmc
        self.checkpoint_every = int(checkpoint_every)
        self.path = path
        self.time_limit = time_limit
        self.chunk_fields = tuple(chunk_fields)
        self.enough = enough
        self.first_check = first_check
        self._progress: _Progress | None = None
        self._data = ""
        self._parameters: dict[str, np.ndarray] = {}
        self._capacity: int | None = None  # clusters for which the kernel had room when the run began
        self._ready = True  # whether the kernel has been initialised with the model
        self._extra_fields: tuple[str, ...] = ()
        self._programs: dict[tuple[int, tuple[str, ...]], Callable[[Any], Any]] = {}
        self._given: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
        self._arguments = SpreadArguments((), {}, (), (), None)

    def __getstate__(self) -> dict[str, Any]:
        # compiled programs and the data in them are not pickled: the data are passed to `resume` again
        return {
            **self.__dict__,
            "_programs": {},
            "_given": ((), {}),
            "_arguments": SpreadArguments((), {}, (), (), None),
            "enough": None,
        }

    # ---- interface of an `MCMC` object --------------------------------------------------------------------------------

    @property
    def sampler(self) -> MCMCKernel:
        """The kernel."""
        return self.mcmc.sampler

    @property
    def num_chains(self) -> int:
        """Number of chains."""
        return self.mcmc.num_chains

    @property
    def last_state(self) -> Any:
        """State of the kernel after the last completed chunk, for all chains; None before `run`."""
        return None if self._progress is None else self._progress.state

    def get_samples(self, group_by_chain: bool = False) -> Any:
        """Return the draws so far as NumPy arrays, in the format of `MCMC.get_samples`; labels may be distributed arrays.

        Raises
        ------
        ValueError
            If there are none.
        """
        return self._collected(group_by_chain)[self.sampler.sample_field]

    def get_extra_fields(self, group_by_chain: bool = False) -> dict[str, Any]:
        """Return the other fields so far as NumPy arrays, in the format of `MCMC.get_extra_fields`.

        Raises
        ------
        ValueError
            If there are none.
        """
        return {name: value for name, value in self._collected(group_by_chain).items() if name != self.sampler.sample_field}

    def _collected(self, group_by_chain: bool) -> dict[str, Any]:
        if self._progress is None or not self._progress.draws:
            raise ValueError(f"the run has no draws yet: {self.steps} of {self.mcmc.num_warmup} warm-up steps are done")
        whole = jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), *self._progress.draws)
        if not group_by_chain:
            whole = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), whole)
        return as_whole(whole, self._mesh)

    # ---- running ------------------------------------------------------------------------------------------------------

    @property
    def steps(self) -> int:
        """Number of completed steps per chain, including warm-up."""
        return 0 if self._progress is None else self._progress.steps

    @property
    def finished(self) -> bool:
        """Whether all requested draws are available."""
        return self.steps >= self._total

    @property
    def _total(self) -> int:
        return self.mcmc.num_warmup + self.mcmc.num_samples

    @property
    def _first_kept(self) -> int:
        """Number of steps before the first thinning window: warm-up and the remainder, which NumPyro drops first."""
        return self.mcmc.num_warmup + self.mcmc.num_samples % self.mcmc.thinning

    def run(
        self,
        rng_key: Array,
        *args: Any,
        extra_fields: tuple[str, ...] = (),
        init_params: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Run from the start, with the arguments of `MCMC.run`.

        Raises
        ------
        ValueError
            If the kernel does not support the model or the data, or the file at `path` already exists.
        FloatingPointError
            If undefined (NaN) densities occur in a step; the chunks completed before it are kept.
        RuntimeError
            If rows are distributed over processes, and one of these has ended or received SIGTERM.
        """
        until = self._until()
        if self.path is not None and agreed(Path(self.path).exists(), is_common((args, kwargs))):
            raise ValueError(f"{os.fspath(self.path)} exists: load it to continue that run, or remove it to start a new one")
        if self.num_chains > 1 and is_prng_key(rng_key):
            rng_key = jax.random.split(rng_key, self.num_chains)
        self._progress, self._data, self._extra_fields = None, _fingerprint(args, kwargs), tuple(extra_fields)
        self._parameters = self._read_parameters(args, kwargs)
        self._set_arguments(args, kwargs)
        self._set_capacity(None)
        state = self._init(rng_key, init_params, args, kwargs)
        self._capacity = _capacity_of(self.sampler)
        self._advance(_Progress(0, state, ()), until, args, kwargs)

    def resume(self, *args: Any, **kwargs: Any) -> None:
        """Continue from the last completed chunk; has no effect if the run has finished.

        Parameters
        ----------
        args, kwargs
            The data and other arguments of the model, as they were passed to `run`.

        Raises
        ------
        ValueError
            If the run has not been started, or the data differ from those passed to `run`.
        FloatingPointError
            As in `run`.
        """
        until = self._until()
        if self._progress is None:
            raise ValueError("the run has not been started: call its run method first")
        self._check_data(args, kwargs)
        if not self._ready:
            self._parameters = self._read_parameters(args, kwargs)
            self._first_state(jax.tree.leaves(self._progress.state), args, kwargs)
        self._advance(self._progress, until, args, kwargs)

    def _until(self) -> float:
        """The time at which a call that begins now ends."""
        return np.inf if self.time_limit is None else time.perf_counter() + self.time_limit

    def _read_parameters(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Parameters of the kernel's model, empty if it has none."""
        model = getattr(self.sampler, "model", None)
        return {} if model is None else model_parameters(model, args, kwargs)

    def _check_data(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        with failing_together("go on with its data", is_common((args, kwargs))):
            if _fingerprint(args, kwargs) != self._data:
                shapes = ", ".join(str(np.shape(leaf)) for leaf in jax.tree.leaves((args, kwargs))) or "none"
                raise ValueError(
                    f"the data or arguments (of shapes {shapes}) are not those with which the run was started: their values "
                    "differ"
                )

    @blas_on_one_core()
    def _init(
        self, keys: Array, init_params: Mapping[str, Any] | None, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        """Initial state of all chains."""

        def one(key: Array, params: Mapping[str, Any] | None) -> Any:
            return self.sampler.init(key, self.mcmc.num_warmup, params, model_args=args, model_kwargs=kwargs)

        params = jax.tree.map(lambda x: jax.lax.convert_element_type(x, jnp.result_type(x)), init_params)
        with TRACING:
            alike = self.sampler.alike if isinstance(self.sampler, ModelKernel) else list
            return placed_on(_without_rows(self._for_chains(one, alike)(keys, params)), self._mesh)

    def _first_state(self, leaves: Iterable[Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Initialise the kernel and return an arbitrary initial state with random keys of the type in the saved leaves."""
        saved = [leaf for leaf in leaves if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)]
        key = jax.random.key(0, impl=str(jax.random.key_impl(saved[0]))) if saved else jax.random.PRNGKey(0)
        self._set_capacity(self._capacity)
        self._ready = True
        return self._init(jax.random.split(key, self.num_chains) if self.num_chains > 1 else key, None, args, kwargs)

    def _set_capacity(self, clusters: int | None) -> None:
        for kernel in _partition_kernels(self.sampler):
            kernel.capacity = clusters

    def _for_chains(self, function: Callable[..., Any], alike: Callable[[list[Any]], list[Any]] = list) -> Callable[..., Any]:
        """Apply a function of one chain to all chains with the chain method; `alike` gives results of chains equal shapes."""
        method = self.mcmc.chain_method
        if self.num_chains == 1 or method == "vectorized":  # the kernel itself updates all chains
            return function
        if method == "sequential":

            def each(*trees: Any) -> Any:
                found = [_without_rows(function(*chain)) for chain in _unstack_chains(trees, self.num_chains)]
                return _stack_chains(alike(found))

            return each
        return jax.pmap(function) if method == "parallel" else method(function)

    @blas_on_one_core()
    def _advance(self, progress: _Progress, until: float, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._set_arguments(args, kwargs)
        self._progress = progress
        common = is_common((args, kwargs))
        hidden = not self.mcmc.progress_bar or common and jax.process_index() > 0
        bar = ProgressBar(total=self._total, initial=progress.steps, disable=hidden, unit="step")
        advice = "it begins anew" if self.path is None else f"the run goes on from {os.fspath(self.path)}"
        with interruptible(), other_process_named(advice), bar:
            begun, last = progress.steps, 0.0  # a call completes at least one chunk, however short its time limit
            while not self._ends() and (
                not progress.draws or progress.steps == begun or agreed(time.perf_counter() < until - last, common)
            ):
                steps = min(self.checkpoint_every, self._next_stop - progress.steps)
                # the first call traces the model, in NumPyro's own kernels as well
                fresh, started = (steps, self._extra_fields) not in self._programs, time.perf_counter()
                with undefined_in_one_line(), warnings.catch_warnings():
                    if self._grows:
                        warnings.filterwarnings("ignore", ".* reached its capacity", RuntimeWarning)
                    with TRACING if fresh else nullcontext():
                        state, draws = self._program(steps)(progress.state, self._arguments.arrays)
                    jax.block_until_ready(state)
                if (roomier := self._with_more_room(progress, state)) is not None:
                    self._progress = progress = roomier  # the chunk is repeated
                    continue
                kept = (as_parts(draws) | self._at_end(state),) if progress.steps >= self._first_kept else ()
                progress = _Progress(progress.steps + steps, state, progress.draws + kept)
                self._progress = progress
                if self.path is not None:
                    self.save(self.path)
                last = 0.0 if fresh else time.perf_counter() - started
                if progress.steps < self._total and asked_to_end(common):
                    raise RuntimeError(f"this job was asked to end (SIGTERM) after step {progress.steps}; {advice}")
                bar.update(steps)
                bar.set_description("warmup" if progress.steps < self.mcmc.num_warmup else "sample", refresh=False)
                if self.num_chains == 1:
                    bar.set_postfix_str(self.sampler.get_diagnostics_str(state))
            bar.total = self._total

    @property
    def _next_stop(self) -> int:
        """The step at which the chunk ends at the latest: that of the first draw, of a check or the last."""
        if self.steps < self._first_kept:
            return self._first_kept
        if self.first_check is None:
            return self._total
        check = self.first_check
        while self._first_kept + check <= self.steps:
            check *= 2
        return min(self._total, self._first_kept + check)

    def _ends(self) -> bool:
        """Whether the run is finished, which it is from now on if there are enough draws at a check."""
        kept = self.steps - self._first_kept
        if self.enough is not None and self.first_check is not None and kept >= self.first_check and not self.finished:
            times, rest = divmod(kept, self.first_check)
            if not rest and times & (times - 1) == 0 and self.enough(self):
                self.mcmc = copy(self.mcmc)
                self.mcmc.num_samples = self.steps - self.mcmc.num_warmup
        return self.finished

    @property
    def _grows(self) -> bool:
        """Whether the arrays of the kernel's state can be given more room."""
        return isinstance(self.sampler, ModelKernel) and self.sampler.grows

    def _with_more_room(self, progress: _Progress, after: Any) -> _Progress | None:
        """The progress in larger arrays if the steps from its state to another reached a capacity that can be raised."""
        grow = self.sampler.growth(progress.state, after) if isinstance(self.sampler, ModelKernel) else None
        if grow is None:
            return None
        field = self.sampler.sample_field
        draws = tuple({**chunk, field: grow(chunk[field])} for chunk in progress.draws)
        return _Progress(progress.steps, self.sampler.enlarged(progress.state, grow), draws)

    def _set_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Set the model arguments, and discard compiled programs unless their constants are these very arrays."""
        old, new = jax.tree.leaves(self._given), jax.tree.leaves((args, kwargs))
        if [id(leaf) for leaf in old] != [id(leaf) for leaf in new]:
            self._programs = {}
            self._arguments = spread_arguments(args, kwargs)
        self._given = (args, kwargs)

    @property
    def _mesh(self) -> Mesh | None:
        """The devices over which rows are distributed, if they are."""
        meshes = (array.sharding.mesh for array in self._arguments.arrays if isinstance(array.sharding, NamedSharding))
        return next((mesh for mesh in meshes if isinstance(mesh, Mesh)), None)

    def _program(self, steps: int) -> Callable[..., Any]:
        """Compiled function that advances the state of all chains by `steps` steps and returns it with the collected fields.

        Their leading dimensions are (chain, draw). The second argument holds model arguments that stay on their devices.
        """
        key = (steps, self._extra_fields)
        if key not in self._programs:
            given, kwargs_given, places, _, _ = self._arguments
            mcmc, together = self.mcmc, self.num_chains == 1 or self.mcmc.chain_method == "vectorized"

            def one(state: Any, arrays: tuple[Array, ...] = ()) -> Any:
                args, kwargs = filled(given, kwargs_given, places, arrays) if places else (given, kwargs_given)
                chunk = MCMC(
                    mcmc.sampler,
                    num_warmup=mcmc.num_warmup,
                    num_samples=steps,
                    num_chains=mcmc.num_chains if together else 1,
                    thinning=min(mcmc.thinning, steps),
                    postprocess_fn=mcmc.postprocess_fn,
                    chain_method="vectorized",
                    progress_bar=False,
                )
                chunk.post_warmup_state = state
                chunk.run(state.rng_key, *args, extra_fields=self._extra_fields, **kwargs)
                draws = {mcmc.sampler.sample_field: chunk.get_samples(together), **chunk.get_extra_fields(together)}
                return chunk.last_state, draws

            self._programs[key] = self._of_all_chains(jax.jit(one))
        return self._programs[key]

    def _of_all_chains(self, program: Any) -> Callable[..., Any]:
        """Apply the program of one chain, whose second argument holds arrays that stay on their devices, to all chains.

        Chains in sequence run on as many cores as there are.
        """
        method, shared = self.mcmc.chain_method, self._mesh is not None
        if self.num_chains == 1 or method == "vectorized":
            return program
        if method == "parallel":
            return jax.pmap(program, in_axes=(0, None))
        if method != "sequential":
            return lambda states, arrays: self._for_chains(partial(program, arrays=arrays))(states)
        compiled: dict[Any, Callable[..., Any]] = {}

        def all_chains(states: Any, arrays: tuple[Array, ...]) -> Any:
            chains, leaves = _unstack_chains(states, self.num_chains), jax.tree.leaves(states)
            if shared or is_traced(states):  # devices that are shared by all chains run them in the same order
                return _stack_chains([program(chain, arrays) for chain in chains])
            shapes = jax.tree.structure(states), *(leaf.aval for leaf in leaves)
            if shapes not in compiled:
                with TRACING:  # compiled here, because settings of JAX may be those of this thread
                    compiled[shapes] = compiled_quickly(program.lower(chains[0], arrays))

            def run(chain: Any) -> Any:  # waits for the results, or the thread would end at once
                return jax.tree.map(lambda leaf: leaf.block_until_ready(), compiled[shapes](chain, arrays))

            return _stack_chains(on_cores(run, chains))

        return all_chains

    def _at_end(self, state: Any) -> dict[str, Any]:
        """The chunk fields of a state as NumPy arrays with leading dimensions (chain, 1)."""
        fields = as_parts({name: nested_attrgetter(name)(state) for name in self.chunk_fields})
        return jax.tree.map(lambda leaf: leaf[None, None] if self.num_chains == 1 else leaf[:, None], fields)

    # ---- serialisation in parts ---------------------------------------------------------------------------------------

    @staticmethod
    def parts_of(run: MCMC | ResumableRun, *args: Any) -> dict[str, Any]:
        """Return the parts of a run, without the model, from which `from_parts` rebuilds it.

        Parameters
        ----------
        run
            A run with draws, or an `MCMC` object that has been run, which is treated as a finished run.
        args
            The data and other arguments of the model.

        Raises
        ------
        ValueError
            If there are no draws, or the chain method or postprocessing is a function.
        """
        if isinstance(run, MCMC):
            whole = ResumableRun(run, run.thinning)
            if run.last_state is not None:
                draws = {run.sampler.sample_field: run.get_samples(True), **run.get_extra_fields(True)}
                whole._progress = _Progress(whole._total, _without_rows(run.last_state), (jax.tree.map(np.asarray, draws),))
                whole._data = _fingerprint(args, {})
                whole._capacity = _capacity_of(run.sampler)
            run = whole
        mcmc = run.mcmc
        if run._progress is None:
            raise ValueError("the run has not been started: there is nothing to save")
        if not isinstance(mcmc.chain_method, str) or mcmc.postprocess_fn is not None:
            raise ValueError("a run whose chain method or postprocessing is a function cannot be saved")
        chains = {name: getattr(mcmc, name) for name in (*SAME, "num_samples", "chain_method", "progress_bar")}
        own = {"checkpoint_every": run.checkpoint_every, "time_limit": run.time_limit, "chunk_fields": run.chunk_fields}
        began = {"data": run._data, "extra_fields": run._extra_fields, "steps": run.steps, "state": run._progress.state}
        began["capacity"] = run._capacity
        return {"kernel": mcmc.sampler, "mcmc": chains, "run": own, **began, "draws": run._collected(True)}

    @classmethod
    def from_parts(cls, parts: Mapping[str, Any]) -> Self:
        """Rebuild a run from the output of `parts_of`; it can be resumed with the same data."""
        with warnings.catch_warnings():  # about fewer devices than chains, already reported when it ran
            warnings.simplefilter("ignore", UserWarning)
            run = cls(MCMC(parts["kernel"], **parts["mcmc"]), **parts["run"])
        run._data, run._extra_fields = parts["data"], tuple(parts["extra_fields"])
        run._capacity = parts.get("capacity")  # files of older versions have none
        run._progress = _Progress(parts["steps"], parts["state"], (parts["draws"],))
        run._ready = False
        return run

    # ---- saving -------------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save state and draws as an .npz file of plain arrays; an existing file is replaced atomically.

        Neither the data nor the model is saved, only a fingerprint of the data and the parameters of the model.

        Raises
        ------
        ValueError
            If the run has not been started.
        """
        if self._progress is None:
            raise ValueError("the run has not been started: there is nothing to save")
        header = {
            "data": self._data,
            "extra_fields": list(self._extra_fields),
            "chunk_fields": list(self.chunk_fields),
            "steps": self.steps,
            "num_samples": self.mcmc.num_samples,
            "versions": _versions(),
            "kernel": described_options(self.sampler),
            "capacity": self._capacity,
            **{name: getattr(self.mcmc, name) for name in SAME},
        }
        draws: dict[str, Any] = {}
        if self._progress.draws:
            draws = jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), *self._progress.draws)
        trees = {"state": self._progress.state, "draws": draws, "model": self._parameters}
        write = write_distributed if is_common(self._given) else write_checkpoint
        write(path, header, trees)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        mcmc: MCMC,
        *args: Any,
        checkpoint_every: int = 100,
        enough: Callable[[ResumableRun], bool] | None = None,
        first_check: int | None = None,
        **kwargs: Any,
    ) -> Self:
        """Load a saved run, to resume or read it; when it is resumed, it is saved to the same file.

        Parameters
        ----------
        path
            The file.
        mcmc
            An `MCMC` object built like the one that was saved, with the same model. Kernel options that matter after the
            start, and the parameters of the distributions at the model's sites, must match. `num_samples` may be larger.
        args, kwargs
            The data and other arguments of the model, as they were passed to `run`.
        checkpoint_every, enough, first_check
            As in the constructor.

        Raises
        ------
        FileNotFoundError
            If the file does not exist.
        ValueError
            If the file is damaged, or was saved for other data, another kernel or kernel options, another model or
            hyperparameters, or other numbers of steps; the message names the option and both values.

        Warns
        -----
        RuntimeWarning
            If the file was saved with other versions of the libraries, or where native kernels run and here they do not, or the
            reverse: further draws may then differ.
        """
        run = cls(mcmc, checkpoint_every, path=path, enough=enough, first_check=first_check)
        common = is_common((args, kwargs))
        with failing_together("read the run", common):
            header, leaves = read_checkpoint(path)
        check_processes(path, header, common)
        run._set_arguments(args, kwargs)
        if run._mesh is not None and common:
            header, leaves = read_distributed(path, Checkpoint(header, leaves), run._mesh)
        try:
            run._data, run._extra_fields = header["data"], tuple(header["extra_fields"])
            run.chunk_fields = tuple(header["chunk_fields"])
            steps, saved, versions = header["steps"], {name: header[name] for name in SAME}, header["versions"]
            remainder = header["num_samples"] % header["thinning"]
            state_leaves, draw_leaves = leaves["state"], leaves["draws"]
            options, parameters = header["kernel"], {place[2:-2]: leaf for place, leaf in leaves["model"].items()}
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{os.fspath(path)} is not a saved run: {type(error).__name__} {error}") from error
        run._check_data(args, kwargs)
        for name, value in saved.items():
            if (given := getattr(mcmc, name)) != value:
                raise ValueError(f"{os.fspath(path)} was saved with {name}={value}, but the MCMC object has {given}")
        run._check_kernel(path, options)
        run._capacity = header.get("capacity")  # files of older versions have none
        run._parameters = run._read_parameters(args, kwargs)
        if unlike := difference(parameters, run._parameters):
            raise ValueError(f"{os.fspath(path)} was saved with {unlike}")
        if mcmc.num_samples % mcmc.thinning != remainder or steps > run._total:
            raise ValueError(
                f"{os.fspath(path)} has {steps} steps of a run with num_samples={header['num_samples']}, and cannot be "
                f"continued by the MCMC object with num_samples={mcmc.num_samples}"
            )
        if versions != _versions():
            warnings.warn(
                f"{os.fspath(path)} was saved with {versions}, but here there are {_versions()}: further draws may differ",
                RuntimeWarning,
                stacklevel=2,
            )
        first = run._first_state(state_leaves.values(), args, kwargs)
        # arrays of a state that can be given more room may be larger than those of a new one
        state = placed_like(restore(first, state_leaves, "state", skip=None if run._grows else 0), first)
        draws: tuple[dict[str, Any], ...] = ()
        if draw_leaves:
            with TRACING:
                template = jax.eval_shape(run._program(mcmc.thinning), state, run._arguments.arrays)[1]
            draws = (as_parts(restore(template | as_whole(run._at_end(state), run._mesh), draw_leaves, "draws", skip=2)),)
        run._progress = _Progress(steps, state, draws)
        return run

    def _check_kernel(self, path: str | os.PathLike[str], saved: Mapping[str, str]) -> None:
        given = described_options(self.sampler)
        for name in [*saved, *(name for name in given if name not in saved)]:
            old, new = saved.get(name, "missing"), given.get(name, "missing")
            if old != new:
                raise ValueError(f"{os.fspath(path)} was saved with {name}={old}, but the given kernel has {new}")


@partial(jax.jit, static_argnums=1)
def _unstack_chains(stacked: Any, number: int) -> list[Any]:
    """State of each chain, from states stacked along the first axis: one program, not one for every leaf and chain."""
    leaves, structure = jax.tree.flatten(stacked)
    return [jax.tree.unflatten(structure, [leaf[chain] for leaf in leaves]) for chain in range(number)]


@jax.jit
def _stack_chains(chains: list[Any]) -> Any:
    """Stack the states of all chains along a new first axis."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *chains)


def _partition_kernels(kernel: MCMCKernel) -> list[PartitionGibbs]:
    """The kernels whose number of clusters may depend on whether native kernels run."""
    kernels = [block for block, _ in kernel.blocks] if isinstance(kernel, Gibbs) else [kernel]
    return [each for each in kernels if isinstance(each, PartitionGibbs)]


def _capacity_of(kernel: MCMCKernel) -> int | None:
    return next((each.capacity for each in _partition_kernels(kernel)), None)


def _fingerprint(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """Hash of the data; of distributed ones, each process has that of its own rows."""
    if not any_sharded((args, kwargs)):
        return fingerprint((args, dict(kwargs)))
    spread = spread_arguments(args, kwargs)
    nothing = tuple(np.zeros(0) for _ in spread.arrays)
    rest = filled(spread.args, spread.kwargs, spread.places, nothing)
    return fingerprint(rest) + shard_fingerprint(spread)


def _without_rows(state: Any) -> Any:
    """The state of a kernel, or of a composition of kernels, without the distributed arguments that some keep in theirs."""

    def has_rows(part: Any) -> bool:
        return bool(getattr(part, "rows", ()))

    return jax.tree.map(lambda part: part._replace(rows=()) if has_rows(part) else part, state, is_leaf=has_rows)


def _versions() -> dict[str, str]:
    """Versions of what determines the draws, and whether native kernels run."""
    found = {name: version(name) for name in ("bnp-hier", "jax", "numpyro")}
    return found | {"native kernels": "on" if has_calls() else "off"}
