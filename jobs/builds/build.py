"""A torch build is known by its version (PEP 440): `2.9.1`, `2.13.0+cpu`, `2.14.0.dev20261101`."""

from __future__ import annotations

from packaging.version import InvalidVersion, Version

from jobs.pool.child import ChildError


class BuildError(ChildError):
    """A torch build cannot be installed or used; the text is one line that says why and, where it helps, what to do."""


def parse_build(text: str) -> Version:
    """The version in a text, with or without `torch==`; raises `BuildError` where it is none."""
    try:
        version = Version(text.strip().removeprefix("torch").removeprefix("=="))
    except InvalidVersion:
        version = None
    if version is None or len(version.release) < 2:
        raise BuildError(f"{text.strip()[:80]!r} is no version of torch: write 2.9.1 or 2.14.0.dev20261101")
    return version
