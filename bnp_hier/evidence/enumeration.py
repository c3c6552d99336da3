"""Exact evidence of a small data set, as a sum over all set partitions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float, Int
from scipy.special import gammaln

from bnp_hier.components.checks import no_log_marginal
from bnp_hier.inspection.problem import Problem
from bnp_hier.inspection.trace import Model
from bnp_hier.utils.jax_settings import double_precision

__all__ = ["LARGEST", "exact"]

LARGEST = 16
"""Maximum number of rows: the exact sum over partitions takes about 3ⁿ steps."""


def exact(model: Model, X: ArrayLike) -> float:
    """Compute the exact log evidence log p(X) of a mixture; hyperparameters with priors are fixed at their prior medians.

    Parameters
    ----------
    model
        NumPyro model with one partition site and one observed `ConjugateMixture` on it.
    X
        Data, (n, d), with n ≤ 16.

    Returns
    -------
    log_evidence
        log Σ_v p(v) Π p(D_l) over all set partitions v (nats), in float64.

    Raises
    ------
    ValueError
        If there are more than 16 rows, or the model or the data are invalid.

    Notes
    -----
    The sum is computed by dynamic programming over subsets: the block that contains the first row of a set, times the sum
    over partitions of the rest. The terms are kept separate by number of blocks, because the prior depends on it.

    Examples
    --------
    >>> import numpy as np
    >>> from functools import partial
    >>> import bnp_hier as bnp
    >>> component = bnp.NormalKnownCovariance(mean=[0.0], prior_covariance=9 * np.eye(1), covariance=np.eye(1))
    >>> model = partial(bnp.models.dpm, component=component)
    >>> round(bnp.evidence.exact(model, [[0.0], [0.2], [0.1], [6.0], [6.1]]), 3)
    -13.184
    """
    with double_precision():
        problem = Problem(model, X, min_rows=1)
        values = problem.values
        n = problem.X.shape[0]
        if n > LARGEST:
            raise ValueError(
                f"the exact evidence is a sum over all partitions of at most {LARGEST} rows, but X has {n}; use a lower bound "
                "such as tree_bound(BHC(model).fit(X))"
            )
        prior, discount = values.prior, np.asarray(values.prior.discount, np.float64)
        log_v = float(prior.log_whole(n)) + np.concatenate([[0.0], np.cumsum(prior.log_open(np.arange(1, n)))])
        rows = values.component.suff_stats(values.X)
        members = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
        stats = jax.tree.map(lambda leaf: jnp.tensordot(jnp.asarray(members, leaf.dtype), leaf, 1), rows)
        sizes = members.sum(1)
        with np.errstate(invalid="ignore"):
            block = np.asarray(values.component.log_marginal(stats)) + gammaln(sizes - discount) - gammaln(1 - discount)
    undefined = np.isnan(block) | (block == np.inf)
    if undefined[1:].any():
        raise no_log_marginal(values.component, np.flatnonzero(members[1 + undefined[1:].argmax()]))
    by_count = _sum_by_count(block, n)
    # partitions into more clusters than the model's max_clusters are left out; the prior is not renormalised
    allowed = slice(0, problem.sites.max_clusters)
    return float(np.logaddexp.reduce((by_count + log_v)[allowed]))


def _sum_by_count(block: Float[np.ndarray, " subsets"], n: int) -> Float[np.ndarray, " n"]:
    """Log of the sum, over partitions into 1, ..., n blocks, of the product of the blocks' weights."""
    table = np.full((2**n, n + 1), -np.inf)
    table[0, 0] = 0.0
    everything = 2**n - 1
    # only the full set and the sets without row 0 are needed
    for members in [*range(2, 2**n, 2), everything]:
        lowest = members & -members
        rest = members ^ lowest
        chosen = _subsets(rest)
        terms = block[chosen | lowest][:, None] + table[rest ^ chosen, :-1]
        peak = terms.max(axis=0)
        peak = np.where(np.isfinite(peak), peak, 0.0)
        with np.errstate(divide="ignore"):
            table[members, 1:] = peak + np.log(np.exp(terms - peak).sum(axis=0))
    return table[everything, 1:]


def _subsets(members: int) -> Int[np.ndarray, " subsets"]:
    """All subsets of a set, both encoded as bit masks."""
    subsets = np.zeros(1, dtype=np.int64)
    while members:
        bit = members & -members
        subsets = np.concatenate([subsets, subsets | bit])
        members ^= bit
    return subsets
