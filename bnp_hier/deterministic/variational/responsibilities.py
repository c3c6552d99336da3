"""Expected log priors of labels that are independent, each with its own probabilities over K components.

The count of a component is then Poisson-binomial: a sum of independent indicators with different probabilities. Sums over its
distribution are exact here; only the update of a single item's probabilities uses an approximation, `expected_log`.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from bnp_hier.components.special import log_beta

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
"""Most probabilities whose distributions of counts are computed at once, so that memory stays bounded."""


def poisson_binomial(probabilities: Float[Array, " n"]) -> Float[Array, " m"]:
    """Distribution of the number of successes among independent trials, on 0, ..., m − 1 with m > n; zero beyond n.

    The generating polynomials (1 − p) + p t are multiplied pairwise, by discrete Fourier transforms: n log² n steps. The
    error is absolute, about 1e-16.
    """
    n = probabilities.shape[0]
    size = 1 << max(n - 1, 0).bit_length()
    p = jnp.pad(probabilities, (0, size - n))  # trials that never succeed change nothing
    factors = jnp.stack([1.0 - p, p], axis=-1)
    while factors.shape[0] > 1:
        degree = 2 * (factors.shape[1] - 1)
        spectra = jnp.fft.rfft(factors, 2 * degree)  # twice the degree: the product does not wrap around
        factors = jnp.fft.irfft(spectra[0::2] * spectra[1::2], 2 * degree)[:, : degree + 1]
    return factors[0]


def _expected_log_gammas(probabilities: Float[Array, "n k"], shifts: Float[Array, " s"]) -> Float[Array, "k s"]:
    """E[lgamma(c + N_k)] for every column's count N_k and every shift c, exactly (nats)."""
    n = probabilities.shape[0]
    size = (1 << max(n - 1, 0).bit_length()) + 1
    tables = gammaln(shifts[None] + jnp.arange(size, dtype=probabilities.dtype)[:, None])
    return jax.lax.map(lambda p: poisson_binomial(p) @ tables, probabilities.T, batch_size=max(1, BATCH // size))


def _tails(responsibilities: Float[Array, "... k"]) -> Float[Array, "... k"]:
    """Sums over k and all later components, from the end to keep the digits of small ones."""
    return jnp.flip(jnp.cumsum(jnp.flip(responsibilities, -1), -1), -1)


def _tail_probabilities(responsibilities: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """Probability that an item's label is k or later; rounding must not take it beyond one."""
    return jnp.minimum(_tails(responsibilities), 1.0)


def _later(counts: Float[Array, " k"]) -> Float[Array, " k"]:
    """Number of items with a later label, N_>k."""
    return jnp.append(_tails(counts)[1:], 0.0)


def log_stick_pieces(counts: Float[Array, " k"], concentration: ArrayLike) -> Float[Array, " k"]:
    """Log B(1 + N_k, α + N_>k) − log B(1, α) of every piece of the stick, N_k its (expected) count (nats)."""
    alpha = jnp.asarray(concentration, counts.dtype)
    return log_beta(1.0 + counts, alpha + _later(counts)) + jnp.log(alpha)


def log_label_prior(
    responsibilities: Float[Array, "n k"], concentration: ArrayLike, inference: Inference, infinite: bool = False
) -> Float[Array, ""]:
    """The prior's term of the variational bound: what remains of E_q[log p(z)] with the best q of the weights (nats).

    Parameters
    ----------
    responsibilities
        q(z_i = k), rows sum to one.
    concentration
        α.
    inference
        "stick_breaking": the pieces v_k ~ Beta(1, α), k < K, have their optimal q(v_k) = Beta(1 + N_k, α + N_>k) in the
        expected counts, which leaves Σ_k log B(1 + N_k, α + N_>k) − log B(1, α) (Blei & Jordan 2006, whose
        digamma terms cancel at the optimum). "collapsed_stick_breaking": the pieces are integrated out;
        "collapsed_dirichlet": weights ~ Dirichlet(α/K, ..., α/K) are (Kurihara, Welling & Teh 2007); both are exact
        expectations of log p(z).
    infinite
        Whether piece K is Beta(1, α) too: the prior of the Dirichlet process itself, on labels up to K. Stick-breaking only.
    """
    n, k = responsibilities.shape
    alpha = jnp.asarray(concentration, responsibilities.dtype)
    if inference == "collapsed_dirichlet":
        share = alpha / k
        terms = _expected_log_gammas(responsibilities, share[None])
        return gammaln(alpha) - gammaln(n + alpha) + terms.sum() - k * gammaln(share)
    pieces = k if infinite else k - 1
    if inference == "stick_breaking":
        return log_stick_pieces(responsibilities.sum(0), alpha)[:pieces].sum()
    own = _expected_log_gammas(responsibilities, jnp.ones(1, alpha.dtype))
    tails = _expected_log_gammas(_tail_probabilities(responsibilities), jnp.stack([alpha, 1.0 + alpha]))
    later = jnp.append(tails[1:, 0], gammaln(alpha))  # nothing lies beyond the last component
    return (own[:, 0] + later - tails[:, 1] + jnp.log(alpha))[:pieces].sum()


def expected_log(shift: ArrayLike, probabilities: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """E[log(c + N)], N a column's count without the item itself, approximately (nats).

    N = 0 is treated exactly and log(c + N) given N > 0 to second order around its mean: without that split the series is
    useless where c is small and N mostly zero, that is for every component that is dying out.
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
    """E_q[log p(z_i = k | the other labels)], up to a constant per item (nats).

    Exact for "stick_breaking": the derivative of `log_label_prior`, which is E_q[log weight k]. The collapsed forms use
    `expected_log` of the counts without the item.
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
    """Probability that the next item has each label; sums to one.

    Exact under q for "stick_breaking" and "collapsed_dirichlet"; "collapsed_stick_breaking" puts the expected counts into
    its ratios of counts.
    """
    n, k = responsibilities.shape
    counts = responsibilities.sum(0)
    alpha = jnp.asarray(concentration, counts.dtype)
    if inference == "collapsed_dirichlet":
        return (alpha / k + counts) / (alpha + n)
    later = _later(counts)
    total = 1.0 + alpha + counts + later
    piece = ((1.0 + counts) / total).at[-1].set(1.0)
    passed = jnp.cumprod((alpha + later[:-1]) / total[:-1])
    return piece * jnp.concatenate([jnp.ones(1, counts.dtype), passed])
