"""Processor seconds of fits whose hyperparameters are learned, in units of fits with the fixed priors of the same families.

The unit of a first result is a fresh process, with its imports and what it compiles, of a second result the fit alone. The aim
is three; a second variational fit misses it by far: the search for its hyperparameters takes longer than the fit itself.

Run with ``pytest -m benchmark -n 0 -s tests/benchmarks/test_learned_priors.py``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.test_first_call import result
from tests.benchmarks.test_speed import check

pytestmark = pytest.mark.benchmark

FITS = """
import json, time, warnings
import bnp_hier as bnp
warnings.simplefilter("ignore")
X = bnp.datasets.load("{data}").X
if "{data}" == "digits":
    X = bnp.datasets.principal_components(X, 10)
model = None if {learn} else (lambda X: bnp.models.dpm(X, bnp.NormalInverseWishart.from_data(X, learn=False), 1.0))
options = {options} | ({{}} if model is None else {{"model": model}})
bnp.{estimator}(**options).fit(X)
first = time.process_time()
bnp.{estimator}(**options).fit(X[:-3])
print(json.dumps([first, time.process_time() - first]))
"""


@pytest.mark.parametrize("data", ["iris", "digits"])
@pytest.mark.parametrize(
    ("estimator", "options", "limit", "later"),
    [("MAPDP", {}, 3, 3.5), ("BHC", {"progress_bar": False}, 3, 3), ("VariationalDP", {}, 3, 12)],
)
def test_learned_against_fixed(data: str, estimator: str, options: dict[str, object], limit: float, later: float) -> None:
    def taken(learn: bool) -> tuple[float, float]:
        program = FITS.format(data=data, learn=learn, options=options, estimator=estimator)
        runs = [result(program) for _ in range(2)]
        return min(run[0] for run in runs), min(run[1] for run in runs)

    fixed, learned = taken(False), taken(True)
    print(f"\n{estimator} of {data}: first {fixed[0]:.1f} and {learned[0]:.1f} s, second {fixed[1]:.2f} and {learned[1]:.2f} s")
    check("a first result in a fresh process, learned / fixed", learned[0] / fixed[0], limit)
    if data == "digits":
        check("a second fit, learned / fixed", learned[1] / fixed[1], later)


KEPT = """
import json, time, warnings
import bnp_hier as bnp
warnings.simplefilter("ignore")
bnp.{estimator}(**{options}).fit(bnp.datasets.load("iris").X)
print(json.dumps(time.process_time()))
"""


@pytest.mark.parametrize(("estimator", "options"), [("MAPDP", {}), ("BHC", {"progress_bar": False})])
def test_programs_are_kept(estimator: str, options: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    program = KEPT.format(estimator=estimator, options=options)
    first, later = result(program), min(result(program) for _ in range(2))
    print(f"\n{estimator} of iris in a new process: {first:.1f} s, and {later:.1f} s once its programs are on disk")
    check("a process whose programs are on disk / the first one", later / first, 0.6 if estimator == "MAPDP" else 0.5)
