"""Plots of the agreement between chains: traces and rank histograms of label-invariant variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from bnp_hier.plots.palette import cluster_colors
from bnp_hier.posterior.convergence import has_posterior, scalar_variables
from bnp_hier.utils.wording import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["rank", "traces"]

_MOST_BINS = 20
_RANK_LABEL = "rank among the draws of all chains"


def traces(draws: Any) -> Figure:
    """Plot the trace of every chain (left) and a histogram of the ranks of its draws among all draws (right).

    If the chains sample the same distribution, their rank histograms follow the dashed line. Ties are ranked in random
    order, so this also holds for discrete variables such as the number of clusters.

    Parameters
    ----------
    draws
        Result of `to_arviz`, of which the label-invariant variables and hyperparameters are shown; or a mapping, name ->
        (chains, draws) values of a variable that does not depend on how clusters are labelled.

    Returns
    -------
    figure
        A new figure, not registered with pyplot, with one row of two axes per name.

    Raises
    ------
    TypeError, ValueError
        If `draws` is neither, there is nothing to plot, an array is not (chains, draws), or a draw is NaN.

    Examples
    --------
    >>> import jax
    >>> import numpy as np
    >>> from functools import partial
    >>> from numpyro.infer import MCMC
    >>> import bnp_hier as bnp
    >>> X = np.array([[0.0], [0.2], [0.1], [6.0], [6.1]])
    >>> component = bnp.NormalKnownCovariance(mean=[0.0], prior_covariance=9 * np.eye(1), covariance=np.eye(1))
    >>> kernel = bnp.PartitionGibbs(partial(bnp.models.dpm, component=component))
    >>> mcmc = MCMC(kernel, num_warmup=20, num_samples=50, num_chains=2, chain_method="vectorized", progress_bar=False)
    >>> mcmc.run(jax.random.key(0), X)
    >>> figure = bnp.plots.traces(bnp.to_arviz(mcmc, X))
    >>> figure.savefig("traces.png")  # doctest: +SKIP
    """
    from matplotlib.figure import Figure

    if has_posterior(draws) or not isinstance(draws, Mapping):
        draws = scalar_variables(draws)
    if not draws:
        raise ValueError("draws must contain at least one variable, but it is empty")
    checked = {name: _chains(name, values) for name, values in draws.items()}
    figure = Figure(figsize=(9.0, 0.4 + 2.2 * len(checked)), layout="constrained")
    rows = figure.subplots(len(checked), 2, squeeze=False, width_ratios=[3, 2])
    for (trace, histogram), (name, values) in zip(rows, checked.items(), strict=True):
        n_chains, num_samples = values.shape
        for color, line in zip(cluster_colors(n_chains), values, strict=True):
            trace.plot(line, color=color, linewidth=0.7, alpha=0.8, rasterized=num_samples > 2000)
        trace.set_title(printable(name, one_line=True), loc="left", fontsize=10, parse_math=False)
        trace.margins(x=0.0)
        _tidy(trace)
        _rank_histogram(histogram, name, values)
    _chain_legend(figure, max(len(values) for values in checked.values()))
    rows[-1, 0].set_xlabel("draw")
    rows[-1, 1].set_xlabel(_RANK_LABEL)
    return figure


def rank(idata: Any, *, var_names: str | Sequence[str] | None = None) -> Figure:
    """Plot rank histograms of the label-invariant variables and hyperparameters, as in `traces`.

    Parameters
    ----------
    idata
        Result of `to_arviz`.
    var_names
        Posterior variables; by default, all that do not depend on cluster labels.

    Returns
    -------
    figure
        A new figure, not registered with pyplot, with one panel per variable, or per entry of an array-valued variable.

    Warns
    -----
    RuntimeWarning
        If a requested variable depends on cluster labels.

    Raises
    ------
    TypeError, ValueError
        If `idata` is not the result of `to_arviz`, its posterior lacks a requested variable, there is nothing to plot, or a
        draw is NaN.

    Examples
    --------
    >>> import jax
    >>> import numpy as np
    >>> from functools import partial
    >>> from numpyro.infer import MCMC
    >>> import bnp_hier as bnp
    >>> X = np.array([[0.0], [0.2], [0.1], [6.0], [6.1]])
    >>> component = bnp.NormalKnownCovariance(mean=[0.0], prior_covariance=9 * np.eye(1), covariance=np.eye(1))
    >>> kernel = bnp.PartitionGibbs(partial(bnp.models.dpm, component=component))
    >>> mcmc = MCMC(kernel, num_warmup=20, num_samples=50, num_chains=2, chain_method="vectorized", progress_bar=False)
    >>> mcmc.run(jax.random.key(0), X)
    >>> figure = bnp.plots.rank(bnp.to_arviz(mcmc, X), var_names=["log_joint", "n_clusters"])
    >>> figure.savefig("ranks.png")  # doctest: +SKIP
    """
    from matplotlib.figure import Figure

    checked = {name: _chains(name, values) for name, values in scalar_variables(idata, var_names, stacklevel=3).items()}
    if not checked:
        raise ValueError("var_names must name at least one variable, but it is empty")
    across = min(3, int(np.ceil(np.sqrt(len(checked)))))
    down = -(-len(checked) // across)
    figure = Figure(figsize=(0.4 + 3.4 * across, 0.6 + 2.2 * down), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False).ravel()
    for panel, (name, values) in zip(panels, checked.items(), strict=False):
        _rank_histogram(panel, name, values)
    for panel in panels[len(checked) :]:
        panel.remove()
    _chain_legend(figure, max(len(values) for values in checked.values()))
    figure.supxlabel(_RANK_LABEL, fontsize=9)
    return figure


def _rank_histogram(axes: Axes, name: str, values: Float[np.ndarray, "chains draws"]) -> None:
    n_chains, num_samples = values.shape
    bins = int(np.clip(num_samples // 10, 1, _MOST_BINS))
    edges = np.linspace(0, values.size, bins + 1)
    for color, places in zip(cluster_colors(n_chains), _ranks(values), strict=True):
        axes.stairs(np.histogram(places, edges)[0], edges, baseline=None, color=color, linewidth=1.2)
    axes.axhline(num_samples / bins, color="0.3", linestyle="dashed", linewidth=1.0)
    axes.set(xlim=(0, values.size), ylabel="draws per bin")
    axes.set_ylim(0, 1.1 * max(axes.get_ylim()[1], 1.5 * num_samples / bins))
    axes.set_title(f"ranks of {printable(name, one_line=True)}", loc="left", fontsize=10, parse_math=False)
    _tidy(axes)


def _tidy(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.spines[["top", "right"]].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.tick_params(labelsize=8)


def _chain_legend(figure: Figure, n_chains: int) -> None:
    """Add a legend of the chains' colours, if there are several and few enough to distinguish."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=color, label=f"chain {c}") for c, color in enumerate(cluster_colors(n_chains))]
    if 1 < n_chains <= 8:
        figure.legend(handles=handles, loc="outside upper right", ncols=min(n_chains, 4), frameon=False, fontsize=8)


def _chains(name: str, values: ArrayLike) -> Float[np.ndarray, "chains draws"]:
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 2 or not values.size:
        raise ValueError(f"{name!r} must have shape (chains, draws), but it has shape {values.shape}")
    missing = np.argwhere(np.isnan(values))
    if len(missing):
        chain, draw = missing[0]
        raise ValueError(f"{name!r} has NaN in chain {chain}, draw {draw}: NaN cannot be ranked")
    return values


def _ranks(values: Float[np.ndarray, "chains draws"]) -> Int[np.ndarray, "chains draws"]:
    """Ranks 0, 1, ... among all draws, ties in random order."""
    flat = values.ravel()
    order = np.lexsort([np.random.default_rng(0).random(flat.size), flat])
    ranks = np.empty(flat.size, dtype=np.int64)
    ranks[order] = np.arange(flat.size)
    return ranks.reshape(values.shape)
