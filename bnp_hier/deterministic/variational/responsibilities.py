"""Expected log priors of independent labels, each with its own probabilities over K components.

The count of a component then has a Poisson-binomial distribution: it is a sum of independent indicators with different
probabilities. Expectations over this distribution are computed exactly; only the update of a single row's probabilities uses
an approximation, `expected_log`.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from bnp_hier.components.special import log_gamma_ratio

__all__ = [
    "INFERENCES",
    "Inference",
    "expected_log",
    "expected_weights",
    "label_scores",
    "log_label_prior",
    "log_stick_pieces",
    "poisson_binomial",
]

Inference: TypeAlias = Literal["stick_breaking", "collapsed_stick_breaking", "collapsed_dirichlet"]
INFERENCES: tuple[Inference, ...] = ("stick_breaking", "collapsed_stick_breaking", "collapsed_dirichlet")

BATCH = 1 << 16
"""Maximum number of probabilities whose count distributions are computed at once, which bounds memory."""


def poisson_binomial(probabilities: Float[Array, " n"]) -> Float[Array, " m"]:
    """Distribution of the number of successes in n independent trials, on 0, ..., m − 1 with m > n; zero beyond n.

    The generating polynomials (1 − p) + p t are multiplied pairwise by discrete Fourier transforms, in O(n log² n) steps.
    The absolute error is about 1e-16.
    """
    n = probabilities.shape[0]
    size = 1 << max(n - 1, 0).bit_length()
    p = jnp.pad(probabilities, (0, size - n))  # trials that never succeed do not change the distribution
    factors = jnp.stack([1.0 - p, p], axis=-1)
    while factors.shape[0] > 1:
        degree = 2 * (factors.shape[1] - 1)
        spectra = jnp.fft.rfft(factors, 2 * degree)  # twice the degree: the product does not wrap around
        factors = jnp.fft.irfft(spectra[0::2] * spectra[1::2], 2 * degree)[:, : degree + 1]
    return factors[0]


def _expected_log_gammas(
    probabilities: Float[Array, "n k"], base: ArrayLike, shifts: Float[Array, " s"]
) -> Float[Array, "k s"]:
    """E[lgamma(b + c + N_k)] − lgamma(b) for the count N_k of every column, base b and every shift c, exactly (nats)."""
    n = probabilities.shape[0]
    size = (1 << max(n - 1, 0).bit_length()) + 1
    tables = log_gamma_ratio(base, shifts[None] + jnp.arange(size, dtype=probabilities.dtype)[:, None])
    return jax.lax.map(lambda p: poisson_binomial(p) @ tables, probabilities.T, batch_size=max(1, BATCH // size))


def _tails(responsibilities: Float[Array, "... k"]) -> Float[Array, "... k"]:
    """Sums over k and all later components, accumulated from the end to preserve the precision of small values."""
    return jnp.flip(jnp.cumsum(jnp.flip(responsibilities, -1), -1), -1)


def _tail_probabilities(responsibilities: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """Probability that a row's label is k or later, clipped to one against rounding errors."""
    return jnp.minimum(_tails(responsibilities), 1.0)


def _later(counts: Float[Array, " k"]) -> Float[Array, " k"]:
    """Number of rows with a label later than k, N_>k."""
    return jnp.append(_tails(counts)[1:], 0.0)


def log_stick_pieces(counts: Float[Array, " k"], concentration: ArrayLike) -> Float[Array, " k"]:
    """Log B(1 + N_k, α + N_>k) − log B(1, α) for every stick proportion, where N_k is the (expected) count (nats)."""
    alpha = jnp.asarray(concentration, counts.dtype)
    return gammaln(1.0 + counts) - log_gamma_ratio(alpha + _later(counts), 1.0 + counts) + jnp.log(alpha)


