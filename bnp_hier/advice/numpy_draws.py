"""Draws from NumPyro distributions by NumPy: XLA takes seconds to compile a sampler for each shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist

from bnp_hier.components.dirichlet_multinomial import GivenTotalMultinomial
from bnp_hier.components.missing import CellsOrMissing
from bnp_hier.components.parameter_spaces import NormalInverseGammaParameters, NormalInverseWishartParameters
from bnp_hier.utils.padding import padded_size

__all__ = ["drawn"]

CELLS: dict[type, Callable[[Any, np.random.Generator], tuple[Any, ...]]] = {
    dist.Normal: lambda of, rng: (rng.normal, of.loc, of.scale),
    dist.Poisson: lambda of, rng: (rng.poisson, of.rate),
    dist.discrete.BernoulliProbs: lambda of, rng: (lambda p, size: rng.random(size) < p, of.probs),
    dist.Beta: lambda of, rng: (rng.beta, of.concentration1, of.concentration0),
    dist.Gamma: lambda of, rng: (rng.gamma, of.concentration, 1 / np.asarray(of.rate)),
}
"""Distributions of independent cells: the sampler and its arguments."""


def drawn(of: dist.Distribution, count: int, rng: np.random.Generator) -> np.ndarray:
    """(..., count, *event) draws, after the batch dimensions; each event has at least one dimension.

    Parameters
    ----------
    of
        The distribution. One that is not among those of the package's families is drawn from by its own method.
    count
        Number of draws.
    rng
        Random numbers.
    """
    batch, size = of.batch_shape, (*of.batch_shape, count, *of.event_shape)
    cells: Any = of.cells if isinstance(of, CellsOrMissing) else of.base_dist if isinstance(of, dist.Independent) else of
    if type(cells) in CELLS and len(of.event_shape) == 1:
        sampler, *arguments = CELLS[type(cells)](cells, rng)
        given = (np.broadcast_to(each, (*batch, *of.event_shape))[..., None, :] for each in arguments)
        return sampler(*given, size=size).astype(float)
    if isinstance(of, dist.Dirichlet):
        found = np.maximum(rng.standard_gamma(_by_draw(of.concentration, 1), size), np.finfo(float).tiny)
        return found / found.sum(-1, keepdims=True)
    if isinstance(of, GivenTotalMultinomial) and of.total_count is not None:
        return rng.multinomial(of.total_count, _by_draw(of.probs, 1), size=size[:-1]).astype(float)
    if isinstance(of, dist.MultivariateNormal):
        return _by_draw(of.loc, 1) + rng.normal(size=size) @ np.swapaxes(np.asarray(of.scale_tril), -1, -2)
    if isinstance(of, NormalInverseGammaParameters):
        variance = _by_draw(of.rate, 1) / rng.gamma(_by_draw(of.concentration, 1), size=(*batch, count, size[-1]))
        mean = rng.normal(_by_draw(of.loc, 1), np.sqrt(variance / _by_draw(of.kappa, 1)))
        return np.stack([mean, variance], axis=-2)
    if isinstance(of, NormalInverseWishartParameters):
        d = size[-1]
        bartlett = np.tril(rng.normal(size=(*batch, count, d, d)), -1)
        bartlett[..., np.arange(d), np.arange(d)] = np.sqrt(
            rng.chisquare(_by_draw(of.nu, 0)[..., None] - np.arange(d), (*size[:-2], d))
        )
        factor = _by_draw(of.scale_tril, 2) @ np.swapaxes(np.linalg.inv(bartlett), -1, -2)
        mean = (factor @ rng.normal(size=(*size[:-2], d, 1)))[..., 0] / np.sqrt(_by_draw(of.kappa, 0))[..., None]
        covariance = factor @ np.swapaxes(factor, -1, -2)
        return np.concatenate([(_by_draw(of.loc, 1) + mean)[..., None, :], covariance], axis=-2)
    own: Any = of.sample(jax.random.key(int(rng.integers(2**31))), (padded_size(count),))
    return np.moveaxis(np.asarray(own, dtype=np.float64)[:count], 0, len(batch))


def _by_draw(value: Any, event: int) -> np.ndarray:
    """The value with an axis for the draws between the batch dimensions and those of the event."""
    return np.expand_dims(np.asarray(value), np.ndim(value) - event)
