"""Recovery of labels that were summed out of the draws."""

from __future__ import annotations

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Int

from bnp_hier.capabilities import Chains
from bnp_hier.posterior.draws import draws_of
from bnp_hier.posterior.explicit_mixtures import StickMixture

__all__ = ["recover_labels"]


def recover_labels(mcmc: Chains, X: ArrayLike, random_state: int | Array = 0) -> Int[np.ndarray, "chain draw n"]:
    """Draw the labels of a stick-breaking mixture whose labels were summed out for sampling, as with NUTS.

    For each draw of weights and parameters, z_i ~ Categorical(w_k f(x_i|θ_k)); labels, weights and parameters together are a
    draw from the joint posterior. Labels number the sticks of their own draw and are not comparable across draws.

    Parameters
    ----------
    mcmc
        `MCMC` or `ResumableRun` that has run NUTS on `dpm_stick_breaking`, or on another model with `StickBreaking` weights
        and one observed `FiniteMixture` or NumPyro `MixtureSameFamily`.
    X
        The data the model was fitted to, (n, d).
    random_state
        Whole number or JAX key.

    Returns
    -------
    labels
        (chain, draw, n) whole numbers in 0, ..., truncation − 1, suitable for functions such as `coclustering` and
        `point_estimate`.

    Raises
    ------
    ValueError, TypeError
        If the fit has not run, is of another kind, or already contains labels.

    Examples
    --------
    >>> import jax
    >>> import numpy as np
    >>> from functools import partial
    >>> from numpyro.infer import MCMC, NUTS
    >>> import bnp_hier as bnp
    >>> X = np.array([[0.0], [0.2], [0.1], [6.0], [6.1]])
    >>> component = bnp.NormalKnownCovariance(mean=[0.0], prior_covariance=9 * np.eye(1), covariance=np.eye(1))
    >>> model = partial(bnp.models.dpm_stick_breaking, component=component, truncation=4)
    >>> mcmc = MCMC(NUTS(model), num_warmup=500, num_samples=500, progress_bar=False)
    >>> mcmc.run(jax.random.key(0), X)  # doctest: +SKIP
    >>> bnp.recover_labels(mcmc, X).shape  # doctest: +SKIP
    (1, 500, 5)
    """
    if not isinstance(mcmc, Chains):
        raise TypeError(f"expected an MCMC object, but got {type(mcmc).__name__}")
    draws = draws_of(mcmc, X, random_state=random_state)
    if not isinstance(draws.mixture, StickMixture):
        raise ValueError(f'nothing to recover: the draws already contain the labels, at the site "{draws.partition}"')
    return draws.labels
