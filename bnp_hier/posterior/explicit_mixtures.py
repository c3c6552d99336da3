"""Mixtures whose cluster parameters are sites of the model: in slots selected by the labels, or with labels summed out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int
from numpyro import handlers

from bnp_hier.distributions.chinese_restaurant import cluster_counts, log_partition_prior
from bnp_hier.distributions.seating import Prior, draw_index, log_slot_seating
from bnp_hier.inspection.collapsed import MixtureValues, as_arrays
from bnp_hier.inspection.model_arguments import ModelArguments
from bnp_hier.inspection.slots import SlotSites, read_slot_values
from bnp_hier.inspection.sticks import StickSites, read_stick_values
from bnp_hier.inspection.trace import TRACING
from bnp_hier.partitions.joint_density import log_joint
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

    @property
    def entries(self) -> int:
        """The size of the plate over the parameters; more than the slots if there are fewer rows."""
        return self.sites.entries

    def slots(self, labels: Int[np.ndarray, "..."]) -> int:
        """The number of slots in the model."""
        return self.sites.slots

    def summarize(self, labels: Int[Array, " n"], values: Values, slots: int) -> tuple[Float[Array, ""], Float[Array, " n"]]:
        """Return log p(partition) + Σ_i log f(x_i|θ_{z_i}), and log p(x_i | labels of the others, θ) for each row.

        The row is removed from its cluster and its label summed over all slots, including empty ones, as in the sampler.
        """
        read = read_slot_values(self.model, self.sites, values, self.data.args, self.data.kwargs)
        prior = Prior(read.concentration, read.discount)
        counts = cluster_counts(labels, slots)
        own = jax.nn.one_hot(labels, slots, dtype=float)
        seating = jax.vmap(lambda mine: log_slot_seating(counts.astype(float) - mine, prior))(own)
        given = jnp.take_along_axis(read.log_density, labels[:, None], axis=1).sum()
        return log_partition_prior(counts, *prior) + given, logsumexp(seating + read.log_density, axis=1)

    @property
    def observed_sites(self) -> tuple[str, ...]:
        """The observed sites."""
        return self.sites.observed

    @cached_property
    def X(self) -> Float[np.ndarray, "n d"]:
        """The table that is the only argument, if the model observes all of it; otherwise, what it observes."""
        observed = self.observed_table(self.data)
        whole = self.data.is_table and np.array_equal(observed, self.data.args[0])
        return np.asarray(self.data.args[0]) if whole else observed

    def log_predictive(self, labels: Int[Array, " n"], values: Values, slots: int, rows: ModelArguments) -> Float[Array, " m"]:
        """Return log Σ_k p(next item joins slot k) f(x|θ_k) over all slots, by running the model on the new rows."""
        return logsumexp(self._by_slot(labels, values, rows), axis=1)

    def log_weights(
        self, labels: Int[Array, " n"], values: Values, slots: int, rows: ModelArguments
    ) -> Float[Array, "m slots1"]:
        """Return the log of (seating probability × density) for each cluster's slot and, last, for all empty slots (nats)."""
        found = self._by_slot(labels, values, rows)
        is_empty = cluster_counts(labels, slots) == 0
        new = logsumexp(jnp.where(is_empty, found, -jnp.inf), axis=1)
        return jnp.concatenate([jnp.where(is_empty, -jnp.inf, found), new[:, None]], axis=1)

    def _by_slot(self, labels: Int[Array, " n"], values: Values, rows: ModelArguments) -> Float[Array, "m slots"]:
        prior = read_slot_values(self.model, self.sites, values, self.data.args, self.data.kwargs)
        counts = cluster_counts(labels, self.sites.slots).astype(float)
        seating = log_slot_seating(counts, Prior(prior.concentration, prior.discount))
        return seating[None] + read_slot_values(self.model, self.sites, values, rows.args, rows.kwargs).log_density

    def validate(self, values: Values, rows: ModelArguments) -> None:
        """Check that the model runs on other rows, and that the density of a row does not depend on the other rows."""
        check_no_missing(rows)
        half = self.data.take(slice(0, max(2, len(self.data) // 2)))

        def densities(data: ModelArguments) -> Array:
            return read_slot_values(self.model, self.sites, values, data.args, data.kwargs).log_density

        for data, name in ((half, "half of the fitted rows"), (rows, "the new rows")):
            try:
                size = jax.eval_shape(partial(densities, data)).shape[0]
            except Exception as error:  # whatever the model raises
                raise ValueError(f"the model does not run on {name}, {data.shapes}: {error}") from error
            if size != len(data):
                raise ValueError(f"when run on {name}, {data.shapes}, the model returns densities of {size} rows")
        whole, alone = jax.jit(lambda: (densities(self.data)[: len(half)], densities(half)))()
        if not np.allclose(whole, alone, rtol=1e-6, atol=1e-6):
            raise ValueError(
                "the model's log density of a row depends on the other rows, so new rows cannot be scored; compute anything "
                "that depends on the fitted data outside the model"
            )

    def replicated(self, key: Array, labels: Int[Array, " n"], values: Values) -> Float[Array, "n q"]:
        """Draw what the model observes anew, at the draw's labels and parameters and the same covariates."""
        given = {self.sites.partition: labels, **values}
        drawing = handlers.substitute(handlers.uncondition(handlers.seed(self.model, key)), data=given)
        with TRACING:
            trace = handlers.trace(drawing).get_trace(*self.data.args, **self.data.kwargs)
        columns = [jnp.asarray(trace[name]["value"], float).reshape(len(labels), -1) for name in self.sites.observed]
        return jnp.concatenate(columns, axis=1)


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
        read = read_stick_values(self.model, self.sites, values, self.data.args, self.data.kwargs)
        if read.component is None:
            return super().conjugate(values)
        return as_arrays(MixtureValues(Prior(read.concentration, jnp.zeros(())), read.component, jnp.asarray(read.X)))

    @property
    def entries(self) -> int:
        """The number of sticks."""
        return self.sites.truncation

    def slots(self, labels: Int[np.ndarray, "..."]) -> int:
        """The number of sticks."""
        return self.sites.truncation

    def summarize(self, labels: Int[Array, " n"], values: Values, slots: int) -> tuple[Float[Array, ""], Float[Array, " n"]]:
        """Return log p(X, partition), and log Σ_k w_k f(x_i|θ_k) over all sticks for each row.

        The log joint is that of the collapsed model, with the parameters integrated out and the partition prior of the process
        without truncation. If the model specifies no conjugate component, it is log p(partition) + Σ_i log f(x_i|θ_{z_i}).
        """
        read = read_stick_values(self.model, self.sites, values, self.data.args, self.data.kwargs)
        pointwise = logsumexp(read.log_density, axis=1)
        prior = Prior(read.concentration)
        if read.component is not None:
            rows = read.component.suff_stats(read.X)
            return log_joint(read.component, rows, labels, prior, slots), pointwise
        given = jnp.take_along_axis(read.log_density - jnp.log(values[self.sites.weights])[None], labels[:, None], axis=1)
        return log_partition_prior(cluster_counts(labels, slots), *prior) + given.sum(), pointwise

    def log_predictive(self, labels: Int[Array, " n"], values: Values, slots: int, rows: ModelArguments) -> Float[Array, " m"]:
        """Return log Σ_k w_k f(x|θ_k) over all sticks."""
        if not rows.is_table:
            return logsumexp(read_stick_values(self.model, self.sites, values, rows.args, rows.kwargs).log_density, axis=1)
        new = jnp.asarray(rows.args[0])
        read = read_stick_values(self.model, self.sites, values, self.data.args, self.data.kwargs, rows=new)
        return logsumexp(read.log_density, axis=1)

    def validate(self, values: Values, rows: ModelArguments) -> None:
        """Check that the rows are valid for the component."""
        component = read_stick_values(self.model, self.sites, values, self.data.args, self.data.kwargs).component
        if component is not None:
            component.validate(rows.args[0] if rows.is_table else self.observed_table(rows))

    def draw_labels(self, key: Array, values: Values) -> Int[Array, " n"]:
        """Draw labels z_i ~ Categorical(w_k f(x_i|θ_k)), independently given weights and parameters."""
        log_density = read_stick_values(self.model, self.sites, values, self.data.args, self.data.kwargs).log_density
        shares = jnp.exp(log_density - log_density.max(1, keepdims=True))
        return jax.vmap(draw_index)(shares, jax.random.uniform(key, (len(self.data),))).astype(int)


def check_no_missing(data: ModelArguments) -> None:
    """Raise ValueError if an argument of a model without a conjugate component has a missing value."""
    advice = data.advice_on_missing()
    if advice:
        raise ValueError(advice)
