"""What a release consists of: versions that agree, a wheel and a source distribution that hold what they should and work."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_string
from email.message import Message
from importlib.util import find_spec
from pathlib import Path

import pytest

from bnp_hier.datasets import listing
from tests.parameters import few

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
VERSION = PROJECT["version"]
SHIPPED = sorted(listing()["source"].loc[lambda source: source == "bnp_hier"].index)


def _text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_all_files_name_the_same_version() -> None:
    assert re.search(r"^version: (\S+)$", _text("CITATION.cff"), flags=re.MULTILINE)[1] == VERSION
    assert f"version = {{{VERSION}}}" in _text("docs/citing.md")


def test_changelog_has_this_version_with_its_date() -> None:
    """Newest first; each version has a link to its tag."""
    versions = re.findall(r"^## \[(.+?)\](?: - (\d{4}-\d\d-\d\d))?$", _text("CHANGELOG.md"), flags=re.MULTILINE)
    assert versions and all(name == "Unreleased" or date for name, date in versions)
    assert next(name for name, _ in versions if name != "Unreleased") == VERSION
    assert f"\n[{VERSION}]: {PROJECT['urls']['Homepage']}/releases/tag/v{VERSION}\n" in _text("CHANGELOG.md")


def test_data_sets_have_a_source_a_licence_and_a_citation() -> None:
    page = _text("bnp_hier/datasets/files/README.md")
    table, _, citations = page.partition("\n## Citations\n")
    for name in SHIPPED:
        (row,) = [line for line in table.splitlines() if line.startswith(f"| `{name}` |")]
        cells = [cell.strip() for cell in row.strip("|").split(" | ")]
        assert len(cells) == 6 and all(cells), name
        assert re.search(rf"^\| .*`{name}`.* \| .*\(\d{{4}}\)", citations, flags=re.MULTILINE), name
    assert ("CC BY 4.0" in table) == ("CC-BY-4.0" in PROJECT["license"])


def _description_on_pypi(page: str) -> str:
    """By setup.py, which must not set up anything here."""
    spec = importlib.util.spec_from_file_location("setup_script", ROOT / "setup.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("setuptools.setup", lambda **given: None)
        spec.loader.exec_module(module)
    description: str = module.description(page)
    return description


def test_links_of_the_description_work_outside_the_repository() -> None:
    home, tag = PROJECT["urls"]["Homepage"], f"v{VERSION}"
    page = "![a\nb](examples/iris.png) [c](docs/x.md#y), [d](https://e.org), [f](#g), [h][i]\n\n[i]: docs/i.md\n[j]: https://k.org\n"
    expected = page.replace("(examples", f"({home}/raw/{tag}/examples").replace("docs/", f"{home}/blob/{tag}/docs/")
    assert _description_on_pypi(page) == expected


def _built(folder: Path) -> tuple[Path, Path]:
    """The wheel and the source distribution, from the files that git knows."""
    clone, out = folder / "clone", folder / "dist"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(out), str(clone)], check=True, capture_output=True)
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return wheel, sdist


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    pytest.importorskip("build")
    return _built(tmp_path_factory.mktemp("release"))


def _tracked(folder: str) -> set[str]:
    """Files of the package, with the models where the installed package has them."""
    listed = subprocess.run(["git", "ls-files", folder], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(listed.stdout.split())


def _of_the_package() -> set[str]:
    models = {f"bnp_hier/{name}" for name in _tracked("models")}
    return (_tracked("bnp_hier") - {"bnp_hier/models"}) | models


def _metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        return message_from_string(archive.read(f"bnp_hier-{VERSION}.dist-info/METADATA").decode())


@pytest.mark.slow
def test_archives_hold_the_package_and_nothing_else(archives: tuple[Path, Path]) -> None:
    wheel, sdist = archives
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if not name.startswith(f"bnp_hier-{VERSION}.dist-info/")}
        licences = {name.partition("/licenses/")[2] for name in archive.namelist() if "/licenses/" in name}
    assert inside == _of_the_package()
    assert licences == {"LICENSE", "bnp_hier/datasets/files/README.md"}
    with tarfile.open(sdist) as tar:
        members = {member.name.partition("/")[2] for member in tar.getmembers() if not member.isdir()}
    made = {"PKG-INFO", "setup.cfg", *(name for name in members if name.startswith("bnp_hier.egg-info/"))}
    beside = {"CHANGELOG.md", "CITATION.cff", "LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.py"}
    assert members - made == _of_the_package() | beside


@pytest.mark.slow
def test_metadata_show_on_pypi_as_they_should(archives: tuple[Path, Path]) -> None:
    about = _metadata(archives[0])
    assert about["Version"] == VERSION and about["License-Expression"] == PROJECT["license"]
    assert about["Description-Content-Type"] == "text/markdown"
    description = about.get_payload()
    assert isinstance(description, str) and description.strip() == _description_on_pypi(_text("README.md")).strip()
    assert not re.search(r"\]\((?!https:|#)|^\[\w+\]: (?!https:)", description, flags=re.MULTILINE)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("twine") is None, reason="twine is not installed")
def test_archives_pass_the_check_of_pypi(archives: tuple[Path, Path]) -> None:
    words = [sys.executable, "-m", "twine", "--no-color", "check", "--strict", *map(str, archives)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.count("PASSED") == 2, done.stdout


@pytest.mark.parametrize("kind", few(["sdist", "wheel"], plain=0))
def test_installed_in_a_fresh_environment_it_passes_the_smoke_test(
    kind: str, archives: tuple[Path, Path], tmp_path: Path
) -> None:
    """The environment sees this one's dependencies, and nothing of the checkout."""
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    python = environment / "bin" / "python"
    archive = archives[("wheel", "sdist").index(kind)]
    subprocess.run([str(python), "-m", "pip", "install", "-q", "--no-deps", str(archive)], check=True)
    numpyro = find_spec("numpyro")
    assert numpyro is not None and numpyro.origin is not None
    # dependencies come last on the path, so that the package is the installed one
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(f"{Path(numpyro.origin).parents[1]}\n", encoding="utf-8")
    words = [str(python), str(ROOT / ".ci" / "smoke.py")]
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=alone, check=False)
    assert done.returncode == 0, done.stderr
    assert f"bnp_hier {VERSION}, licences ['LICENSE', 'README.md'], typed: True" in done.stdout
    assert all(name in done.stdout for name in SHIPPED) and "3 clusters of iris" in done.stdout
