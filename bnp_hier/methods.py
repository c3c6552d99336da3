"""The inference routes by name: how each is run on a model, and about how long it takes."""

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

from bnp_hier.deterministic import BHC, MAPDP, AgglomerativeBayesianClustering, BayesianKMeans, VariationalDP
from bnp_hier.inspection.collapsed import find_sites
from bnp_hier.inspection.trace import Model
from bnp_hier.kernels import ParallelSplitMerge, PartitionGibbs
from bnp_hier.runs.resumable_run import ResumableRun
from bnp_hier.utils.interruption import interruptible

__all__ = ["ROUTES", "Outcome", "Route", "RunOptions", "Size", "run_routes", "shortened"]

EXACT_TREE = 2000
"""Most rows of an exact tree by default; larger tables get the randomised one."""

PIECES = 20
"""Pieces of a run of chains, between which it can be interrupted."""


@dataclass(frozen=True)
class RunOptions:
    """How routes are run.

    Parameters
    ----------
    chains, warmup, samples
        Of routes that are Markov chains.
    time_limit
        Seconds after which chains stop with the draws that they have; None: no limit.
    seed
        Of everything random.
    progress
        Whether to show progress bars.
    """

    chains: int = 4
    warmup: int = 500
    samples: int = 1000
    time_limit: float | None = None
    seed: int = 0
    progress: bool = True

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
class Route:
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
    """

    name: str
    title: str
    gives: str
    run: Callable[[Model, Float[np.ndarray, "n d"], RunOptions], Any]
    seconds: Callable[[Size, RunOptions], float]
    is_chain: bool = False


class _InterruptedChainsError(KeyboardInterrupt):
    """Ctrl-C, with the chains as far as they came."""

    def __init__(self, chains: ResumableRun) -> None:
        super().__init__()
        self.chains = chains


def _chains(kernel: type[PartitionGibbs] | type[ParallelSplitMerge]) -> Callable[..., ResumableRun]:
    def run(model: Model, X: np.ndarray, options: RunOptions) -> ResumableRun:
        with jax.enable_x64(True):
            sites = find_sites(model, (X,))
        mcmc = MCMC(
            Gibbs([(kernel(model), [sites.partition]), (NUTS(model), None)]) if sites.hyperparameters else kernel(model),
            num_warmup=options.warmup,
            num_samples=options.samples,
            num_chains=options.chains,
            chain_method="sequential",
            progress_bar=options.progress,
        )
        chains = ResumableRun(mcmc, _piece(options), time_limit=options.time_limit)
        try:
            chains.run(jax.random.key(options.seed), X)
        except KeyboardInterrupt as stop:
            if chains.steps <= options.warmup:
                raise
            raise _InterruptedChainsError(chains) from stop
        return chains

    return run


def _piece(options: RunOptions) -> int:
    """Steps between two places to stop; a divisor of warm-up and samples if a fair one is there, as others compile anew."""
    steps, common = options.warmup + options.samples, math.gcd(options.warmup, options.samples)
    fair = [piece for piece in range(max(1, steps // 100), steps // PIECES + 1) if common % piece == 0]
    return max(fair, default=max(1, steps // PIECES))


def _bhc(model: Model, X: np.ndarray, options: RunOptions) -> BHC:
    method = "exact" if len(X) <= EXACT_TREE else "randomised"
    return BHC(model, method=method, random_state=options.seed, progress_bar=options.progress).fit(X)


def _seconds_of_bhc(size: Size, options: RunOptions) -> float:
    if size.rows <= EXACT_TREE:
        return 32 + 7.0 * size.relative * (size.rows / 2000) ** 2
    return 20 + 15.0 * size.relative * size.rows / 20_000


def _agglomerative(model: Model, X: np.ndarray, options: RunOptions) -> AgglomerativeBayesianClustering:
    return AgglomerativeBayesianClustering(model, progress_bar=options.progress).fit(X)


def _of(*routes: Route) -> dict[str, Route]:
    return {route.name: route for route in routes}


ROUTES: dict[str, Route] = _of(
    Route(
        "map-dp",
        "MAP-DP",
        "the most probable single partition, by moves of single rows and merges",
        lambda model, X, options: MAPDP(model, random_state=options.seed).fit(X),
        lambda size, _: 12 + 30 * size.relative * (size.rows / 20_000) ** 1.9,
    ),
    Route(
        "bayesian-kmeans",
        "Bayesian k-means",
        "the most probable single partition, by splits and merges of clusters",
        lambda model, X, options: BayesianKMeans(model, random_state=options.seed).fit(X),
        lambda size, _: 14 + 150 * size.relative * size.rows / 20_000,  # many clusters take long; few are quick
    ),
    Route(
        "bhc",
        "BHC",
        "a tree, the probability of every merge, and a lower bound on the evidence",
        _bhc,
        _seconds_of_bhc,
    ),
    Route(
        "agglomerative",
        "Agglomerative",
        "a tree by the same objective as Bayesian k-means, from the bottom up",
        _agglomerative,
        lambda size, _: 10 + 0.6 * size.relative * (size.rows / 2000) ** 2,
    ),
    Route(
        "variational",
        "Variational",
        "soft assignments and a lower bound on a truncated model's evidence",
        lambda model, X, options: VariationalDP(model, random_state=options.seed).fit(X),
        lambda size, _: 15 + 50 * size.relative * size.rows / 20_000,
    ),
    Route(
        "gibbs",
        "Gibbs",
        "draws from the exact posterior of partitions and hyperparameters: the reference for all others",
        _chains(PartitionGibbs),
        lambda size, options: 40 + options.sweeps * (0.001 + 2.2e-5 * size.rows * size.relative**0.7),
        is_chain=True,
    ),
    Route(
        "parallel",
        "Parallel split-merge",
        "draws from the exact posterior, all rows at once: for many rows",
        _chains(ParallelSplitMerge),
        lambda size, options: 60 + 15 * options.chains + options.sweeps * (0.03 + 7e-6 * size.rows * size.relative),
        is_chain=True,
    ),
)
"""The routes in the order in which they are run: the quick ones first."""


@dataclass
class Outcome:
    """What came of running routes.

    Parameters
    ----------
    fits
        Title -> fit, of the routes that came to an end, or as far as they came.
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


