"""Conjugate components: likelihoods of one cluster whose parameters can be integrated out."""

from collections.abc import Mapping

from bnp_hier.components.base import Component, ComponentLikelihood
from bnp_hier.components.beta_bernoulli import BetaBernoulli
from bnp_hier.components.dirichlet_multinomial import DirichletMultinomial
from bnp_hier.components.gamma_poisson import GammaPoisson
from bnp_hier.components.learned import LearnedPrior
from bnp_hier.components.normal_inverse_gamma import NormalInverseGamma
from bnp_hier.components.normal_inverse_wishart import NormalInverseWishart
from bnp_hier.components.normal_known_covariance import NormalKnownCovariance
from bnp_hier.components.product import ProductComponent
from bnp_hier.components.uninformative_normal import UninformativeNormal
from bnp_hier.utils.wording import did_you_mean

FAMILIES: dict[str, type[Component]] = {
    "bernoulli": BetaBernoulli,
    "multinomial": DirichletMultinomial,
    "poisson": GammaPoisson,
    "mixed": ProductComponent,
    "diagonal": NormalInverseGamma,
    "normal": NormalInverseWishart,
    "known": NormalKnownCovariance,
    "shared-diagonal": NormalKnownCovariance,
    "spherical": NormalKnownCovariance,
}
"""Short names of the families considered for a data set; the first that suits the columns is chosen (`Component.suits`)."""

FORMS: dict[str, dict[str, str]] = {
    "shared-diagonal": {"covariance_type": "diagonal"},
    "spherical": {"covariance_type": "spherical"},
}
"""Options of `from_data` for the short names of families that have several forms."""


def named_family(name: str) -> tuple[type[Component], Mapping[str, str]]:
    """The family with a short name, and the options of its `from_data` that the name stands for.

    Raises
    ------
    ValueError
        If there is no such family; the message gives the nearest names.
    """
    if name not in FAMILIES:
        raise ValueError(f"there is no family {name!r}; {did_you_mean(str(name), FAMILIES)} families are {', '.join(FAMILIES)}")
    return FAMILIES[name], FORMS.get(name, {})


__all__ = [
    "FAMILIES",
    "FORMS",
    "BetaBernoulli",
    "Component",
    "ComponentLikelihood",
    "DirichletMultinomial",
    "GammaPoisson",
    "LearnedPrior",
    "NormalInverseGamma",
    "NormalInverseWishart",
    "NormalKnownCovariance",
    "ProductComponent",
    "UninformativeNormal",
    "named_family",
]
