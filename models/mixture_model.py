"""Mixtures whose settings have names, so that scikit-learn's searches can reach them."""

from __future__ import annotations

import inspect
from typing import Any, Self

import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Num

from bnp_hier.components import Component, LearnedPrior, named_family
from bnp_hier.components.learned import prior_of
from bnp_hier.models.dirichlet_process import Hyperparameter, dpm, pitman_yor_mixture
from bnp_hier.utils.wording import did_you_mean

__all__ = ["MixtureModel"]


class MixtureModel:
    """Mixture whose prior is derived from the rows it is called with, and whose settings have names.

    It is a NumPyro model, `dpm` or, with a discount, `pitman_yor_mixture`, and has the `get_params` and `set_params` of a
    scikit-learn estimator. Settings are therefore parameters of an estimator that has it as its `model`, such as
    ``model__concentration`` in `GridSearchCV`, or ``mapdp__model__concentration`` in a pipeline. The prior is derived by the
    `from_data` of the family whenever an estimator is fitted, from the rows of that fit alone: in cross-validation, from the
    training rows.

    Parameters
    ----------
    family
        Likelihood of one cluster: "normal" (any covariance matrix), "diagonal", "known" (one covariance matrix for all
        clusters), "spherical", "bernoulli", "multinomial", "poisson" or "mixed".
    concentration
        Concentration of the process: a number or a prior distribution; None as in `dpm`.
    discount
        Discount of a Pitman-Yor process: a number or a prior distribution; None for a Dirichlet process.
    learn
        Whether the hyperparameters of the family have priors, as in its `from_data`.
    **settings
        Further arguments of the family's `from_data`, such as `kappa` or `within`; None for their defaults. Those of "mixed"
        are the families of groups of columns, as in ``MixtureModel("mixed", families=["normal", "bernoulli"],
        columns=[[0, 1, 2], [3]])``.

    Raises
    ------
    ValueError
        If there is no such family or setting; the message gives the nearest names. When it is called, if a setting does not
        suit the rows.

    Examples
    --------
    >>> import numpy as np
    >>> import bnp_hier as bnp
    >>> from sklearn.model_selection import GridSearchCV
    >>> X = np.random.default_rng(0).normal(size=(60, 2)) + 8.0 * (np.arange(60) % 2)[:, None]
    >>> search = GridSearchCV(bnp.MAPDP(bnp.models.MixtureModel("diagonal")), {"model__kappa": [0.01, 1.0]}, cv=3).fit(X)
    >>> search.best_estimator_.n_clusters_
    2
    """

    def __init__(
        self,
        family: str = "normal",
        *,
        concentration: Hyperparameter | None = None,
        discount: Hyperparameter | None = None,
        learn: bool = True,
        **settings: Any,
    ) -> None:
        self.family = family
        self.concentration = concentration
        self.discount = discount
        self.learn = learn
        self._settings = self._checked(settings)

    def __call__(self, X: Num[Array | np.ndarray, "n d"]) -> None:
        """Run the model on the rows of X."""
        if self.discount is None:
            dpm(X, self.component(X), self.concentration)
        else:
            pitman_yor_mixture(X, self.component(X), self.concentration, self.discount)

    def component(self, X: Num[Array | np.ndarray, "n d"]) -> Component | LearnedPrior:
        """The component with the prior that the family derives from the rows of X."""
        given = {name: value for name, value in self._settings.items() if value is not None}
        family, form = named_family(self.family)
        return prior_of(family, X, self.learn, **{**form, **given})

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings by name, among them those of the family's `from_data`."""
        del deep  # no setting has settings of its own
        common = {name: getattr(self, name) for name in _COMMON}
        return common | dict.fromkeys(_settings_of(self.family)) | self._settings

    def set_params(self, **params: Any) -> Self:
        """Change settings; those of a family that the new family does not have go back to their defaults.

        Raises
        ------
        ValueError
            If there is no such family or setting.
        """
        family = params.get("family", self.family)
        kept = {name: value for name, value in self._settings.items() if name in _settings_of(family)}
        settings = kept | {name: value for name, value in params.items() if name not in _COMMON}
        before, self.family = self.family, family
        try:
            self._settings = self._checked(settings)
        except ValueError:
            self.family = before
            raise
        for name in _COMMON:
            setattr(self, name, params.get(name, getattr(self, name)))
        return self

    def _checked(self, settings: dict[str, Any]) -> dict[str, Any]:
        known = _settings_of(self.family)
        for name in settings:
            if name not in known:
                every = [*_COMMON, *known]
                raise ValueError(
                    f"there is no setting {name!r} of MixtureModel({self.family!r}); {did_you_mean(name, every)} settings are "
                    f"{', '.join(every)}"
                )
        return settings

    def __repr__(self) -> str:
        changed = {name: value for name, value in self.get_params().items() if name != "family" and value is not None}
        words = [repr(self.family), *(f"{name}={_in_short(value)}" for name, value in changed.items())]
        return f"MixtureModel({', '.join(word for word in words if word != 'learn=True')})"


_COMMON = ("family", "concentration", "discount", "learn")
"""Settings of every family."""


def _settings_of(family: str) -> tuple[str, ...]:
    """Arguments of the family's `from_data` beside the data and `learn`."""
    found, form = named_family(family)
    return tuple(name for name in inspect.signature(found.from_data).parameters if name not in ("X", "learn", *form))


def _in_short(value: Any) -> str:
    return type(value).__name__ + "(...)" if isinstance(value, dist.Distribution) else repr(value)
