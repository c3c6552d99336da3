"""Saving and loading of fits together with their data."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float, Int
from numpyro.infer import MCMC

from bnp_hier.components import Component
from bnp_hier.datasets import Dataset
from bnp_hier.deterministic.base import DeterministicClustering
from bnp_hier.inspection.parameters import difference, model_components, model_parameters
from bnp_hier.inspection.trace import Model
from bnp_hier.posterior.draws import draws_of, log_predictive, partition_of
from bnp_hier.posterior.hierarchies import HierarchyDraws, hierarchy_draws, is_hierarchical
from bnp_hier.posterior.new_rows import cluster_probabilities
from bnp_hier.runs.checkpoint_file import checkpoint_kind, read_checkpoint, write_checkpoint
from bnp_hier.runs.plain_objects import decode, encode, encode_model, types_of
from bnp_hier.runs.resumable_run import ResumableRun
from bnp_hier.utils.jax_settings import double_precision

__all__ = ["SavedFit", "is_saved_fit", "load_fit"]

LIBRARIES = ("bnp-hier", "jax", "numpyro", "scikit-learn")

KIND = "fit"
"""Kind of content, as recorded in the header of a file."""

EXPECTED = (
    "expected a file written by bnp-hier fit, by bnp-hier compare (fit.npz, beside its report), by SavedFit.save or by "
    "ClusteringResult.save"
)
"""What a file should be that cannot be read."""


@dataclass(frozen=True)
class SavedFit:
    """A fit together with its data, as saved by `bnp-hier fit` and loaded by `load_fit`.

    Parameters
    ----------
    fit
        An estimator or MCMC run, as accepted by `bnp_hier.to_arviz` and, except for hierarchical mixtures, `bnp_hier.compare`.
    data
        The data to which it was fitted.
    method
        Name of the method.
    family
        Name of the component family.
    seconds
        Run time of the fit.
    notes
        Remarks on the fit, one sentence each.
    versions
        Versions of the libraries used for the fit, by name.

    Examples
    --------
    >>> import pandas as pd
    >>> import bnp_hier as bnp
    >>> data = bnp.datasets.from_frame(pd.DataFrame({"length": [0.0, 0.1, 0.2, 9.0, 9.1, 9.2]}))
    >>> saved = bnp.SavedFit(bnp.MAPDP().fit(data.X), data, method="MAP-DP", family="normal")
    >>> path = saved.save("fits/lengths.npz")  # doctest: +SKIP
    >>> saved.labels, saved.predict_proba([[0.3], [8.8]]).argmax(1)
    (array([0, 0, 0, 1, 1, 1]), array([0, 1]))
    """

    fit: Any
    data: Dataset
    method: str
    family: str
    seconds: float = np.nan
    notes: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=lambda: {name: version(name) for name in LIBRARIES})

    @cached_property
    def trees(self) -> HierarchyDraws | None:
        """The tree draws if the fitted model is a hierarchical mixture, otherwise None."""
        return hierarchy_draws(self.fit, self.data.X) if is_hierarchical(self.fit, self.data.X) else None

    @cached_property
    def _medoid(self) -> tuple[int, int]:
        """Indices of chain and draw of the medoid tree."""
        assert self.trees is not None
        return self.trees.medoid()

    @cached_property
    def labels(self) -> Int[np.ndarray, " n"]:
        """Cluster labels, (n,): those of the estimator, the point estimate of the draws, or the leaves of the medoid tree."""
        if self.trees is not None:
            tree = self.trees[self._medoid]
            return tree.labels_at(tree.depth)
        return partition_of(self.fit, self.data.X)

    def predict_proba(self, X: ArrayLike) -> Float[np.ndarray, "m k1"]:
        """Probabilities that each new row belongs to each cluster of `labels` or, in the last column, to a new one."""
        if self.trees is None:
            return cluster_probabilities(self.fit, self.data.X, self.labels, X)
        leaves = np.zeros(self.labels.max() + 1, dtype=int)
        leaves[self.labels] = self.trees[self._medoid].paths[:, -1]
        known = self.trees.predict(X, self._medoid)[:, leaves]
        return np.column_stack([known, np.maximum(1.0 - known.sum(1), 0.0)])

    def score_samples(self, X: ArrayLike) -> Float[np.ndarray, " m"]:
        """Log predictive density of each new row (nats); for MCMC runs, the density is averaged over draws."""
        if isinstance(self.fit, DeterministicClustering):
            return self.fit.score_samples(X)
        if self.trees is not None:
            return self.trees.log_predictive(X)
        return log_predictive(draws_of(self.fit, self.data.X), X)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Save to a file atomically, creating missing folders.

        The file is an .npz file of arrays and JSON, without any code. Models of the package are stored by name with their
        arguments. For a user-defined model or component, only the parameters are stored, for comparison, and the model must be
        passed to `load_fit` again.

        Raises
        ------
        TypeError
            If the fit is neither an estimator of the package nor an MCMC run.
        ValueError
            If it contains something that cannot be saved without code, such as a kernel of another package.
        """
        fit = self.fit
        if isinstance(fit, DeterministicClustering):
            model = fit.model
        elif isinstance(fit, MCMC | ResumableRun):
            model = fit.sampler.model
        else:
            raise TypeError(f"expected an estimator of bnp_hier or an MCMC run, but got {type(fit).__name__}")
        arrays: dict[str, Any] = {}
        content = {
            "model": encode_model(model, arrays),
            "fit": encode(fit if isinstance(fit, DeterministicClustering) else ResumableRun.parts_of(fit, self.data.X), arrays),
            "data": encode(self.data, arrays),
            "of": encode((self.method, self.family, float(self.seconds), tuple(self.notes), dict(self.versions)), arrays),
        }
        trees: dict[str, Any] = {"arrays": arrays}
        if content["model"] is None:
            with double_precision():
                trees["model"] = model_parameters(model, (self.data.X,), {})
        write_checkpoint(path, {"kind": KIND, "content": content, "model_name": _name(model)}, trees, compress=True)
        return Path(path)


