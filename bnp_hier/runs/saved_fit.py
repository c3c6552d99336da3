"""A fit in a file, with the data that it belongs to."""

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

__all__ = ["SavedFit", "is_saved_fit", "load_fit"]

LIBRARIES = ("bnp-hier", "jax", "numpyro", "scikit-learn")

KIND = "fit"
"""What the header of a file says that it holds."""


@dataclass(frozen=True)
class SavedFit:
    """A fit with its data, as `bnp-hier fit` saves it and `load_fit` gives it back.

    Parameters
    ----------
    fit
        An estimator, or a run of chains, that `bnp_hier.compare` (but for hierarchical mixtures) and `bnp_hier.to_arviz` take.
    data
        What it was fitted to.
    method
        Name of the method.
    family
        Name of the family.
    seconds
        Run time of the fit.
    notes
        What is worth knowing of it, in sentences.
    versions
        Of the libraries that wrote it.
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
        """The draws of trees, if it is a fit of a hierarchical mixture."""
        return hierarchy_draws(self.fit, self.data.X) if is_hierarchical(self.fit, self.data.X) else None

    @cached_property
    def _medoid(self) -> tuple[int, int]:
        """Number of the chain and draw whose tree stands for all."""
        assert self.trees is not None
        return self.trees.medoid()

    @cached_property
    def labels(self) -> Int[np.ndarray, " n"]:
        """(n,) clusters: the estimator's, the point estimate of the draws, or the leaves of the medoid tree."""
        if self.trees is not None:
            tree = self.trees[self._medoid]
            return tree.labels_at(tree.depth)
        return partition_of(self.fit, self.data.X)

    def predict_proba(self, X: ArrayLike) -> Float[np.ndarray, "m k1"]:
        """Probability that each new row belongs to each cluster of `labels` and, last, to a new one."""
        if self.trees is None:
            return cluster_probabilities(self.fit, self.data.X, self.labels, X)
        leaves = np.zeros(self.labels.max() + 1, dtype=int)
        leaves[self.labels] = self.trees[self._medoid].paths[:, -1]
        known = self.trees.predict(X, self._medoid)[:, leaves]
        return np.column_stack([known, np.maximum(1.0 - known.sum(1), 0.0)])

    def score_samples(self, X: ArrayLike) -> Float[np.ndarray, " m"]:
        """Log predictive density of each new row (nats); chains average it over their draws."""
        if isinstance(self.fit, DeterministicClustering):
            return self.fit.score_samples(X)
        if self.trees is not None:
            return self.trees.log_predictive(X)
        return log_predictive(draws_of(self.fit, self.data.X), X)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the file, as a whole or not at all; folders are made.

        It is an .npz file of arrays and JSON, without any code. The package's models are named, with their arguments; of a
        user's own model, or one with a component of the user's own, the parameters are kept to be compared, and the model is
        given again to `load_fit`.

        Raises
        ------
        TypeError
            If the fit is neither an estimator of the package nor a run of chains.
        ValueError
            If it holds what cannot be written without code, such as a kernel of another package.
        """
        fit = self.fit
        if isinstance(fit, DeterministicClustering):
            model = fit.model
        elif isinstance(fit, MCMC | ResumableRun):
            model = fit.sampler.model
        else:
            raise TypeError(f"expected an estimator of bnp_hier or a run of chains, but got {type(fit).__name__}")
        arrays: dict[str, Any] = {}
        content = {
            "model": encode_model(model, arrays),
            "fit": encode(fit if isinstance(fit, DeterministicClustering) else ResumableRun.parts_of(fit, self.data.X), arrays),
            "data": encode(self.data, arrays),
            "of": encode((self.method, self.family, float(self.seconds), tuple(self.notes), dict(self.versions)), arrays),
        }
        trees: dict[str, Any] = {"arrays": arrays}
        if content["model"] is None:
            with jax.enable_x64(True):
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
    """A fit that `bnp-hier fit` or `SavedFit.save` wrote; nothing in the file is executed.

    Parameters
    ----------
    path
        The file.
    model
        The model that was fitted, if it is a user's own or has a component of the user's own; those of the package are in the
        file.

    Returns
    -------
    saved
        With an estimator, or a `ResumableRun` of the chains, also where they were an `MCMC` object's.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it holds something else, or is damaged; or the model is missing, not wanted, or another than the one that was fitted.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file; bnp-hier fit writes one")
    try:
        header, leaves = read_checkpoint(path)
    except ValueError as error:
        raise ValueError(f"{path}: not readable as a fit ({error}); expected a file that bnp-hier fit wrote") from error
    if header.get("kind") != KIND:
        raise ValueError(f"{path}: found a saved run, expected a fit that bnp-hier fit wrote")
    try:
        content = header["content"]
        arrays = {place.removeprefix("['").removesuffix("']"): leaf for place, leaf in leaves["arrays"].items()}
        data = decode(content["data"], arrays)
        if not isinstance(data, Dataset):
            raise ValueError("it holds no data")
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
            raise ValueError(f"it holds a {type(fit).__name__}")
        of = decode(content["of"], arrays)
    except _WrongModelError:
        raise
    except Exception as error:  # what is not a whole file of ours can be wrong in any way
        raise ValueError(f"{path}: not readable as a fit ({error}); expected a file that bnp-hier fit wrote") from error
    if content["model"] is not None and model is not None:
        raise ValueError(f"{path} holds its own model, {header['model_name']}: give none")
    return SavedFit(fit, data, *of)


class _WrongModelError(ValueError):
    """The user's own model is missing or another."""


def _checked(path: Path, model: Model | None, name: str, saved: dict[str, Any], data: Dataset) -> dict[str, type]:
    """The types of the components of a user's model, if it is the one that was saved."""
    if model is None:
        raise _WrongModelError(
            f"{path} is a fit of a model, {name}, that is not in the file: it or its component is the user's own; give it "
            "again: load_fit(path, model=...)"
        )
    with jax.enable_x64(True):
        given = model_parameters(model, (data.X,), {})
        components = model_components(model, (data.X,), {})
        empty = [each.empty() for each in components]
    unlike = difference({place[2:-2]: value for place, value in saved.items()}, given)
    if unlike:
        raise _WrongModelError(f"{path} was saved with {unlike}")
    return types_of(components, empty)
