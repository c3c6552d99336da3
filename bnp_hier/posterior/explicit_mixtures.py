"""Mixtures whose cluster parameters are sites of the model: in slots selected by the labels, or with labels summed out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int

from bnp_hier.distributions.chinese_restaurant import cluster_counts, log_partition_prior
from bnp_hier.inspection.collapsed import MixtureValues, as_arrays
from bnp_hier.inspection.slots import SlotSites, read_slot_values
from bnp_hier.inspection.sticks import StickSites, read_stick_values
from bnp_hier.partitions.joint_density import log_joint
from bnp_hier.partitions.seating import Prior, draw_index, log_slot_seating
from bnp_hier.posterior.mixtures import Mixture, Values

__all__ = ["SlotMixture", "StickMixture"]


@dataclass(frozen=True)
class SlotMixture(Mixture):
    """A mixture whose labels select slots of cluster parameters, as sampled by `AuxiliaryGibbs`.

    - **sites** - the model's sites.
    """

    sites: SlotSites

    def __post_init__(self) -> None:
        if self.sites.local:
            raise ValueError(
                f"the latent sites {list(self.sites.local)} depend on the labels, so the density of a row with its label "
                "summed out cannot be computed; only observed sites may depend on the labels"
            )

    @property
    def partition(self) -> str:
        """The partition site."""
        return self.sites.partition

    @property
    def observed(self) -> str:
        """The names of the observed sites, joined by underscores."""
        return "_".join(self.sites.observed)

    @property
    def integrated(self) -> bool:
        """False: the log joint is conditional on the parameters."""
        return False

    def slots(self, labels: Int[np.ndarray, "..."]) -> int:
        """The number of slots in the model."""
        return self.sites.slots

    def summarize(self, labels: Int[Array, " n"], values: Values, slots: int) -> tuple[Float[Array, ""], Float[Array, " n"]]:
        """Return log p(partition) + Σ_i log f(x_i|θ_{z_i}), and log p(x_i | labels of the others, θ) for each row.

        The row is removed from its cluster and its label summed over all slots, including empty ones, as in the sampler.
        """
        read = read_slot_values(self.model, self.sites, values, (self.X,))
        prior = Prior(read.concentration, read.discount)
        counts = cluster_counts(labels, slots)
        own = jax.nn.one_hot(labels, slots, dtype=float)
        seating = jax.vmap(lambda mine: log_slot_seating(counts.astype(float) - mine, prior))(own)
        given = jnp.take_along_axis(read.log_density, labels[:, None], axis=1).sum()
        return log_partition_prior(counts, *prior) + given, logsumexp(seating + read.log_density, axis=1)

    def log_predictive(
        self, labels: Int[Array, " n"], values: Values, slots: int, rows: Float[np.ndarray, "m d"]
    ) -> Float[Array, " m"]:
        """Return log Σ_k p(next item joins slot k) f(x|θ_k) over all slots, by running the model on the new rows."""
        prior = read_slot_values(self.model, self.sites, values, (self.X,))
        seating = log_slot_seating(cluster_counts(labels, slots).astype(float), Prior(prior.concentration, prior.discount))
        return logsumexp(
            seating[None] + read_slot_values(self.model, self.sites, values, (jnp.asarray(rows),)).log_density, axis=1
        )

    def validate(self, values: Values, rows: Float[np.ndarray, "m d"]) -> None:
        """Check that the model runs on other rows, and that the density of a row does not depend on the other rows."""
        _check_columns(self.X, rows)
        half = self.X[: max(2, len(self.X) // 2)]

        def densities(table: np.ndarray) -> Array:
            return read_slot_values(self.model, self.sites, values, (table,)).log_density

        for table, name in ((half, "half of the fitted rows"), (rows, "the new rows")):
            try:
                size = jax.eval_shape(partial(densities, table)).shape[0]
            except Exception as error:  # whatever the model raises
                raise ValueError(f"the model does not run on {name}, shape {table.shape}: {error}") from error
            if size != len(table):
                raise ValueError(f"when run on {name}, shape {table.shape}, the model returns densities of {size} rows")
        whole, alone = jax.jit(lambda: (densities(self.X)[: len(half)], densities(half)))()
        if not np.allclose(whole, alone, rtol=1e-6, atol=1e-6):
            raise ValueError(
                "the model's log density of a row depends on the other rows, so new rows cannot be scored; compute anything "
                "that depends on the fitted data outside the model"
            )


@dataclass(frozen=True)
class StickMixture(Mixture):
    """A truncated stick-breaking mixture with its labels summed out, as sampled by NUTS; the labels are recovered.

    - **sites** - the model's sites.
    """

    sites: StickSites

    @property
    def partition(self) -> str:
        """Always "z": the model has no site for the labels."""
        return "z"

    @property
    def observed(self) -> str:
        """The observed site."""
        return self.sites.observed

    @property
    def integrated(self) -> bool:
        """Whether the model specifies its conjugate component."""
        return self.sites.conjugate

    def conjugate(self, values: Values) -> MixtureValues:
        """Read from the model, if it specifies its component."""
        read = read_stick_values(self.model, self.sites, values, (self.X,))
        if read.component is None:
            return super().conjugate(values)
        return as_arrays(MixtureValues(read.concentration, jnp.zeros(()), read.component, jnp.asarray(read.X)))

    def slots(self, labels: Int[np.ndarray, "..."]) -> int:
        """The number of sticks."""
        return self.sites.truncation

    def summarize(self, labels: Int[Array, " n"], values: Values, slots: int) -> tuple[Float[Array, ""], Float[Array, " n"]]:
        """Return log p(X, partition), and log Σ_k w_k f(x_i|θ_k) over all sticks for each row.

        The log joint is that of the collapsed model, with the parameters integrated out and the partition prior of the process
        without truncation. If the model specifies no conjugate component, it is log p(partition) + Σ_i log f(x_i|θ_{z_i}).
        """
        read = read_stick_values(self.model, self.sites, values, (self.X,))
        pointwise = logsumexp(read.log_density, axis=1)
        prior = Prior(read.concentration)
        if read.component is not None:
            rows = read.component.suff_stats(read.X)
            return log_joint(read.component, rows, labels, prior, slots), pointwise
        given = jnp.take_along_axis(read.log_density - jnp.log(values[self.sites.weights])[None], labels[:, None], axis=1)
        return log_partition_prior(cluster_counts(labels, slots), *prior) + given.sum(), pointwise

    def log_predictive(
        self, labels: Int[Array, " n"], values: Values, slots: int, rows: Float[np.ndarray, "m d"]
    ) -> Float[Array, " m"]:
        """Return log Σ_k w_k f(x|θ_k) over all sticks."""
        read = read_stick_values(self.model, self.sites, values, (self.X,), rows=jnp.asarray(rows))
        return logsumexp(read.log_density, axis=1)

    def validate(self, values: Values, rows: Float[np.ndarray, "m d"]) -> None:
        """Check that the rows are valid for the component, or at least have the right number of columns."""
        _check_columns(self.X, rows)
        component = read_stick_values(self.model, self.sites, values, (self.X,)).component
        if component is not None:
            component.validate(rows)

    def draw_labels(self, key: Array, values: Values) -> Int[Array, " n"]:
        """Draw labels z_i ~ Categorical(w_k f(x_i|θ_k)), independently given weights and parameters."""
        log_density = read_stick_values(self.model, self.sites, values, (self.X,)).log_density
        shares = jnp.exp(log_density - log_density.max(1, keepdims=True))
        return jax.vmap(draw_index)(shares, jax.random.uniform(key, (len(self.X),))).astype(int)


def _check_columns(X: Float[np.ndarray, "n d"], rows: Float[np.ndarray, "m d"]) -> None:
    if rows.shape[1] != X.shape[1]:
        raise ValueError(f"X has {rows.shape[1]} columns, but the model was fitted to {X.shape[1]} columns")
