"""A release has the version of its tag, and what the changelog says of it."""

from __future__ import annotations

import pytest

from scripts.release_notes import notes

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
        ("1.2.0", LOG.replace("[1.2.0] - 2026-12-01", "[1.2.0]"), "has no section"),
        ("1.2.0", LOG.replace("### Added\n\n- this\n", ""), "has no section"),
    ],
)
def test_a_release_without_its_notes_is_refused(version, log, said):
    with pytest.raises(ValueError, match=said):
        notes(version, log, PROJECT)
