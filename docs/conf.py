"""Sphinx configuration; ``python -m sphinx -W --keep-going -b html docs docs/_build/html`` builds the pages."""

from __future__ import annotations

import os
import re
import shutil
import sys
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

from docutils.nodes import SkipNode
from latex2mathml.converter import convert

os.environ.setdefault("MPLBACKEND", "Agg")  # autodoc imports the plots
sys.path[:0] = [
    str(Path(__file__).resolve().parents[1]),
    str(Path(__file__).parent),
]  # the checkout's package, installed or not

from api_tables import as_built  # noqa: E402

project, home = "bnp_hier", "https://github.com/bnp-hier/bnp_hier"
try:
    release = version = installed_version("bnp-hier")
except PackageNotFoundError:
    release = version = ""

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
nb_execution_mode = "off"  # the notebooks are executed where they are edited, and committed with their output
nb_merge_streams = True

# links to the documentation of other packages; their inventories are fetched, so that the build needs a network (-t online)
if tags.has("online") or os.environ.get("READTHEDOCS") == "True":  # type: ignore[name-defined]  # noqa: F821
    extensions.append("sphinx.ext.intersphinx")
    intersphinx_mapping = {
        "arviz": ("https://python.arviz.org/en/stable/", None),
        "jax": ("https://docs.jax.dev/en/latest/", None),
        "matplotlib": ("https://matplotlib.org/stable/", None),
        "networkx": ("https://networkx.org/documentation/stable/", None),
        "numpy": ("https://numpy.org/doc/stable/", None),
        "numpyro": ("https://num.pyro.ai/en/stable/", None),
        "pandas": ("https://pandas.pydata.org/docs/", None),
        "python": ("https://docs.python.org/3/", None),
        "scipy": ("https://docs.scipy.org/doc/scipy/", None),
        "sklearn": ("https://scikit-learn.org/stable/", None),
    }
html_theme = "furo"
html_math_renderer = "mathml"  # browsers draw it themselves: no script, no network
html_title = "bnp_hier"

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

smartquotes = False  # quotes in docstrings are of code
default_role = "py:obj"  # docstrings put names in single backquotes: a link where there is a page, code otherwise
napoleon_google_docstring = False
napoleon_attr_annotations = False
# one list under the class; as objects of their own, attributes would stand beside the properties of the same name
napoleon_custom_sections = [("Attributes", "params_style")]
napoleon_use_rtype = False
autodoc_typehints = "none"  # the docstrings tell shapes and types; as annotations they hide the signature
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
python_maximum_signature_line_length = 100


def _skip(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Leave out fields of named tuples, which the class describes, and scikit-learn's own methods."""
    alias = str(getattr(obj, "__doc__", "")).startswith("Alias for field number")
    return True if alias or name.startswith("set_") else None


def _formula(translator: Any, node: Any) -> None:
    """A formula in a line."""
    translator.body.append(convert(node.astext()))
    raise SkipNode


def _displayed(translator: Any, node: Any) -> None:
    """A formula on lines of its own, which scroll sideways where they do not fit."""
    translator.body.append(f'<div style="overflow-x: auto">{convert(node.astext(), display="block")}</div>')
    raise SkipNode


def _copy_notebooks(app: Any) -> None:
    """Sphinx reads only what lies in its own folder."""
    source, target = Path(app.srcdir).parent / "examples" / "notebooks", Path(app.srcdir) / "notebooks"
    target.mkdir(exist_ok=True)
    for notebook in source.glob("*.ipynb"):
        if not (copy := target / notebook.name).exists() or copy.read_bytes() != notebook.read_bytes():
            shutil.copyfile(notebook, copy)


def _complete(app: Any, page: str, source: list[str]) -> None:
    """Pages of the API show tables in the repository, and everything here; notebooks are beside the pages here."""
    source[0] = as_built(source[0], home)
    source[0] = re.sub(r"\]\(((?:\.\./)*)\.\./examples/notebooks/(?=\w+\.ipynb)", r"](\1notebooks/", source[0])


def setup(app: Any) -> None:
    """Register the notebooks, the full pages, the filter of members, and formulas as MathML."""
    app.connect("builder-inited", _copy_notebooks)
    app.connect("source-read", _complete)
    app.add_html_math_renderer("mathml", inline_renderers=(_formula, None), block_renderers=(_displayed, None))
    app.connect("autodoc-skip-member", _skip)
