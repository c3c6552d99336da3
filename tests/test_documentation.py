"""The documentation builds, covers every public name, and what it shows runs; links lead somewhere."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import pkgutil
import re
import shlex
import subprocess
import sys
import urllib.parse
import zlib
from pathlib import Path
from types import ModuleType

import pytest
from numpyro.infer.mcmc import MCMCKernel
from typer.testing import CliRunner

import bnp_hier
from bnp_hier import datasets, deterministic, evidence, kernels, models, plots, posterior
from bnp_hier.cli import COMMANDS, app
from examples import gallery
from tests.parameters import few

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)
ALGORITHMS = sorted((DOCS / "algorithms").glob("*.md"))
HEADINGS = ["What it computes", "When to use it", "When not", "Cost", "Errata of the papers", "Example", "Source"]
FENCE = re.compile(r"^```.*?^```$", flags=re.DOTALL | re.MULTILINE)
QUICK = ("dp_means.md", "map_dp.md")
"""Pages whose code compiles little, run in the plain tests."""


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", _text(page), flags=re.DOTALL | re.MULTILINE)


def _examples() -> list[doctest.DocTest]:
    found = pkgutil.walk_packages(bnp_hier.__path__, "bnp_hier.")
    modules = [bnp_hier, *(importlib.import_module(module.name) for module in found)]
    return [test for module in modules for test in doctest.DocTestFinder().find(module) if test.examples]


EXAMPLES = _examples()
RUNNABLE = sorted(
    (page for page in PAGES if _blocks(page) and page.parent.name != "guide"), key=lambda page: (page.name not in QUICK, page)
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages as HTML, built without a warning."""
    out = tmp_path_factory.mktemp("docs")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-d", str(out / "trees")]
    done = subprocess.run([*command, str(DOCS), str(out / "html")], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return out / "html"


def _documented(built: Path) -> set[str]:
    """Names of all Python objects in the inventory that Sphinx writes for other projects."""
    raw = (built / "objects.inv").read_bytes()
    entries = zlib.decompress(raw.split(b"\n", 4)[4]).decode().splitlines()
    return {entry.split()[0] for entry in entries if entry.split()[1].startswith("py:")}


@pytest.mark.slow
def test_pages_build_and_document_every_public_name(built: Path) -> None:
    documented = _documented(built)
    public = {f"bnp_hier.{name}" for name in (*bnp_hier.__all__, *posterior.__all__)}
    for part in (datasets, evidence, models, plots):
        public |= {f"{part.__name__}.{name}" for name in part.__all__}
    public |= {f"bnp_hier.kernels.{name}" for name in kernels.__all__ if name.endswith("State")}
    missing = sorted(public - documented)
    assert not missing, f"not in docs/api: {missing}"


@pytest.mark.slow
def test_built_pages_of_the_api_have_tables_and_full_descriptions(built: Path) -> None:
    page = _text(built / "api" / "comparing.html")
    assert (
        'id="bnp_hier.cluster"' in page and 'blob/main/bnp_hier/clustering/one_call.py"' in page and "in the build" not in page
    )
    assert 'href="notebooks/which_clustering.html"' in _text(built / "notebooks.html")


@pytest.mark.slow
def test_pages_need_no_network(built: Path) -> None:
    pages = [_text(page) for page in built.rglob("*.html")]
    assert not any(re.search(r'(?:src|<link[^>]*href)="(?:https?:)?//', page) for page in pages)
    assert sum(page.count("<math") for page in pages) > 100


@pytest.mark.slow
def test_every_page_is_reached(built: Path) -> None:
    listed = set(re.findall(r'href="([^"#]+)\.html', _text(built / "index.html")))
    assert {str(page.relative_to(DOCS).with_suffix("")) for page in PAGES} - listed <= {"index"}


@pytest.mark.filterwarnings("ignore:compare_models.*a Pareto k above:RuntimeWarning")  # of few rows
@pytest.mark.parametrize("page", few(RUNNABLE, plain=len(QUICK), slow=len(RUNNABLE)), ids=lambda page: page.stem)
def test_code_of_a_page_runs(page: Path) -> None:
    names = {"__name__": "documentation"}
    for block in _blocks(page):
        exec(compile(block, str(page), "exec"), names)


def test_quick_pages_come_first() -> None:
    assert {page.name for page in RUNNABLE[: len(QUICK)]} == set(QUICK)


@pytest.mark.slow
def test_the_worked_example_for_contributors_runs() -> None:
    """And the files that the page names are there."""
    page = ROOT / "CONTRIBUTING.md"
    for block in _blocks(page):
        exec(compile(block, page.name, "exec"), {"__name__": "contributing"})
    named = set(re.findall(r"`((?:bnp_hier|tests)/[\w/]+\.py)`", _text(page)))
    assert len(named) >= 8 and all((ROOT / name).exists() for name in named)


SLOW_EXAMPLES = ("AuxiliaryGibbs", "recommend", "MixtureModel", "outlier_pvalues", "cluster_parameters")
"""Objects whose examples take seconds to compile."""


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(
            example, id=example.name, marks=pytest.mark.slow if example.name.rpartition(".")[2] in SLOW_EXAMPLES else ()
        )
        for example in EXAMPLES
    ],
)
def test_docstring_examples(example: doctest.DocTest) -> None:
    told: list[str] = []
    assert doctest.DocTestRunner().run(example, out=told.append).failed == 0, "".join(told)


