"""Prior number of clusters under a Dirichlet or Pitman-Yor process, and the concentration for an expected number."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpyro.distributions as dist
from jaxtyping import Float
from scipy.optimize import brentq
from scipy.special import digamma, gammaln

from bnp_hier.distributions.chinese_restaurant import ChineseRestaurantProcess
from bnp_hier.distributions.integrated_concentration import IntegratedConcentration

__all__ = ["concentration_for", "mean_clusters", "prior_clusters"]


def _check(n: int, discount: float, concentration: float = 1.0) -> None:
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise ValueError(f"n must be a whole number of items, at least 1, but it is {n!r}")
    if not (_is_number(discount) and 0 <= discount < 1):
        raise ValueError(f"discount must be a number in [0, 1), but it is {discount!r}")
    if not (_is_number(concentration) and concentration > -discount):
        raise ValueError(f"concentration must be a number above {0.0 - discount:g}, but it is {concentration!r}")
    if concentration == np.inf:
        raise ValueError(f"concentration must be finite, but it is {concentration!r}")


def _is_number(value: Any) -> bool:
    """Whether a value is a real scalar of Python, NumPy or JAX."""
    return not isinstance(value, bool) and np.ndim(value) == 0 and np.asarray(value).dtype.kind in "iuf"


def mean_clusters(alpha: float, n: int, discount: float) -> float:
    """Prior mean of the number of clusters.

    α [ψ(α + n) − ψ(α)] for the Dirichlet process (δ = 0); Γ(α + δ + n) Γ(α + 1) / [δ Γ(α + n) Γ(α + δ)] − α/δ for the
    Pitman-Yor process.
    """
    if discount == 0.0:
        return float(alpha * (digamma(alpha + n) - digamma(alpha)))
    if discount < 1e-3:  # here the formula is a difference of two large numbers
        return float(np.arange(n + 1) @ prior_clusters(alpha, n, discount))
    ratio = gammaln(alpha + discount + n) + gammaln(alpha + 1) - gammaln(alpha + n) - gammaln(alpha + discount)
    return float((np.exp(ratio) - alpha) / discount)


def prior_clusters(concentration: float | dist.Distribution, n: int, discount: float = 0.0) -> Float[np.ndarray, " n1"]:
    """Compute the prior distribution of the number of clusters among n items.

    The result is exact up to rounding, except that large numbers of clusters with a total probability below 1e-14 √n are set to
    0; a prior on α is integrated out by quadrature. For other priors of partitions, see
    `PartitionPrior.cluster_number_probabilities`.

    Parameters
    ----------
    concentration
        α > −discount, or its prior, a continuous NumPyro distribution of such numbers, such as
        `bnp_hier.models.DEFAULT_CONCENTRATION`, that of the default model.
    n
        Number of items.
    discount
        δ in [0, 1); 0 is the Dirichlet process.

    Returns
    -------
    probabilities
        Probabilities of 0, 1, ..., n clusters, (n + 1,).

    Raises
    ------
    ValueError
        If an argument is out of range, or the prior is not a distribution of one such number.

    Examples
    --------
    >>> import numpyro.distributions as dist
    >>> from bnp_hier import prior_clusters
    >>> prior_clusters(1.0, 4).round(3)
    array([0.   , 0.25 , 0.458, 0.25 , 0.042])
    >>> prior_clusters(dist.Gamma(2.0, 4.0), 4).round(3)
    array([0.   , 0.518, 0.356, 0.112, 0.015])
    """
    if isinstance(concentration, dist.Distribution):
        _check(n, discount)
        return IntegratedConcentration(n, concentration, discount).cluster_number_probabilities()
    _check(n, discount, concentration)
    return ChineseRestaurantProcess(concentration, n, discount).cluster_number_probabilities()


def concentration_for(expected_clusters: float, n: int, discount: float = 0.0) -> float:
    """Find the concentration α for which the prior expected number of clusters among n items is `expected_clusters`.

    Parameters
    ----------
    expected_clusters
        Expected number of clusters, strictly between 1 and n.
    n
        Number of items.
    discount
        Pitman-Yor discount δ in [0, 1). With a large discount, the expected number at α = 0 may already exceed the requested
        one; the result is then negative, but above −δ.

    Returns
    -------
    concentration
        α.

    Raises
    ------
    ValueError
        If an argument is out of range.

    Examples
    --------
    >>> from bnp_hier import concentration_for
    >>> round(concentration_for(expected_clusters=4, n=150), 2)
    0.62
    """
    _check(n, discount)
    if not (_is_number(expected_clusters) and 1 < expected_clusters < n):
        raise ValueError(f"expected_clusters must lie strictly between 1 and n = {n}, but it is {expected_clusters!r}")

    def gap(log_alpha: float) -> float:
        return mean_clusters(float(np.exp(log_alpha)) - discount, n, discount) - expected_clusters

    low, high = -1.0, 1.0
    while gap(low) > 0:
        low *= 2
    while gap(high) < 0:
        high *= 2
    return float(np.exp(brentq(gap, low, high, xtol=1e-13, rtol=1e-14)) - discount)
