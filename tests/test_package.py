"""The package as a whole: its public names, and what importing it does and does not do."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys

import pytest

import bnp_hier
from bnp_hier import datasets, deterministic, distributed, evidence, models, plots

PARTS = (bnp_hier, datasets, distributed, evidence, models, plots)
OTHER_NAMES = {
    "seed": "random_state, or key",
    "rng_key": "key",
    "progress": "progress_bar",
    "n_draws": "num_samples",
    "max_draws": "num_samples",
    "n_samples": "num_samples",
    "n_particles": "num_particles",
    "n_orders": "num_orders",
    "n_chains": "num_chains",
    "n_restarts": "n_init",
    "tolerance": "tol",
    "max_iterations": "max_iter",
    "point_names": "item_names",
}
"""Names that other packages, or drafts of this one, have for what has one name here."""


def test_public_names_are_there_documented_and_sorted() -> None:
    assert bnp_hier.__all__ == sorted(bnp_hier.__all__, key=lambda name: (not name.isupper(), name[0].islower(), name))
    for name in bnp_hier.__all__:
        assert getattr(bnp_hier, name).__doc__, name


def test_import_is_light_and_changes_no_setting() -> None:
    code = (
        "import sys, jax\n"
        "before = dict(jax.config.values)\n"
        "import bnp_hier, bnp_hier.models\n"
        "assert dict(jax.config.values) == before\n"
        "heavy = {'matplotlib', 'arviz', 'networkx', 'typer', 'sklearn.neighbors', 'sklearn.metrics', 'scipy.cluster'}\n"
        "heavy &= set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_works_after_arviz_was_imported_first() -> None:
    code = "import arviz, bnp_hier, numpyro.distributions as dist; assert dist.distribution.Unit"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _arguments() -> dict[str, list[str]]:
    objects = {f"{part.__name__}.{name}": getattr(part, name) for part in PARTS for name in part.__all__}
    return {name: list(inspect.signature(value).parameters) for name, value in objects.items() if callable(value)}


def test_one_thing_has_one_name_in_all_signatures() -> None:
    arguments = _arguments()
    assert len(arguments) > 90
    assert not {name: others for name, given in arguments.items() if (others := OTHER_NAMES.keys() & set(given))}
    # a budget is one of time
    assert {name for name, given in arguments.items() if "budget" in given} == {"bnp_hier.cluster", "bnp_hier.recommend"}


def test_identifiers_have_the_spelling_of_scikit_learn_and_numpyro() -> None:
    british = re.compile(r"colour|centre|favour|neighbour|labell|behaviour|isation|is(e|ed|ing)(_|$)")
    allowed = {"noise"}
    objects = [getattr(part, name) for part in PARTS for name in part.__all__]
    attributes = {name for each in objects if isinstance(each, type) for name in vars(each)}
    names = (
        attributes | {name for given in _arguments().values() for name in given} | {n for part in PARTS for n in part.__all__}
    )
    assert not {name for name in names - allowed if british.search(name) and not name.startswith("_")}


def test_plots_take_the_object_first_and_all_else_by_keyword() -> None:
    """An Axes is returned where one can be passed, and a figure otherwise."""
    for name in plots.__all__:
        signature = inspect.signature(getattr(plots, name))
        kinds = [parameter.kind for parameter in signature.parameters.values()]
        positional = [kind for kind in kinds if kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
        assert len(positional) == (2 if name == "predictive_density" else 1), name  # it needs two objects
        assert ("Axes" if "ax" in signature.parameters else "Figure") == signature.return_annotation, name


ITERATIVE = ("MAPDP", "BayesianKMeans", "DPMeans", "VariationalDP")


@pytest.mark.parametrize("name", ITERATIVE)
def test_iterative_estimators_document_the_same_attributes(name: str) -> None:
    estimator = getattr(bnp_hier, name)
    for attribute in ("objective_trace_", "n_iter_", "converged_"):
        assert attribute in estimator.__doc__
    assert "max_iter" in inspect.signature(estimator).parameters


def test_all_estimators_with_a_limit_on_their_sweeps_are_among_them() -> None:
    estimators = (getattr(deterministic, name) for name in deterministic.__all__)
    limited = [each for each in estimators if isinstance(each, type) and "max_iter" in inspect.signature(each).parameters]
    assert {each.__name__ for each in limited} == set(ITERATIVE)
