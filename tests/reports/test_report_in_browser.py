"""Reports in a real headless browser: nothing fails to load, nothing is fetched, nothing is wider than a phone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bnp_hier as bnp
from bnp_hier.datasets import Dataset
from bnp_hier.models import dpm
from bnp_hier.reports.report import Findings, write_report
from bnp_hier.reports.tree_page import write_tree_page

sync_api = pytest.importorskip("playwright.sync_api")
BROWSER = next((p for name in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(name))), None)
pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="there is no Chromium")]

LAPTOP, PHONE = (1280, 800), (390, 844)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A report with every section but the chains', and the page of a tree with many names."""
    folder = tmp_path_factory.mktemp("pages")
    X = np.random.default_rng(0).normal(size=(40, 3)) + 9.0 * (np.arange(40) % 2)[:, None]
    classes = np.array(["odd", "even"])[np.arange(40) % 2]
    data = Dataset("two", X, classes, ("width", "height", "depth"), tuple(f"row {i}" for i in range(40)), "")
    model = partial(dpm, component=bnp.NormalInverseGamma.from_data(X, learn=False), concentration=1.0)
    fits = {"MAP-DP": bnp.MAPDP(model, n_init=1).fit(X), "BHC": bnp.BHC(model, refine=None, progress_bar=False).fit(X)}
    findings = Findings.of(data, fits, held_out=X[:5] + 0.1)
    report = write_report(
        folder / "report.html",
        findings,
        problems=["Gibbs failed: <script>alert(1)</script>"],
        warnings=["column 'width' numbers the rows"],
        facts={"seed": "0"},
        reproduce="bnp-hier compare two.csv " + "--drop a-very-long-column-name " * 10,
    )
    n = 200
    tree = bnp.Dendrogram(np.column_stack([np.r_[0, np.arange(n, 2 * n - 2)], np.arange(1, n)]), np.linspace(5.0, -5.0, n - 1))
    many = write_tree_page(folder / "tree.html", tree, title="many", names=[f"a rather long name {i}" for i in range(n)])
    return {"report": report, "tree": many}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [LAPTOP, PHONE], ids=["laptop", "phone"])
@pytest.mark.parametrize("name", ["report", "tree"])
def test_page(name: str, size: tuple[int, int], scheme: str, pages: dict[str, Path], browser: Any) -> None:
    page = browser.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
    complaints: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("requestfailed", lambda request: complaints.append(request.url))
    page.on("request", lambda request: requests.append(request.url))
    address = pages[name].as_uri()
    page.goto(address, wait_until="load")

    assert complaints == []
    assert {url for url in requests if not url.startswith("data:")} == {address}
    shown = page.eval_on_selector_all("img", "images => images.map(i => i.complete && i.naturalWidth > 0 && i.clientWidth > 0)")
    assert len(shown) == (3 if name == "report" else 2) and all(shown)
    # the page itself never scrolls sideways, opened up as far as it goes; wide tables and pictures do in their own frames
    page.eval_on_selector_all("details", "folds => folds.forEach(fold => fold.open = true)")
    assert page.evaluate("document.scrollingElement.scrollWidth") <= size[0]
    # what is drawn lies in the order of the text: no part of the page covers the next
    boxes = page.eval_on_selector_all(
        "main > *, section > *", "all => all.map(e => e.getBoundingClientRect()).map(b => [b.top, b.bottom, b.height])"
    )
    assert boxes and all(height > 0 for _, _, height in boxes)
    sections = page.eval_on_selector_all(
        "section", "all => all.map(e => e.getBoundingClientRect()).map(b => [b.top, b.bottom])"
    )
    assert all(above[1] <= below[0] + 0.5 for above, below in zip(sections[:-1], sections[1:], strict=True))
    # text is large enough for a phone, and stands out from its paper
    assert page.evaluate("parseFloat(getComputedStyle(document.body).fontSize)") >= 16
    ink, paper = page.evaluate("[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]")
    assert abs(_brightness(ink) - _brightness(paper)) > 150 and (_brightness(paper) < 100) == (scheme == "dark")
    page.close()


def _brightness(color: str) -> float:
    """Mean of red, green and blue, from "rgb(r, g, b)"."""
    return sum(float(part) for part in color[color.index("(") + 1 : -1].split(",")[:3]) / 3
