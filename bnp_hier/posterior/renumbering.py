"""Which sites of a model have one entry per cluster: those whose entries may be renumbered together with the labels."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from itertools import chain, combinations, groupby, islice
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Num

from bnp_hier.inspection.trace import feasible, run_model
from bnp_hier.posterior.draws import Draws, map_draws, of_many_draws, thinned
from bnp_hier.posterior.explicit_mixtures import SlotMixture, StickMixture
from bnp_hier.utils.jax_settings import double_precision
from bnp_hier.utils.wording import listed

__all__ = ["numbered_sites", "renumbered_sites"]

Trace = dict[str, Any]
"""Name of a site -> the site."""

MOST_DRAWS = 8
"""Number of draws at which the model is run, at least one per chain."""

MOST_SUBSETS = 500
"""Number of sets of sites that are tried, all those of up to eight sites."""

PRECISION = 1e-5
"""Difference between two computations of the same number in a model with 32-bit constants, relative to the number and to 1 nat
or the largest number of the site."""


def numbered_sites(draws: Draws) -> tuple[str, ...]:
    """Latent sites with one entry per numbered cluster, the weights of sticks included.

    Cluster numbers are not comparable across draws and chains, so that summaries of these sites are meaningless. If the model
    does not show which of the sites with the number of entries these are, all of them are returned.
    """
    mixture = draws.mixture
    of_size = tuple(name for name, value in draws.hyperparameters.items() if value.shape[2:3] == (mixture.entries,))
    weights = mixture.sites.weights if isinstance(mixture, StickMixture) else None
    try:
        own = renumbered_sites(draws, [name for name in of_size if name != weights])
    except ValueError:
        return of_size
    return tuple(name for name in of_size if name in {*own, weights})


def renumbered_sites(draws: Draws, candidates: Collection[str]) -> tuple[str, ...]:
    """Select the sites with one entry per cluster among all sites with this number of entries.

    Vectors over the columns or rows may have as many entries by chance. The numbers of the clusters have no meaning: if the
    labels and the entries of all sites of the clusters are renumbered alike, neither the density of any row nor the prior
    density of any site changes. The latent sites of the clusters are the largest set for which this is so at some draws; a
    deterministic site belongs to the clusters if its own entries are then renumbered.

    Parameters
    ----------
    draws
        Draws of a model whose cluster parameters are sites.
    candidates
        Names of latent and deterministic sites with as many entries as the model has clusters.

    Raises
    ------
    ValueError
        If there is no such set, as where the prior depends on the number of a cluster, or there are several.
    """
    if len(candidates) <= 1:
        return tuple(candidates)
    mixture = draws.mixture
    assert isinstance(mixture, SlotMixture | StickMixture)
    run = partial(run_model, mixture.model, mixture.data.args, mixture.data.kwargs)
    with double_precision():
        model = _RenumberedModel(mixture, run, thinned(draws, MOST_DRAWS), candidates)
        latent = [name for name in candidates if name in draws.hyperparameters]
        own = latent if len(latent) == 1 else _largest(latent, model.keeps_densities)
        if not own:
            raise ValueError(
                f"the sites {listed(candidates, 20)} have {mixture.entries} entries, but the model does not show which of them "
                "have one for each cluster; name these in sites="
            )
        return tuple(name for name in candidates if name in {*own, *model.renumbers(own)})


def _largest(names: Collection[str], is_valid: Callable[[Collection[str]], bool]) -> tuple[str, ...]:
    """The largest valid subset of names; nothing if there is none among the first ones, or several of the same size."""
    subsets = chain.from_iterable(combinations(names, size) for size in range(len(names), 0, -1))
    for _, some in groupby(islice(subsets, MOST_SUBSETS), len):
        found = [names for names in some if is_valid(names)]
        if found:
            return found[0] if len(found) == 1 else ()
    return ()


class _RenumberedModel:
    """Densities and deterministic sites of a model at some draws, before and after clusters are renumbered."""

    def __init__(
        self,
        mixture: SlotMixture | StickMixture,
        run: Callable[[Any], dict[str, Any]],
        draws: Draws,
        candidates: Collection[str],
    ) -> None:
        self.draws, self.mixture = draws, mixture
        # renumbered always; its prior is not compared, because sticks have an order
        self.clusters = mixture.sites.weights if isinstance(mixture, StickMixture) else mixture.sites.partition
        types: dict[str, str] = {}
        jax.eval_shape(lambda: types.update((name, site["type"]) for name, site in run(feasible).items()))
        self.deterministic = [name for name in candidates if types.get(name) == "deterministic"]

        def one(item: tuple[Array, dict[str, Array]]) -> tuple[Array, ...]:
            labels, values = item
            given = {mixture.partition: labels, **values} if isinstance(mixture, SlotMixture) else values
            trace = run(lambda site: given.get(site["name"]))
            found = [jnp.asarray(trace[name]["value"]) for name in self.deterministic]
            for name, site in trace.items():
                if site["type"] == "sample" and name != self.clusters:
                    density = jnp.asarray(site["fn"].log_prob(site["value"]))
                    found.append(density if site["is_observed"] else density.sum())
            return tuple(found)

        self.program = of_many_draws(one)
        self.before = self._values(None)

    def _values(self, sites: Collection[str] | None) -> tuple[Num[np.ndarray, "chain draw ..."], ...]:
        """Values of the deterministic sites and then densities, with the entries of these sites renumbered; None for none."""
        labels, values = self.draws.labels, self.draws.hyperparameters
        if sites is not None:
            labels = (labels + 1) % self.mixture.entries
            moved = {*sites, self.clusters}
            values = {name: np.roll(value, 1, axis=2) if name in moved else value for name, value in values.items()}
        return map_draws(self.program, (labels, values), batch=1)

    def keeps_densities(self, sites: Collection[str]) -> bool:
        """Whether no density changes."""
        at = len(self.deterministic)
        return all(map(_same, self._values(sites)[at:], self.before[at:]))

    def renumbers(self, sites: Collection[str]) -> list[str]:
        """The deterministic sites whose entries are renumbered, too; constants are not of the clusters."""
        pairs = zip(self.deterministic, self.before, self._values(sites), strict=False)  # followed by densities
        found = []
        for name, old, new in pairs:
            largest = float(np.abs(old, where=np.isfinite(old), out=np.zeros(old.shape)).max())  # in the units of the site
            if _same(np.roll(old, 1, axis=2), new, largest) and not _same(old, new, largest):
                found.append(name)
        return found


def _same(one: Num[np.ndarray, "..."], other: Num[np.ndarray, "..."], unit: float = 1.0) -> bool:
    return np.allclose(one, other, rtol=PRECISION, atol=PRECISION * unit, equal_nan=True)
