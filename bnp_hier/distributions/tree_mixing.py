"""Mixing proportions of shared components on a tree, with a Dirichlet prior at every node centred on its parent."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import gammaln, logsumexp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int, Num
from numpyro.distributions import biject_to, constraints
from numpyro.distributions.transforms import IdentityTransform
from numpyro.distributions.util import validate_sample

from bnp_hier.distributions.log_gamma import log_gamma_draw
from bnp_hier.distributions.nested_chinese_restaurant import Tree, read_tree
from bnp_hier.distributions.stick_breaking import StickBreaking
from bnp_hier.utils.arrays import is_traced

__all__ = ["TreeMixing", "log_dirichlet_draw", "proportions"]


def log_dirichlet_draw(key: Array, concentrations: Float[Array, "... k"]) -> Float[Array, "... k"]:
    """Logs of Dirichlet draws (nats), computed in log space so that concentrations down to the smallest float are possible.

    A concentration of zero results in −inf, a proportion of zero; at least one concentration must be positive. The last entry
    takes the first variates, so that zeros before it do not change the others.
    """
    positive = concentrations > 0
    gammas = jnp.roll(log_gamma_draw(key, jnp.roll(jnp.where(positive, concentrations, 1.0), 1, axis=-1)), -1, axis=-1)
    gammas = jnp.where(positive, gammas, -jnp.inf)
    # where every gamma variate underflows even in log space, the entry with the largest concentration is one
    lost = jnp.isneginf(gammas).all(-1, keepdims=True)
    largest = jnp.arange(concentrations.shape[-1]) == concentrations.argmax(-1, keepdims=True)
    gammas = jnp.where(lost & largest, 0.0, gammas)
    return gammas - logsumexp(gammas, axis=-1, keepdims=True)


ROOTS = ("finite", "infinite")
"""Kinds of priors of the proportions at the root."""


class _RowProportions(constraints.Constraint):
    """Constraint on tables: every row sums to one, or to zero at an unused node number."""

    event_dim = 2

    def __call__(self, x: Any) -> Any:
        total = jnp.asarray(x).sum(-1)
        return ((x >= 0).all(-1) & ((jnp.abs(total - 1.0) < 1e-4) | (total == 0.0))).all(-1)

    def feasible_like(self, prototype: Any) -> Any:
        return jnp.full_like(prototype, 1.0 / prototype.shape[-1])

    def tree_flatten(self) -> Any:
        return (), ((), {})


@biject_to.register(_RowProportions)
def _as_they_are(constraint: _RowProportions) -> IdentityTransform:
    """Identity: NumPyro needs a bijection to draw initial values, even for sites that another kernel samples."""
    return IdentityTransform()


class TreeMixing(dist.Distribution):
    """Distribution of the component proportions at every node of a tree, with Dirichlet priors centred on the parent's.

    The root's proportions have the prior Dir(γ0/K, ..., γ0/K) for K components, or are the weights of a Dirichlet process;
    those of all other nodes have the prior Dir(γ β_parent).

    Parameters
    ----------
    paths
        (n, depth) node numbers, as drawn from `NestedChineseRestaurantProcess`; they determine which nodes exist.
    root_concentration
        γ0 > 0; larger values favour more components.
    concentration
        γ > 0: how closely a node follows its parent. Proportions become sparser with depth, especially if γ is small.
    components
        Number of components K ≥ 1.
    max_nodes
        Number of node numbers M.
    root
        "finite": K components, Dir(γ0/K, ..., γ0/K) at the root. "infinite": the weights of a Dirichlet process with
        concentration γ0: those of K − 1 components and, last, the total weight of all others.

    Notes
    -----
    Values are (M, K): proportions at the nodes of the tree, and zeros at unused numbers (`log_prob` ignores values there). For
    `log_prob`, rows beyond the largest number in use may be missing and, with an infinite root, components without items,
    except for the last one. A proportion below the smallest normal floating-point number is set to zero, and the component is
    then absent from the whole subtree.

    `log_prob` is a density with respect to the measure Π dβ_k/β_k over the positive proportions, times the probability of the
    zeros: the usual Dirichlet density times Π β_k. The usual density is unbounded and so large near zero that its rounding
    errors would exceed the differences due to the concentrations. See Huang et al. (2021), section 3 and Algorithm 1.

    With an infinite root, draws contain the first K − 1 weights of `StickBreaking`, and the last component lumps all others
    together: choose K large enough that its weight is negligible. `log_prob` refers to the components that have items,
    irrespective of their numbering: γ0^{number of positive ones} Π dβ_k/β_k β_last^{γ0 − 1}, the limit of K! times the finite
    density. It has no finite integral, but forms a proper joint density with the items' labels.

    Raises
    ------
    ValueError
        If `root` is unknown, a concentration is not finite and positive, the number of components or nodes is not a positive
        whole number, or `paths` is not a table.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> from bnp_hier import TreeMixing
    >>> paths = jnp.array([[1, 3], [1, 4], [2, 5]])
    >>> proportions = TreeMixing(paths, 2.0, 1.0, components=4, max_nodes=6).sample(jax.random.key(0))
    >>> proportions.shape, proportions.sum(1).round(2).tolist()
    ((6, 4), [1.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    """

    arg_constraints = {"root_concentration": constraints.positive, "concentration": constraints.positive}
    pytree_data_fields = ("paths", "root_concentration", "concentration")
    pytree_aux_fields = ("components", "max_nodes", "root")
    reparametrized_params: list[str] = []
    support = _RowProportions()

    def __init__(
        self,
        paths: Int[Array | np.ndarray, "... n depth"],
        root_concentration: ArrayLike,
        concentration: ArrayLike,
        components: int,
        max_nodes: int,
        root: str = "finite",
        *,
        validate_args: bool | None = None,
    ) -> None:
        name = type(self).__name__
        if root not in ROOTS:
            raise ValueError(f"{name}: root must be one of {', '.join(ROOTS)}, but it is {root!r}")
        for what, value in (("components", components), ("max_nodes", max_nodes)):
            if value != int(value) or value < 1:
                raise ValueError(f"{name}: {what} must be a whole number of at least 1, but it is {value}")
        for what, given in (("root_concentration", root_concentration), ("concentration", concentration)):
            if not is_traced(given) and not (np.isfinite(given) & (np.asarray(given) > 0)).all():
                raise ValueError(f"{name}: {what} must be finite and positive, but it is {given}")
        if jnp.ndim(paths) < 2:
            raise ValueError(f"{name}: paths must be a table of node numbers, (n, depth), but it has shape {jnp.shape(paths)}")
        self.paths, self.root_concentration, self.concentration = paths, root_concentration, concentration
        self.components, self.max_nodes, self.root = int(components), int(max_nodes), root
        batch = jnp.broadcast_shapes(jnp.shape(paths)[:-2], jnp.shape(root_concentration), jnp.shape(concentration))
        super().__init__(batch_shape=batch, event_shape=(self.max_nodes, self.components), validate_args=validate_args)

    def _over_batch(self, function: Any, shape: tuple[int, ...], argument: Array, nodes: int) -> Array:
        """Apply a function of (argument, tree, γ0, γ) to every entry of a batch; trees have this many node numbers."""
        n, depth = jnp.shape(self.paths)[-2:]
        size = int(np.prod(shape))
        paths = jnp.broadcast_to(jnp.asarray(self.paths), (*shape, n, depth)).reshape(size, n, depth)
        scalars = [
            jnp.broadcast_to(jnp.asarray(given, jnp.result_type(float)), shape).reshape(size)
            for given in (self.root_concentration, self.concentration)
        ]
        found = jax.vmap(lambda given, p, *c: function(given, read_tree(p, nodes), *c))(argument, paths, *scalars)
        return found.reshape(*shape, *found.shape[1:])

    @validate_sample
    def log_prob(self, value: Num[Array | np.ndarray, "... m k"]) -> Float[Array, "..."]:
        """Log density of the proportions at the nodes of the tree (nats); see the class notes for the measure."""
        value = jnp.asarray(value, jnp.result_type(float))
        shape = jnp.broadcast_shapes(value.shape[:-2], self.batch_shape)
        nodes, components = value.shape[-2:]
        if nodes > self.max_nodes or components > self.components or components < self.components and self.root == "finite":
            raise ValueError(
                f"TreeMixing: values must be ({self.max_nodes}, {self.components}), but they have shape {value.shape[-2:]}"
            )
        flat = jnp.broadcast_to(value, (*shape, nodes, components)).reshape(-1, nodes, components)
        left_out = jnp.asarray(self.paths).max((-2, -1), initial=0) >= nodes  # a node without a row
        return jnp.where(left_out, -jnp.inf, self._over_batch(self._log_prob_of_tree, shape, flat, nodes))

    def _log_prob_of_tree(
        self, value: Float[Array, "m k"], tree: Tree, root_concentration: Array, concentration: Array
    ) -> Float[Array, ""]:
        prior = concentration * value[tree.parent]
        prior = prior.at[0].set(root_concentration / self.components)
        used, possible = (tree.level >= 0)[:, None], prior > 0
        a = jnp.where(possible & used, prior, 1.0)
        smallest = jnp.finfo(value.dtype).tiny
        logs = jnp.log(jnp.maximum(value, smallest))
        # a zero stands for all proportions below the smallest number, with mass smallest^a/a
        terms = a * logs - jnp.where(value >= smallest, gammaln(a), gammaln(a + 1.0))
        terms = jnp.where(possible, terms, jnp.where(value >= smallest, -jnp.inf, 0.0))
        total = jnp.where(possible & used, prior, 0.0).sum(-1)
        normaliser = gammaln(jnp.where(used[:, 0], total, 1.0))
        rows = jnp.where(used[:, 0], terms.sum(-1) + normaliser, 0.0)
        if self.root == "infinite":
            named = (value[0, :-1] > 0).sum(dtype=value.dtype)
            rows = rows.at[0].set(named * jnp.log(root_concentration) + root_concentration * logs[0, -1])
        return rows.sum()

    def sample(self, key: Array | None, sample_shape: tuple[int, ...] = ()) -> Float[Array, "... m k"]:
        """Draw proportions from the root down, one level at a time."""
        assert key is not None
        shape = (*sample_shape, *self.batch_shape)
        keys = jax.random.split(key, int(np.prod(shape)))
        return self._over_batch(self._draw_tree, shape, keys, self.max_nodes)

    def _draw_tree(self, key: Array, tree: Tree, root_concentration: Array, concentration: Array) -> Float[Array, "m k"]:
        keys = jax.random.split(key, jnp.shape(self.paths)[-1] + 1)
        if self.root == "infinite":
            root = StickBreaking(root_concentration, self.components).sample(keys[0])
        else:
            root = proportions(log_dirichlet_draw(keys[0], jnp.full(self.components, root_concentration / self.components)))
        value = jnp.zeros(self.event_shape, root.dtype).at[0].set(root)

        def draw_level(level: Array, value: Array) -> Array:
            here = (tree.level == level)[:, None]
            prior = jnp.where(here, concentration * value[tree.parent], 1.0)
            return jnp.where(here, proportions(log_dirichlet_draw(keys[level], prior)), value)

        return jax.lax.fori_loop(1, keys.shape[0], draw_level, value)


def proportions(logs: Float[Array, "... k"]) -> Float[Array, "... k"]:
    """Proportions from their logs; values below the smallest normal number are zero, since some machines flush them to zero."""
    smallest = jnp.finfo(logs.dtype).tiny
    return jnp.where(logs > jnp.log(smallest), jnp.exp(logs), 0.0)