def test_there_are_docstring_examples_of_the_central_names() -> None:
    assert len(EXAMPLES) >= 12


@pytest.mark.parametrize("page", ALGORITHMS, ids=lambda page: page.stem)
def test_algorithm_pages_have_the_same_sections(page: Path) -> None:
    text = FENCE.sub("", _text(page))
    assert re.findall(r"^## (.*)$", text, flags=re.MULTILINE) == HEADINGS
    assert "$" in text and _blocks(page)
    assert all(section.strip() for section in re.split(r"^## .*$", _text(page), flags=re.MULTILINE)[1:])


def test_every_estimator_and_kernel_has_a_page() -> None:
    titles = {page: _text(page).splitlines()[0] for page in ALGORITHMS}
    samplers = [name for name in kernels.__all__ if _is_kernel(getattr(kernels, name))]
    fits = [name for name in deterministic.__all__ if isinstance(getattr(deterministic, name), type)]
    for name in samplers + fits:
        paged = any(re.search(rf"`{name}\b", title) for title in titles.values())
        assert paged, f"no page in docs/algorithms has {name} in its title"
    everything = "".join(map(_text, ALGORITHMS))
    functions = ("recursive_kmeans", "dpm_stick_breaking", "tree_bound", "compare_models", "loo", *evidence.KINDS)
    assert all(name in everything for name in functions)


def _is_kernel(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, MCMCKernel)


def test_gallery_draws_every_plot() -> None:
    """Each block is followed by its image, which `examples/gallery.py` writes; the images are small."""
    page = DOCS / "gallery.md"
    code = "".join(_blocks(page))
    assert not [name for name in plots.__all__ if f"bnp.plots.{name}(" not in code]
    drawn = [block["image"] for block in gallery.BLOCK.finditer(_text(page))]
    assert len(drawn) == len(set(drawn)) == len(_blocks(page)) and all("figure = " in block for block in _blocks(page))
    sizes = {path.name: path.stat().st_size for path in (DOCS / "gallery").iterdir()}
    assert set(sizes) == set(drawn)
    assert max(sizes.values()) < 60_000 and sum(sizes.values()) < 1_000_000


def _links(page: Path) -> list[str]:
    text = re.sub(r"`[^`\n]*`", "", FENCE.sub("", _text(page)))
    return re.findall(r"\]\(([^()\s]+)\)", text)


def _anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub and MyST make them."""
    headings = re.findall(r"^#{1,3} (.*)$", FENCE.sub("", _text(page)), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CHANGELOG.md", *PAGES], ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for link in _links(page):
        parts = urllib.parse.urlsplit(link)
        if parts.scheme:
            assert parts.scheme == "https" and "." in parts.netloc, link
            continue
        target = page.parent / parts.path if parts.path else page
        assert target.exists(), link
        assert not parts.fragment or parts.fragment in _anchors(target), link


def _script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def command_options() -> ModuleType:
    """The script that writes the tables of options."""
    return _script("command_options")


@pytest.fixture(scope="module")
def api_tables() -> ModuleType:
    """The script that writes the tables of names."""
    return _script("api_tables")


API = sorted((DOCS / "api").glob("*.md"))


@pytest.mark.parametrize("page", API, ids=lambda page: page.stem)
def test_tables_of_names_are_those_of_the_package(page: Path, api_tables: ModuleType) -> None:
    message = "signatures or docstrings have changed: run `python docs/api_tables.py`, and commit docs/api"
    assert _text(page) == api_tables.with_tables(_text(page)), message
    assert "eval-rst" not in re.sub(r"<!--.*?-->", "", _text(page), flags=re.DOTALL)


def test_tables_of_names_have_every_public_name() -> None:
    """With the sentence that its docstring begins with."""
    rows = dict(re.findall(r"^\| `(?:\w+\.)*(\w+)[^`]*` \| (.+?) \|$", "".join(map(_text, API)), flags=re.MULTILINE))
    parts = {"datasets", "distributed", "evidence", "models", "plots"}
    for name in set(bnp_hier.__all__) - parts:
        first = (getattr(bnp_hier, name).__doc__ or "").split()[:4]
        assert [word.strip(".") for word in rows[name].split()[:4]] == [word.strip(".") for word in first], name


MEANING = "Return the share of the draws in which two items are in the same cluster, for every pair of items."
PAGE = """# Names

