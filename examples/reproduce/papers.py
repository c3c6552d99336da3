"""Every table and figure of the five papers, its size there, and where to find what was run here."""

from __future__ import annotations

from typing import NamedTuple

HELLER = "Heller & Ghahramani (2005)"
XU = "Xu, Heller & Ghahramani (2009)"
KURIHARA = "Kurihara & Welling (2009)"
RAYKOV = "Raykov, Boukouvalas & Little (2014)"
HUANG = "Huang et al. (2021)"

CHAINS = r"\d+ chains of \d+ \+ \d+ sweeps"
CEDAR = "other digits than the paper's (CEDAR Buffalo), which are not available"


class Item(NamedTuple):
    """A table or figure of a paper.

    - **paper**, **label**, **shows** - where it is, and what it shows.
    - **size** - its size in the paper.
    - **texts**, **images** - patterns for the names of its files in the folder of outputs; no texts if it is an illustration.
    - **run** - regular expressions for the parts of the texts that give the size here.
    - **only** - regular expression for the claims of a text that are about this figure.
    - **instead** - which data replace those of the paper.
    """

    paper: str
    label: str
    shows: str
    size: str = ""
    texts: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    run: tuple[str, ...] = ()
    only: str = ""
    instead: str = ""

    @property
    def number(self) -> int | None:
        """Number of the figure; None for a table."""
        kind, number = self.label.split()
        return int(number) if kind == "Figure" else None


