"""Different models of one data set in one table, by leave-one-out cross-validation."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jax.typing import ArrayLike
from jaxtyping import Array

from bnp_hier.arviz_bridge import cross_validate
from bnp_hier.posterior.cross_validation import standard_error

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["compare_models"]


def compare_models(
    fits: Mapping[str, Any], X: ArrayLike, *, num_samples: int = 1000, random_state: int | Array = 0
) -> pd.DataFrame:
    """Compare models with other components or concentrations by the leave-one-out predictive density of one data set.

    `compare` is for several methods to one model. Densities of continuous and of discrete components are not comparable.

    Parameters
    ----------
    fits
        Name -> fit, as of `loo`.
    X
        The data that all were fitted to, (n, d).
    num_samples, random_state
        As of `loo`.

    Returns
    -------
    table
        One row a model, the best first; all in nats. Columns:

        - `elpd`: leave-one-out log predictive density of all rows, and `se`, its standard error over rows.
        - `elpd_diff`: `elpd` less the best one, and `dse`, the standard error of that difference, from the rows' own
          differences.
        - `mcse`: Monte Carlo standard error of `elpd`.
        - `p_loo`: effective number of parameters.
        - `least_kish`: the least Kish effective share of the draws of any row.
        - `warning`: whether `loo` warns.

    Warns
    -----
    RuntimeWarning
        As `loo`, with the model's name.

    Raises
    ------
    ValueError, TypeError, NotFittedError
        If there is no fit, or one has not run or does not belong to X.

    Notes
    -----
    Results of `loo` can also be given to ArviZ's `compare`, for stacking weights.
    """
    import pandas as pd

    if not fits:
        raise ValueError("compare_models needs at least one fit")
    found = {}
    rows = {}
    for name, fit in fits.items():
        result, _, trouble = cross_validate(fit, X, num_samples, random_state)
        for message in trouble:
            warnings.warn(f"compare_models, {name}: {message}", RuntimeWarning, stacklevel=2)
        found[name] = result.elpd_i
        rows[name] = {
            "elpd": result.elpd_i.sum(),
            "se": standard_error(result.elpd_i),
            "mcse": result.mcse,
            "p_loo": result.p_i.sum(),
            "least_kish": result.kish_i.min(),
            "warning": bool(trouble),
        }
    table = pd.DataFrame.from_dict(rows, orient="index").sort_values("elpd", ascending=False, kind="stable")
    best = table.index[0]
    table.insert(2, "elpd_diff", table["elpd"] - table["elpd"].iloc[0])
    table.insert(3, "dse", [standard_error(found[name] - found[best]) for name in table.index])
    table.index.name = "model"
    return table
