"""An MCMC run that can be stopped, saved and resumed, to the draws of an uninterrupted one."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpyro.infer import MCMC
from numpyro.infer.mcmc import MCMCKernel
from numpyro.util import fori_collect, is_prng_key, nested_attrgetter
from tqdm import tqdm

from bnp_hier.inspection.parameters import difference, model_parameters
from bnp_hier.inspection.trace import TRACING
from bnp_hier.kernels.base import undefined_in_one_line
from bnp_hier.kernels.kernel_options import described_options
from bnp_hier.runs.checkpoint_file import fingerprint, read_checkpoint, restore, write_checkpoint
from bnp_hier.utils.interruption import interruptible

__all__ = ["ResumableRun"]

SAME = ("num_warmup", "num_chains", "thinning")
"""Options of `MCMC` that a run keeps when it is loaded; `num_samples` may grow."""


class _Progress(NamedTuple):
    """How far a run has come; replaced as a whole, so that an interruption never leaves half a chunk.

    - **steps** - steps done, warm-up included.
    - **state** - the kernel's state, of all chains.
    - **draws** - for each chunk after warm-up, field -> arrays (chain, draw, ...).
    """

    steps: int
    state: Any
    draws: tuple[dict[str, Any], ...]


class ResumableRun:
    """Runs an `MCMC` object in chunks: warm-up and sampling stop at any time and go on later, to the same draws.

    The draws are those of one `mcmc.run` with the same key, bit for bit where the compiled programs round alike. Ctrl-C, or an
    error, loses at most the chunk at work; `resume` goes on from there. It reads like an `MCMC` object that has run:
    `get_samples`, `get_extra_fields`, `last_state`, `sampler`; and `to_arviz`, `loo` and `compare` take it as one. All chunks
    of one length share a compiled program.

    Parameters
    ----------
    mcmc
        Kernel, numbers of steps and chains, chain method, thinning, and whether to show a progress bar. It is not run itself.
        The data are constants of the compiled program, as with `jit_model_args=False`.
    checkpoint_every
        Steps of every chain between two places at which the run can stop: a multiple of the thinning.
    path
        File to which the run is saved after each chunk, so that a killed process loses at most a chunk too. Every time all
        draws so far are written: let chunks be long where draws are large.
    time_limit
        Seconds after which `run` and `resume` stop, at the end of the chunk then at work but not before there are draws, as if
        interrupted but without an error; `finished` tells. None: no limit.
    chunk_fields
        Fields of the kernel's state that are collected once a chunk, at its end, and found among the extra fields: such as
        the labels of very many rows, "z", of a kernel that does not collect them.

    Raises
    ------
    ValueError
        If there is no chain, the chunk is no multiple of the thinning, the time limit is not positive, a chunk field is
        collected at every step anyway, or the kernel moves an ensemble of chains.

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
    ) -> None:
        if mcmc.num_chains < 1:
            raise ValueError(f"a run needs at least one chain, but num_chains is {mcmc.num_chains}")
        if checkpoint_every != int(checkpoint_every) or checkpoint_every < 1 or checkpoint_every % mcmc.thinning:
            raise ValueError(
                f"checkpoint_every must be a positive multiple of the thinning, {mcmc.thinning}, but it is {checkpoint_every}"
            )
        if time_limit is not None and not time_limit > 0:
            raise ValueError(f"time_limit must be a positive number of seconds or None, but it is {time_limit!r}")
        if mcmc.sampler.is_ensemble_kernel:
            raise ValueError(f"{type(mcmc.sampler).__name__} moves an ensemble of chains at once, which cannot be resumed")
        if twice := set(chunk_fields) & {mcmc.sampler.sample_field, *mcmc.sampler.default_fields}:
            raise ValueError(f"chunk_fields has {sorted(twice)}, which the kernel collects at every step")
        self.mcmc = mcmc
        self.checkpoint_every = int(checkpoint_every)
        self.path = path
        self.time_limit = time_limit
        self.chunk_fields = tuple(chunk_fields)
        self._progress: _Progress | None = None
        self._data = ""
        self._parameters: dict[str, np.ndarray] = {}
        self._ready = True  # the kernel knows its model's sites, once it has made a state
        self._extra_fields: tuple[str, ...] = ()
        self._programs: dict[tuple[int, tuple[str, ...]], Callable[[Any], Any]] = {}
        self._arguments: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})

    def __getstate__(self) -> dict[str, Any]:
        # compiled programs, and the data that they hold, are not pickled: `resume` is given the data again
        return {**self.__dict__, "_programs": {}, "_arguments": ((), {})}

    # ---- as of an `MCMC` object ---------------------------------------------------------------------------------------

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
        """The kernel's state after the last whole chunk, of all chains; None before `run`."""
        return None if self._progress is None else self._progress.state

    def get_samples(self, group_by_chain: bool = False) -> Any:
        """Draws so far, as of `MCMC.get_samples`, in NumPy.

        Raises
        ------
        ValueError
            If there are none.
        """
        return self._collected(group_by_chain)[self.sampler.sample_field]

    def get_extra_fields(self, group_by_chain: bool = False) -> dict[str, Any]:
        """Other fields so far, as of `MCMC.get_extra_fields`, in NumPy.

        Raises
        ------
        ValueError
            If there are none.
        """
        return {name: value for name, value in self._collected(group_by_chain).items() if name != self.sampler.sample_field}

    def _collected(self, group_by_chain: bool) -> dict[str, Any]:
        if self._progress is None or not self._progress.draws:
            raise ValueError(f"the run has no draws yet: {self.steps} of {self.mcmc.num_warmup} steps of warm-up are done")
        whole = jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), *self._progress.draws)
        return whole if group_by_chain else jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), whole)

    # ---- running ------------------------------------------------------------------------------------------------------

    @property
    def steps(self) -> int:
        """Steps of every chain that are done, warm-up included."""
        return 0 if self._progress is None else self._progress.steps

    @property
    def finished(self) -> bool:
        """Whether all draws are there."""
        return self.steps >= self._total

    @property
    def _total(self) -> int:
        return self.mcmc.num_warmup + self.mcmc.num_samples

    @property
    def _first_kept(self) -> int:
        """Steps before the first window of thinning: warm-up, and what no whole window holds, which NumPyro drops first."""
        return self.mcmc.num_warmup + self.mcmc.num_samples % self.mcmc.thinning

    def run(
        self,
        rng_key: Array,
        *args: Any,
        extra_fields: tuple[str, ...] = (),
        init_params: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Run from the start; arguments as of `MCMC.run`.

        Raises
        ------
        ValueError
            If the kernel refuses the model or the data, or the file at `path` exists.
        FloatingPointError
            If a step met densities that are no numbers; the chunks before it are kept.
        """
        if self.path is not None and Path(self.path).exists():
            raise ValueError(f"{os.fspath(self.path)} exists: load it to go on with that run, or remove it to start anew")
        if self.num_chains > 1 and is_prng_key(rng_key):
            rng_key = jax.random.split(rng_key, self.num_chains)
        self._progress, self._data, self._extra_fields = None, fingerprint((args, kwargs)), tuple(extra_fields)
        self._parameters = self._read_parameters(args, kwargs)
        state = self._init(rng_key, init_params, args, kwargs)
        self._advance(_Progress(0, state, ()), args, kwargs)

    def resume(self, *args: Any, **kwargs: Any) -> None:
        """Go on from the last whole chunk; nothing is done where the run has finished.

        Parameters
        ----------
        args, kwargs
            The data and other arguments of the model, as they were given to `run`.

        Raises
        ------
        ValueError
            If the run has not begun, or the data are others.
        FloatingPointError
            As for `run`.
        """
        if self._progress is None:
            raise ValueError("the run has not begun: call its run method first")
        self._check_data(args, kwargs)
        if not self._ready:
            self._first_state(jax.tree.leaves(self._progress.state), args, kwargs)
        self._advance(self._progress, args, kwargs)

    def _read_parameters(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """What the kernel's model is made of, if it has one."""
        model = getattr(self.sampler, "model", None)
        return {} if model is None else model_parameters(model, args, kwargs)

    def _check_data(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if fingerprint((args, dict(kwargs))) != self._data:
            shapes = ", ".join(str(np.shape(leaf)) for leaf in jax.tree.leaves((args, kwargs))) or "none"
            raise ValueError(f"the run began on other data or arguments than these (of shapes {shapes}): their values differ")

    def _init(
        self, keys: Array, init_params: Mapping[str, Any] | None, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        """State of all chains at the start."""

        def one(key: Array, params: Mapping[str, Any] | None) -> Any:
            return self.sampler.init(key, self.mcmc.num_warmup, params, model_args=args, model_kwargs=kwargs)

        params = jax.tree.map(lambda x: jax.lax.convert_element_type(x, jnp.result_type(x)), init_params)
        with TRACING:
            return self._for_chains(one)(keys, params)

    def _first_state(self, leaves: Iterable[Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Some state at the start, with keys of the kind that a saved state's leaves have; the kernel is ready after it."""
        saved = [leaf for leaf in leaves if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)]
        key = jax.random.key(0, impl=str(jax.random.key_impl(saved[0]))) if saved else jax.random.PRNGKey(0)
        self._ready = True
        return self._init(jax.random.split(key, self.num_chains) if self.num_chains > 1 else key, None, args, kwargs)

    def _for_chains(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of one chain, applied to all by the chain method."""
        method = self.mcmc.chain_method
        if self.num_chains == 1 or method == "vectorized":  # such kernels take all chains at once
            return function
        if method == "sequential":

            def each(*trees: Any) -> Any:
                chains = (jax.tree.map(lambda leaf: leaf[c], trees) for c in range(self.num_chains))  # noqa: B023
                return jax.tree.map(lambda *leaves: jnp.stack(leaves), *[function(*chain) for chain in chains])

            return each
        return jax.pmap(function) if method == "parallel" else method(function)

    def _advance(self, progress: _Progress, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._set_arguments(args, kwargs)
        self._progress = progress
        until = None if self.time_limit is None else time.perf_counter() + self.time_limit
        bar = tqdm(total=self._total, initial=progress.steps, disable=not self.mcmc.progress_bar, unit="step")
        with interruptible(), bar:
            while progress.steps < self._total and (until is None or not progress.draws or time.perf_counter() < until):
                end = self._first_kept if progress.steps < self._first_kept else self._total
                steps = min(self.checkpoint_every, end - progress.steps)
                # the first call traces the model, also in NumPyro's own kernels
                fresh = (steps, self._extra_fields) not in self._programs
                with undefined_in_one_line():
                    with TRACING if fresh else nullcontext():
                        state, draws = self._program(steps)(progress.state)
                    jax.block_until_ready(state)
                kept = (self._whole(draws) | self._at_end(state),) if progress.steps >= self._first_kept else ()
                progress = _Progress(progress.steps + steps, state, progress.draws + kept)
                self._progress = progress
                if self.path is not None:
                    self.save(self.path)
                bar.update(steps)
                bar.set_description("warmup" if progress.steps < self.mcmc.num_warmup else "sample", refresh=False)
                if self.num_chains == 1:
                    bar.set_postfix_str(self.sampler.get_diagnostics_str(state))

    def _set_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Keep the programs that hold these very arguments as constants."""
        old, new = jax.tree.leaves(self._arguments), jax.tree.leaves((args, kwargs))
        if [id(leaf) for leaf in old] != [id(leaf) for leaf in new]:
            self._programs = {}
        self._arguments = (args, kwargs)

    def _program(self, steps: int) -> Callable[[Any], Any]:
        """Compiled function of the state of all chains: so many steps, and what they leave to collect."""
        key = (steps, self._extra_fields)
        if key not in self._programs:
            args, kwargs = self._arguments
            batched = self.mcmc.chain_method == "vectorized" and self.num_chains > 1
            field = self.sampler.sample_field
            wanted = dict.fromkeys((field, *self.sampler.default_fields, *self._extra_fields))
            removed = [name.removeprefix(f"~{field}.") for name in wanted if name.startswith(f"~{field}.")]
            names = [name for name in wanted if not name.startswith(f"~{field}.")]

            def collect(value: tuple[Any, ...]) -> dict[str, Any]:
                fields = {name: nested_attrgetter(name)(value[0]) for name in names}
                constrain = self.mcmc.postprocess_fn or self.sampler.postprocess_fn(args, kwargs)
                fields[field] = (jax.vmap(constrain) if batched else constrain)(fields[field])
                if removed:
                    fields[field] = {site: draw for site, draw in fields[field].items() if site not in removed}
                return fields

            def one(state: Any) -> Any:
                draws, (last,) = fori_collect(
                    0,
                    steps,
                    lambda value: (self.sampler.sample(value[0], args, kwargs),),
                    (state,),
                    transform=collect,
                    progbar=False,
                    return_last_val=True,
                    collection_size=max(1, steps // self.mcmc.thinning),
                    thinning=self.mcmc.thinning,
                )
                return last, draws

            self._programs[key] = self._for_chains(jax.jit(one))
        return self._programs[key]

    def _at_end(self, state: Any) -> dict[str, Any]:
        """The chunk fields of a state in NumPy, with leading dimensions (chain, 1)."""
        fields = {name: nested_attrgetter(name)(state) for name in self.chunk_fields}
        return jax.tree.map(
            lambda leaf: np.asarray(leaf)[None, None] if self.num_chains == 1 else np.asarray(leaf)[:, None], fields
        )

    def _whole(self, draws: dict[str, Any]) -> dict[str, Any]:
        """Draws of a chunk in NumPy, with leading dimensions (chain, draw)."""

        def arranged(leaf: Any) -> np.ndarray:
            if self.num_chains == 1:
                return np.asarray(leaf)[None]
            return np.asarray(leaf) if self.mcmc.chain_method != "vectorized" else np.swapaxes(np.asarray(leaf), 0, 1)

        return jax.tree.map(arranged, draws)

    # ---- in parts -----------------------------------------------------------------------------------------------------

    @staticmethod
    def parts_of(run: MCMC | ResumableRun, *args: Any) -> dict[str, Any]:
        """What a run consists of besides the model, for `from_parts`.

        Parameters
        ----------
        run
            A run with draws, or an `MCMC` object that has run, which counts as a finished one.
        args
            The data and other arguments of the model.

        Raises
        ------
        ValueError
            If there are no draws, or the chain method or the postprocessing is a function.
        """
        if isinstance(run, MCMC):
            whole = ResumableRun(run, run.thinning)
            if run.last_state is not None:
                draws = {run.sampler.sample_field: run.get_samples(True), **run.get_extra_fields(True)}
                whole._progress = _Progress(whole._total, run.last_state, (jax.tree.map(np.asarray, draws),))
                whole._data = fingerprint((args, {}))
            run = whole
        mcmc = run.mcmc
        if run._progress is None:
            raise ValueError("the run has not begun: there is nothing to save")
        if not isinstance(mcmc.chain_method, str) or mcmc.postprocess_fn is not None:
            raise ValueError("a chain method or postprocessing that is a function cannot be saved")
        chains = {name: getattr(mcmc, name) for name in (*SAME, "num_samples", "chain_method", "progress_bar")}
        own = {"checkpoint_every": run.checkpoint_every, "time_limit": run.time_limit, "chunk_fields": run.chunk_fields}
        began = {"data": run._data, "extra_fields": run._extra_fields, "steps": run.steps, "state": run._progress.state}
        return {"kernel": mcmc.sampler, "mcmc": chains, "run": own, **began, "draws": run._collected(True)}

    @classmethod
    def from_parts(cls, parts: Mapping[str, Any]) -> Self:
        """The run that `parts_of` took apart; it can be resumed with the same data."""
        with warnings.catch_warnings():  # of fewer devices than chains, which was reported when it ran
            warnings.simplefilter("ignore", UserWarning)
            run = cls(MCMC(parts["kernel"], **parts["mcmc"]), **parts["run"])
        run._data, run._extra_fields = parts["data"], tuple(parts["extra_fields"])
        run._progress = _Progress(parts["steps"], parts["state"], (parts["draws"],))
        run._ready = False
        return run

    # ---- saving -------------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write state and draws as an .npz file of plain arrays; an older file of that name is replaced as a whole.

        Neither the data nor the model are written: only a fingerprint of the data.

        Raises
        ------
        ValueError
            If the run has not begun.
        """
        if self._progress is None:
            raise ValueError("the run has not begun: there is nothing to save")
        header = {
            "data": self._data,
            "extra_fields": list(self._extra_fields),
            "chunk_fields": list(self.chunk_fields),
            "steps": self.steps,
            "num_samples": self.mcmc.num_samples,
            "versions": _versions(),
            "kernel": described_options(self.sampler),
            **{name: getattr(self.mcmc, name) for name in SAME},
        }
        draws = self._collected(True) if self._progress.draws else {}
        write_checkpoint(path, header, {"state": self._progress.state, "draws": draws, "model": self._parameters})

    @classmethod
    def load(cls, path: str | os.PathLike[str], mcmc: MCMC, *args: Any, checkpoint_every: int = 100, **kwargs: Any) -> Self:
        """A saved run, to be resumed or read; it is saved to the same file again when it goes on.

        Parameters
        ----------
        path
            The file.
        mcmc
            Built as the one that was saved, on the same model: options of the kernel that matter after the start, and what the
            distributions of the model's sites hold, are compared. `num_samples` may be larger.
        args, kwargs
            The data and other arguments of the model, as they were given to `run`.
        checkpoint_every
            As of the class.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If the file is damaged, or was written for other data, another kernel, other options of it, another model or
            hyperparameters, or other numbers of steps; the message names the option and both values.

        Warns
        -----
        RuntimeWarning
            If the file was written by other versions of the libraries, whose draws may go on otherwise.
        """
        run = cls(mcmc, checkpoint_every, path=path)
        header, leaves = read_checkpoint(path)
        try:
            run._data, run._extra_fields = header["data"], tuple(header["extra_fields"])
            run.chunk_fields = tuple(header["chunk_fields"])
            steps, saved, versions = header["steps"], {name: header[name] for name in SAME}, header["versions"]
            remainder = header["num_samples"] % header["thinning"]
            state_leaves, draw_leaves = leaves["state"], leaves["draws"]
            options, parameters = header["kernel"], {place[2:-2]: leaf for place, leaf in leaves["model"].items()}
        except KeyError as error:
            raise ValueError(f"{os.fspath(path)} is no saved run: it has no {error}") from error
        run._check_data(args, kwargs)
        for name, value in saved.items():
            if (given := getattr(mcmc, name)) != value:
                raise ValueError(f"{os.fspath(path)} was saved with {name}={value}, but the MCMC object has {given}")
        run._check_kernel(path, options)
        run._parameters = run._read_parameters(args, kwargs)
        if unlike := difference(parameters, run._parameters):
            raise ValueError(f"{os.fspath(path)} was saved with {unlike}")
        if mcmc.num_samples % mcmc.thinning != remainder or steps > run._total:
            raise ValueError(
                f"{os.fspath(path)} has {steps} steps, of num_samples={header['num_samples']}, which the MCMC object with "
                f"num_samples={mcmc.num_samples} does not continue"
            )
        if versions != _versions():
            warnings.warn(
                f"{os.fspath(path)} was saved under {versions}, but these are {_versions()}: the run may go on to other draws",
                RuntimeWarning,
                stacklevel=2,
            )
        state = restore(run._first_state(state_leaves.values(), args, kwargs), state_leaves, "state")
        run._set_arguments(args, kwargs)
        draws: tuple[dict[str, Any], ...] = ()
        if draw_leaves:
            with TRACING:
                template = jax.eval_shape(run._program(mcmc.thinning), state)[1]
            if mcmc.num_chains == 1:
                template = jax.eval_shape(lambda tree: jax.tree.map(lambda leaf: leaf[None], tree), template)
            draws = (restore(template | run._at_end(state), draw_leaves, "draws", skip=2),)
        run._progress = _Progress(steps, state, draws)
        return run

    def _check_kernel(self, path: str | os.PathLike[str], saved: Mapping[str, str]) -> None:
        given = described_options(self.sampler)
        for name in [*saved, *(name for name in given if name not in saved)]:
            old, new = saved.get(name, "missing"), given.get(name, "missing")
            if old != new:
                raise ValueError(f"{os.fspath(path)} was saved with {name}={old}, but the kernel given has {new}")


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("jax", "numpyro")}
