"""A release has the version of its tag, and what the changelog says of it."""

from __future__ import annotations

import re
import tomllib

import pytest

from scripts.release_notes import ROOT, notes

PROJECT = '[project]\nversion = "1.2.0"\n'
LOG = """# Changelog

## [Unreleased]

- later

## [1.2.0] - 2026-12-01

### Added

- this

## [1.1.0] - 2026-11-01

- that
"""


def test_the_section_of_the_version_and_no_other_is_told():
    assert notes("1.2.0", LOG, PROJECT) == "### Added\n\n- this\n"


@pytest.mark.parametrize(
    ("version", "log", "said"),
    [
        ("1.3.0", LOG, "pyproject.toml says 1.2.0"),
        ("1.2.0", LOG.replace("### Added\n\n- this\n", ""), "has no section"),
    ],
)
def test_a_release_without_its_notes_is_refused(version, log, said):
    with pytest.raises(ValueError, match=said):
        notes(version, log, PROJECT)


def test_the_version_of_the_repository_can_be_released():
    project, log = ((ROOT / name).read_text() for name in ("pyproject.toml", "CHANGELOG.md"))
    assert notes(tomllib.loads(project)["project"]["version"], log, project)


def test_each_released_version_has_a_kept_store():
    released = re.findall(r"^## \[(\d+\.\d+)\.\d+\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    kept = {path.name for path in (ROOT / "tests" / "db" / "data").glob("store_*.sql.gz")}
    assert released
    assert kept >= {f"store_{version}.sql.gz" for version in released}
