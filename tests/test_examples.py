"""The README's code and the examples run, at reduced sizes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.parameters import few

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _blocks(page: str, language: str = "python") -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=600, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return done


def test_readme_is_one_page() -> None:
    """About 600 words beside code, the table and the addresses of links; whatever it links to is there."""
    prose = re.sub(r"^```.*?^```$", "", README, flags=re.DOTALL | re.MULTILINE)
    prose = re.sub(r"^\|.*$|^\[\w+\]: .*$", "", prose, flags=re.MULTILINE)
    prose = re.sub(r"\]\([^)]*\)", "]", re.sub(r"!\[[^\]]*\]", "", prose))
    assert 300 < len(prose.split()) < 650
    targets = dict(re.findall(r"^\[(\w+)\]: (\S+)$", README, flags=re.MULTILINE))
    assert set(re.findall(r"\]\[(\w+)\]", README)) == set(targets)


@pytest.mark.parametrize("page", few(["README.md", "docs/guide/quick_start.md"]))
def test_the_one_call_of_a_page_runs(page: str, tmp_path: Path) -> None:
    """With the quickest method."""
    report = tmp_path / "report.html"
    code, changes = re.subn(r"(bnp\.cluster\(.*?)\)(\n)", r"\1, methods='map-dp')\2", _blocks(page)[0])
    assert changes == 1
    code = code.replace('"report.html"', repr(str(report))).replace('"fit.npz"', repr(str(tmp_path / "fit.npz")))
    printed = _run("-c", code).stdout
    assert "Three clusters hold all rows, by MAP-DP" in printed and "distinguishing features" in printed and report.exists()


@pytest.mark.optimised
@pytest.mark.slow
def test_readme_example_prints_what_it_shows() -> None:
    """The rounded numbers; and the percentages elsewhere in the README, within what random numbers may change.

    Programs that XLA compiles otherwise round otherwise, which changes the draws. The probabilities then have a standard
    deviation of 0.012, that of four chains of 4,000 draws; all limits leave room for three of these and rounding.
    """
    _, code = _blocks("README.md")
    more = "\nz = mcmc.get_samples()['z']\nprint(bnp.number_of_clusters(z)[3:6], bnp.number_of_clusters(z, 0.02)[4])\n"
    printed = _run("-c", code + more).stdout
    printed, _, exact = printed.strip().rpartition("\n")
    exact, four_large = exact.rsplit(" ", 1)
    four_large = float(four_large)
    headline, example = _blocks("README.md", "text")
    table, probabilities = printed.rsplit("\n", 1)
    shown_table, shown_probabilities = example.strip().rsplit("\n", 1)
    for one, shown in zip(_shown(table), _shown(shown_table), strict=True):  # partitions of nearly the same loss differ by 0.4
        assert abs(one - shown) < (0.5 if shown < 0 else 0.021)
    for rounded in (probabilities, shown_probabilities):
        np.testing.assert_allclose(_shown(rounded)[3:6], _shown(exact), atol=0.1)
    assert re.findall(r"^(Gibbs|BHC) +(\d)", table, flags=re.MULTILINE) == [("Gibbs", "3"), ("BHC", "3")]
    share = dict(zip(("three", "four", "five"), _shown(exact), strict=True))
    caption = dict(re.findall(r"(three|four)(?: clusters)? \((\d+)%\)", README.lower()))
    assert set(caption) == {"three", "four"}
    for name, percent in caption.items():
        assert abs(share[name] - float(percent) / 100) < 0.06
    assert "Three clusters hold all rows (90% credible: 3 to 4 of at least 2%)" in headline
    assert 0.05 < four_large < 0.5


@pytest.mark.slow
def test_quick_start() -> None:
    _, block = _blocks("docs/guide/quick_start.md")
    code, changes = re.subn(
        r"num_warmup=500, num_samples=1000, num_chains=4", "num_warmup=20, num_samples=30, num_chains=2", block
    )
    assert changes == 1
    printed = _run("-c", code + "\nassert set(idata['posterior'].data_vars) >= {'alpha', 'z', 'n_clusters'}\n").stdout
    for word in ("Gibbs", "BHC", "MAP-DP", "held_out", "evidence_bound", "rhat"):
        assert word in printed


@pytest.mark.slow
def test_own_model() -> None:
    check = "\nassert set(bhc.hyperparameters_) == {'alpha', 'rate'} and len(bhc.objective_trace_) > 1\n"
    _run("-c", _blocks("docs/guide/your_own_model.md")[0] + check)


@pytest.mark.slow
def test_posterior(tmp_path: Path) -> None:
    (block,) = _blocks("docs/guide/posterior.md")
    code = block.replace('"iris-run.npz"', repr(str(tmp_path / "run.npz"))).replace("num_samples=1000", "num_samples=200")
    check = "\nagain = bnp.ResumableRun.load(run.path, mcmc, X)\nassert again.finished and len(estimate) == 150\n"
    check += "assert 0 < ball.radius < 2 and doubt.shape == (150,)\n"
    check += "assert parameters['parameters'].shape[:2] == (4, 200)\n"
    assert "n_clusters" in _run("-W", "ignore", "-c", code + check).stdout


def _columns(text: str, *names: str) -> np.ndarray:
    """Numbers in the lines of a table that begin with some of the names."""
    return np.array([_shown(line.partition("]")[2] or line) for line in text.splitlines() if line.startswith(names)])


@pytest.mark.optimised
@pytest.mark.slow
def test_any_likelihood_prints_what_it_shows() -> None:
    """The centres of the clusters; the page shows chains that agree, but with other random numbers one may be stuck."""
    printed = _run("-c", _blocks("docs/guide/your_own_model.md")[2]).stdout
    (shown,) = _blocks("docs/guide/your_own_model.md", "text")
    now, then = (_columns(text, "loc[")[:, 0] for text in (printed, shown))
    assert now.shape == then.shape == (6,)
    np.testing.assert_allclose(now, then, atol=0.1)
    assert _columns(shown, "log_joint", "n_clusters", "largest", "entropy")[:, 0].max() < 1.02
    numbers = [_shown(re.search(r"^\[.*\]$", text, flags=re.MULTILINE)[0]) for text in (printed, shown)]
    assert [probabilities.argmax() for probabilities in numbers] == [3, 3]


@pytest.mark.slow
def test_missing_values_in_a_model_of_ones_own() -> None:
    found = _run("-W", "ignore", "-c", _blocks("docs/guide/your_own_model.md")[1]).stdout
    assert found.startswith("2 [") and found.count("[") == 2


@pytest.mark.slow
def test_trees_and_evidence() -> None:
    check = "\nassert bhc.log_evidence_bound_ <= pairs + 1e-9 and pairs.coclustering().shape == (30, 30)\n"
    check += "assert len(table) >= 9 and fast.n_clusters_ >= 1\n"
    printed = _run("-c", _blocks("docs/guide/trees_and_evidence.md")[0] + check).stdout
    assert "pairs" in printed and "lower bound" in printed


@pytest.mark.slow
def test_hard_assignments() -> None:
    check = "\nassert abs(bkm.free_energy_ + bkm.log_joint_) < 1e-6 and bkm.free_energy_ <= tree.free_energy_ + 1e-6\n"
    check += "assert reference.n_clusters_ == bkm.n_clusters_\n"
    _run("-c", _blocks("docs/guide/hard_assignments.md")[0] + check)


@pytest.mark.slow
def test_streams() -> None:
    check = "\nassert stream.n_clusters_ == 3 and stream.n_seen_ == 20_050 and len(stream.labels_) == 50\n"
    check += "assert fit.n_clusters_ == 3 and isinstance(density, da.Array) and (same.labels_ == fit.labels_).all()\n"
    check += "assert merged.n_clusters_ == 3 and merged.n_seen_ == 4000\n"
    check += "assert merged.log_joint_ < tree.log_evidence_bound + 1e-6\n"
    _run("-c", "\n".join(_blocks("docs/guide/many_rows.md")) + check)


@pytest.mark.slow
def test_hierarchical_mixtures() -> None:
    (block,) = _blocks("docs/guide/hierarchical_mixtures.md")
    code = block.replace("num_warmup=300, num_samples=300, num_chains=4", "num_warmup=10, num_samples=15, num_chains=2")
    check = "\nassert tree.n_items == 150 and len(draws.support(tree)) == tree.n_nodes and figure.axes\n"
    assert "log_tree_prior" in _run("-W", "ignore", "-c", code + check).stdout


def _shown(text: str) -> np.ndarray:
    return np.array(re.findall(r"-?\d+\.\d*|-?\d+", text), dtype=float)


@pytest.mark.slow
def test_choosing_priors_shows_its_output() -> None:
    """The tables of expected and found numbers of clusters: both deterministic."""
    printed = _run("-c", "\n".join(_blocks("docs/guide/priors.md"))).stdout
    learned, expected, others, shapes, found = _blocks("docs/guide/priors.md", "text")
    lines = printed.splitlines()
    np.testing.assert_allclose(_shown(lines[0]), _shown(learned), rtol=0.02)
    np.testing.assert_allclose(_shown("\n".join(lines[1 : 1 + len(expected.splitlines())])), _shown(expected), rtol=1e-6)
    assert others.rstrip() in printed and shapes.rstrip() in printed
    np.testing.assert_allclose(_shown("\n".join(lines[-len(found.splitlines()) :])), _shown(found), atol=0.11)


@pytest.mark.optimised
@pytest.mark.slow
def test_the_bad_run_is_bad_and_the_good_one_good() -> None:
    """R-hat as the page says: far from 1, nearly, and at most 1.01 (with room for other random numbers)."""
    check = """
