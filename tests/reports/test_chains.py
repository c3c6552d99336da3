"""What is said of chains says what their diagnostics say."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from bnp_hier.reports.chains import Convergence, chains_verdict, disagreeing, written_rhat
from bnp_hier.reports.trust import ACT, LOOK, PASSED, checks_of_chains


def diagnostics(rhat: list[float], ess: list[float]) -> pd.DataFrame:
    return pd.DataFrame({"rhat": rhat, "ess_bulk": ess}, index=["log_joint", "n_clusters", "alpha"])


def test_chains() -> None:
    cases = {
        "the four chains have converged (R-hat 1.005, effective sample size at least 500)": (
            [1.0, 1.005, 1.0],
            [900.0, 500.0, 700.0],
        ),
        "effective sample size is only 90": ([1.0, 1.005, 1.0], [900.0, 90.0, 700.0]),
        "the four chains have nearly converged (R-hat 1.030), but not for the number": ([1.0, 1.03, 1.0], [900.0] * 3),
        "the four chains disagree (R-hat 1.20). Do not trust the number of clusters and alpha": ([1.0, 1.2, 1.1], [900.0] * 3),
        "R-hat inf": ([1.0, np.inf, 1.0], [900.0] * 3),
        "no chain moved": ([np.nan] * 3, [np.nan] * 3),
    }
    for words, (rhat, ess) in cases.items():
        (line,) = chains_verdict("Gibbs", diagnostics(rhat, ess), 4)
        assert words in line, line
    assert "a single chain cannot show" in next(chains_verdict("Gibbs", diagnostics([np.nan] * 3, [100.0] * 3), 1))


def test_checks_and_verdicts_agree() -> None:
    """What a verdict calls converged passes both checks, and what it does not trust needs action."""
    for rhat, ess, results in (
        (1.005, 900.0, [PASSED, PASSED]),
        (1.005, 90.0, [PASSED, LOOK]),
        (1.03, 900.0, [LOOK, PASSED]),
        (1.2, 90.0, [ACT, ACT]),
        (np.inf, 900.0, [ACT, PASSED]),
    ):
        table = diagnostics([1.0, rhat, 1.0], [900.0, ess, 900.0])
        assert [check.result for check in checks_of_chains("Gibbs", table, 4)] == results
        (line,) = chains_verdict("Gibbs", table, 4)
        assert ("have converged" in line) == (results[0] == PASSED) and ("Do not trust" in line) == (results[0] == ACT)
    assert [check.result for check in checks_of_chains("Gibbs", table, 1)] == [ACT]


def test_digits_show_why_there_is_a_warning() -> None:
    assert [written_rhat(value) for value in (1.0, 1.01, 1.0104, 1.01004, 1.03)] == [
        "1.000",
        "1.010",
        "1.0104",
        "1.01004",
        "1.030",
    ]
    (agree, _) = checks_of_chains("Gibbs", diagnostics([1.0, 1.0104, 1.0], [900.0] * 3), 4)
    assert "R\u2011hat is 1.0104; at most 1.01" in agree.finding


@pytest.mark.parametrize(
    ("rhat", "ess", "times"), [(1.0, 900.0, 1), (1.0, 150.0, 3), (1.0104, 900.0, 2), (1.034, 350.0, 4), (1.5, 900.0, 2)]
)
def test_how_much_longer_chains_take(rhat: float, ess: float, times: int) -> None:
    """Effective sample sizes grow with the number of draws, and R-hat - 1 falls with it."""
    table = diagnostics([1.0, rhat, 1.0], [900.0, ess, 900.0])
    assert Convergence.of(table, 4).times == times
    actions = [check.action for check in checks_of_chains("Gibbs", table, 4, 90.0)]
    said = {2: "about two times as long (3 min instead of 90 s;", 3: "about three times as long (4 min instead of 90 s;"}
    assert times not in said or rhat > 1.05 or any(said[times] in action for action in actions)


def test_of_many_quantities_a_few_are_named() -> None:
    names = [f"strength[{j}]" for j in range(40)] + ["n_clusters", "log_joint"]
    table = pd.DataFrame({"rhat": 1.2, "ess_bulk": 50.0}, index=names)
    named = "the number of clusters, the log joint, strength[0], strength[1], strength[2] and 37 others"
    assert disagreeing(table) == named
    assert disagreeing(table.assign(rhat=1.0)) == ""
    assert disagreeing(table.iloc[-6:]).count(",") == 4 and "others" not in disagreeing(table.iloc[-6:])