ITEMS = (
    Item(
        HELLER,
        "Table 1",
        "purity of trees on six data sets",
        "60 to 214 rows, number of subsets not given",
        texts=("bhc_table1",),
        images=("bhc_table1",),
        run=(r"^\d+ repetitions", r"n = \d+, d = \d+"),
        instead=CEDAR,
    ),
    Item(HELLER, "Figure 1", "a merge of two trees, and the partitions of a tree"),
    Item(HELLER, "Figure 2", "the algorithm"),
    Item(HELLER, "Figure 3", "the algorithm for the prior on merging"),
    Item(
        HELLER,
        "Figure 4",
        "evidence against purity",
        "50 settings of the hyperparameters, set of data not given",
        texts=("bhc_figure4",),
        images=("bhc_figure4",),
        run=(r"^\w+: n = \d+", r"\d+ subsets", r"\d+ settings"),
    ),
    Item(
        HELLER,
        "Figure 5",
        "top of the trees of newsgroups",
        "800 documents, 50 words",
        texts=("bhc_figures",),
        images=("bhc_figure5",),
        run=(r"\d+ documents, \d+ words",),
    ),
    Item(
        HELLER,
        "Figure 6",
        "trees of three digits",
        "120 images",
        texts=("bhc_figures", "bhc_figure6"),
        images=("bhc_figure6*",),
        instead=CEDAR,
    ),
    Item(
        HELLER,
        "Figure 7",
        "whole trees of newsgroups",
        "800 documents, 50 words",
        texts=("bhc_figures",),
        images=("bhc_figure7",),
        run=(r"\d+ documents, \d+ words",),
    ),
    Item(
        HELLER,
        "Figure 8",
        "three toy problems",
        "three sets of about 25 points",
        texts=("bhc_figures",),
        images=("bhc_figure8",),
        run=(r"^[\w ]+: \d+ points",),
        instead="points by the caption",
    ),
    Item(XU, "Figure 1", "a tree and its partitions"),
    Item(
        XU,
        "Figure 2",
        "alternative trees of nine points",
        "9 points",
        texts=("trees_figure2",),
        images=("trees_figure2",),
        run=(r"nine equidistant points",),
    ),
    Item(XU, "Figure 3", "messages to the root"),
    Item(XU, "Figure 4", "the algorithm for alternative trees"),
    Item(
        XU,
        "Figure 5",
        "bounds on the evidence",
        "3 synthetic sets of 3 to 9 rows, 3 real ones of 120 to 600",
        texts=("trees_figures5_6",),
        images=("trees_figures5_6",),
        run=(r"^sizes: \w+", r"\d+ data sets of each size"),
        only=r"^(?!.*predict)",
    ),
    Item(
        XU,
        "Figure 6",
        "predictive densities",
        "3 synthetic sets of 3 to 9 rows, 3 real ones of 120 to 600",
        texts=("trees_figures5_6",),
        images=("trees_figures5_6",),
        run=(r"^sizes: \w+", r"\d+ data sets of each size"),
        only=r"predict",
    ),
    Item(
        XU,
        "Figure 7",
        "bounds with alternative trees",
        "3 synthetic sets of 3 to 9 rows, 6 real ones to 600",
        texts=("trees_figure7",),
        images=("trees_figure7",),
        run=(r"^sizes: \w+",),
        instead="other digits than the paper's",
    ),
    Item(
        XU,
        "Figure 8",
        "Bayes k-means trees against exact ones",
        "3 sets of 120 to 600 rows",
        texts=("trees_figure8",),
        images=("trees_figure8",),
        run=(r"^sizes: \w+",),
    ),
    Item(
        KURIHARA,
        "Table 1",
        "number of clusters found by six methods",
        "27 cells, 10 data sets each, to 5,000 x 64",
        texts=("me_table1",),
        images=("me_table1",),
        run=(r"(?:^|of )(\d+ cells)", r"\d+ data sets in each\b", r"\d+ of \d+ data sets run"),
    ),
    Item(
        KURIHARA,
        "Table 2",
        "purity of trees on five data sets",
        "10 subsets of 100 to 240 rows",
        texts=("me_table2",),
        images=("me_table2",),
        run=(r"^\d+ repetitions", r"n = \d+, d = \d+"),
        instead=CEDAR,
    ),
    Item(KURIHARA, "Figure 1", "four kinds of learning"),
    Item(KURIHARA, "Figure 2", "a kd-tree"),
    Item(
        KURIHARA,
        "Figure 3",
        "clusters found in the plane",
        "one data set for each of three separations",
        texts=("me_figures3_4",),
        images=("me_figure3",),
        run=(r"\d+ data sets of \d+ Gaussians[^\n]*",),
    ),
    Item(
        KURIHARA,
        "Figure 4",
        "a tree of mails",
        "one subset of 25 + 25 mails",
        texts=("me_figures3_4",),
        images=("me_figure4",),
        run=(r"\d+ \+ \d+ mails, \d+ random subsets",),
    ),
    Item(
        KURIHARA,
        "Figure 5",
        "speed-ups by kd-trees and conga lines",
        "to 80,000 rows and 256 columns",
        texts=("me_figure5",),
        images=("me_figure5",),
        run=(r"^\d+ data sets for each point", r"at ([nd] = \d+)"),
    ),
    Item(
        RAYKOV,
        "Table 1",
        "agreement and iterations",
        "100 samples, rows not given",
        texts=("map_dp_table1",),
        images=("map_dp_table1",),
        run=(r"^\d+ CRP samples of \d+ rows",),
    ),
    Item(
        RAYKOV,
        "Figure 1",
        "sizes of the clusters",
        "100 samples, rows not given",
        texts=("map_dp_figure1",),
        images=("map_dp_figure1",),
        run=(r"^\d+ CRP samples of \d+ rows",),
    ),
    Item(HUANG, "Figure 1", "two ways to divide a node"),
    Item(HUANG, "Figure 2", "a hierarchy of the model"),
    Item(
        HUANG,
        "Figure 3",
        "convergence on animals",
        "33 animals, 5 runs of 500 + 5,000 sweeps",
        texts=("bhmc_animals*",),
        images=("bhmc_figure3*",),
        run=(r"animals \([\d x]+\)", CHAINS),
    ),
    Item(
        HUANG,
        "Figure 4",
        "tree of the animals",
        "33 animals, 500 + 5,000 sweeps",
        texts=("bhmc_animals*",),
        images=("bhmc_figure4*",),
        run=(r"animals \([\d x]+\)", CHAINS),
    ),
    Item(
        HUANG,
        "Figure 5",
        "tree of fashion images",
        "1,000 images, 22 columns, L = 5, 500 + 5,000 sweeps",
        texts=("bhmc_fashion*", "bhmc_truth*", "bhmc_modes_fashion"),
        images=("bhmc_figure5*",),
        run=(r"^\d+ images", r"\bL \d+", CHAINS),
    ),
    Item(
        HUANG,
        "Figure 6",
        "scores by level on texts",
        "2,303 texts, 190 columns, L = 7, 500 + 2,500 sweeps",
        texts=("bhmc_text*", "bhmc_modes_fashion_products*"),
        images=("bhmc_figure6*",),
        run=(r"\d+ texts, \d+ columns", CHAINS),
        instead="other texts than the paper's (Amazon, on request only)",
    ),
)