assert bnp.diagnostics(bad)["rhat"].max() > 1.2
assert bnp.diagnostics(better)["rhat"].max() < bnp.diagnostics(bad)["rhat"].max()
assert bnp.diagnostics(good)["rhat"].max() < 1.02 and bnp.diagnostics(good)["ess_bulk"].min() > 300
"""
    _run("-c", "\n".join(_blocks("docs/guide/when_chains_disagree.md")) + check)


def test_what_a_fresh_machine_must_pass_begins_with_the_second_command() -> None:
    _, second = re.findall(r"```sh\n(python3 -m venv .*?)\n```", README)
    install, tests = second.rsplit(" && ", 1)
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert lines.index("unset BNP_HIER_DATA") < lines.index(install) < lines.index(tests)


@pytest.mark.slow
def test_scikit_learn_guide_prints_what_it_shows() -> None:
    printed = _run("-c", "\n".join(_blocks("docs/guide/scikit_learn.md"))).stdout
    shown = "".join(_blocks("docs/guide/scikit_learn.md", "text"))
    assert re.findall(r"[A-Za-z]+", printed) == re.findall(r"[A-Za-z]+", shown)
    numbers = [np.array(re.findall(r"-?\d+\.\d", text), dtype=float) for text in (printed, shown)]
    np.testing.assert_allclose(numbers[0], numbers[1], atol=0.3)
    assert numbers[0][1] > numbers[0][2] + 0.3  # the leak


@pytest.mark.optimised
@pytest.mark.slow
def test_covariates_guide_prints_what_it_shows() -> None:
    """Chains that agree, and the lines of the clusters, with what other random numbers may change."""
    printed = _run("-c", "\n".join(_blocks("docs/guide/covariates.md"))).stdout
    shown = "".join(_blocks("docs/guide/covariates.md", "text"))
    for text in (printed, shown):
        assert text.startswith("()") and "held_out" in text
        assert _columns(text, "log_joint", "n_clusters", "largest", "entropy")[:, 0].max() < 1.05
        sizes, probabilities = re.search(r"\[([\d ]+)\] \[\[(.*?)\]\]", text, flags=re.DOTALL).groups()
        assert np.array(sizes.split(), dtype=int)[:2].sum() > 50
        assert np.array(re.findall(r"[\d.]+", probabilities), dtype=float).reshape(2, -1).max(1).min() > 0.8
    now, then = (_columns(text, "intercept[", "slope[", "noise[")[:, :2] for text in (printed, shown))
    assert now.shape == then.shape == (6, 2)
    np.testing.assert_allclose(now, then, atol=0.03)


@pytest.mark.slow
def test_grid_search_example() -> None:
    printed = _run("examples/grid_search.py", "--rows", "24", "--repeats", "1").stdout
    table, searched = (re.findall(r"^(\w+) .*?(-?\d+\.\d+)\s*$", part, flags=re.MULTILINE) for part in printed.split("\n\n"))
    assert [name for name, _ in table] == ["normal", "diagonal"]
    scores = [float(score) for _, score in searched]
    assert len(scores) == 10 and scores == sorted(scores, reverse=True) and searched[0][0] == "normal"


def test_guides_have_no_untested_code() -> None:
    pages = sorted((ROOT / "docs" / "guide").glob("*.md"))
    counts = {page.stem: len(_blocks(str(page.relative_to(ROOT)))) for page in pages}
    tested = {"quick_start": 2, "your_own_model": 3, "posterior": 1, "trees_and_evidence": 1, "hard_assignments": 1}
    tested |= {
        "many_rows": 4,
        "hierarchical_mixtures": 1,
        "priors": 7,
        "when_chains_disagree": 3,
        "scikit_learn": 5,
        "covariates": 2,
    }
    assert {name: count for name, count in counts.items() if count} == tested
    assert len(_blocks("README.md")) == 2


@pytest.mark.slow
def test_stick_breaking_example() -> None:
    sizes = ("--num-warmup", "10", "--num-samples", "20", "--num-chains", "2", "--truncation", "3")
    printed = _run("examples/stick_breaking_vs_gibbs.py", *sizes).stdout
    assert "R-hat of component means" in printed and "log_joint" in printed and "held_out" in printed


@pytest.mark.slow
def test_readme_picture(tmp_path: Path) -> None:
    out = tmp_path / "iris.png"
    _run("examples/readme_picture.py", "--num-warmup", "20", "--num-samples", "30", "--out", str(out))
    assert out.read_bytes().startswith(b"\x89PNG") and (ROOT / "examples" / "iris.png").exists()
