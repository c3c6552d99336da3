"""Draws the images of docs/gallery.md by running the code blocks of that page.

Each block that is followed by an image in the folder docs/gallery defines `figure`, which is saved under the name of the image.
"""

import argparse
import io
import re
from pathlib import Path

from PIL import Image

DOCS = Path(__file__).resolve().parents[1] / "docs"
BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```\n\n!\[[^\]]*\]\(gallery/(?P<image>\w+\.png)\)$", flags=re.DOTALL | re.MULTILINE
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=DOCS / "gallery")
    parser.add_argument("--dpi", type=int, default=90)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    names: dict[str, object] = {"__name__": "gallery"}
    for block in BLOCK.finditer((DOCS / "gallery.md").read_text(encoding="utf-8")):
        exec(compile(block["code"], block["image"], "exec"), names)
        drawn, path = io.BytesIO(), options.out / block["image"]
        names["figure"].savefig(drawn, dpi=options.dpi)
        # a palette makes the files less than half as large
        Image.open(drawn).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    main()
