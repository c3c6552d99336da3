"""Reports in a headless browser: clicks, keys, search, zoom and sorting, on phones and desks, in light and dark mode."""

from __future__ import annotations

import io
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest

import bnp_hier as bnp
from bnp_hier.datasets import Dataset
from bnp_hier.models import dpm
from bnp_hier.reports.browsable_tree import BrowsableTree
from bnp_hier.reports.findings import Findings
from bnp_hier.reports.report import write_report
from bnp_hier.reports.tree_page import write_tree_page
from bnp_hier.reports.web_page import Section, write_page

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER = next((found for name in NAMES if (found := shutil.which(name))), None)

EXTRA = "pip install 'bnp-hier[browser]'"
sync_api = pytest.importorskip("playwright.sync_api", reason=f"there is no Playwright: {EXTRA}")
pytestmark = pytest.mark.slow

WIDTHS = (390, 768, 1600)
PAGES = ("report", "tree150", "tree5000", "levels")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        own = playwright.chromium.executable_path
        if BROWSER is None and not Path(own).exists():
            pytest.skip("there is no Chromium: install one, or run playwright install chromium")
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A report with every section but the chains', trees of 150 and 5,000 leaves, and a tree of any branching."""
    folder = tmp_path_factory.mktemp("pages")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3)) + 9.0 * (np.arange(40) % 2)[:, None]
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
        files={"labels.csv": "labels"},
        code={"Reproduce": "bnp-hier compare two.csv " + "--drop a-very-long-column-name " * 10},
    )
    trees = {f"tree{n}": tree_page(folder / f"tree{n}.html", n, rng) for n in (150, 5000)}
    paths = bnp.Hierarchy(np.column_stack([1 + np.arange(60) // 20, 10 + np.arange(60) // 5]))
    levels = BrowsableTree.of_levels(paths, np.linspace(1.0, 0.2, paths.n_nodes), [f"item {i}" for i in range(60)])
    sections = [Section("A tree", trees={"a tree of any branching": levels})]
    return {"report": report, **trees, "levels": write_page(folder / "levels.html", title="levels", sections=sections)}


def tree_page(path: Path, n: int, rng: np.random.Generator) -> Path:
    """A page with a random tree, whose names are unique and need escaping."""
    alive, children = list(range(n)), []
    for node in range(n, 2 * n - 1):
        one, other = rng.choice(min(len(alive), 8), size=2, replace=False)
        children.append((alive[one], alive[other]))
        alive = [item for place, item in enumerate(alive) if place not in (one, other)] + [node]
    tree = bnp.Dendrogram(np.array(children), np.linspace(9.0, -2.0, n - 1))
    names = [f"<b>name</b> & {i}" for i in range(n)]
    return write_tree_page(path, tree, title=str(n), names=names, classes=np.array(["red", "green", "blue"])[np.arange(n) % 3])


def opened(browser: Any, path: Path, width: int = 1600, scheme: str = "light", **options: Any) -> tuple[Any, list[str]]:
    """A page, and a list that collects what goes wrong on it and what it fetches."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme, **options)
    found: list[str] = []
    page.on("console", lambda message: found.append(message.text))
    page.on("pageerror", lambda error: found.append(str(error)))
    page.on("request", lambda request: found.append(request.url) if request.url not in (path.as_uri(), "data:,") else None)
    page.goto(path.as_uri(), wait_until="load")
    found[:] = [each for each in found if not each.startswith("data:image/png")]
    return page, found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PAGES)
def test_page_fits_and_is_accessible(name: str, width: int, scheme: str, pages: dict[str, Path], browser: Any) -> None:
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="there is no axe: pip install 'bnp-hier[browser]'"
    )
    page, found = opened(browser, pages[name], width, scheme)
    assert found == []
    shown = page.eval_on_selector_all("img", "images => images.map(i => i.complete && i.naturalWidth > 0 && i.clientWidth > 0)")
    assert len(shown) == (2 if name == "report" else 0) and all(shown)
    # the page itself never scrolls sideways, opened up as far as it goes; wide tables and figures do in their own frames
    page.eval_on_selector_all("details", "folds => folds.forEach(fold => fold.open = true)")
    assert page.evaluate("document.scrollingElement.scrollWidth") <= width
    boxes = page.eval_on_selector_all("section", "all => all.map(e => e.getBoundingClientRect()).map(b => [b.top, b.bottom])")
    assert all(above[1] <= below[0] + 0.5 for above, below in zip(boxes[:-1], boxes[1:], strict=True))
    # text is large enough for a phone, and stands out from its paper
    assert page.evaluate("parseFloat(getComputedStyle(document.body).fontSize)") >= 16
    ink, paper = page.evaluate("[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]")
    assert abs(_brightness(ink) - _brightness(paper)) > 150 and (_brightness(paper) < 100) == (scheme == "dark")
    for figure in page.query_selector_all(".plot img, .drawing")[:2]:  # dark ink on light paper, or the reverse
        pixels = matplotlib.image.imread(io.BytesIO(figure.screenshot()), format="png")[..., :3].mean(-1)
        assert (np.median(pixels) < 0.2) == (scheme == "dark") and np.ptp(pixels) > 0.6
    page.eval_on_selector_all("details", "folds => folds.forEach(fold => fold.open = false)")
    serious = [each for each in axe.Axe().run(page).response["violations"] if each["impact"] in ("serious", "critical")]
    assert [(each["id"], each["nodes"][0]["html"][:200]) for each in serious] == []
    assert found == []
    page.close()


def _brightness(color: str) -> float:
    """Mean of red, green and blue, from "rgb(r, g, b)"."""
    return sum(float(part) for part in color[color.index("(") + 1 : -1].split(",")[:3]) / 3


def items(page: Any) -> int:
    return page.locator("[role=treeitem]").count()


@pytest.mark.parametrize(("name", "width"), [("tree150", 1600), ("tree150", 390), ("tree5000", 1600), ("tree5000", 390)])
def test_tree_opens_and_closes(name: str, width: int, pages: dict[str, Path], browser: Any) -> None:
    page, found = opened(browser, pages[name], width)
    n = int(name[4:])
    few = items(page)
    assert 40 <= few <= 120
    closed = page.locator("[aria-expanded=false]").first
    before = closed.get_attribute("data-id")
    closed.locator(".node").click()
    assert page.locator(f'[data-id="{before}"]').get_attribute("aria-expanded") == "true" and items(page) > few
    page.locator(f'[data-id="{before}"] .node').click()
    assert items(page) == few
    start = time.monotonic()
    page.get_by_role("button", name="Open all").click()
    assert items(page) == 2 * n - 1 and page.locator("[aria-expanded=false]").count() == 0
    assert time.monotonic() - start < 20.0
    page.get_by_role("button", name="Overview").click()
    assert items(page) == few
    assert page.evaluate("document.scrollingElement.scrollWidth") <= width and found == []
    page.close()


def test_tree_is_moved_about_by_keys(pages: dict[str, Path], browser: Any) -> None:
    page, found = opened(browser, pages["tree150"])

    def focused(attribute: str) -> str | None:
        return page.evaluate(f"document.activeElement.getAttribute('{attribute}')")

    page.locator(".tree [data-do=whole]").focus()
    page.keyboard.press("Tab")
    assert focused("data-id") == "-1" and focused("aria-expanded") == "true" and focused("aria-level") == "1"
    assert page.locator("[role=treeitem][tabindex='0']").count() == 1
    page.keyboard.press("ArrowLeft")  # closes the root
    assert focused("aria-expanded") == "false" and items(page) == 1
    page.keyboard.press("Enter")
    assert focused("aria-expanded") == "true" and items(page) > 1
    page.keyboard.press("ArrowRight")
    assert focused("aria-level") == "2"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("End")
    last = focused("data-id")
    page.keyboard.press("ArrowDown")
    assert focused("data-id") == last  # there is nothing below
    page.keyboard.press("ArrowUp")
    assert focused("data-id") != last
    page.keyboard.press("Home")
    assert focused("data-id") == "-1"
    # what is said of a node is shown where it is
    tip = page.locator(".tip")
    assert tip.is_visible() and "merge probability 0.12 (log odds −2)" in tip.inner_text() and "150 items" in tip.inner_text()
    assert focused("aria-label") == tip.inner_text()
    page.keyboard.press("Escape")
    assert tip.is_hidden()
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.tagName") == "INPUT" and found == []
    page.close()


def test_odds_and_classes_are_shown_on_hover(pages: dict[str, Path], browser: Any) -> None:
    page, found = opened(browser, pages["tree150"])
    tip = page.locator(".tip")
    node = page.locator("[aria-expanded=true]").first
    node.locator(".node").hover()
    assert (
        tip.is_visible()
        and "merge probability" in tip.inner_text()
        and "Known class: blue (50), green (50), red (50)" in tip.inner_text()
    )
    frame, box = page.locator(".tree").bounding_box(), tip.bounding_box()
    assert box["x"] >= frame["x"] and box["x"] + box["width"] <= frame["x"] + frame["width"] + 0.5
    page.mouse.move(2, 2)
    assert tip.is_hidden() and found == []
    # the strip beside a closed node is divided as its items are
    closed = page.locator("[aria-expanded=false]").first
    parts = closed.locator("rect.class").evaluate_all("all => all.map(e => Number(e.getAttribute('width')))")
    assert sum(parts) == pytest.approx(64.0) and 1 <= len(parts) <= 3
    assert page.locator(".legend li").all_inner_texts() == ["blue", "green", "red"]
    page.close()


@pytest.mark.parametrize(("name", "width"), [("tree150", 390), ("tree5000", 1600)])
def test_tree_is_searched(name: str, width: int, pages: dict[str, Path], browser: Any) -> None:
    page, found = opened(browser, pages[name], width)
    search, status = page.get_by_label("Find"), page.locator(".tree output")
    search.fill("name</b> & 137")
    count = 1 if name == "tree150" else 11  # 137 and 1370 to 1379
    assert status.inner_text() == f"1 of {count}"
    current = page.locator(".current")
    assert current.count() == 1 and "<b>name</b> & 137" in (current.get_attribute("aria-label") or "")
    view, hit = page.locator(".view").bounding_box(), current.locator("text").bounding_box()
    assert view["y"] <= hit["y"] and hit["y"] + hit["height"] <= view["y"] + view["height"] + 1.0  # it is in sight
    assert 0.0 <= hit["y"] and hit["y"] + hit["height"] <= 901.0
    search.press("Enter")
    assert status.inner_text() == f"{1 % count + 1} of {count}"
    search.press("Shift+Enter")
    assert status.inner_text() == f"1 of {count}"
    search.fill("blue")  # a class
    assert status.inner_text() == f"1 of {int(name[4:]) // 3}"
    search.fill("nothing of the kind")
    assert status.inner_text() == "not found"
    search.fill("")
    assert status.inner_text() == "" and found == []
    assert page.locator(".tree b").count() == 0  # names are text
    page.close()


def test_tree_is_zoomed(pages: dict[str, Path], browser: Any) -> None:
    page, found = opened(browser, pages["tree5000"])
    page.get_by_role("button", name="Open all").click()

    def width() -> float:
        return page.locator(".tree svg").bounding_box()["width"]

    natural = width()
    page.get_by_role("button", name="Zoom in").click()
    assert width() == pytest.approx(1.25 * natural, rel=0.01)
    page.get_by_role("button", name="Zoom out").click()
    assert width() == pytest.approx(natural, rel=0.01)
    page.get_by_role("button", name="Overview").click()
    page.get_by_role("button", name="Whole tree").click()
    view, svg = page.locator(".view").bounding_box(), page.locator(".tree svg").bounding_box()
    assert svg["height"] <= view["height"]
    page.locator("[role=treeitem]").first.focus()
    for key in ("0", "+"):
        page.keyboard.press(key)
    assert width() == pytest.approx(1.25 * natural, rel=0.02)
    page.keyboard.press("-")
    page.locator(".view").hover()
    page.keyboard.down("Control")
    page.mouse.wheel(0, -300)
    page.wait_for_function("document.querySelector('.tree').dataset.zoom > 2")
    page.keyboard.up("Control")
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 1600 and found == []
    page.close()


def test_shares_of_the_draws_are_shown_in_trees_of_any_branching(pages: dict[str, Path], browser: Any) -> None:
    page, found = opened(browser, pages["levels"])
    labels = page.locator("[role=treeitem]").evaluate_all("all => all.map(e => e.getAttribute('aria-label'))")
    assert labels[0] == "60 items, together in 100% of the draws" and "item 0: cluster 0" in labels
    assert len(labels) == 60 + 1 + 3 + 12 and found == []
    assert page.locator(".share").count() == 3 + 12 and page.locator(".share").first.inner_html().endswith("%")
    page.close()


@pytest.mark.parametrize("width", WIDTHS)
def test_tables_are_sorted(width: int, pages: dict[str, Path], browser: Any) -> None:
    page, found = opened(browser, pages["report"], width)
    table = page.locator("table", has_text="Lower bounds on the log evidence")
    head = table.locator("th[scope=col]", has_text="log evidence")
    button = head.get_by_role("button")

    def values() -> list[float]:
        return [float(cell) for cell in table.locator("tbody td:nth-of-type(1)").all_inner_texts()]

    first = values()
    assert len(first) > 2 and head.get_attribute("aria-sort") is None
    button.click()
    assert values() == sorted(first) and head.get_attribute("aria-sort") == "ascending"
    button.focus()
    page.keyboard.press("Enter")
    assert values() == sorted(first, reverse=True) and head.get_attribute("aria-sort") == "descending"
    page.keyboard.press("Space")
    assert head.get_attribute("aria-sort") == "ascending"
    name = table.locator("th[scope=col]").first
    name.get_by_role("button").click()
    rows = table.locator("tbody th").all_inner_texts()
    assert rows == sorted(rows, key=str.lower) and head.get_attribute("aria-sort") is None and found == []
    page.close()


@pytest.mark.parametrize("name", ["report", "tree150"])
def test_without_scripts_there_are_figures(name: str, pages: dict[str, Path], browser: Any) -> None:
    page, found = opened(browser, pages[name], java_script_enabled=False)
    assert page.locator(".tree").first.is_hidden()
    image = page.locator("noscript img").first
    assert image.is_visible() and image.bounding_box()["width"] > 300
    assert page.locator("th button").count() == 0 and page.locator("table").first.is_visible() and found == []
    page.close()


def test_other_scripts_are_refused(pages: dict[str, Path], browser: Any, tmp_path: Path) -> None:
    text = pages["report"].read_text(encoding="utf-8")
    for more in ("<script>window.broken = 1</script>", '<img src="x" onerror="window.broken = 1">'):
        path = tmp_path / "changed.html"
        path.write_text(text.replace("</main>", f"{more}</main>"), encoding="utf-8")
        page, found = opened(browser, path)
        assert page.evaluate("window.broken") is None and any("Content Security Policy" in each for each in found)
        assert page.locator(".tree").first.is_visible()
        page.close()


def test_contents_lead_to_sections(pages: dict[str, Path], browser: Any) -> None:
    page, found = opened(browser, pages["report"])
    page.get_by_role("link", name="Can the computation be trusted?").click()
    top = page.locator("h2", has_text="Can the computation be trusted?").bounding_box()["y"]
    assert 0 <= top < 200 and found == []
    page.close()
