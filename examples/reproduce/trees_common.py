"""Shared code of the reproductions of Xu, Heller & Ghahramani (2009), "Tree-based inference for Dirichlet process mixtures".

Import this module before JAX, because `quick_to_compile` sets flags that JAX reads only once.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import betaln, gammaln

if TYPE_CHECKING:
    from matplotlib.figure import Figure

os.environ.setdefault("MPLBACKEND", "Agg")
ABALONE_COLUMNS = ("length", "diameter", "height", "whole_weight", "shell_weight")
PRIOR = "alpha = 1; Gaussian sets: NormalInverseWishart.from_data, bits: BetaBernoulli.from_data, on all rows of the set"


def quick_to_compile() -> None:
    """Favour fast compilation over fast programs, because there are many small programs that run only a few times."""
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=1")


def arguments(description: str | None, script: str) -> argparse.ArgumentParser:
    """A parser with the options shared by all scripts."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--full", action="store_true", help="the paper's sizes (minutes); quick sizes otherwise")
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).with_name("output"), help="folder for the .txt and .png files"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.set_defaults(script=Path(script).stem)
    return parser


class Report:
    """Prints lines and keeps them for the text file."""

    def __init__(self, options: argparse.Namespace, title: str) -> None:
        self.out: Path = options.out / options.script
        self.lines: list[str] = []
        self.say(title)
        self.say(f"sizes: {'full' if options.full else 'quick'}; seed {options.seed}")
        self.say(f"priors (the paper gives none): {PRIOR}")

    def say(self, text: str = "") -> None:
        """Print and keep."""
        print(text, flush=True)
        self.lines.append(text)

    def verdict(self, claim: str, outcome: str | bool, number: str) -> None:
        """Report one claim of the paper, its outcome, and the number that decides it."""
        from common import verdict_line

        self.say(verdict_line(claim, outcome, number))

    def save(self, figure: Figure) -> None:
        """Write the text and the figure."""
        self.out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(self.out.with_suffix(".png"), dpi=90)
        self.out.with_suffix(".txt").write_text("\n".join(line.rstrip() for line in self.lines) + "\n", encoding="utf-8")
        print(f"written: {self.out.name}.txt, {self.out.name}.png")


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Format a table with right-aligned columns, except the first, and floats to two decimal places."""
    written = [list(header)] + [[f"{c:.2f}" if isinstance(c, float) else str(c) for c in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*written, strict=True)]
    lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in written]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


# Data


def synthetic_sets(n: int, seed: int) -> dict[str, np.ndarray]:
    """Sets I-III of the paper's footnote: rows alternate between two Gaussians (I: far apart, II: close); III has one Gaussian.

    The footnote gives no mean for set III; any mean works, because the prior is centred on the data.
    """
    rng = np.random.default_rng(seed)
    sets = {}
    for name, means in {"I": [(2, 2), (8, 8)], "II": [(5, 5), (7, 5)], "III": [(5, 5)]}.items():
        centers = np.array(means, float)[np.arange(n) % len(means)]
        sets[name] = centers + np.sqrt(0.5) * rng.standard_normal((n, 2))
    return sets


def gaussian_set(name: str, seed: int) -> np.ndarray:
    """Rows of iris (150 x 4), abalone (600 x 5) or wine (120 x 6) in a random order."""
    from common import load

    data = load(name)
    rows = np.random.default_rng(seed).permutation(len(data.X))[: {"iris": 150, "abalone": 600, "wine": 120}[name]]
    columns: Any = slice(6 if name == "wine" else None)
    if name == "abalone":
        columns = [list(data.feature_names).index(column) for column in ABALONE_COLUMNS]
    return data.X[rows][:, columns]


def binary_set(name: str, seed: int) -> np.ndarray:
    """Binary digits (300 x 64), newsgroups (300 x 500 words) or spambase (200 x 57), rows in a random order."""
    from common import load

    rng = np.random.default_rng(seed)
    data = load({"newsgroups": "newsgroups20_hier"}.get(name, name))
    bits = (data.X >= 8 if name == "digits" else data.X > 0).astype(float)
    if name == "newsgroups":
        bits = bits[:, np.sort(np.argsort(-_information_gain(bits, data.y), kind="stable")[:500])]
    return bits[rng.permutation(len(bits))[: 200 if name == "spambase" else 300]]


def _information_gain(bits: np.ndarray, y: Any) -> np.ndarray:
    """Mutual information of each column with the class (nats)."""
    classes = np.unique(y)
    joint = np.stack([np.stack([(bits[y == c] == b).sum(0) for c in classes]) for b in (0, 1)]) / len(bits)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = joint * np.log(joint / joint.sum(0, keepdims=True) / joint.sum(1, keepdims=True))
    return np.nansum(terms, axis=(0, 1))


def model_of(X: np.ndarray, bits: bool = False) -> Callable[..., None]:
    """A Dirichlet-process mixture with alpha = 1 and a prior centred on all rows of the set, the same at every size."""
    import bnp_hier as bnp
    from bnp_hier.models import dpm

    component = bnp.BetaBernoulli.from_data(X, learn=False) if bits else bnp.NormalInverseWishart.from_data(X, learn=False)
    return partial(dpm, component=component, concentration=1.0)


# Exact evidence of the models that the variational bounds are about


def truncated_exact(X: np.ndarray, component: Any, truncation: int, finite: bool) -> float:
    """Log evidence of the truncated stick-breaking mixture, or of the finite Dirichlet one, with alpha = 1; small n.

    Labels are assigned one after the other: f_k(S) sums over the items of S that get label k; the others get later labels.
    """
    import jax

    n = len(X)
    sets = np.arange(2**n)
    members = (sets[:, None] >> np.arange(n)) & 1
    sizes = members.sum(1)
    with jax.enable_x64(True):
        rows = component.suff_stats(X)
        block = np.array(component.log_marginal(jax.tree.map(lambda s: np.tensordot(members * 1.0, s, 1), rows)))
    block[0] = 0.0
    if finite:
        block = block + gammaln(sizes + 1.0 / truncation) - gammaln(1.0 / truncation)
    below = [sets[(sets & s) == sets] for s in sets]
    reached = block  # label K gets all remaining items
    for _ in range(truncation - 1):
        new = np.empty(2**n)
        for s in sets:
            b = below[s]
            stick = 0.0 if finite else betaln(1.0 + sizes[b], 1.0 + sizes[s ^ b])  # Beta(1, 1) has B = 1
            new[s] = np.logaddexp.reduce(block[b] + stick + reached[s ^ b])
        reached = new
    return float(reached[-1] - (gammaln(n + 1.0) if finite else 0.0))
