import base64
import hashlib
import io
import re
import stat
from html.parser import HTMLParser
from pathlib import Path

import matplotlib.image
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import rgb_to_hsv, to_rgb
from matplotlib.figure import Figure

from bnp_hier.reports.web_page import Section, write_page

VOID = {"meta", "img", "link", "br", "hr", "input"}

NASTY = "<script>alert('1')</script> & \"quoted\""


class Page(HTMLParser):
    """Elements with their attributes and text; fails on wrong nesting."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None], list[str]]] = []
        self.open: list[int] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs), []))
        if tag not in VOID:
            self.open.append(len(self.elements) - 1)

    def handle_endtag(self, tag: str) -> None:
        assert self.elements[self.open.pop()][0] == tag

    def handle_data(self, data: str) -> None:
        for number in self.open:
            self.elements[number][2].append(data)

    def texts(self, tag: str) -> list[str]:
        return ["".join(text) for name, _, text in self.elements if name == tag]

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes, _ in self.elements if name == tag]


def picture(width: float = 4.0) -> Figure:
    figure = Figure(figsize=(width, 2.0), layout="constrained")
    figure.subplots().plot([1, 2, 3])
    return figure


@pytest.fixture
def table() -> pd.DataFrame:
    table = pd.DataFrame(
        {
            "clusters": [3, 12],
            "log_joint": [-1234.5678, -351.0],
            "evidence_bound": [-12.3456, np.nan],
            "bound_kind": ["tree", NASTY],
            "NMI <b>": [0.98765, 1.0],
            "seconds": [123.456, 0.0123],
            "rhat": [1.00345, np.nan],
            "ess": [4312.7, np.nan],
            "capacity_hits": [0.0, np.nan],
            "nothing": [None, pd.NA],
            "infinite": [np.inf, -np.inf],
        },
        index=["Gibbs", NASTY],
    )
    table.index.name = "method"
    return table


def sections(
    table: pd.DataFrame, *, figures: dict[str, Figure] | None = None, notes=(), facts=None, reproduce="", folds=None
) -> list[Section]:
    return [
        Section("What was found", notes=notes, folds=folds or {}),
        Section("Comparison", tables={"Methods": table}),
        Section("Figures", figures={NASTY: picture(), "wide": picture(8.0)} if figures is None else figures),
        Section("The run", facts=facts or {}),
        Section("Do it again", code=reproduce),
    ]


def write(folder: Path, table: pd.DataFrame, **more) -> str:
    path = write_page(folder / "page.html", title=NASTY, sections=sections(table, **more))
    assert path == folder / "page.html"
    return path.read_text(encoding="utf-8")


def test_page_is_well_formed_and_needs_nothing_else(tmp_path: Path, table: pd.DataFrame) -> None:
    text = write(tmp_path, table, notes=[NASTY], facts={NASTY: NASTY}, reproduce=NASTY)
    page = Page(text)
    tags = {tag for tag, _, _ in page.elements}
    assert text.startswith("<!DOCTYPE html>") and not tags & {"iframe", "b", "object", "embed"}
    for _, attributes, _ in page.elements:
        assert attributes.get("href", "data:,").startswith(("data:,", "#")) and not any(n.startswith("on") for n in attributes)
        assert (attributes.get("src") or "data:").startswith("data:")
    assert not re.search(r"https?:|url\(|@import", text.replace('"http://www.w3.org/2000/svg"', ""))  # a name, not an address
    assert any("default-src 'none'" in (meta.get("content") or "") for meta in page.attributes("meta"))
    assert {"charset": "utf-8"} in page.attributes("meta")
    assert page.attributes("html") == [{"lang": "en"}]


def test_everything_is_escaped(tmp_path: Path, table: pd.DataFrame) -> None:
    text = write(tmp_path, table, notes=[NASTY], facts={NASTY: NASTY}, reproduce=NASTY, folds={NASTY: []})
    page = Page(text)
    assert text.count("<script") == 1  # the page's own
    for tag in ("title", "h1", "dt", "dd", "code", "summary"):
        assert page.texts(tag) == [NASTY], tag
    assert page.texts("li")[-1] == NASTY  # after those of the contents
    sections = [Section(NASTY, text=NASTY, tables={NASTY: table})]
    named = write_page(tmp_path / "named.html", title="", sections=sections).read_text(encoding="utf-8")
    assert Page(named).texts("h2") == Page(named).texts("p") == Page(named).texts("caption") == [NASTY]
    assert page.texts("figcaption") == [NASTY, "wide"]
    assert NASTY in page.texts("td") and NASTY in page.texts("th") and "NMI <b>" in page.texts("th")


def test_pictures_decode_and_have_text(tmp_path: Path, table: pd.DataFrame) -> None:
    images = Page(write(tmp_path, table)).attributes("img")
    assert [image["alt"] for image in images] == [NASTY, "wide"]
    for image, inches in zip(images, (4.0, 8.0), strict=True):
        kind, data = (image["src"] or "").split(",")
        assert kind == "data:image/png;base64"
        pixels = matplotlib.image.imread(io.BytesIO(base64.b64decode(data, validate=True)), format="png")
        assert pixels.ndim == 3 and pixels.std() > 0
        width, height = int(image["width"] or 0), int(image["height"] or 0)
        assert width == pytest.approx(96 * inches, rel=0.1)
        assert width / height == pytest.approx(pixels.shape[1] / pixels.shape[0], rel=0.02)


DARK = "#16191d"
"""Paper of dark pages."""


def _contrast(color: np.ndarray, paper: str) -> float:
    """Contrast by WCAG 2.2."""

    def luminance(color: object) -> float:
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(color)]
        return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))

    light, dark = sorted([luminance(color), luminance(paper)], reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_figures_are_inverted_on_dark_pages_and_clusters_keep_their_colors(tmp_path: Path, table: pd.DataFrame) -> None:
    page = Page(write(tmp_path, table))
    assert page.attributes("source") == []  # one picture serves both modes
    style = " ".join(page.texts("style"))
    dark = style[style.rindex("@media (prefers-color-scheme: dark)") :]
    assert ".plot img, .drawing { filter: invert(0.91) hue-rotate(180deg); }" in dark
    light, inverted = (
        np.array([to_rgb(color) for color in re.findall(r"\.k\d { color: (#\w{6}); }", part)])
        for part in (style.removesuffix(dark), dark)
    )
    assert f"--paper: {DARK}" in style
    assert len(light) == len(inverted) == 9
    hues = [rgb_to_hsv(colors) for colors in (light, inverted)]
    turned = np.abs((hues[1] - hues[0])[:, 0] + 0.5) % 1.0 - 0.5
    assert np.abs(turned[hues[0][:, 1] > 0.2]).max() < 0.1  # the same hues
    on_paper, on_dark = (
        min(_contrast(color, page) for color in colors) for colors, page in ((light, "#fff"), (inverted, DARK))
    )
    assert on_dark > on_paper > 1.5  # the lightest colour is seen better on dark pages


def test_files_are_linked_and_the_headline_comes_first(tmp_path: Path) -> None:
    links = {"map-dp.nc": "draws", "a b#c.csv": NASTY}
    path = write_page(tmp_path / "page.html", title="t", headline=NASTY, sections=[Section("Files", links=links)])
    page = Page(path.read_text(encoding="utf-8"))
    assert [link["href"] for link in page.attributes("a")] == ["map-dp.nc", "a%20b%23c.csv"]
    assert (
        page.texts("nav") == []
        and page.texts("a") == list(links)
        and page.texts("li") == ["map-dp.nc: draws", f"a b#c.csv: {NASTY}"]
    )
    assert page.texts("p") == [NASTY] and page.attributes("p") == [{"class": "headline"}]


def test_the_only_script_is_allowed_by_its_hash(tmp_path: Path, table: pd.DataFrame) -> None:
    page = Page(write(tmp_path, table))
    (script,) = page.texts("script")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = [meta["content"] for meta in page.attributes("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in (policy or "").split(";"))
    assert rules["script-src"] == f"'sha256-{digest}'" and rules["default-src"] == "'none'"
    assert set(rules) == {"default-src", "img-src", "style-src", "script-src", "base-uri", "form-action"}
    assert rules["img-src"] == "data:"
    # what names and values there are makes no difference to the script
    assert Page(write_page(tmp_path / "other.html", title="", sections=[]).read_text(encoding="utf-8")).texts("script") == [
        script
    ]
    for word in ("innerHTML", "eval(", "Function(", "fetch(", "XMLHttpRequest", "import(", "document.write", "localStorage"):
        assert word not in script


def test_contents_lead_to_every_section(tmp_path: Path, table: pd.DataFrame) -> None:
    page = Page(write(tmp_path, table, notes=["a"], reproduce="x"))
    places = [(link["href"] or "")[1:] for link in page.attributes("a")]
    assert places == [section["id"] for section in page.attributes("section")] and len(set(places)) == 4
    assert page.texts("a") == page.texts("h2") == ["What was found", "Comparison", "Figures", "Do it again"]
    twins = [Section("Ä ß?", text="x"), Section("Ä ß?", text="y"), Section("<b>", text="z")]
    page = Page(write_page(tmp_path / "t.html", title="", sections=twins).read_text(encoding="utf-8"))
    places = [section["id"] for section in page.attributes("section")]
    assert len(set(places)) == 3 and all(re.fullmatch(r"[a-z0-9-]+", place or "") for place in places)


def test_cells_carry_what_they_are_sorted_by(tmp_path: Path, table: pd.DataFrame) -> None:
    cells = Page(write(tmp_path, table)).attributes("td")
    shown = [cell.get("data-value") for cell in cells[:11]]
    assert shown[:3] == ["3.0", "-1234.5678", "-12.3456"] and shown[3] is None and shown[9] is None
    assert shown[10] == "Infinity" and cells[-1]["data-value"] == "-Infinity"


def test_drawings_are_part_of_the_page(tmp_path: Path) -> None:
    figure = Figure(figsize=(3, 2))
    axes = figure.subplots()
    axes.set_title(NASTY)
    axes.plot([0, 1], [0, 1])[0].set_gid("a line & <more>")
    sections = [Section("s", drawings={NASTY: figure, "again": figure})]
    text = write_page(tmp_path / "p.html", title="t", sections=sections).read_text(encoding="utf-8")
    page = Page(text)
    assert page.texts("text").count(NASTY) == 2 == len(page.attributes("svg"))
    assert page.texts("title").count("a line & <more>") == 2
    # the glyphs and clips of one drawing are not those of another, unless they are the same
    own = [attributes["id"] for _, attributes, _ in page.elements if "id" in attributes]
    for reference in re.findall(r'url\(#([^)]+)\)|href="#(s[^"]+)"', text):
        assert any(name in own for name in reference if name)
    assert [box["aria-label"] for box in page.attributes("div") if box.get("class") == "drawing"] == [NASTY, "again"]
    assert "metadata" not in text and "<!--" not in text


def test_numbers_are_rounded_by_column_and_right_aligned(tmp_path: Path, table: pd.DataFrame) -> None:
    page = Page(write(tmp_path, table))
    rows = np.array(page.texts("td")).reshape(2, -1).T.tolist()
    assert rows == [
        ["3", "12"],
        ["-1234.6", "-351.0"],
        ["-12.35", "–"],
        ["tree", NASTY],
        ["0.988", "1.000"],
        ["123.5", "0.01"],
        ["1.003", "–"],
        ["4313", "–"],
        ["0", "–"],
        ["–", "–"],
        ["∞", "-∞"],
    ]
    header = [attributes for attributes in page.attributes("th") if attributes.get("scope") == "col"]
    assert page.texts("th")[:3] == ["method", "clusters", "log_joint"]
    for cells in (header[1:], page.attributes("td")[:11]):
        assert ["class" in cell for cell in cells] == [True] * 3 + [False] + [True] * 7
    assert [cell.get("scope") for cell in page.attributes("th")][-2:] == ["row", "row"]


def test_small_log_columns_and_odd_tables(tmp_path: Path) -> None:
    odd = pd.DataFrame([[-1.23456, True, 1e-7], [-2.0, False, 5.5]], columns=["log_score", "fits", "fits"])
    page = Page(write(tmp_path, odd))
    assert page.texts("td") == ["-1.23", "True", "1e-07", "-2.00", "False", "5.500"]
    levels = pd.DataFrame([[1.5]], columns=pd.MultiIndex.from_tuples([("a", "b")]))
    assert "a / b" in Page(write(tmp_path, levels)).texts("th")
    assert Page(write(tmp_path, pd.DataFrame())).texts("td") == []


def test_page_fits_phones_and_dark_rooms(tmp_path: Path, table: pd.DataFrame) -> None:
    text = write(tmp_path, table)
    page = Page(text)
    (style,) = page.texts("style")
    assert "prefers-color-scheme: dark" in style and "color-scheme: light dark" in style
    assert style.count("{") == style.count("}")
    assert re.search(r"\.scroll \{[^}]*overflow-x: auto", style) and re.search(r"img \{[^}]*max-width: 100%", style)
    assert re.search(r"\.number \{[^}]*text-align: right", style)
    viewport = next(meta for meta in page.attributes("meta") if meta.get("name") == "viewport")
    assert viewport["content"] == "width=device-width, initial-scale=1"
    # on a phone, cells stand one below the other, each beside its heading, and no text is clipped
    assert "@media (max-width: 600px)" in style and "content: attr(data-name)" in style
    assert [cell["data-name"] for cell in page.attributes("td")[:2]] == ["clusters", "log_joint"]
    assert "overflow: hidden" not in style and "text-overflow" not in style
    regions = [a for a in page.attributes("div") if a.get("class") == "scroll"]
    assert all(region["tabindex"] == "0" and region["aria-label"] for region in regions) and regions


def test_long_tables_and_texts_are_collapsed(tmp_path: Path) -> None:
    long, short = pd.DataFrame({"a": range(31)}), pd.DataFrame({"a": range(30)})
    sections = [Section("s", tables={"long": long, "short": short}, code="x" * 3001)]
    page = Page(write_page(tmp_path / "p.html", title="t", sections=sections).read_text(encoding="utf-8"))
    assert page.texts("summary") == ["long (31 rows)", "Show 3,001 characters"]
    assert len(page.texts("table")) == 2 and page.texts("code") == ["x" * 3001]


def test_empty_sections_are_left_out(tmp_path: Path, table: pd.DataFrame) -> None:
    assert Page(write(tmp_path, table, figures={})).texts("h2") == ["Comparison"]
    full = write(tmp_path, table, notes=["a", "b"], facts={"n": "150"}, reproduce="bnp-hier")
    assert Page(full).texts("h2") == ["What was found", "Comparison", "Figures", "The run", "Do it again"]
    assert Page(full).texts("li") == [*Page(full).texts("h2"), "a", "b"]


def test_file_is_replaced_as_a_whole(tmp_path: Path, table: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "new" / "folder" / "report.html"
    write_page(path, title="first", sections=sections(table))
    plain = path.with_name("plain")
    plain.touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)
    plain.unlink()
    before = path.read_bytes()

    def full_disk(self: Path, target: Path) -> None:
        assert "second" in self.read_text(encoding="utf-8") and self.parent == path.parent
        raise OSError("disk full")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="disk full"):
        patch.setattr(Path, "replace", full_disk)
        write_page(path, title="second", sections=[])
    assert path.read_bytes() == before and list(path.parent.iterdir()) == [path]
    write_page(str(path), title="third \ud800", sections=[])
    assert Page(path.read_text(encoding="utf-8")).texts("h1") == ["third \\ud800"]