<!-- names -->

| name | what it is or does |
|---|---|
| `coclustering(draws, *, rows=None)` | {} [Source]({}) |

<!-- in the build:

```{{eval-rst}}
.. autofunction:: bnp_hier.coclustering
```
-->

Text.
"""


def test_a_table_of_names_is_written_and_completed_in_the_build(api_tables: ModuleType) -> None:
    page = PAGE.format(MEANING, "../../bnp_hier/posterior/partitions.py")
    assert api_tables.with_tables(page.replace("(draws, *, rows=None)", "(old)").replace("Return", "Save")) == page
    built = api_tables.as_built(page, "https://e.org")
    assert "(https://e.org/blob/main/bnp_hier/posterior/partitions.py)" in built
    assert built.endswith("\n```{eval-rst}\n.. autofunction:: bnp_hier.coclustering\n```\n\nText.\n")
    with pytest.raises(ValueError, match="bnp_hier.coclustering is not in a comment"):
        api_tables.with_tables(page.replace("<!-- in the build:", "").replace("-->", ""))
    with pytest.raises(ValueError, match="no objects are named"):
        api_tables.with_tables(page.replace("autofunction", "function"))
    with pytest.raises(ValueError, match="there is no bnp_hier.nothing"):
        api_tables.with_tables(page.replace("bnp_hier.coclustering", "bnp_hier.nothing"))


def test_tables_of_options_are_those_of_the_commands(command_options: ModuleType) -> None:
    page = _text(DOCS / "commands.md")
    message = "the options of the commands have changed: run `python docs/command_options.py`, and commit docs/commands.md"
    assert page == command_options.with_tables(page), message


@pytest.mark.parametrize(
    ("old", "new"), [("| `4` |", "| 5 |"), ("| Random seed. |", "| Seed. |"), ("| `--drop` |", "| `-d` |")]
)
def test_a_table_that_differs_is_found(old: str, new: str, command_options: ModuleType) -> None:
    page = _text(DOCS / "commands.md")
    assert old in page and command_options.with_tables(page.replace(old, new)) == page
    with pytest.raises(ValueError, match="expected one for each of"):
        command_options.with_tables(page.replace("<!-- options of fit -->", ""))


def test_every_command_has_a_section_with_all_of_its_options() -> None:
    """Options are read from the help texts, which the tables are not made of; the examples have no others."""
    page, runner = _text(DOCS / "commands.md"), CliRunner()
    examples = [shlex.split(line)[1:] for line in re.findall(r"^\$ (bnp-hier .*)$", page, flags=re.MULTILINE)]
    for name in (command.__name__.replace("_", "-") for command in COMMANDS):
        section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        shown = re.sub(r"\x1b\[[\d;]*m", "", runner.invoke(app, [name, "--help"], env={"COLUMNS": "300"}).output)
        options = set(re.findall(r"^\W*(--[a-z][a-z-]*)", shown, flags=re.MULTILINE)) - {"--help"}
        assert options and options <= set(re.findall(r"^\| `(--[a-z-]+)`", section, flags=re.MULTILINE)), name
        used = [word for words in examples if words[0] == name for word in words[1:] if word.startswith("--")]
        assert set(used) <= options and f"$ bnp-hier {name}" in section, name
        assert "**JSON**" in section and ("**Files**" in section or "writes no files" in section), name


def test_contributors_are_told_how_external_links_are_checked() -> None:
    assert "python -m sphinx -b linkcheck docs docs/_build/links" in _text(ROOT / "CONTRIBUTING.md")
