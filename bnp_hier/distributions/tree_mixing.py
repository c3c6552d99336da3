"""Mixing proportions of shared components along a tree: every node's are a Dirichlet draw around its parent's."""

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
    """Logs of Dirichlet draws (nats), in log space so that concentrations down to the smallest float do not underflow.

    A concentration of zero gives −inf, a proportion of zero; not all may be zero.
    """
    positive = concentrations > 0
    gammas = log_gamma_draw(key, jnp.where(positive, concentrations, 1.0))
    gammas = jnp.where(positive, gammas, -jnp.inf)
    # where every gamma variate underflows even in logs, the largest concentration takes all
    lost = jnp.isneginf(gammas).all(-1, keepdims=True)
    largest = jnp.arange(concentrations.shape[-1]) == concentrations.argmax(-1, keepdims=True)
    gammas = jnp.where(lost & largest, 0.0, gammas)
    return gammas - logsumexp(gammas, axis=-1, keepdims=True)


ROOTS = ("finite", "infinite")
"""Kinds of roots of a tree's proportions."""


class _RowProportions(constraints.Constraint):
    """Tables whose every row sums to one, or is of zeros: an unused number's."""

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
    """No change: NumPyro asks for a bijection wherever it draws starting values, also of sites that another kernel owns."""
    return IdentityTransform()


class TreeMixing(dist.Distribution):
    """Proportions of components at every node of a tree: a Dirichlet draw around those of its parent.

    Dir(γ0/K, ..., γ0/K) at the root of K components, or the weights of a Dirichlet process; Dir(γ β_parent) below.

    Parameters
    ----------
    paths
        (n, depth) node numbers, as `NestedChineseRestaurantProcess` draws them: only they say which nodes there are.
    root_concentration
        γ0 > 0: larger values give more components.
    concentration
        γ > 0: how closely a node follows its parent; proportions get sparser with the depth, the more so the smaller it is.
    components
        Number of components K ≥ 1.
    max_nodes
        Number of node numbers M.
    root
        "finite": K components, Dir(γ0/K, ..., γ0/K) at the root. "infinite": the weights of a Dirichlet process with
        concentration γ0, those of K − 1 components and, last, the sum of all others.

    Notes
    -----
    Values are (M, K): proportions at the nodes of the tree, zeros at unused numbers (whatever stands there is ignored). A
    proportion below the smallest normal floating-point number is zero, and the component then absent from the whole subtree.

    `log_prob` is a density in the measure Π dβ_k/β_k over the positive proportions, times the probability of the zeros: the
    usual Dirichlet density times Π β_k. The usual one is unbounded and near zero all but infinite, so that its digits would
    drown those that the concentrations decide. Huang et al. (2021), section 3 and Algorithm 1.

    Of an infinite root, draws have the first K − 1 sticks (`StickBreaking`), so that what a draw of labels calls the last
    component lumps all others together: take K so large that this has no weight. `log_prob` takes the components for those
    that some items have, whatever their names: γ0^{positive ones} Π dβ_k/β_k β_last^{γ0 − 1}, the limit of K! times the finite
    density, which has no finite integral but makes a proper joint density with the items' labels.

    Raises
    ------
    ValueError
        If a concentration is not finite and positive, or a number of components or nodes not a positive whole number.
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

    def _over_batch(self, function: Any, shape: tuple[int, ...], argument: Array) -> Array:
        """The function of (argument, tree, γ0, γ) for every entry of a batch."""
        n, depth = jnp.shape(self.paths)[-2:]
        size = int(np.prod(shape))
        paths = jnp.broadcast_to(jnp.asarray(self.paths), (*shape, n, depth)).reshape(size, n, depth)
        scalars = [
            jnp.broadcast_to(jnp.asarray(given, jnp.result_type(float)), shape).reshape(size)
            for given in (self.root_concentration, self.concentration)
        ]
        found = jax.vmap(lambda given, p, *c: function(given, read_tree(p, self.max_nodes), *c))(argument, paths, *scalars)
        return found.reshape(*shape, *found.shape[1:])

    @validate_sample
    def log_prob(self, value: Num[Array | np.ndarray, "... m k"]) -> Float[Array, "..."]:
        """Log density of the proportions at the nodes of the tree (nats), in the measure that the class's notes give."""
        value = jnp.asarray(value, jnp.result_type(float))
        shape = jnp.broadcast_shapes(value.shape[:-2], self.batch_shape)
        flat = jnp.broadcast_to(value, (*shape, *self.event_shape)).reshape(-1, *self.event_shape)
        return self._over_batch(self._log_prob_of_tree, shape, flat)

    def _log_prob_of_tree(
        self, value: Float[Array, "m k"], tree: Tree, root_concentration: Array, concentration: Array
    ) -> Float[Array, ""]:
        prior = concentration * value[tree.parent]
        prior = prior.at[0].set(root_concentration / self.components)
        used, possible = (tree.level >= 0)[:, None], prior > 0
        a = jnp.where(possible & used, prior, 1.0)
        smallest = jnp.finfo(value.dtype).tiny
        logs = jnp.log(jnp.maximum(value, smallest))
        # a zero stands for every proportion below the smallest: their mass is smallest^a/a
        terms = a * logs - jnp.where(value >= smallest, gammaln(a), gammaln(a + 1.0))
        terms = jnp.where(possible, terms, jnp.where(value >= smallest, -jnp.inf, 0.0))
        total = jnp.where(possible & used, prior, 0.0).sum(-1)
        normaliser = gammaln(jnp.where(used[:, 0], total, 1.0))
        rows = jnp.where(used[:, 0], terms.sum(-1) + normaliser, 0.0)
        if self.root == "infinite":
            named = (value[0, :-1] > 0).sum()
            rows = rows.at[0].set(named * jnp.log(root_concentration) + root_concentration * logs[0, -1])
        return rows.sum()

    def sample(self, key: Array | None, sample_shape: tuple[int, ...] = ()) -> Float[Array, "... m k"]:
        """Proportions from the root down, one level at a time."""
        assert key is not None
        shape = (*sample_shape, *self.batch_shape)
        keys = jax.random.split(key, int(np.prod(shape)))
        return self._over_batch(self._draw_tree, shape, keys)

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
    """Proportions from their logs, zero below the smallest normal number, which other machines flush to zero."""
    smallest = jnp.finfo(logs.dtype).tiny
    return jnp.where(logs > jnp.log(smallest), jnp.exp(logs), 0.0)
