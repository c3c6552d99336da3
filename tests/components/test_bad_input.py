"""Bad hyperparameters and bad data are refused at the door, in words that say what was found and where."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bnp_hier.components import (
    BetaBernoulli,
    DirichletMultinomial,
    GammaPoisson,
    NormalInverseGamma,
    NormalInverseWishart,
    NormalKnownCovariance,
    ProductComponent,
    UninformativeNormal,
)
from bnp_hier.components.learned import prior_of
from tests.parameters import few

I2, ZERO, ONES = np.eye(2), np.zeros(2), np.ones(2)
ASYMMETRIC = np.array([[1.0, 0.5], [0.2, 1.0]])
SINGULAR = np.array([[1.0, 1.0], [1.0, 1.0]])
INDEFINITE = np.array([[1.0, 2.0], [2.0, 1.0]])
NAN, INF = np.nan, np.inf
NIG1 = NormalInverseGamma(np.zeros(1), 1.0, 2.0, 1.0)


NAN_COLUMN = np.array([[1.0, np.nan], [0.0, np.nan]])


class Bad(NamedTuple):
    """One way to go wrong: a call, and the error it must raise."""

    name: str
    call: Callable[[], Any]
    match: str
    error: type[Exception] = ValueError


def niw(mean=ZERO, kappa=1.0, nu=4.0, scale=I2):
    return NormalInverseWishart(mean, kappa, nu, scale)


def nig(mean=ZERO, kappa=1.0, shape=2.0, rate=1.0):
    return NormalInverseGamma(mean, kappa, shape, rate)


def known(mean=ZERO, prior_covariance=I2, covariance=I2):
    return NormalKnownCovariance(mean, prior_covariance, covariance)


HYPERPARAMETERS = [
    Bad("singular scale", lambda: niw(scale=SINGULAR), "NormalInverseWishart: scale must be positive definite"),
    Bad("indefinite scale", lambda: niw(scale=INDEFINITE), "scale must be positive definite, but it is singular or"),
    Bad("negative diagonal", lambda: niw(scale=-I2), "scale must be positive definite"),
    Bad("zero scale", lambda: niw(scale=0 * I2), "scale must be positive definite"),
    Bad("asymmetric scale", lambda: niw(scale=ASYMMETRIC), "NormalInverseWishart: scale must be symmetric"),
    Bad("scale of another size", lambda: niw(scale=np.eye(3)), r"scale must be a \(2, 2\) matrix, but it has shape \(3, 3\)"),
    Bad("diagonal given as vector", lambda: niw(scale=ONES), r"scale must be a \(2, 2\) matrix, but it has shape \(2,\)"),
    Bad("scale with NaN", lambda: niw(scale=NAN * I2), "NormalInverseWishart: scale must be finite"),
    Bad("scale with inf", lambda: niw(scale=INF * np.ones((2, 2))), "scale must be finite"),
    Bad("nu at its bound", lambda: niw(nu=1.0), "nu must be finite and greater than 1, but it is 1.0"),
    Bad("nu below its bound", lambda: niw(nu=0.5), "nu must be finite and greater than 1, but it is 0.5"),
    Bad("nu NaN", lambda: niw(nu=NAN), "nu must be finite and greater than 1, but it is nan"),
    Bad("nu a vector", lambda: niw(nu=4 * ONES), r"nu must be a number, but it has shape \(2,\)"),
    Bad("kappa zero", lambda: niw(kappa=0.0), "NormalInverseWishart: kappa must be finite and greater than 0, but it is 0"),
    Bad("kappa negative", lambda: niw(kappa=-1), "kappa must be finite and greater than 0, but it is -1"),
    Bad("kappa infinite", lambda: niw(kappa=INF), "kappa must be finite and greater than 0, but it is inf"),
    Bad("kappa missing", lambda: niw(kappa=None), "kappa must contain real numbers"),
    Bad("kappa a vector", lambda: niw(kappa=ONES), r"kappa must be a number, but it has shape \(2,\)"),
    Bad("mean a number", lambda: niw(mean=0.0), r"mean must be a vector, shape \(d,\), but it has shape \(\)"),
    Bad("mean a matrix", lambda: niw(mean=I2), r"mean must be a vector, shape \(d,\), but it has shape \(2, 2\)"),
    Bad("mean empty", lambda: niw(mean=np.zeros(0)), r"mean must be a vector, shape \(d,\), but it has shape \(0,\)"),
    Bad("mean NaN", lambda: niw(mean=np.array([0.0, NAN])), "NormalInverseWishart: mean must be finite"),
    Bad("mean text", lambda: niw(mean=np.array(["a", "b"])), "mean must contain real numbers", (TypeError, ValueError)),
    Bad("NIG kappa zero", lambda: nig(kappa=np.array([1.0, 0.0])), "NormalInverseGamma: kappa must be finite and greater"),
    Bad("NIG shape zero", lambda: nig(shape=0.0), "NormalInverseGamma: shape must be finite and greater than 0"),
    Bad("NIG rate negative", lambda: nig(rate=-ONES), "NormalInverseGamma: rate must be finite and greater than 0"),
    Bad("NIG rate NaN", lambda: nig(rate=NAN), "rate must be finite and greater than 0, but it is nan"),
    Bad(
        "NIG rate of another length",
        lambda: nig(rate=np.ones(3)),
        r"rate must be a number or a vector of length 2, but it has shape \(3,\)",
    ),
    Bad("NIG mean inf", lambda: nig(mean=np.array([INF, 0.0])), "NormalInverseGamma: mean must be finite"),
    Bad("singular covariance", lambda: known(covariance=SINGULAR), "NormalKnownCovariance: covariance must be positive def"),
    Bad("asymmetric covariance", lambda: known(covariance=ASYMMETRIC), "NormalKnownCovariance: covariance must be symmetric"),
    Bad("singular prior", lambda: known(prior_covariance=SINGULAR), "prior_covariance must be positive definite"),
    Bad("prior of another size", lambda: known(prior_covariance=np.eye(1)), r"prior_covariance must be a \(2, 2\) matrix"),
    Bad("prior NaN", lambda: known(prior_covariance=NAN * I2), "prior_covariance must be finite"),
    Bad("a zero", lambda: BetaBernoulli(np.array([1.0, 0.0]), ONES), "BetaBernoulli: a must be finite and greater than 0"),
    Bad("b negative", lambda: BetaBernoulli(ONES, -ONES), "BetaBernoulli: b must be finite and greater than 0"),
    Bad("a NaN", lambda: BetaBernoulli(NAN * ONES, ONES), "BetaBernoulli: a must be finite"),
    Bad("b of another length", lambda: BetaBernoulli(ONES, np.ones(3)), r"b must have the same shape as a, \(2,\), but it has"),
    Bad("a number", lambda: BetaBernoulli(1.0, 1.0), r"a must be a vector, shape \(d,\), but it has shape \(\)"),
    Bad("concentration zero", lambda: DirichletMultinomial(ZERO), "DirichletMultinomial: concentration must be finite and gr"),
    Bad("concentration NaN", lambda: DirichletMultinomial(NAN * ONES), "concentration must be finite"),
    Bad("concentration a number", lambda: DirichletMultinomial(1.0), "concentration must be a vector"),
    Bad("total zero", lambda: DirichletMultinomial(ONES, 0), "total_count must be a whole number of at least 1, but it is 0"),
    Bad("total fractional", lambda: DirichletMultinomial(ONES, 2.5), "total_count must be a whole number.*2.5"),
    Bad("rate zero", lambda: GammaPoisson(ONES, 0.0), "GammaPoisson: rate must be finite and greater than 0, but it is 0"),
    Bad("shape negative", lambda: GammaPoisson(-ONES, 1.0), "GammaPoisson: shape must be finite and greater than 0"),
    Bad("shape inf", lambda: GammaPoisson(INF * ONES, 1.0), "GammaPoisson: shape must be finite"),
    Bad("rate of another length", lambda: GammaPoisson(ONES, np.ones(3)), "rate must be a number or a vector of length 2"),
]

TABLE = np.array([[0.1, 1.0], [0.7, -2.0], [0.3, 0.4]])
COUNTS = np.array([[2.0, 1.0], [0.0, 3.0], [4.0, 4.0]])
BITS = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])


def with_cell(X, row, column, value):
    X = np.array(X, dtype=float)
    X[row, column] = value
    return X


BINARY, MULTI, POISSON = BetaBernoulli(ONES, ONES), DirichletMultinomial(ONES), GammaPoisson(ONES, 1.0)

DATA = [
    Bad("empty", lambda: niw().validate(np.zeros((0, 2))), r"X is empty: it has shape \(0, 2\), expected at least one row"),
    Bad("no columns", lambda: niw().validate(np.zeros((3, 0))), r"X is empty: it has shape \(3, 0\)"),
    Bad("one dimension", lambda: nig().validate(np.zeros(3)), r"two dimensions.*shape \(3,\); use np.reshape\(X, \(-1, 1\)\)"),
    Bad("three dimensions", lambda: nig().validate(np.zeros((3, 2, 1))), r"two dimensions.*shape \(3, 2, 1\)"),
    Bad("a number", lambda: nig().validate(3.0), r"two dimensions.*shape \(\)"),
    Bad("text", lambda: nig().validate([["a", "b"]]), "X must be a table of numbers"),
    Bad("ragged", lambda: nig().validate([[1.0, 2.0], [3.0]]), "X must be a table of numbers"),
    Bad(
        "inf", lambda: niw().validate(with_cell(TABLE, 1, 0, INF)), "X has an infinite value at row 1, column 0; expected fini"
    ),
    Bad("minus inf", lambda: nig().validate(with_cell(TABLE, 2, 1, -INF)), "X has an infinite value at row 2, column 1"),
    Bad(
        "too many columns",
        lambda: niw().validate(np.zeros((3, 4))),
        "X has 4 columns, but NormalInverseWishart was built for 2",
    ),
    Bad("too few columns", lambda: BINARY.validate(np.zeros((3, 1))), "X has 1 columns, but BetaBernoulli was built for 2 col"),
    Bad("evidence of inf", lambda: niw().log_evidence(with_cell(TABLE, 0, 1, INF)), "infinite value at row 0, column 1"),
    Bad(
        "evidence of columns",
        lambda: POISSON.log_evidence(np.ones((2, 3))),
        "X has 3 columns, but GammaPoisson was built for 2",
    ),
    Bad("not a bit", lambda: BINARY.validate(with_cell(BITS, 2, 1, 2)), "0 or 1 in every cell, but X has 2 at row 2, column 1"),
    Bad("half a bit", lambda: BINARY.validate(with_cell(BITS, 0, 0, 0.5)), "X has 0.5 at row 0, column 0"),
    Bad("negative bit", lambda: BINARY.log_evidence(with_cell(BITS, 1, 1, -1)), "X has -1 at row 1, column 1"),
    Bad("infinite bit", lambda: BINARY.validate(with_cell(BITS, 1, 1, INF)), "infinite value at row 1, column 1"),
    Bad(
        "negative count",
        lambda: POISSON.validate(with_cell(COUNTS, 1, 1, -2)),
        r"GammaPoisson.*negative count \(-2\) at row 1, c",
    ),
    Bad(
        "fractional count",
        lambda: POISSON.validate(with_cell(COUNTS, 2, 0, 1.5)),
        r"fractional count \(1.5\) at row 2, column 0",
    ),
    Bad(
        "negative category",
        lambda: MULTI.validate(with_cell(COUNTS, 0, 1, -2)),
        r"DirichletMultinomial.*negative count \(-2\) at ",
    ),
    Bad(
        "fractional category",
        lambda: MULTI.validate(with_cell(COUNTS, 0, 1, 0.1)),
        r"fractional count \(0.1\) at row 0, column 1",
    ),
    Bad("infinite category", lambda: MULTI.validate(with_cell(COUNTS, 2, 1, INF)), "infinite value at row 2, column 1"),
]

REAL_FAMILIES = (NormalInverseWishart, NormalInverseGamma, NormalKnownCovariance)
COUNT_FAMILIES = (DirichletMultinomial, GammaPoisson)
ALL_FAMILIES = (*REAL_FAMILIES, *COUNT_FAMILIES, BetaBernoulli, ProductComponent)

FROM_DATA = [
    *(
        Bad(f"{family.__name__} {name}", lambda family=family, X=X: family.from_data(X, learn=False), match)
        for family in REAL_FAMILIES
        for name, X, match in (
            ("one row", TABLE[:1], "X has 1 row; clustering needs at least 2"),
            ("constant column", with_cell(TABLE, slice(None), 1, 3.0), rf"constant in column 1 \(value 3\): {family.__name__}"),
            ("inf", with_cell(TABLE, 1, 0, INF), "infinite value at row 1, column 0"),
            ("no value in a column", with_cell(TABLE, slice(None), 0, NAN), "only missing values in column 0"),
        )
    ),
    *(
        Bad(f"{family.__name__} {name}", lambda family=family, X=X: family.from_data(X, learn=False), match)
        for family in COUNT_FAMILIES
        for name, X, match in (
            ("negative", with_cell(COUNTS, 2, 0, -1), rf"{family.__name__}.*negative count \(-1\) at row 2, column 0"),
            ("fraction", with_cell(COUNTS, 2, 1, 0.5), rf"{family.__name__}.*fractional count \(0.5\) at row 2, column 1"),
            ("inf", with_cell(COUNTS, 1, 0, INF), "infinite value at row 1, column 0"),
        )
    ),
    *(
        Bad(f"{family.__name__} {name}", lambda family=family, X=X: family.from_data(X, learn=False), match)
        for family in ALL_FAMILIES
        for name, X, match in (
            ("vector", np.zeros(4), r"X must have two dimensions, shape \(n, d\), but it has shape \(4,\)"),
            ("cube", np.zeros((2, 2, 2)), r"X must have two dimensions"),
            ("empty", np.zeros((0, 3)), r"X is empty: it has shape \(0, 3\)"),
            ("text", [["a", "b"], ["c", "d"]], "X must be a table of numbers"),
        )
    ),
    Bad(
        "bits",
        lambda: BetaBernoulli.from_data(with_cell(BITS, 1, 0, 3), learn=False),
        "0 or 1 in every cell, but X has 3 at row 1, column 0",
    ),
    Bad(
        "infinite bits",
        lambda: BetaBernoulli.from_data(with_cell(BITS, 1, 0, INF), learn=False),
        "X has inf at row 1, column 0",
    ),
    Bad(
        "shape without mean",
        lambda: NormalInverseGamma.from_data(TABLE, shape=1.0, learn=False),
        "shape must be finite and greater than 1",
    ),
    Bad("low nu", lambda: NormalInverseWishart.from_data(TABLE, nu=1.0, learn=False), "nu must be finite and greater than 1"),
    Bad(
        "zero kappa",
        lambda: NormalInverseWishart.from_data(TABLE, kappa=0, learn=False),
        "kappa must be finite and greater than 0",
    ),
    Bad("zero strength", lambda: BetaBernoulli.from_data(BITS, strength=0, learn=False), "a must be finite and greater than 0"),
    Bad(
        "product one row",
        lambda: ProductComponent.from_data(TABLE[:1], learn=False),
        "X has 1 row; clustering needs at least 2",
    ),
    Bad(
        "product constant column",
        lambda: ProductComponent.from_data(with_cell(TABLE, slice(None), 1, 3.0), learn=False),
        r"constant in column 1 \(value 3\)",
    ),
]

PRODUCTS = [
    Bad(
        "overlapping",
        lambda: ProductComponent([nig(), NIG1], [[0, 1], [1]]),
        r"must contain each of the columns 0, ..., d - 1 exactly once",
    ),
    Bad(
        "a gap",
        lambda: ProductComponent([nig(), NIG1], [[0, 1], [3]]),
        "must contain each of the columns 0, ..., d - 1 exactly once",
    ),
    Bad("not from zero", lambda: ProductComponent([nig()], [[1, 2]]), "must contain each of the columns"),
    Bad("fractional column", lambda: ProductComponent([nig()], [[0.5, 1.2]]), "columns must be whole numbers", TypeError),
    Bad(
        "column without a value",
        lambda: ProductComponent.from_data(NAN_COLUMN, learn=False),
        "column 1 of X has only missing values",
    ),
    Bad("negative column", lambda: ProductComponent([nig()], [[0, -1]]), "must contain each of the columns"),
    Bad("twice in a group", lambda: ProductComponent([nig()], [[0, 0]]), "must contain each of the columns"),
    Bad("no parts", lambda: ProductComponent([], []), "0 parts but 0 groups of columns; expected one group per part"),
    Bad(
        "fewer groups",
        lambda: ProductComponent([nig(), NIG1], [[0, 1, 2]]),
        "2 parts but 1 groups of columns; expected one group per part",
    ),
    Bad("wrong size", lambda: ProductComponent([nig()], [[0, 1, 2]]), "NormalInverseGamma has 2 columns, but its group has 3"),
    Bad("no component", lambda: ProductComponent([1.0], [[0]]), "is not a component", TypeError),
    Bad("class, not instance", lambda: ProductComponent([NormalInverseGamma], [[0]]), "is not a component", TypeError),
    Bad(
        "families alone",
        lambda: ProductComponent.from_data(TABLE, families=[NormalInverseGamma], learn=False),
        "give both families and columns, or neither",
    ),
    Bad(
        "columns alone",
        lambda: ProductComponent.from_data(TABLE, columns=[[0, 1]], learn=False),
        "give both families and columns, or neither",
    ),
    Bad(
        "fewer families",
        lambda: ProductComponent.from_data(TABLE, families=["normal"], columns=[[0], [1]], learn=False),
        "1 families but 2 groups of columns",
    ),
    Bad(
        "no such family",
        lambda: ProductComponent.from_data(TABLE, families=["diagnal"], columns=[[0, 1]], learn=False),
        "there is no family 'diagnal'; did you mean 'diagonal'.* The families are bernoulli, ",
    ),
    Bad(
        "columns beyond the table",
        lambda: ProductComponent.from_data(TABLE, families=[NormalInverseGamma] * 2, columns=[[0], [5]], learn=False),
        "column",
    ),
    Bad(
        "a column left out",
        lambda: ProductComponent.from_data(TABLE, families=[NormalInverseGamma], columns=[[0]], learn=False).validate(TABLE),
        "X has 2 columns, but ProductComponent was built for 1",
    ),
    Bad("number of columns", lambda: MIXED.validate(np.zeros((3, 2))), "X has 2 columns, but ProductComponent was built for 3"),
    Bad("one dimension", lambda: MIXED.validate(np.zeros(3)), "X must have two dimensions"),
    Bad(
        "a part's cell",
        lambda: MIXED.validate(np.array([[0.1, 1.0, 0.2], [0.4, 2.0, 0.3]])),
        r"columns 1: .*X has 2 at row 1, column 1",
    ),
    Bad(
        "a part's inf",
        lambda: MIXED.validate(np.array([[0.1, 1.0, 0.2], [INF, 1.0, 0.3]])),
        r"columns 2, 0: .*infinite value at row 1, column 0",
    ),
]
MIXED = ProductComponent([nig(), BetaBernoulli(np.ones(1), np.ones(1))], [[2, 0], [1]])

CASES = {"hyperparameters": HYPERPARAMETERS, "data": DATA, "from_data": FROM_DATA, "product": PRODUCTS}


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=f"{table}: {case.name}") for table, cases in CASES.items() for case in cases]
)
def test_refused(case):
    with pytest.raises(case.error, match=case.match):
        case.call()


@pytest.mark.parametrize("table", CASES)
def test_names_are_unique(table):
    names = [case.name for case in CASES[table]]
    assert len(set(names)) == len(names) > 10


# ---- what must pass --------------------------------------------------------------------------------------------------


def test_good_input_passes():
    """The defaults of the tables above are good, so that each case fails for the one thing that is wrong in it."""
    for component in (niw(), nig(), known()):
        component.validate(TABLE)
    BINARY.validate(BITS)
    MULTI.validate(COUNTS)
    POISSON.validate(COUNTS)
    MIXED.validate(np.array([[0.1, 1.0, 0.2], [0.4, 0.0, 0.3]]))
    assert DirichletMultinomial(ONES, 3).total_count == 3
    assert niw(nu=1.001, kappa=2).kappa == 2
    nig(kappa=ONES, shape=2 * ONES, rate=0.5)


def test_constant_bits_and_counts_have_priors():
    """Only families that read a scale off the data refuse constant columns."""
    assert np.isfinite(BetaBernoulli.from_data(np.ones((3, 2)), learn=False).log_evidence(np.ones((3, 2))))
    assert np.isfinite(GammaPoisson.from_data(np.zeros((3, 2)), learn=False).log_evidence(np.zeros((3, 2))))
    assert np.isfinite(DirichletMultinomial.from_data(np.zeros((3, 2)), learn=False).log_evidence(np.zeros((3, 2))))


def test_columns_of_very_different_units_are_not_called_singular():
    """Variances 1e-12 and 1e12 are a good diagonal; correlation 1 is not, whatever the units."""
    scale = np.diag([1e-12, 1e12])
    assert niw(scale=scale).dim == 2
    with pytest.raises(ValueError, match="positive definite"):
        niw(scale=np.array([[1e-12, 1.0], [1.0, 1e12]]))


def test_symmetric_to_single_precision_is_symmetric():
    niw(scale=np.array([[1.0, 0.3000001], [0.3, 1.0]]))


def test_traced_hyperparameters_do_not_raise():
    """Under ``jit`` and ``grad`` their values cannot be looked at; their shapes still can."""

    @jax.jit
    def evidences(value):
        vector = value * jnp.ones(2)
        components = (
            NormalInverseWishart(vector, value, value + 1.0, value * jnp.eye(2)),
            NormalInverseGamma(vector, value, vector, value),
            NormalKnownCovariance(vector, value * jnp.eye(2), value * jnp.eye(2)),
            BetaBernoulli(vector, vector),
            DirichletMultinomial(vector),
            GammaPoisson(vector, value),
            ProductComponent([BetaBernoulli(vector[:1], vector[:1]), GammaPoisson(vector[:1], value)], [[0], [1]]),
        )
        return jnp.stack([c.log_marginal(jax.tree.map(lambda leaf: leaf.sum(0), c.suff_stats(BITS))) for c in components])

    assert np.isfinite(evidences(2.0)).all()
    assert evidences(-1.0).shape == (7,)  # nonsense values cannot be refused here
    with pytest.raises(ValueError, match=r"scale must be a \(2, 2\) matrix"):
        jax.jit(lambda v: NormalInverseWishart(v * ZERO, v, v, v * ONES).kappa)(3.0)


def test_traced_data_passes_the_door():
    @jax.jit
    def checked(X):
        for component in (niw(), BINARY, MULTI, POISSON):
            component.validate(X)
        return X.sum()

    assert checked(with_cell(TABLE, 0, 0, 0.1)) == pytest.approx(TABLE.sum(), rel=1e-6)


@pytest.mark.parametrize("family", [NormalInverseGamma, NormalInverseWishart, NormalKnownCovariance])
def test_lists_of_lists_and_jax_arrays_are_tables(family):
    """Whatever holds numbers is data."""
    expected = family.from_data(TABLE, learn=False).log_evidence(TABLE)
    assert family.from_data(TABLE.tolist(), learn=False).log_evidence(TABLE.tolist()) == pytest.approx(expected, rel=1e-14)
    single = jnp.asarray(TABLE)
    assert family.from_data(single, learn=False).log_evidence(single) == pytest.approx(expected, rel=1e-6)


LISTS = {
    "NormalInverseWishart": lambda: niw([0.0, 0.0], 1.0, 4.0, [[1.0, 0.0], [0.0, 1.0]]),
    "NormalInverseGamma": lambda: nig([0.0, 0.0], [1.0, 1.0], [2.0, 2.0], [1.0, 1.0]),
    "NormalKnownCovariance": lambda: known([0.0, 0.0], [[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]),
    "BetaBernoulli": lambda: BetaBernoulli([1.0, 1.0], [1.0, 1.0]),
    "DirichletMultinomial": lambda: DirichletMultinomial([1.0, 1.0]),
    "GammaPoisson": lambda: GammaPoisson([1.0, 1.0], [1.0, 1.0]),
}


@pytest.mark.parametrize("name", few(LISTS, 2))
def test_lists_as_hyperparameters_work_or_are_refused(name):
    """What passes the door must work behind it: predictives and priors as well as evidence."""
    try:
        component = LISTS[name]()
    except (TypeError, ValueError):
        return
    assert np.isfinite(component.log_evidence(BITS))
    assert np.isfinite(component.log_predictive(component.empty(), BITS)).all()
    assert component.prior().batch_shape == ()


def test_rows_of_another_process_are_refused(monkeypatch):
    """An array of which this process holds a part alone; simulated, for one process sees all of its own devices."""
    X = jax.numpy.asarray(np.random.default_rng(0).normal(size=(6, 2)))
    for name in ("is_fully_addressable", "is_fully_replicated"):
        monkeypatch.setattr(type(X), name, property(lambda _: False))
    with pytest.raises(ValueError, match=r"X is distributed over several processes.*cannot be read here"):
        ProductComponent.from_data(X, learn=False)  # other families reduce it where its rows are
    with pytest.raises(ValueError, match="X is distributed over several processes"):
        NormalInverseWishart(np.zeros(2), 0.1, 4.0, np.eye(2)).validate(X)


@pytest.mark.parametrize("cell", [np.nan, np.inf])
def test_no_family_reads_its_prior_off_cells_that_are_no_numbers(cell):
    """An error, or from missing values a finite prior: NaN becomes no hyperparameter."""
    X = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [cell, 0.0]])
    families = (
        NormalInverseWishart,
        NormalInverseGamma,
        NormalKnownCovariance,
        UninformativeNormal,
        BetaBernoulli,
        DirichletMultinomial,
        GammaPoisson,
        ProductComponent,
    )
    refused = 0
    for family in families:
        try:
            component = prior_of(family, X, learn=False)
        except ValueError:
            refused += 1
            continue
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(component)), family
        assert np.isnan(cell), family
    assert refused == (8 if cell == np.inf else 2)
