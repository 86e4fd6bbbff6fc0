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


def test_the_section_of_the_version_is_told_or_the_release_refused():
    assert notes("1.2.0", LOG, PROJECT) == "### Added\n\n- this\n"
    with pytest.raises(ValueError, match=r"pyproject.toml says 1.2.0"):
        notes("1.3.0", LOG, PROJECT)
    with pytest.raises(ValueError, match="has no section"):
        notes("1.2.0", LOG.replace("### Added\n\n- this\n", ""), PROJECT)


def test_the_repository_can_be_released_and_keeps_a_store_of_each_version():
    project, log = ((ROOT / name).read_text() for name in ("pyproject.toml", "CHANGELOG.md"))
    assert notes(tomllib.loads(project)["project"]["version"], log, project)
    released = re.findall(r"^## \[(\d+\.\d+)\.\d+\]", log, re.MULTILINE)
    kept = {path.name for path in (ROOT / "tests" / "db" / "data").glob("store_*.sql.gz")}
    assert released
    assert kept >= {f"store_{version}.sql.gz" for version in released}
