"""Hierarchical mixtures over trees of nested Chinese restaurant processes."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Num

from bnp_hier.components import Component, ComponentLikelihood, NormalInverseWishart, NormalKnownCovariance
from bnp_hier.distributions import FiniteMixture, NestedChineseRestaurantProcess, TreeMixing
from bnp_hier.models.dirichlet_process import ComponentLike, Hyperparameter

__all__ = ["bhmc", "bhmc_finite", "bhmc_paper", "spherical_normal"]

FEW = dist.Gamma(1.0, 10.0)
"""Default prior of the concentration of the nested Chinese restaurant process."""

SPARSE = dist.Uniform(0.0, 0.1)
"""Default prior of the concentration of the proportions below the root."""


class _Published(NamedTuple):
    """Settings of Huang et al. (2021) for one of their data sets: levels, α, γ0, γ and σ² or their priors."""

    depth: int
    concentration: Hyperparameter
    root_concentration: Hyperparameter
    mixing_concentration: Hyperparameter
    variance: Hyperparameter


PUBLISHED = {
    "animals": _Published(4, 0.4, 1.0, 0.5, 1.0),
    "fashion": _Published(5, 0.5, 1.5, 2.0, 1.0),
    "texts": _Published(7, dist.Gamma(3.0, 1.0), dist.Gamma(3.5, 1.0), dist.Uniform(0.0, 1.5), dist.Uniform(0.0, 0.1)),
}

COMPONENTS = 50
"""Default number of components of a finite root."""

STICKS = 128
"""Least default number of components of an infinite root, so that all others together have next to no weight."""


def bhmc(
    X: Num[Array | np.ndarray, "n d"],
    depth: int = 3,
    component: ComponentLike = None,
    concentration: Hyperparameter = FEW,
    root_concentration: Hyperparameter = dist.Gamma(1.0, 1.0),
    mixing_concentration: Hyperparameter = SPARSE,
    max_components: int | None = None,
    max_nodes: int | None = None,
    root: str = "finite",
) -> None:
    """Bayesian hierarchical mixture clustering (Huang et al. 2021): a tree in which every node mixes the same components.

    Each item takes a path down the tree, drawn from a nested Chinese restaurant process, and is drawn from the mixture at its
    leaf. The mixing proportions of a node have a Dirichlet prior centred on those of its parent.

    Sites: `alpha`, `gamma0` and `gamma` (those given as distributions), those of the component's hyperparameters, `paths`
    (n, depth), `mixing` (M, K), `parameters` (K, ...), `labels` (n,) and `X` (observed, pointwise), with M = `max_nodes` and
    K = `max_components`.

    Parameters
    ----------
    X
        Data, (n, d).
    depth
        Number of levels of the tree below the root.
    component
        Conjugate component of an item: one with fixed hyperparameters; one whose hyperparameters are learned, as `from_data`
        returns; or a function of X that returns one and may place priors on its hyperparameters with `numpyro.sample`. None
        uses `NormalInverseWishart.from_data(X)`, as in `dpm`.
    concentration
        Concentration α of the nested Chinese restaurant process, or its prior, by default Gamma(1, 10); larger values favour
        more branches.
    root_concentration
        Concentration γ0 of the root's proportions, or its prior, by default Gamma(1, 1); larger values favour more components.
    mixing_concentration
        Concentration γ of the proportions below the root, or its prior, by default Uniform(0, 0.1); smaller values make them
        sparser. The data say little about it (see Notes): with the default prior, nearly all items of a node have the same
        component.
    max_components
        Number of components K. None means 50 or, with an infinite root, n + 1, so that all items may have their own, but at
        least 128, so that draws from the model are those of infinitely many components (see Notes).
    max_nodes
        Maximum number of nodes of the tree, including the root; the posterior is restricted to such trees. None means no
        restriction: M = 1 + n·depth.
    root
        "finite": the root's proportions have the prior Dir(γ0/K, ..., γ0/K). "infinite": they are the weights of a Dirichlet
        process; K − 1 of its components may have items, and the last entry is the total weight of all others.

    Notes
    -----
    Draws by `BHMCGibbs` have fewer rows of `mixing` than M if no tree needs more and, with an infinite root, fewer components.

    When data are simulated from the model, the last component of an infinite root, which stands for all others, is drawn like
    any other one. Its expected weight is E[(γ0/(1 + γ0))^(K−1)], 2e-9 with the default prior and K = 128, but 6e-6 for
    γ0 = 10 and 0.08 for γ0 = 50: raise `max_components` for such concentrations. `BHMCGibbs` never gives it to an item.

    Given the items' components, the tree and the rows are independent, and the prior of the tree does not change when
    components are exchanged. So the components of one branch are no more alike than any others: a level on which nodes mix
    components groups these at random. Use `bhmc_paper` for the hyperparameters of the paper.

    Examples
    --------
    >>> import numpy as np
    >>> from functools import partial
    >>> from numpyro.infer.inspect import get_model_relations
    >>> import bnp_hier as bnp
    >>> X = np.array([[-3.1], [-2.9], [-3.0], [3.0], [3.1]])
    >>> component = bnp.NormalKnownCovariance(mean=[0.0], prior_covariance=9 * np.eye(1), covariance=np.eye(1))
    >>> model = partial(bnp.models.bhmc, depth=2, component=component)
    >>> list(get_model_relations(model, (X,))["sample_dist"])
    ['alpha', 'gamma0', 'gamma', 'paths', 'mixing', 'parameters', 'labels', 'X']
    """
    if max_components is None:
        max_components = max(X.shape[0] + 1, STICKS) if root == "infinite" else COMPONENTS
    if max_nodes is None:
        max_nodes = 1 + X.shape[0] * depth
    alpha, gamma0, gamma = (
        numpyro.sample(name, value) if isinstance(value, dist.Distribution) else value
        for name, value in (("alpha", concentration), ("gamma0", root_concentration), ("gamma", mixing_concentration))
    )
    if component is None:
        component = NormalInverseWishart.from_data(X)
    family = component if isinstance(component, Component) else component(X)
    paths = numpyro.sample("paths", NestedChineseRestaurantProcess(alpha, X.shape[0], depth, max_nodes))
    mixing = numpyro.sample("mixing", TreeMixing(paths, gamma0, gamma, max_components, max_nodes, root))
    with numpyro.plate("components", max_components):
        parameters = numpyro.sample("parameters", family.prior())
    with numpyro.plate("items", X.shape[0]):
        labels = numpyro.sample("labels", dist.Categorical(probs=mixing[paths[:, -1]]))
        numpyro.sample("X", ComponentLikelihood(family, parameters[labels]), obs=X)


def bhmc_paper(
    X: Num[Array | np.ndarray, "n d"],
    settings: str = "animals",
    depth: int | None = None,
    prior_variance: float = 1.0,
    max_components: int | None = None,
    max_nodes: int | None = None,
    root: str = "finite",
) -> None:
    """`bhmc` with the hyperparameters that Huang et al. (2021) report: spherical normal components with means N(0, I).

    Sites: as in `bhmc`; with settings="texts" also `sigma2`, the variance of the components.

    Parameters
    ----------
    X
        Principal components of the data, (n, d), centred.
    settings
        The data set for which they are reported: "animals" (section 5.1: α = 0.4, γ0 = 1, γ = 0.5, σ² = 1, L = 4), "fashion"
        (section 5.3: α = 0.5, γ0 = 1.5, γ = 2, σ² = 1, L = 5) or "texts" (section 5.2: α ~ Gamma(3, 1), γ0 ~ Gamma(3.5, 1),
        γ ~ Uniform(0, 1.5), σ² ~ Uniform(0, 0.1), L = 7).
    depth
        Number of levels L below the root; None means the paper's.
    prior_variance
        Variance of the components' means in every column; not 1 in variants of the paper's prior.
    max_components, max_nodes, root
        As in `bhmc`.

    Raises
    ------
    ValueError
        If the settings are unknown.

    Examples
    --------
    >>> import numpy as np
    >>> from functools import partial
    >>> from numpyro.infer.inspect import get_model_relations
    >>> import bnp_hier as bnp
    >>> X = np.array([[-3.1], [-2.9], [-3.0], [3.0], [3.1]])
    >>> model = partial(bnp.models.bhmc_paper, settings="texts")
    >>> list(get_model_relations(model, (X,))["sample_dist"])
    ['alpha', 'gamma0', 'gamma', 'sigma2', 'paths', 'mixing', 'parameters', 'labels', 'X']
    """
    if settings not in PUBLISHED:
        raise ValueError(f"settings must be one of {', '.join(PUBLISHED)}, but it is {settings!r}")
    levels, alpha, gamma0, gamma, variance = PUBLISHED[settings]
    component = partial(_spherical, prior_variance=prior_variance, variance=variance)
    bhmc(X, levels if depth is None else depth, component, alpha, gamma0, gamma, max_components, max_nodes, root)


def _spherical(X: Num[Array | np.ndarray, "n d"], prior_variance: float, variance: Hyperparameter) -> NormalKnownCovariance:
    """Spherical normal components whose means have the prior N(0, vI), with one variance or its prior at the site `sigma2`."""
    eye = np.eye(X.shape[1])
    sigma2 = numpyro.sample("sigma2", variance) if isinstance(variance, dist.Distribution) else variance
    return NormalKnownCovariance(np.zeros(X.shape[1]), prior_variance * eye, sigma2 * eye)


def bhmc_finite(
    X: Num[Array | np.ndarray, "n d"],
    depth: int = 2,
    component: ComponentLike = None,
    concentration: Hyperparameter = FEW,
    root_concentration: Hyperparameter = dist.Gamma(1.0, 1.0),
    mixing_concentration: Hyperparameter = SPARSE,
    max_components: int = 10,
    branching: int = 3,
) -> None:
    """The mixture of `bhmc` on a tree with fixed branching, with paths and labels summed out, for NUTS.

    The probabilities with which an item moves from a node to its b children have the prior Dir(α/b, ..., α/b). A row is thus
    drawn from the mixture with weights Σ_leaves p(leaf) β_leaf. As b grows, the tree converges to the nested Chinese restaurant
    process (the same limit in which a finite mixture becomes a Dirichlet-process mixture).

    Sites: `alpha`, `gamma0` and `gamma` (those given as distributions); those of the component's hyperparameters; for each
    level l below the root `branches_l` (branching^(l−1), branching) and `mixing_l` (branching^l, max_components), with the
    children of a node adjacent; `mixing_0` (max_components,) at the root; `parameters` (max_components, ...); `X` (observed,
    pointwise); and the deterministic sites `leaf_weights` (branching^depth,) and `leaf_mixing` (branching^depth,
    max_components).

    Parameters
    ----------
    X, depth, component, concentration, root_concentration, mixing_concentration
        As in `bhmc`.
    max_components
        Number of components K.
    branching
        Number of children b of every node above the leaves.

    Notes
    -----
    Dirichlet parameters below 0.01 are replaced by 0.01: below that, nearly all proportions underflow and gradients are
    useless.

    Examples
    --------
    >>> import numpy as np
    >>> from functools import partial
    >>> from numpyro.infer.inspect import get_model_relations
    >>> import bnp_hier as bnp
    >>> X = np.array([[-3.1], [-2.9], [-3.0], [3.0], [3.1]])
    >>> component = bnp.NormalKnownCovariance(mean=[0.0], prior_covariance=9 * np.eye(1), covariance=np.eye(1))
    >>> model = partial(bnp.models.bhmc_finite, depth=1, component=component)
    >>> get_model_relations(model, (X,))["plate_sample"]
    {'components': ['parameters'], 'parents_1': ['branches_1'], 'nodes_1': ['mixing_1'], 'items': ['X']}
    """
    alpha, gamma0, gamma = (
        numpyro.sample(name, value) if isinstance(value, dist.Distribution) else value
        for name, value in (("alpha", concentration), ("gamma0", root_concentration), ("gamma", mixing_concentration))
    )
    if component is None:
        component = NormalInverseWishart.from_data(X)
    family = component if isinstance(component, Component) else component(X)
    with numpyro.plate("components", max_components):
        parameters = numpyro.sample("parameters", family.prior())
    weights = jnp.ones(1)
    mixing = numpyro.sample("mixing_0", dist.Dirichlet(_at_least(gamma0 / max_components, (max_components,))))[None]
    for level in range(1, depth + 1):
        with numpyro.plate(f"parents_{level}", branching ** (level - 1)):
            branches = numpyro.sample(f"branches_{level}", dist.Dirichlet(_at_least(alpha / branching, (branching,))))
        weights = (weights[:, None] * branches).reshape(-1)
        above = gamma * jnp.repeat(mixing, branching, axis=0)
        with numpyro.plate(f"nodes_{level}", branching**level):
            mixing = numpyro.sample(f"mixing_{level}", dist.Dirichlet(_at_least(above, above.shape)))
    weights, mixing = numpyro.deterministic("leaf_weights", weights), numpyro.deterministic("leaf_mixing", mixing)
    with numpyro.plate("items", X.shape[0]):
        numpyro.sample("X", FiniteMixture(family, weights @ mixing, parameters), obs=X)


def _at_least(parameters: ArrayLike, shape: tuple[int, ...]) -> Float[Array, "..."]:
    """Broadcast Dirichlet parameters to a shape, with a lower bound that keeps gradients useful."""
    return jnp.maximum(jnp.broadcast_to(jnp.asarray(parameters), shape), 0.01)


def spherical_normal(X: Num[Array | np.ndarray, "n d"]) -> NormalKnownCovariance:
    """Normal components with one unknown variance for all columns, at the site `sigma2`.

    With v the mean variance of the columns, the means have the prior N(X̄, vI), and the variance within components, `sigma2`,
    has an inverse-gamma prior with shape 2 and mean v/5.

    Examples
    --------
    >>> from functools import partial
    >>> import bnp_hier as bnp
    >>> model = partial(bnp.models.dpm, component=bnp.models.spherical_normal)
    >>> fit = bnp.MAPDP(model).fit([[0.0, 0.1], [0.2, 0.0], [0.1, 0.1], [6.0, 6.1], [6.1, 5.9]])
    >>> fit.labels_, list(fit.hyperparameters_)
    (array([0, 0, 0, 1, 1]), ['sigma2'])
    """
    like = NormalKnownCovariance.from_data(X, learn=False)
    v = jnp.trace(jnp.asarray(like.prior_covariance)) / like.dim
    sigma2 = numpyro.sample("sigma2", dist.InverseGamma(2.0, v / 5.0))
    return NormalKnownCovariance(like.mean, v * np.eye(like.dim), sigma2 * np.eye(like.dim))
