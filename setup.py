"""The description of the package on PyPI: README.md with addresses that work outside the repository.

Everything else is in pyproject.toml.
"""

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def description(readme: str) -> str:
    """The page with links and images of the repository at the tag of this version."""
    home, tag = PROJECT["urls"]["Homepage"], f"v{PROJECT['version']}"
    readme = re.sub(r"(!\[[^\]]*\]\()(?!https:)", rf"\g<1>{home}/raw/{tag}/", readme)
    readme = re.sub(r"((?<!!)\[[^\]]*\]\()(?!https:|#)", rf"\g<1>{home}/blob/{tag}/", readme)
    return re.sub(r"^(\[\w+\]: )(?!https:)", rf"\g<1>{home}/blob/{tag}/", readme, flags=re.MULTILINE)


setup(
    long_description=description((ROOT / "README.md").read_text(encoding="utf-8")),
    long_description_content_type="text/markdown",
)
