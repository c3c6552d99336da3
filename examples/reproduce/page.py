"""The table of `docs/reproductions.md` and the sentence of the README, made from the outputs of the scripts."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import runs
from papers import ITEMS, Item
from verdict_lines import Verdict, deciding, overall, section, verdicts_in

FOLDER = Path(__file__).resolve().parent
ROOT, OUTPUT = FOLDER.parents[1], FOLDER / "output"
PAGE, README = ROOT / "docs" / "reproductions.md", ROOT / "README.md"

ILLUSTRATION, NOT_RUN = "illustration", "not run"
HEADS = ("paper", "table or figure", "run here", "in the paper", "verdict", "what decides", "output")


def _texts(item: Item) -> dict[Path, list[str]]:
    """Outputs that have lines about the item, and those lines."""
    found = {}
    for path in (path for pattern in item.texts for path in sorted(OUTPUT.glob(f"{pattern}.txt"))):
        lines = path.read_text(encoding="utf-8").splitlines()
        # claims that are chosen by their wording may be anywhere
        found[path] = lines if item.number is None or item.only else section(lines, item.number)
    return {path: lines for path, lines in found.items() if lines}


def claims(item: Item) -> list[Verdict]:
    """Verdicts on the paper's claims about the item; with the name of the output, if there are several."""
    texts = _texts(item)
    found = []
    for path, lines in texts.items():
        mine = [verdict for verdict in verdicts_in(lines) if re.search(item.only, verdict.claim)]
        name = re.sub("^" + item.texts[0].rstrip("*") + "_?", "", path.stem)
        named = name and len(texts) > 1
        found += [verdict._replace(claim=f"{name}: {verdict.claim}") for verdict in mine] if named else mine
    return found


def outcome(item: Item) -> str:
    """The verdict on the item."""
    return ILLUSTRATION if not item.texts else overall(claims(item)) if _texts(item) else NOT_RUN


def _run(item: Item) -> str:
    """What was run, in the words of the outputs."""
    whole = "\n".join(path.read_text(encoding="utf-8") for path in _texts(item))
    parts = [match[match.re.groups] for pattern in item.run for match in re.finditer(pattern, whole, re.M)]
    if not parts:  # the heading
        parts = [lines[0] for lines in _texts(item).values()]
    sizes = "; ".join(dict.fromkeys(part.strip(" :;,") for part in parts))
    return f"{sizes}; {item.instead}" if item.instead else sizes


def _decides(found: list[Verdict]) -> str:
    """How many claims reproduce, and the claim that decides."""
    count, chosen = sum(verdict.outcome == "reproduces" for verdict in found), deciding(found)
    return f"{count} of {len(found)} claims; {chosen.claim}: {chosen.outcome}" + (f", {chosen.number}" if chosen.number else "")


def outputs(item: Item) -> list[Path]:
    """Files of the item in the folder of outputs."""
    images = [path for pattern in item.images for path in sorted(OUTPUT.glob(f"{pattern}.png"))] if _texts(item) else []
    return [*_texts(item), *images]


def row(item: Item) -> list[str]:
    """The cells of the item."""
    name, verdict = f"{item.label}: {item.shows}", outcome(item)
    if verdict in (ILLUSTRATION, NOT_RUN):
        return [item.paper, name, "–", item.size or "–", verdict, "–", "–"]
    links = ", ".join(f"[{path.name}](../{path.relative_to(ROOT).as_posix()})" for path in outputs(item))
    return [item.paper, name, _run(item), item.size, verdict, _decides(claims(item)), links]


def table() -> str:
    """All items, in Markdown."""
    rows = [[cell.replace("|", r"\|").replace("*", r"\*") for cell in row(item)] for item in ITEMS]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [HEADS, [":--"] * len(HEADS), *rows])


def summary() -> str:
    """One sentence about all items."""
    counts = Counter(outcome(item) for item in ITEMS)
    drawn, missing = counts.pop(ILLUSTRATION), counts[NOT_RUN]
    words = {
        "reproduces": "{} reproduce",
        "partly": "{} in part",
        "does not reproduce": "{} not at all",
        "not decided": "{} undecided",
        NOT_RUN: "{} was not run" if missing == 1 else "{} were not run",
    }
    parts = [text.format(counts[name]) for name, text in words.items() if counts[name]]
    listed = ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + parts[-1]
    total = f"Of the {len(ITEMS)} tables and figures of the five papers, {drawn} are illustrations; of the other"
    return f"{total} {counts.total()}, {listed}"


def with_parts(text: str, parts: dict[str, str]) -> str:
    """The text with each part between its marks, ``<!-- name -->`` and ``<!-- end of name -->``."""
    for name, new in parts.items():
        start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        if text.count(start) != 1 or text.count(end) != 1:
            raise ValueError(f"expected the marks {start} and {end} once each")
        before, _, rest = text.partition(start)
        text = before + start + new + end + rest.partition(end)[2]
    return text


def parts_of_the_page() -> dict[str, str]:
    """What is made from the outputs on `PAGE`."""
    return {"table": f"\n\n{table()}\n\n", "summary": summary() + ".", "time": runs.total(runs.minutes(OUTPUT)) + "."}


def parts_of_the_readme() -> dict[str, str]:
    """What is made from the outputs on `README`."""
    return {"reproductions": f"{summary()} ([table](docs/reproductions.md))."}


def write() -> None:
    """Renew the page and the README."""
    for path, parts in ((PAGE, parts_of_the_page()), (README, parts_of_the_readme())):
        path.write_text(with_parts(path.read_text(encoding="utf-8"), parts), encoding="utf-8")