def _name(model: Model) -> str:
    function = getattr(model, "func", model)
    return str(getattr(function, "__qualname__", type(function).__name__))


def is_saved_fit(path: str | os.PathLike[str]) -> bool:
    """Whether a file was written by `SavedFit.save`, whatever its name."""
    return checkpoint_kind(path) == KIND


def load_fit(path: str | os.PathLike[str], model: Model | None = None) -> SavedFit:
    """Load a fit saved by `bnp-hier fit` or `SavedFit.save`; nothing in the file is executed.

    Parameters
    ----------
    path
        The file.
    model
        The model that was fitted, if it or its component is user-defined; models of the package are stored in the file.

    Returns
    -------
    saved
        The fit and its data. MCMC runs are loaded as `ResumableRun`, even if an `MCMC` object was saved.

    Raises
    ------
    FileNotFoundError
        If the file does not exist.
    ValueError
        If the file is damaged or not a saved fit, the model is missing or differs from the one that was fitted, or a model is
        passed although the file contains one.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import pandas as pd
    >>> import bnp_hier as bnp
    >>> data = bnp.datasets.from_frame(pd.DataFrame({"length": [0.0, 0.1, 0.2, 9.0, 9.1, 9.2]}))
    >>> saved = bnp.SavedFit(bnp.MAPDP().fit(data.X), data, method="MAP-DP", family="normal")
    >>> path = saved.save(Path(tempfile.mkdtemp()) / "lengths.npz")
    >>> bnp.load_fit(path).labels
    array([0, 0, 0, 1, 1, 1])
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file; expected a file written by bnp-hier fit")
    try:
        header, leaves = read_checkpoint(path)
    except ValueError as error:
        raise ValueError(f"{path}: not readable as a fit ({error}); {EXPECTED}") from error
    if header.get("kind") != KIND:
        raise ValueError(f"{path}: found a saved run, expected a fit written by bnp-hier fit")
    try:
        content = header["content"]
        arrays = {place.removeprefix("['").removesuffix("']"): leaf for place, leaf in leaves["arrays"].items()}
        data = decode(content["data"], arrays)
        if not isinstance(data, Dataset):
            raise ValueError("it contains no data")
        known = {}
        if content["model"] is not None:
            own = decode(content["model"], arrays)
        else:
            own = model
            known = _checked(path, model, header["model_name"], leaves["model"], data)
        fit = decode(content["fit"], arrays, known, own)
        if isinstance(fit, dict):
            fit = ResumableRun.from_parts(fit)
        if not isinstance(fit, DeterministicClustering | ResumableRun):
            raise ValueError(f"it contains a {type(fit).__name__}")
        _check_contents(fit, data)
        of = decode(content["of"], arrays)
    except _WrongModelError:
        raise
    except Exception as error:  # a damaged or foreign file may fail in any way
        raise ValueError(f"{path}: not readable as a fit ({error}); {EXPECTED}") from error
    if content["model"] is not None and model is not None:
        raise ValueError(f"{path} contains its own model, {header['model_name']}: do not pass a model")
    return SavedFit(fit, data, *of)


def _check_contents(fit: DeterministicClustering | ResumableRun, data: Dataset) -> None:
    """Raise a ValueError if arrays of a fit have other types or shapes than its data and component require."""
    (n, d), k = _shape(data.X, "f", (None, None), "the data"), None
    for what, many, of in (("names", d, data.feature_names), ("row names", n, data.item_names), ("classes", n, data.y)):
        if of is not None and np.shape(of) != (many,):
            raise ValueError(f"it has {what} of shape {np.shape(of)} for data of shape {(n, d)}")
    if isinstance(fit, ResumableRun):
        for name, draws in fit.get_samples(group_by_chain=True).items():
            if np.shape(draws)[:1] != (fit.num_chains,):
                raise ValueError(f"its draws of {name} have shape {np.shape(draws)} for {fit.num_chains} chains")
        return
    if hasattr(fit, "labels_"):
        _shape(fit.labels_, "i", (n,), "labels_")
        k = int(fit.labels_.max()) + 1
        if fit.labels_.min() < 0:
            raise ValueError("labels_ has negative labels")
    (k,) = _shape(fit.counts_, "iuf", (k,), "counts_")
    for name in ("concentration_", "discount_", "log_joint_", "fit_seconds_"):
        if not isinstance(getattr(fit, name, 0.0), float | int | np.number):
            raise ValueError(f"{name} is not a number")
    component = fit.component_
    if not isinstance(component, Component) or not isinstance(fit.hyperparameters_, dict):
        raise ValueError("it has no component and hyperparameters")
    with double_precision():
        component.validate_new_rows(np.zeros((1, d)) * np.nan if component.allows_missing else data.X[:1])
        expected, leaves = jax.eval_shape(component.suff_stats, np.zeros((k, d))), jax.tree.leaves(fit.statistics_)
    if str(jax.tree.structure(expected)) != str(jax.tree.structure(fit.statistics_)):
        raise ValueError("statistics_ are not those of the component")
    for leaf, like in zip(leaves, jax.tree.leaves(expected), strict=True):
        _shape(leaf, "iuf", like.shape, "statistics_")


def _shape(value: Any, kinds: str, expected: tuple[int | None, ...], what: str) -> tuple[int, ...]:
    """The shape of an array of numbers, which may be left open."""
    shape = np.shape(value)
    wrong = len(shape) != len(expected) or any(one not in (None, size) for size, one in zip(shape, expected, strict=True))
    if not isinstance(value, np.ndarray) or value.dtype.kind not in kinds or wrong:
        raise ValueError(f"{what}: found {type(value).__name__} of shape {shape}, expected numbers of shape {expected}")
    return shape


class _WrongModelError(ValueError):
    """The user-defined model is missing or differs from the one that was saved."""


def _checked(path: Path, model: Model | None, name: str, saved: dict[str, Any], data: Dataset) -> dict[str, type]:
    """Check that a user-defined model is the one that was saved, and return the types of its components."""
    if model is None:
        raise _WrongModelError(
            f"{path} is a fit of the model {name}, which is not stored in the file, because it or its component is "
            "user-defined; pass it again: load_fit(path, model=...)"
        )
    with double_precision():
        given = model_parameters(model, (data.X,), {})
        components = model_components(model, (data.X,), {})
        empty = [each.empty() for each in components]
    unlike = difference({place[2:-2]: value for place, value in saved.items()}, given)
    if unlike:
        raise _WrongModelError(f"{path} was saved with {unlike}")
    return types_of(components, empty)