def log_label_prior(
    responsibilities: Float[Array, "n k"], concentration: ArrayLike, inference: Inference, infinite: bool = False
) -> Float[Array, ""]:
    """Label-prior term of the variational bound, at the optimal q of the weights or with the weights integrated out (nats).

    Parameters
    ----------
    responsibilities
        q(z_i = k); rows sum to one, or are zero for padding, which is left out.
    concentration
        α.
    inference
        "stick_breaking": the stick proportions v_k ~ Beta(1, α), k < K, have their optimal q(v_k) = Beta(1 + N_k, α + N_>k)
        at the expected counts, which yields Σ_k log B(1 + N_k, α + N_>k) − log B(1, α) (Blei & Jordan 2006, whose
        digamma terms cancel at the optimum). "collapsed_stick_breaking": the stick proportions are integrated out.
        "collapsed_dirichlet": weights ~ Dirichlet(α/K, ..., α/K) are integrated out (Kurihara, Welling & Teh 2007). The
        collapsed forms are exact expectations of log p(z).
    infinite
        Whether the K-th stick proportion is Beta(1, α) too, which is the prior of the Dirichlet process itself on labels up
        to K. Stick-breaking only.
    """
    n, k = responsibilities.sum(), responsibilities.shape[1]
    alpha = jnp.asarray(concentration, responsibilities.dtype)
    if inference == "collapsed_dirichlet":
        terms = _expected_log_gammas(responsibilities, alpha / k, jnp.zeros(1, alpha.dtype))
        return terms.sum() - log_gamma_ratio(alpha, n)
    pieces = k if infinite else k - 1
    if inference == "stick_breaking":
        return log_stick_pieces(responsibilities.sum(0), alpha)[:pieces].sum()
    own = _expected_log_gammas(responsibilities, jnp.ones((), alpha.dtype), jnp.zeros(1, alpha.dtype))
    tails = _expected_log_gammas(_tail_probabilities(responsibilities), alpha, jnp.arange(2, dtype=alpha.dtype))
    later = jnp.append(tails[1:, 0], 0.0)  # nothing lies beyond the last component
    return (own[:, 0] + later - tails[:, 1] + jnp.log(alpha))[:pieces].sum()


def expected_log(shift: ArrayLike, probabilities: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """Approximate E[log(c + N)], where N is a column's count without the row itself (nats).

    The case N = 0 is treated exactly, and log(c + N) given N > 0 is expanded to second order around its mean. Without this
    split, the expansion is useless if c is small and N is mostly zero, as for every component that is dying out.
    """
    p = probabilities
    log_none = jnp.log1p(-jnp.minimum(p, 1.0 - 1e-12))
    none = jnp.minimum(log_none.sum(0, keepdims=True) - log_none, 0.0)
    mean = jnp.maximum(p.sum(0, keepdims=True) - p, 0.0)
    spread = p * (1.0 - p)
    variance = jnp.maximum(spread.sum(0, keepdims=True) - spread, 0.0)
    some = -jnp.expm1(none)
    possible = some > 1e-30
    divisor = jnp.where(possible, some, 1.0)
    given = jnp.where(possible, jnp.maximum(mean / divisor, 1.0), 1.0)
    given_variance = jnp.maximum((variance + mean**2) / divisor - given**2, 0.0)
    center = shift + given
    return jnp.exp(none) * jnp.log(shift) + some * (jnp.log(center) - given_variance / (2.0 * center**2))


def label_scores(responsibilities: Float[Array, "n k"], concentration: ArrayLike, inference: Inference) -> Float[Array, "n k"]:
    """E_q[log p(z_i = k | the other labels)], up to a constant per row (nats).

    Exact for "stick_breaking", where it is the derivative of `log_label_prior` and equals E_q[log weight k]. The collapsed
    forms apply `expected_log` to the counts without the row.
    """
    n, k = responsibilities.shape
    alpha = jnp.asarray(concentration, responsibilities.dtype)
    if inference == "stick_breaking":
        return jax.grad(log_label_prior)(responsibilities, alpha, inference)
    if inference == "collapsed_dirichlet":
        return expected_log(alpha / k, responsibilities)
    tails = _tail_probabilities(responsibilities)
    reached = expected_log(1.0 + alpha, tails[:, :-1])
    taken = expected_log(1.0, responsibilities[:, :-1]) - reached
    passed = jnp.cumsum(expected_log(alpha, tails[:, 1:]) - reached, axis=1)
    none = jnp.zeros((n, 1), alpha.dtype)
    return jnp.concatenate([taken, none], axis=1) + jnp.concatenate([none, passed], axis=1)


def expected_weights(
    responsibilities: Float[Array, "n k"], concentration: ArrayLike, inference: Inference
) -> Float[Array, " k"]:
    """Probability that the next row has each label; sums to one.

    Exact under q for "stick_breaking" and "collapsed_dirichlet"; for "collapsed_stick_breaking", ratios of counts are
    approximated by ratios of expected counts.
    """
    k, counts = responsibilities.shape[1], responsibilities.sum(0)
    alpha = jnp.asarray(concentration, counts.dtype)
    if inference == "collapsed_dirichlet":
        return (alpha / k + counts) / (alpha + counts.sum())
    later = _later(counts)
    total = 1.0 + alpha + counts + later
    piece = ((1.0 + counts) / total).at[-1].set(1.0)
    passed = jnp.cumprod((alpha + later[:-1]) / total[:-1])
    return piece * jnp.concatenate([jnp.ones(1, counts.dtype), passed])
