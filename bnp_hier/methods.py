"""The inference methods by name: how each is run on a model, and about how long it takes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import jax
import numpy as np
from jaxtyping import Float
from numpyro.infer import MCMC, NUTS, Gibbs
from numpyro.infer.mcmc import MCMCKernel

from bnp_hier.deterministic import BHC, MAPDP, AgglomerativeBayesianClustering, BayesianKMeans, VariationalDP
from bnp_hier.inspection.collapsed import find_sites
from bnp_hier.inspection.trace import Model
from bnp_hier.kernels import BHMCGibbs, ParallelSplitMerge, PartitionGibbs
from bnp_hier.runs.plain_objects import register_type
from bnp_hier.runs.resumable_run import ResumableRun
from bnp_hier.utils.interruption import interruptible

__all__ = [
    "METHODS",
    "Method",
    "Outcome",
    "RunOptions",
    "Size",
    "chains_of",
    "partition_methods",
    "register",
    "run_methods",
    "shortened",
]

EXACT_TREE = 2000
"""Most rows of an exact tree by default; larger tables get the randomized one."""

CHUNKS = 20
"""Chunks of a run of chains, between which it can be interrupted."""


@dataclass(frozen=True)
class RunOptions:
    """How methods are run.

    Parameters
    ----------
    chains, warmup, samples
        Of methods that are Markov chains.
    time_limit
        Seconds after which chains stop with the draws that they have; None: no limit.
    random_state
        Of everything random.
    progress_bar
        Whether to show progress bars.
    """

    chains: int = 4
    warmup: int = 500
    samples: int = 1000
    time_limit: float | None = None
    random_state: int = 0
    progress_bar: bool = True

    @property
    def sweeps(self) -> int:
        """Steps of all chains."""
        return self.chains * (self.warmup + self.samples)


class Size(NamedTuple):
    """Size of a problem.

    - **rows** - n.
    - **width** - distinct sufficient statistics of a row: the work that a row makes.
    """

    rows: int
    width: int

    @property
    def relative(self) -> float:
        """Width over that of four normal columns with full covariance, for which the times were measured."""
        return max(self.width, 5) / 15.0


@dataclass(frozen=True)
class Method:
    """A way to cluster.

    Parameters
    ----------
    name
        Short name, as on the command line.
    title
        Name in tables.
    gives
        What it computes, in a clause.
    run
        Runs it on a model, rows (n, d) and options; returns a fit that `bnp_hier.compare` takes.
    seconds
        Expected time for a size and options, compiling included, on two cores: of the right order only.
    is_chain
        Whether it is a Markov chain.
    worth
        Place in recommendations: those with lower numbers come first.
    hierarchical
        Whether it runs on a hierarchical mixture, such as `models.bhmc`, and finds trees instead of one partition.
    fitted
        Class of its fits where that is an estimator from outside the package: files of such fits can then be read.
    """

    name: str
    title: str
    gives: str
    run: Callable[[Model, Float[np.ndarray, "n d"], RunOptions], Any]
    seconds: Callable[[Size, RunOptions], float]
    is_chain: bool = False
    worth: int = 100
    hierarchical: bool = False
    fitted: type | None = None


class _InterruptedChainsError(KeyboardInterrupt):
    """Ctrl-C, with the chains as far as they came."""

    def __init__(self, chains: ResumableRun) -> None:
        super().__init__()
        self.chains = chains


def chains_of(kernel: Callable[[Model], MCMCKernel]) -> Callable[..., ResumableRun]:
    """How a kernel on the partition site is run: beside NUTS if the model has other latent sites."""

    def run(model: Model, X: np.ndarray, options: RunOptions) -> ResumableRun:
        with jax.enable_x64(True):
            sites = find_sites(model, (X,))
        block = kernel(model)
        whole = Gibbs([(block, [sites.partition]), (NUTS(model), None)]) if sites.hyperparameters else block
        return _run(whole, X, options, "sequential")

    return run


def _run(kernel: MCMCKernel, X: np.ndarray, options: RunOptions, chain_method: str) -> ResumableRun:
    mcmc = MCMC(
        kernel,
        num_warmup=options.warmup,
        num_samples=options.samples,
        num_chains=options.chains,
        chain_method=chain_method,
        progress_bar=options.progress_bar,
    )
    chains = ResumableRun(mcmc, _chunk_steps(options), time_limit=options.time_limit)
    try:
        chains.run(jax.random.key(options.random_state), X)
    except KeyboardInterrupt as stop:
        if chains.steps <= options.warmup:
            raise
        raise _InterruptedChainsError(chains) from stop
    return chains


def _chunk_steps(options: RunOptions) -> int:
    """Steps between two places to stop; a divisor of warm-up and samples if a fair one is there, as others compile anew."""
    steps, common = options.warmup + options.samples, math.gcd(options.warmup, options.samples)
    fair = [chunk for chunk in range(max(1, steps // 100), steps // CHUNKS + 1) if common % chunk == 0]
    return max(fair, default=max(1, steps // CHUNKS))


def _bhc(model: Model, X: np.ndarray, options: RunOptions) -> BHC:
    method = "exact" if len(X) <= EXACT_TREE else "randomized"
    return BHC(model, method=method, random_state=options.random_state, progress_bar=options.progress_bar).fit(X)


def _seconds_of_bhc(size: Size, options: RunOptions) -> float:
    if size.rows <= EXACT_TREE:
        return 32 + 7.0 * size.relative * (size.rows / 2000) ** 2
    return 20 + 15.0 * size.relative * size.rows / 20_000


def _agglomerative(model: Model, X: np.ndarray, options: RunOptions) -> AgglomerativeBayesianClustering:
    return AgglomerativeBayesianClustering(model, progress_bar=options.progress_bar).fit(X)


METHODS: dict[str, Method] = {}
"""Name -> method, in the order in which they are run: the quick ones first."""


def register(*methods: Method) -> None:
    """Make methods known to the commands, recommendations and reports.

    Raises
    ------
    ValueError
        If a name or title is taken.
    """
    for method in methods:
        taken = [other.name for other in METHODS.values() if method.name == other.name or method.title == other.title]
        if taken:
            raise ValueError(f"there is already a method {taken[0]!r} with this name or title")
        METHODS[method.name] = method
        if method.fitted is not None:
            register_type(method.fitted)


def partition_methods() -> dict[str, Method]:
    """The methods that find partitions, which can be compared."""
    return {name: method for name, method in METHODS.items() if not method.hierarchical}


def _bhmc(model: Model, X: np.ndarray, options: RunOptions) -> ResumableRun:
    return _run(BHMCGibbs(model), X, options, "vectorized")


register(
    Method(
        "map-dp",
        "MAP-DP",
        "the most probable single partition, by moves of single rows and merges",
        lambda model, X, options: MAPDP(model, random_state=options.random_state).fit(X),
        lambda size, _: 12 + 30 * size.relative * (size.rows / 20_000) ** 1.9,
        worth=10,
    ),
    Method(
        "bayesian-kmeans",
        "Bayesian k-means",
        "the most probable single partition, by splits and merges of clusters",
        lambda model, X, options: BayesianKMeans(model, random_state=options.random_state).fit(X),
        lambda size, _: 14 + 150 * size.relative * size.rows / 20_000,  # many clusters take long; few are quick,
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
        "a tree by the same objective as Bayesian k-means, from the bottom up",
        _agglomerative,
        lambda size, _: 10 + 0.6 * size.relative * (size.rows / 2000) ** 2,
        worth=60,
    ),
    Method(
        "variational",
        "Variational",
        "soft assignments and a lower bound on a truncated model's evidence",
        lambda model, X, options: VariationalDP(model, random_state=options.random_state).fit(X),
        lambda size, _: 15 + 50 * size.relative * size.rows / 20_000,
        worth=50,
    ),
    Method(
        "gibbs",
        "Gibbs",
        "draws from the exact posterior of partitions and hyperparameters: the reference for all others",
        chains_of(PartitionGibbs),
        lambda size, options: 40 + options.sweeps * (0.001 + 2.2e-5 * size.rows * size.relative**0.7),
        is_chain=True,
        worth=30,
    ),
    Method(
        "parallel",
        "Parallel split-merge",
        "draws from the exact posterior, all rows at once: for many rows",
        chains_of(ParallelSplitMerge),
        lambda size, options: 60 + 15 * options.chains + options.sweeps * (0.03 + 7e-6 * size.rows * size.relative),
        is_chain=True,
        worth=30,
    ),
    Method(
        "bhmc",
        "BHMC",
        "draws of trees of any branching whose nodes share components, on a hierarchical mixture",
        _bhmc,
        lambda size, options: 60 + options.sweeps * (0.005 + 2e-4 * size.rows * size.relative**0.7),
        is_chain=True,
        hierarchical=True,
    ),
)


@dataclass
class Outcome:
    """What came of running methods.

    Parameters
    ----------
    fits
        Title -> fit, of the methods that came to an end, or as far as they came.
    seconds
        Title -> run time.
    problems
        What failed, was interrupted, or is missing, in sentences.
    interrupted
        Whether the user interrupted it.
    """

    fits: dict[str, Any]
    seconds: dict[str, float]
    problems: list[str]
    interrupted: bool = False

    @classmethod
    def empty(cls) -> Self:
        """Before anything has run."""
        return cls({}, {}, [])


def run_methods(
    names: Iterable[str],
    model: Model,
    X: Float[np.ndarray, "n d"],
    options: RunOptions | Mapping[str, RunOptions] = RunOptions(),  # noqa: B008 - frozen
    *,
    begun: Callable[[Method], None] | None = None,
    ended: Callable[[Method, float], None] | None = None,
) -> Outcome:
    """Run methods one after the other; one that fails or is interrupted does not take the others with it.

    Parameters
    ----------
    names
        Of `METHODS`.
    model
        NumPyro model with one partition site and one `ConjugateMixture` on it.
    X
        Data, (n, d).
    options
        For all methods, or method name -> options.
    begun, ended
        Called before a method, and after it with its seconds.

    Returns
    -------
    outcome
        With what there is: a failed method becomes a problem. Ctrl-C ends the method at work (chains keep the draws that they
        have) and leaves out those after it.

    Raises
    ------
    ValueError
        If a name is unknown.
    """
    wanted = list(names)
    unknown = [name for name in wanted if name not in METHODS]
    if unknown:
        raise ValueError(f"there is no method {unknown[0]!r}; the methods are {', '.join(METHODS)}")
    outcome = Outcome.empty()
    todo = [method for method in METHODS.values() if method.name in wanted]
    for place, method in enumerate(todo):
        of_method = options if isinstance(options, RunOptions) else options[method.name]
        if begun is not None:
            begun(method)
        started = time.perf_counter()
        fit = None
        try:
            with interruptible():
                fit = method.run(model, X, of_method)
        except KeyboardInterrupt as stop:
            fit = getattr(stop, "chains", None)
            outcome.interrupted = True
        except (ValueError, TypeError, FloatingPointError) as error:
            outcome.problems.append(f"{method.title} failed: {error}")
        seconds = time.perf_counter() - started
        if fit is not None:
            outcome.fits[method.title], outcome.seconds[method.title] = fit, seconds
            if ended is not None:
                ended(method, seconds)
        if isinstance(fit, ResumableRun) and not fit.finished:
            why = (
                "was interrupted"
                if outcome.interrupted
                else f"stopped at its time limit of {of_method.time_limit:.0f} s (--minutes gives it more)"
            )
            kept = fit.steps - of_method.warmup
            outcome.problems.append(f"{method.title} {why}: {kept} of {of_method.samples} draws of every chain are there.")
        elif outcome.interrupted:
            outcome.problems.append(f"{method.title} was interrupted and is missing.")
        if outcome.interrupted:
            missing = ", ".join(other.title for other in todo[place + 1 :])
            outcome.problems += [f"Not run, since it was interrupted before: {missing}."] if missing else []
            break
    return outcome


def shortened(options: RunOptions, sweeps: int) -> RunOptions:
    """Options with at most so many sweeps of all chains, a third of them warm-up."""
    if options.sweeps <= sweeps:
        return options
    unit = max(sweeps // options.chains // 30, 1)  # both are multiples of one number, by which they are taken in chunks
    return replace(options, warmup=10 * unit, samples=20 * unit)
