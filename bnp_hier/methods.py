"""Registry of inference methods: how each one runs on a model, and roughly how long it takes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpyro.infer import MCMC, Gibbs
from numpyro.infer.mcmc import MCMCKernel

from bnp_hier.deterministic import BHC, MAPDP, AgglomerativeBayesianClustering, BayesianKMeans, VariationalDP
from bnp_hier.inspection.collapsed import MixtureSites, find_sites, read_values
from bnp_hier.inspection.problem import Problem
from bnp_hier.inspection.trace import Model
from bnp_hier.kernels import BHMCGibbs, HyperparameterGibbs, ParallelSplitMerge, PartitionGibbs
from bnp_hier.posterior.convergence import converged
from bnp_hier.posterior.draws import draws_of, shared_summaries
from bnp_hier.runs.plain_objects import register_type
from bnp_hier.runs.resumable_run import ResumableRun
from bnp_hier.utils.deadlines import end_by
from bnp_hier.utils.interruption import interruptible
from bnp_hier.utils.jax_settings import double_precision
from bnp_hier.utils.memory_limits import check_memory

__all__ = [
    "METHODS",
    "Method",
    "Outcome",
    "RunOptions",
    "Size",
    "chains_of",
    "lengthened",
    "partition_methods",
    "register",
    "run_methods",
    "shortened",
]

EXACT_TREE = 2000
"""Largest number of rows for which the exact tree is the default; larger tables use the randomized one."""

FARTHEST = 3.0
"""Largest distance between the prior median of a hyperparameter and the centre of its initial values, unconstrained."""

LONGER = 8
"""How many times as many samples as planned chains draw at most if they go on until they have converged."""

MOST_KEPT = 500
"""Largest number of draws per chain that are kept of the samples planned; of more, every second, third, … one is kept."""

CHUNKS = 20
"""Minimum number of chunks of an MCMC run, which can be interrupted between chunks."""


@dataclass(frozen=True)
class RunOptions:
    """Options for running methods.

    Parameters
    ----------
    chains, warmup, samples
        Number of chains, and warm-up steps and samples per chain, for MCMC methods.
    thinning
        Number of samples of which one is kept.
    first_check
        Number of samples after which chains end if they have converged (`bnp_hier.posterior.convergence.converged`), checked
        again whenever it has doubled; None to draw all samples.
    time_limit
        Time (s) after which chains stop and keep the draws obtained so far, but not before warm-up is over; None for no limit.
    random_state
        Random seed.
    progress_bar
        Whether to show progress bars.
    hyperparameters
        Values of the model's hyperparameters for deterministic methods; None to learn those that have priors. Chains sample
        hyperparameters; the first starts at these values and the others scattered about them, or all at draws from the prior.
    labels
        (n,) clusters from which MAP-DP starts, −1 for rows that have none yet; None to start without clusters.
    """

    chains: int = 4
    warmup: int = 500
    samples: int = 2500
    time_limit: float | None = None
    random_state: int = 0
    progress_bar: bool = True
    hyperparameters: Mapping[str, Any] | None = None
    labels: Int[np.ndarray, " n"] | None = field(default=None, compare=False, repr=False)
    thinning: int = 1
    first_check: int | None = None

    @property
    def optimize(self) -> str | Mapping[str, Any]:
        """Option `optimize` of the deterministic estimators."""
        return "auto" if self.hyperparameters is None else self.hyperparameters

    def check_memory(self, rows: int) -> None:
        """Raise a ValueError if the labels of all draws, unless time limits them, need more memory than the machine has."""
        if self.time_limit is not None:
            return
        kept = self.chains * (self.samples // self.thinning)
        check_memory(f"{kept} draws (chains × samples) of the labels of {rows} rows", kept * rows * np.dtype(np.int32).itemsize)

    @property
    def sweeps(self) -> int:
        """Total number of steps of all chains."""
        return self.chains * (self.warmup + self.samples)


class Size(NamedTuple):
    """Size of a problem.

    - **rows** - number of rows n.
    - **width** - number of distinct sufficient statistics per row, which determines the work per row.
    - **native** - whether native kernels run, and not XLA programs.
    - **incomplete** - number of rows with missing values that the model completes.
    """

    rows: int
    width: int
    native: bool = True
    incomplete: int = 0

    @property
    def relative(self) -> float:
        """Width relative to four normal columns with full covariance, for which the run times were measured."""
        return max(self.width, 5) / 15.0


@dataclass(frozen=True)
class Method:
    """An inference method for clustering.

    Parameters
    ----------
    name
        Short name, used on the command line.
    title
        Name shown in tables.
    gives
        What the method computes, as a short phrase.
    run
        Function of a model, rows (n, d) and options that returns a fit accepted by `bnp_hier.compare`.
    seconds
        Function of a size and options that returns the expected time (s) on two cores, including compilation; only the order
        of magnitude is reliable.
    is_chain
        Whether the method runs Markov chains.
    worth
        Rank in recommendations; methods with lower numbers come first.
    hierarchical
        Whether the method runs on a hierarchical mixture, such as `models.bhmc`, and returns trees instead of a partition.
    obstacle
        Function of a size that returns why the method cannot run on it, as a short phrase; empty if it can.
    fitted
        Class of the fits if it is an estimator from outside the package; it is registered so that saved fits can be loaded.
    """

    name: str
    title: str
    gives: str
    run: Callable[[Model, Float[np.ndarray, "n d"], RunOptions], Any]
    seconds: Callable[[Size, RunOptions], float]
    is_chain: bool = False
    worth: int = 100
    hierarchical: bool = False
    obstacle: Callable[[Size], str] = lambda size: ""
    fitted: type | None = None


class _InterruptedChainsError(KeyboardInterrupt):
    """Keyboard interrupt that carries the chains run so far."""

    def __init__(self, chains: ResumableRun) -> None:
        super().__init__()
        self.chains = chains


def chains_of(kernel: Callable[[Model], MCMCKernel]) -> Callable[..., ResumableRun]:
    """Return a function that runs a kernel for the partition, and `HyperparameterGibbs` for the hyperparameters, if any."""

    def run(model: Model, X: np.ndarray, options: RunOptions) -> ResumableRun:
        begun = time.perf_counter()
        with double_precision():
            sites = find_sites(model, (X,))
        starts = _overdispersed(model, X, options) if sites.hyperparameters and options.hyperparameters else None
        block: MCMCKernel = kernel(model)
        if sites.hyperparameters:
            own = [sites.partition] if sites.missing is None else [sites.partition, sites.missing]
            block = Gibbs([(block, own), (HyperparameterGibbs(model), None)])
        with nullcontext() if _single_suffices(model, X, sites, starts, options) else double_precision():
            return _run(block, X, _limited(options, begun), "sequential", starts)

    return run


def _limited(options: RunOptions, begun: float) -> RunOptions:
    """The options with what is left of the time limit."""
    if options.time_limit is None:
        return options
    return replace(options, time_limit=max(options.time_limit - (time.perf_counter() - begun), 1e-3))


def _single_suffices(
    model: Model, X: np.ndarray, sites: MixtureSites, starts: Mapping[str, np.ndarray] | None, options: RunOptions
) -> bool:
    """Whether the current floating-point precision, usually single, is accurate enough where the chains start."""
    for chain in range(options.chains if starts else 1):
        given = {name: value[chain] if options.chains > 1 else value for name, value in (starts or {}).items()}
        values = read_values(model, sites, given, (X,))
        if not values.component.incomplete_cells(values.X).any():
            try:
                values.component.check_precision(values.X)
            except ValueError:
                return False
    return True


def _overdispersed(model: Model, X: np.ndarray, options: RunOptions) -> dict[str, np.ndarray]:
    """Hyperparameters from which the chains start: scattered about those of the options, on the unconstrained scale.

    Values far from the prior median, such as a concentration of almost 0 learned from one cluster, are moved towards it.
    """
    rng = np.random.default_rng(options.random_state)
    with double_precision():
        problem = Problem(model, X, allow_missing=True)
        median = problem.unconstrained
        problem.set(options.hyperparameters or {})

        def scattered(by: float, median: Array, learned: Array) -> Array:
            return median + jnp.clip(learned - median, -FARTHEST, FARTHEST) + by * rng.normal(size=jnp.shape(median))

        chains = [
            problem.prior.constrain(jax.tree.map(partial(scattered, float(chain > 0)), median, problem.unconstrained))
            for chain in range(options.chains)
        ]
    return jax.tree.map(lambda *values: np.stack(values) if len(values) > 1 else np.asarray(values[0]), *chains)


def _run(
    kernel: MCMCKernel,
    X: np.ndarray,
    options: RunOptions,
    chain_method: str,
    starts: Mapping[str, np.ndarray] | None = None,
) -> ResumableRun:
    mcmc = MCMC(
        kernel,
        num_warmup=options.warmup,
        num_samples=options.samples,
        num_chains=options.chains,
        chain_method=chain_method,
        thinning=options.thinning,
        progress_bar=options.progress_bar,
    )
    chains = ResumableRun(
        mcmc,
        _chunk_steps(options),
        time_limit=options.time_limit,
        enough=None if options.first_check is None else lambda run: converged(draws_of(run, X)),
        first_check=options.first_check,
    )
    try:
        with shared_summaries():
            chains.run(jax.random.key(options.random_state), X, init_params=starts)
    except KeyboardInterrupt as stop:
        if chains.steps <= options.warmup:
            raise
        raise _InterruptedChainsError(chains) from stop
    return chains


def _chunk_steps(options: RunOptions) -> int:
    """Steps per chunk: a common divisor of warm-up and samples if one has a suitable size, to avoid recompilation."""
    samples = options.samples if options.first_check is None else options.first_check
    steps, common = options.warmup + samples, math.gcd(options.warmup, samples)
    whole = range(options.thinning, steps // CHUNKS + 1, options.thinning)
    fair = [chunk for chunk in whole if chunk >= steps // 100 and common % chunk == 0]
    if options.first_check is not None:
        return max(fair, default=common)
    return max(fair, default=options.thinning * max(1, steps // CHUNKS // options.thinning))


def _bhc(model: Model, X: np.ndarray, options: RunOptions) -> BHC:
    method = "exact" if len(X) <= EXACT_TREE else "randomized"
    return BHC(
        model, method=method, optimize=options.optimize, random_state=options.random_state, progress_bar=options.progress_bar
    ).fit(X)


def _map_dp(model: Model, X: np.ndarray, options: RunOptions) -> MAPDP:
    init = "sequential" if options.labels is None else options.labels
    return MAPDP(model, init=init, optimize=options.optimize, random_state=options.random_state).fit(X)


def _seconds_of_bhc(size: Size, options: RunOptions) -> float:
    if size.rows <= EXACT_TREE:
        start, slope = (3, 4.0) if size.native else (32, 7.0)
        return start + slope * size.relative * (size.rows / 2000) ** 2
    start, slope = (4, 5.0) if size.native else (20, 15.0)
    return start + slope * size.relative * size.rows / 20_000


def _seconds_of_map_dp(size: Size, options: RunOptions) -> float:
    part = size.rows / 20_000
    return 3 + 2 * size.relative * part if size.native else 12 + 30 * size.relative * part**1.9


def _seconds_of_agglomerative(size: Size, options: RunOptions) -> float:
    start, slope = (3, 0.3) if size.native else (10, 0.6)
    return start + slope * size.relative * (size.rows / 2000) ** 2


def _seconds_of_gibbs(size: Size, options: RunOptions) -> float:
    start, step, row = (12, 4e-4, 1.3e-6) if size.native else (40, 1e-3, 2.2e-5)
    redraws = 1.5e-4 * size.incomplete  # of cells that are missing, by an XLA program
    return start + options.sweeps * (step + row * size.rows * size.relative**0.7 + redraws)


def _agglomerative(model: Model, X: np.ndarray, options: RunOptions) -> AgglomerativeBayesianClustering:
    return AgglomerativeBayesianClustering(model, optimize=options.optimize, progress_bar=options.progress_bar).fit(X)


METHODS: dict[str, Method] = {}
"""Methods by name, in the order in which they run: fast methods first."""


def register(*methods: Method) -> None:
    """Register methods for use in commands, recommendations and reports.

    Raises
    ------
    ValueError
        If a name or title is already in use.
    """
    for method in methods:
        taken = [other.name for other in METHODS.values() if method.name == other.name or method.title == other.title]
        if taken:
            raise ValueError(f"there is already a method {taken[0]!r} with this name or title")
        METHODS[method.name] = method
        if method.fitted is not None:
            register_type(method.fitted)


def partition_methods() -> dict[str, Method]:
    """Return the methods that find partitions, whose fits can be compared, by name."""
    return {name: method for name, method in METHODS.items() if not method.hierarchical}


def _bhmc(model: Model, X: np.ndarray, options: RunOptions) -> ResumableRun:
    return _run(BHMCGibbs(model), X, options, "vectorized")


register(
    Method(
        "map-dp",
        "MAP-DP",
        "the most probable single partition, found by moving single rows and merging clusters",
        _map_dp,
        _seconds_of_map_dp,
        worth=10,
    ),
    Method(
        "bayesian-kmeans",
        "Bayesian k-means",
        "the most probable single partition, found by splitting and merging clusters",
        lambda model, X, options: BayesianKMeans(model, optimize=options.optimize, random_state=options.random_state).fit(X),
        lambda size, _: 6 + 100 * size.relative * size.rows / 20_000,  # slower with many clusters, faster with few
        worth=40,
    ),
    Method(
        "bhc",
        "BHC",
        "a tree, the probability of every merge, and a lower bound on the evidence",
        _bhc,
        _seconds_of_bhc,
        worth=20,
    ),
    Method(
        "agglomerative",
        "Agglomerative",
        "a tree built bottom-up for the same objective as Bayesian k-means",
        _agglomerative,
        _seconds_of_agglomerative,
        worth=60,
    ),
    Method(
        "variational",
        "Variational",
        "responsibilities and a lower bound on the evidence of a truncated model",
        lambda model, X, options: VariationalDP(model, optimize=options.optimize, random_state=options.random_state).fit(X),
        lambda size, _: 7 + 50 * size.relative * size.rows / 20_000,
        worth=50,
    ),
    Method(
        "gibbs",
        "Gibbs",
        "draws from the exact posterior of partitions and hyperparameters: the reference for all other methods",
        chains_of(PartitionGibbs),
        _seconds_of_gibbs,
        is_chain=True,
        worth=30,
    ),
    Method(
        "parallel",
        "Parallel split-merge",
        "draws from the exact posterior, updating all rows at once: for large data",
        chains_of(ParallelSplitMerge),
        lambda size, options: 60 + 15 * options.chains + options.sweeps * (0.03 + 7e-6 * size.rows * size.relative),
        is_chain=True,
        worth=30,
        obstacle=lambda size: "it does not draw missing values of columns that depend on each other" if size.incomplete else "",
    ),
    Method(
        "bhmc",
        "BHMC",
        "draws of trees of any branching whose nodes share components, for a hierarchical mixture",
        _bhmc,
        lambda size, options: 60 + options.sweeps * (0.005 + 2e-4 * size.rows * size.relative**0.7),
        is_chain=True,
        hierarchical=True,
    ),
)


@dataclass
class Outcome:
    """Results of running methods.

    Parameters
    ----------
    fits
        Fits by title of the method, including chains that stopped early.
    seconds
        Run times (s) by title.
    problems
        Sentences that describe what failed, was interrupted or was not run.
    interrupted
        Whether the user interrupted the run.
    """

    fits: dict[str, Any]
    seconds: dict[str, float]
    problems: list[str]
    interrupted: bool = False

    @classmethod
    def empty(cls) -> Self:
        """Return an outcome without results."""
        return cls({}, {}, [])


def run_methods(
    names: Iterable[str],
    model: Model,
    X: Float[np.ndarray, "n d"],
    options: RunOptions | Mapping[str, RunOptions] = RunOptions(),  # noqa: B008 - frozen
    *,
    begun: Callable[[Method], None] | None = None,
    ended: Callable[[Method, float], None] | None = None,
    until: float = math.inf,
) -> Outcome:
    """Run methods one after the other, keeping the results of the others if one fails or is interrupted.

    The first deterministic method learns the hyperparameters that have priors; the others run at the values it found, so that
    their objectives can be compared.

    Parameters
    ----------
    names
        Names of methods in `METHODS`.
    model
        NumPyro model with one partition site and one `ConjugateMixture` on it.
    X
        Data, (n, d).
    options
        Options for all methods, or options by method name.
    begun, ended
        Callbacks: `begun(method)` before each method, and `ended(method, seconds)` after each one that returned a fit.
    until
        Value of `time.perf_counter` at which chains that have a time limit stop, but not before half of their limit.

    Returns
    -------
    outcome
        The results obtained; a method that fails is recorded as a problem. Ctrl-C stops the current method (chains keep the
        draws obtained so far) and skips the remaining ones.

    Raises
    ------
    ValueError
        If a name is unknown, or the draws of a chain would need more memory than the machine has.
    """
    wanted = list(names)
    unknown = [name for name in wanted if name not in METHODS]
    if unknown:
        raise ValueError(f"there is no method {unknown[0]!r}; the methods are {', '.join(METHODS)}")
    if of_chains := [name for name in wanted if METHODS[name].is_chain]:
        (options if isinstance(options, RunOptions) else options[of_chains[0]]).check_memory(len(X))
    outcome = Outcome.empty()
    learned: Mapping[str, Any] | None = None
    todo = [method for method in METHODS.values() if method.name in wanted]
    for place, method in enumerate(todo):
        of_method = options if isinstance(options, RunOptions) else options[method.name]
        if of_method.hyperparameters is None and not method.hierarchical:
            of_method = replace(of_method, hyperparameters=learned)
        if (limit := of_method.time_limit) is not None:
            of_method = replace(of_method, time_limit=min(limit, max(limit / 2, until - time.perf_counter())))
        if begun is not None:
            begun(method)
        started = time.perf_counter()
        fit = None
        try:
            with interruptible(), end_by(math.inf) as deadline:
                fit = method.run(model, X, of_method)
        except KeyboardInterrupt as stop:
            fit = getattr(stop, "chains", None)
            outcome.interrupted = True
        except (ValueError, TypeError, FloatingPointError) as error:
            outcome.problems.append(f"{method.title} failed: {error}")
        seconds = time.perf_counter() - started
        if fit is not None:
            outcome.fits[method.title], outcome.seconds[method.title] = fit, seconds
            learned = learned or getattr(fit, "hyperparameters_", None) or None
            if ended is not None:
                ended(method, seconds)
        if fit is not None and not isinstance(fit, ResumableRun) and deadline.has_cut and not outcome.interrupted:
            outcome.problems.append(
                f"{method.title} was cut short by the time budget, so a longer search may find more (budget= or --minutes)."
            )
        if isinstance(fit, ResumableRun) and not fit.finished and (outcome.interrupted or of_method.first_check is None):
            why = (
                "was interrupted"
                if outcome.interrupted
                else f"stopped at its time limit of {of_method.time_limit:.0f} s (a longer one: budget= or --minutes)"
            )
            kept = (fit.steps - of_method.warmup) // of_method.thinning
            planned = of_method.samples // of_method.thinning
            outcome.problems.append(f"{method.title} {why}: {kept} of {planned} draws per chain are available.")
        elif outcome.interrupted:
            outcome.problems.append(f"{method.title} was interrupted and has no result.")
        if outcome.interrupted:
            missing = ", ".join(other.title for other in todo[place + 1 :])
            outcome.problems += [f"Not run because of the interruption: {missing}."] if missing else []
            break
    return outcome


def shortened(options: RunOptions, sweeps: int) -> RunOptions:
    """Limit options to at most `sweeps` steps in total over all chains, a third of them warm-up, as planned."""
    if options.sweeps <= sweeps:
        return options
    unit = max(sweeps // options.chains // 30, 1)  # both are multiples of one number, so that one chunk size fits both
    unit -= unit % _thinning(20 * unit)
    return replace(options, warmup=10 * unit, samples=20 * unit, first_check=options.first_check and 10 * unit)


def lengthened(options: RunOptions) -> RunOptions:
    """Let chains that end when they have converged go on beyond the samples planned, and keep fewer of these."""
    if options.first_check is None:
        return options
    return replace(options, samples=LONGER * options.samples, thinning=_thinning(options.samples))


def _thinning(samples: int) -> int:
    return max(1, samples // MOST_KEPT)
