"""Table of all evidence estimates and bounds for one data set."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple, get_args

import jax
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array
from numpyro import handlers
from numpyro.infer import MCMC

from bnp_hier.deterministic.bhc import BHC
from bnp_hier.deterministic.map_dp import MAPDP
from bnp_hier.deterministic.variational.responsibilities import Inference
from bnp_hier.deterministic.variational_dp import VariationalDP
from bnp_hier.evidence import tree_bounds as bounds
from bnp_hier.evidence.enumeration import LARGEST, exact
from bnp_hier.evidence.occupancy_identity import occupancy
from bnp_hier.evidence.particle_filter import smc
from bnp_hier.inspection.problem import Problem
from bnp_hier.inspection.trace import Model
from bnp_hier.kernels import PartitionGibbs
from bnp_hier.kernels.reports import wait_for_reports
from bnp_hier.partitions.capacities import default_capacity
from bnp_hier.utils.interruption import interruptible
from bnp_hier.utils.jax_settings import double_precision
from bnp_hier.utils.memory_limits import check_memory
from bnp_hier.utils.options import WholeNumber, check_options
from bnp_hier.utils.randomness import random_key

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["table"]

LARGEST_RHAT = 1.05
"""R-hat of the log joint above which the chains behind an estimate count as not mixed."""

ERRORS_BELOW = 4.0
"""Maximum number of standard errors by which an estimate may lie below a lower bound."""


class Row(NamedTuple):
    """One row of the table before the comparison with the others.

    - **name** - name of the estimator.
    - **kind** - "exact", "lower bound" or "estimate".
    - **value** - log evidence (nats).
    - **target** - description of the model to which the evidence refers; None for the model itself.
    - **standard_error** - standard error (nats); NaN if not available.
    - **verdict** - assessment in words; starts with "failed" if the value is not reliable.
    """

    name: str
    kind: str
    value: float = np.nan
    target: str | None = None
    standard_error: float = np.nan
    verdict: str = ""


def table(
    model: Model,
    X: ArrayLike,
    *,
    num_particles: int = 1000,
    num_orders: int = 4,
    num_samples: int = 2000,
    num_warmup: int = 500,
    num_chains: int = 4,
    optimize: bool | Mapping[str, ArrayLike] = True,
    random_state: int | Array = 0,
    progress_bar: bool = True,
) -> pd.DataFrame:
    """Compute all evidence estimates and bounds for one data set, at the same hyperparameters.

    Parameters
    ----------
    model
        NumPyro model with one partition site and one observed `ConjugateMixture` on it.
    X
        Data, (n, d).
    num_particles, num_orders
        Arguments of `smc`.
    num_samples, num_warmup, num_chains
        Length and number of the `PartitionGibbs` chains used for `occupancy`.
    optimize
        True: the hyperparameters that have priors, if there are any, are those that `MAPDP` learns from X. Where it learns
        none, they are the prior medians, and a warning is raised. False: they are the prior medians. A dictionary: they have
        these values. In any case, all values of the table are conditional on them, not averaged over the prior: a difference
        between two models is their log Bayes factor only if no hyperparameter has a prior; with `optimize=False` or a
        dictionary, it is that of the models with these hyperparameters fixed.
    random_state
        Integer or JAX key.
    progress_bar
        Whether the slow estimators show progress bars.

    Returns
    -------
    table
        `attrs["hyperparameters"]` holds the hyperparameters. One row per estimator: the exact evidence (for up to 16 rows of
        X); lower bounds from a single partition (MAP-DP), from a `BHC` tree and from variational inference; estimates from a
        particle filter and from tree occupancy. Columns:

        - `value`, `standard_error`: log evidence at the hyperparameters and its standard error (nats).
        - `kind`: "exact", "lower bound" or "estimate".
        - `target`: the model to which the evidence refers, "at fixed hyperparameters" if any have priors; truncated and finite
          approximations have a different evidence.
        - `seconds`: run time, including compilation; that of the first tree bound includes fitting the tree.
        - `gap_to_best_bound`: value minus the best lower bound on the evidence of the model itself (nats); NaN for other
          targets.
        - `verdict`: assessment in words. It starts with "failed" if an estimate lies below the best lower bound by more than
          4 standard errors, if the particle filter's estimates from different row orders differ by more than 1.5 nats, if
          fewer than 50 draws are consistent with the tree, if R-hat of the chains' log joint exceeds 1.05, or if the
          estimator could not run.

    Raises
    ------
    ValueError, TypeError
        If an option, the model or the data are invalid.

    Notes
    -----
    The row of an estimator that fails states the reason. If interrupted from the keyboard, the function returns the table
    with the results obtained so far.

    Examples
    --------
    >>> import numpy as np
    >>> from functools import partial
    >>> import bnp_hier as bnp
    >>> component = bnp.NormalKnownCovariance(mean=[0.0], prior_covariance=9 * np.eye(1), covariance=np.eye(1))
    >>> model = partial(bnp.models.dpm, component=component)
    >>> X = [[0.0], [0.2], [0.1], [6.0], [6.1]]
    >>> table = bnp.evidence.table(model, X, progress_bar=False)  # doctest: +SKIP
    >>> table.loc[["exact", "tree (bhc)"], "value"].round(1).to_dict()  # doctest: +SKIP
    {'exact': -13.2, 'tree (bhc)': -13.4}
    """
    check_options(
        "table",
        {
            "num_particles": [WholeNumber()],
            "num_orders": [WholeNumber(2)],
            "num_samples": [WholeNumber()],
            "num_warmup": [WholeNumber(0)],
            "num_chains": [WholeNumber()],
            "optimize": ["boolean", Mapping],
            "progress_bar": ["boolean"],
        },
        locals(),
    )
    n = np.shape(X)[0]
    check_memory(f"{num_chains * num_samples} draws (chains × samples) of {n} labels", 4.0 * num_chains * num_samples * n)
    check_memory(f"{num_particles} particles with {n} labels each", 8.0 * num_particles * n)
    key = random_key(random_state)
    run = _Run(model, X, num_particles, num_orders, num_samples, num_warmup, num_chains, optimize, key, progress_bar)
    rows: list[Row] = []
    seconds: list[float] = []
    interrupted = False
    for name, kind, job in _jobs(run):
        started = time.perf_counter()
        try:
            with interruptible():
                done = [Row(name, kind, verdict="not run: interrupted")] if interrupted else job()
        except KeyboardInterrupt:
            interrupted = True
            done = [Row(name, kind, verdict="failed: interrupted")]
        except Exception as error:  # whatever the error is, the other rows are kept
            done = [Row(name, kind, verdict=f"failed: {str(error) or type(error).__name__}")]
        rows += done
        seconds += [time.perf_counter() - started] * len(done)
    judged = _judged(rows, seconds, run.target, " at fixed hyperparameters" if run.hyperparameters else "")
    judged.attrs["hyperparameters"] = run.hyperparameters
    return judged


class _Run:
    """The model at fixed hyperparameters, its data, the options, and the tree shared by several estimators."""

    def __init__(
        self,
        model: Model,
        X: ArrayLike,
        num_particles: int,
        num_orders: int,
        num_samples: int,
        num_warmup: int,
        num_chains: int,
        optimize: bool | Mapping[str, ArrayLike],
        key: Array,
        progress_bar: bool,
    ) -> None:
        self.key_map, self.key_filter, self.key_chains = jax.random.split(key, 3)
        with double_precision():
            problem = Problem(model, X)
            if isinstance(optimize, Mapping):
                problem.set(optimize)
            elif optimize and problem.unconstrained:
                try:
                    with warnings.catch_warnings():
                        warnings.filterwarnings("ignore", message="all .* rows are in one cluster")
                        problem.set(MAPDP(model, random_state=self.key_map).fit(problem.X).hyperparameters_)
                except (ValueError, TypeError, NotImplementedError) as error:  # other estimators may suit the model
                    warnings.warn(f"the hyperparameters are at their prior medians: {error}", RuntimeWarning, stacklevel=3)
            values = {name: np.asarray(value) for name, value in problem.hyperparameters.items()}
            discount = float(problem.values.discount)
        self.X, self.sites, self.hyperparameters = problem.X, problem.sites, values
        # conditioned on their values, the hyperparameters are no longer latent sites
        self.model: Model = handlers.condition(model, data=values) if values else model
        self.num_particles, self.num_orders = num_particles, num_orders
        self.num_samples, self.num_warmup, self.num_chains = num_samples, num_warmup, num_chains
        self.progress_bar = progress_bar
        self.target = "Pitman-Yor mixture" if discount else "DP mixture"
        if self.sites.max_clusters is not None:
            self.target += f" of at most {self.sites.max_clusters} clusters"

    @cached_property
    def bhc(self) -> BHC:
        """The tree fitted by `BHC` with default options."""
        return BHC(self.model, progress_bar=self.progress_bar).fit(self.X)

    def chains(self) -> MCMC:
        """Run chains for the partition, in float64, with as many slots as they need."""
        n = len(self.X)
        limit = min(n, self.sites.max_clusters or n)
        slots = min(default_capacity(n), limit)
        while True:
            mcmc = MCMC(
                PartitionGibbs(self.model, max_clusters=slots),
                num_warmup=self.num_warmup,
                num_samples=self.num_samples,
                num_chains=self.num_chains,
                chain_method="vectorized",
                progress_bar=self.progress_bar,
            )
            with warnings.catch_warnings(), double_precision():
                warnings.filterwarnings("ignore", message="PartitionGibbs .*capacity", category=RuntimeWarning)
                mcmc.run(self.key_chains, self.X, extra_fields=("log_joint",))
                wait_for_reports(mcmc.last_state)
            if slots == limit or not np.asarray(mcmc.last_state.capacity_hits).any():
                return mcmc
            slots = min(2 * slots, limit)


def _jobs(run: _Run) -> list[tuple[str, str, Callable[[], list[Row]]]]:
    """Name, kind and function of each estimator, the fast ones first."""
    jobs: list[tuple[str, str, Callable[[], list[Row]]]] = []
    if len(run.X) <= LARGEST:
        jobs.append(("exact", "exact", partial(_exact, run)))
    jobs.append(("one partition (MAP-DP)", "lower bound", partial(_one_partition, run)))
    for kind in bounds.KINDS:
        jobs.append((f"tree ({kind})", "lower bound", partial(_tree, run, kind)))
    for inference in get_args(Inference):
        jobs.append((f"variational ({inference})", "lower bound", partial(_variational, run, inference)))
    jobs.append(("particle filter", "estimate", partial(_smc, run)))
    jobs.append(("occupancy", "estimate", partial(_occupancy, run)))
    return jobs


def _exact(run: _Run) -> list[Row]:
    return [Row("exact", "exact", exact(run.model, run.X), verdict="sum over all partitions")]


def _one_partition(run: _Run) -> list[Row]:
    fit = MAPDP(run.model, random_state=run.key_map).fit(run.X)
    return [Row("one partition (MAP-DP)", "lower bound", fit.log_joint_)]


def _tree(run: _Run, kind: str) -> list[Row]:
    return [Row(f"tree ({kind})", "lower bound", bounds.tree_bound(run.bhc, kind))]


def _variational(run: _Run, inference: str) -> list[Row]:
    """Bound on the evidence of the approximating model and, if available, on that of the model itself."""
    fit = VariationalDP(run.model, inference=inference).fit(run.X)
    name = f"variational ({inference})"
    rows = [Row(name, "lower bound", fit.log_evidence_bound_, fit.bound_target_)]
    if fit.infinite_bound_ is not None:
        rows.append(Row(f"{name}, infinite", "lower bound", fit.infinite_bound_))
    return rows


def _smc(run: _Run) -> list[Row]:
    found = smc(
        run.model,
        run.X,
        run.key_filter,
        num_particles=run.num_particles,
        num_orders=run.num_orders,
        progress_bar=run.progress_bar,
    )
    return [Row("particle filter", "estimate", found.value, None, found.standard_error, found.verdict)]


def _occupancy(run: _Run) -> list[Row]:
    import arviz as az

    bhc = run.bhc
    mcmc = run.chains()
    draws = np.asarray(mcmc.get_samples(group_by_chain=True)[run.sites.partition])
    log_joint = np.asarray(mcmc.get_extra_fields(group_by_chain=True)["log_joint"])
    found = occupancy(bhc, draws)
    verdict = found.verdict
    # R-hat is undefined for a constant quantity and for fewer than four draws
    rhat = float(az.rhat(log_joint)) if np.ptp(log_joint) > 0 and log_joint.shape[1] >= 4 else np.nan
    if rhat > LARGEST_RHAT:
        unmixed = f"the chains have not mixed: R-hat of the log joint is {rhat:.2f}; increase num_warmup and num_samples"
        verdict = f"{verdict}; {unmixed}" if found.failed else f"failed: {unmixed}"
    return [Row("occupancy", "estimate", found.value, None, found.standard_error, verdict)]


def _judged(rows: list[Row], seconds: list[float], target: str, given: str = "") -> pd.DataFrame:
    """Build the table, including the verdicts that depend on all rows; `given` says at which hyperparameters it holds."""
    import pandas as pd

    own = [row for row in rows if row.kind == "lower bound" and row.target in (None, target) and np.isfinite(row.value)]
    best = max(own, key=lambda row: row.value, default=None)
    records = []
    for row, elapsed in zip(rows, seconds, strict=True):
        aim = target if row.target is None else row.target
        gap = row.value - best.value if best is not None and aim == target else np.nan
        records.append(
            {
                "value": row.value,
                "standard_error": row.standard_error,
                "kind": row.kind,
                "target": f"{aim}{given}",
                "seconds": elapsed,
                "gap_to_best_bound": gap,
                "verdict": _verdict(row, f"{aim}{given}", gap, best),
            }
        )
    return pd.DataFrame(records, index=pd.Index([row.name for row in rows], name="estimator"))


def _verdict(row: Row, target: str, gap: float, best: Row | None) -> str:
    if row.kind == "lower bound" and not row.verdict:
        return f"lower bound on the evidence ({target})" + ("; the best bound" if row is best else "")
    allowed = ERRORS_BELOW * np.nan_to_num(row.standard_error)
    if row.kind == "estimate" and best is not None and gap < -allowed:
        low = f"{-gap:.1f} nats below the best lower bound, {best.name}"
        return f"{row.verdict}; {low}" if row.verdict.startswith("failed") else f"failed: {low}; {row.verdict}"
    return row.verdict