def run_routes(
    names: Iterable[str],
    model: Model,
    X: Float[np.ndarray, "n d"],
    options: RunOptions | Mapping[str, RunOptions] = RunOptions(),  # noqa: B008 - frozen
    *,
    begun: Callable[[Route], None] | None = None,
    ended: Callable[[Route, float], None] | None = None,
) -> Outcome:
    """Run routes one after the other; one that fails or is interrupted does not take the others with it.

    Parameters
    ----------
    names
        Of `ROUTES`.
    model
        NumPyro model with one partition site and one `ConjugateMixture` on it.
    X
        Data, (n, d).
    options
        For all routes, or route name -> options.
    begun, ended
        Called before a route, and after it with its seconds.

    Returns
    -------
    outcome
        With what there is: a failed route becomes a problem. Ctrl-C ends the route at work (chains keep the draws that they
        have) and leaves out those after it.

    Raises
    ------
    ValueError
        If a name is unknown.
    """
    wanted = list(names)
    unknown = [name for name in wanted if name not in ROUTES]
    if unknown:
        raise ValueError(f"there is no route {unknown[0]!r}; the routes are {', '.join(ROUTES)}")
    outcome = Outcome.empty()
    todo = [route for route in ROUTES.values() if route.name in wanted]
    for place, route in enumerate(todo):
        of_route = options if isinstance(options, RunOptions) else options[route.name]
        if begun is not None:
            begun(route)
        started = time.perf_counter()
        fit = None
        try:
            with interruptible():
                fit = route.run(model, X, of_route)
        except KeyboardInterrupt as stop:
            fit = getattr(stop, "chains", None)
            outcome.interrupted = True
        except (ValueError, TypeError, FloatingPointError) as error:
            outcome.problems.append(f"{route.title} failed: {error}")
        seconds = time.perf_counter() - started
        if fit is not None:
            outcome.fits[route.title], outcome.seconds[route.title] = fit, seconds
            if ended is not None:
                ended(route, seconds)
        if isinstance(fit, ResumableRun) and not fit.finished:
            why = (
                "was interrupted"
                if outcome.interrupted
                else f"stopped at its time limit of {of_route.time_limit:.0f} s (--minutes gives it more)"
            )
            kept = fit.steps - of_route.warmup
            outcome.problems.append(f"{route.title} {why}: {kept} of {of_route.samples} draws of every chain are there.")
        elif outcome.interrupted:
            outcome.problems.append(f"{route.title} was interrupted and is missing.")
        if outcome.interrupted:
            missing = ", ".join(other.title for other in todo[place + 1 :])
            outcome.problems += [f"Not run, since it was interrupted before: {missing}."] if missing else []
            break
    return outcome


def shortened(options: RunOptions, sweeps: int) -> RunOptions:
    """Options with at most so many sweeps of all chains, a third of them warm-up."""
    if options.sweeps <= sweeps:
        return options
    unit = max(sweeps // options.chains // 30, 1)  # both are multiples of one number, by which they are taken in pieces
    return replace(options, warmup=10 * unit, samples=20 * unit)
