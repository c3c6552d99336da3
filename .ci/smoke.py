"""What an installed package must do; ``cd /elsewhere && FRESH/bin/python CHECKOUT/.ci/smoke.py`` stops at what it does not."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.metadata import files, version
from pathlib import Path

import bnp_hier as bnp

FOLDER = Path(bnp.__file__).parent
COMMAND = str(Path(sys.executable).with_name("bnp-hier"))


def succeeds(*words: str) -> str:
    """The output of the command."""
    done = subprocess.run([COMMAND, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"bnp-hier {' '.join(words)} ended with {done.returncode}: {done.stderr}")
    return done.stdout


if __name__ == "__main__":
    if not FOLDER.is_relative_to(sys.prefix):
        raise SystemExit(f"bnp_hier is not installed in this environment, but imported from {FOLDER}")
    licences = sorted(path.name for path in files("bnp-hier") or () if "licenses" in path.parts)
    print(f"bnp_hier {version('bnp-hier')}, licences {licences}, typed: {(FOLDER / 'py.typed').exists()}")

    source = bnp.datasets.listing()["source"]
    shipped = {name: bnp.datasets.load(name).X.shape for name in source[source == "bnp_hier"].index}
    print("data sets:", ", ".join(f"{name} {n} x {d}" for name, (n, d) in shipped.items()))

    with tempfile.TemporaryDirectory() as folder:
        result = bnp.cluster(bnp.datasets.load("iris"), methods="map-dp", progress_bar=False)
        page, fit = Path(folder, "report.html"), Path(folder, "fit.npz")
        result.report(page)
        print(f"cluster: {result.n_clusters_} clusters of iris, a report of {page.stat().st_size:,} bytes")
        for words in ((), *((name,) for name in ("compare", "fit", "predict", "tree", "evidence", "recommend", "datasets"))):
            assert "Usage: bnp-hier" in succeeds(*words, "--help")
        assert "iris" in succeeds("datasets")
        succeeds("fit", "iris", "--out", str(fit))
        print(f"bnp-hier: --help of all commands; fit of iris with {bnp.load_fit(fit).fit.n_clusters_} clusters")
