"""Comparison of models of one data set by leave-one-out cross-validation."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jaxtyping import Array

from bnp_hier.arviz_bridge import cross_validate
from bnp_hier.inspection.model_arguments import Data
from bnp_hier.posterior.cross_validation import standard_error

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["compare_models"]


def compare_models(fits: Mapping[str, Any], X: Data, *, num_samples: int = 1000, random_state: int | Array = 0) -> pd.DataFrame:
    """Compare models that differ in component or concentration by their leave-one-out predictive density on one data set.

    To compare several methods for one model, use `compare`. Densities of continuous and of discrete components are not
    comparable.

    Parameters
    ----------
    fits
        Name -> fit, as in `loo`.
    X
        The data that all models were fitted to, (n, d).
    num_samples, random_state
        As in `loo`.

    Returns
    -------
    table
        One row per model, best first. Densities and their standard errors are in nats. Columns:

        - `elpd`: leave-one-out log predictive density of all rows, and `se`, its standard error over rows.
        - `elpd_diff`: `elpd` minus that of the best model, and `dse`, the standard error of this difference, computed from
          the differences of individual rows.
        - `mcse`: Monte Carlo standard error of `elpd`.
        - `p_loo`: effective number of parameters.
        - `least_kish`: smallest Kish effective share of the draws over all rows.
        - `largest_k`: largest Pareto k of the weights over all rows; NaN for fewer than 25 draws.
        - `warning`: whether `loo` warned about this model.

    Warns
    -----
    RuntimeWarning
        As in `loo`, with the name of the model.

    Raises
    ------
    ValueError, TypeError, NotFittedError
        If `fits` is empty, or a fit has not run or does not match X.

    Notes
    -----
    Results of `loo` can also be passed to ArviZ's `compare`, which computes stacking weights.

    Examples
    --------
    >>> from functools import partial
    >>> import bnp_hier as bnp
    >>> X = bnp.datasets.load("iris").X[::5]
    >>> full, diagonal = bnp.NormalInverseWishart.from_data(X, learn=False), bnp.NormalInverseGamma.from_data(X, learn=False)
    >>> models = {"full": partial(bnp.models.dpm, component=full), "diagonal": partial(bnp.models.dpm, component=diagonal)}
    >>> table = bnp.compare_models({name: bnp.MAPDP(model).fit(X) for name, model in models.items()}, X)
    >>> table["elpd_diff"].round().to_dict()
    {'full': 0.0, 'diagonal': -27.0}
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
            "largest_k": result.pareto_k.max(),
            "warning": bool(trouble),
        }
    table = pd.DataFrame.from_dict(rows, orient="index").sort_values("elpd", ascending=False, kind="stable")
    best = table.index[0]
    table.insert(2, "elpd_diff", table["elpd"] - table["elpd"].iloc[0])
    table.insert(3, "dse", [standard_error(found[name] - found[best]) for name in table.index])
    table.index.name = "model"
    return table
