"""Print the changelog's section of a version: `python -m scripts.release_notes 1.0.0`, for the workflow of a tag.

It fails if pyproject.toml has another version, or the changelog has no dated section of this version.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def notes(version: str, changelog: str, project: str) -> str:
    """Return the changelog's section of a version. Raises `ValueError` with a line that says what to do."""
    named = tomllib.loads(project)["project"]["version"]
    if named != version:
        raise ValueError(f"the tag is {version}, and pyproject.toml says {named}: correct one of them")
    section = re.search(
        rf"^## \[{re.escape(version)}\] - \d{{4}}-\d{{2}}-\d{{2}}\n(.*?)(?=^## |\Z)",
        changelog,
        re.MULTILINE | re.DOTALL,
    )
    if not section or not section[1].strip():
        raise ValueError(f"CHANGELOG.md has no section '## [{version}] - YYYY-MM-DD' that says something: write it")
    return section[1].strip() + "\n"


def main() -> None:
    """Print the section of the version that the command line names."""
    try:
        print(notes(sys.argv[1], (ROOT / "CHANGELOG.md").read_text(), (ROOT / "pyproject.toml").read_text()), end="")
    except ValueError as error:
        sys.exit(f"release_notes: {error}")


if __name__ == "__main__":
    main()
