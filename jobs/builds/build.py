"""A torch build by its version (PEP 440)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from packaging.version import InvalidVersion, Version

from jobs.pool.child import ChildError


class BuildError(ChildError):
    """A torch build cannot be installed or used; the text is one line that says why and, where it helps, what to do."""


@dataclass(frozen=True, slots=True)
class Build:
    """One torch build by its version: `2.9.1`, `2.13.0+cpu`, `2.14.0.dev20261101`."""

    version: str

    @property
    def requirement(self) -> str:
        """The requirement for an installer."""
        return f"torch=={self.version}"

    @property
    def name(self) -> str:
        """The name of its folders."""
        return f"torch-{self.version}"

    @property
    def public(self) -> str:
        """The version without its local part, which follows a `+`."""
        return self.key.public

    @property
    def is_release(self) -> bool:
        """Neither a nightly nor a release candidate."""
        return not self.key.is_prerelease

    @property
    def date(self) -> str | None:
        """The day in a nightly's version, ISO 8601; None for other builds."""
        try:
            return datetime.strptime(str(self.key.dev), "%Y%m%d").date().isoformat()
        except ValueError:
            return None

    @property
    def key(self) -> Version:
        """Sorts builds by version."""
        return Version(self.version)


def parse_build(text: str) -> Build:
    """The build of a version, written with or without `torch==`.

    Raises:
        BuildError: the text is no version of torch.
    """
    text = text.strip().removeprefix("torch").removeprefix("==")
    try:
        version = Version(text)
    except InvalidVersion:
        version = None
    if version is None or len(version.release) < 2:
        raise BuildError(f"{text[:80]!r} is no version of torch: write 2.9.1 or 2.14.0.dev20261101")
    return Build(str(version))


def in_order(builds: Iterable[Build]) -> list[Build]:
    """Each build once, oldest version first."""
    return sorted(dict.fromkeys(builds), key=lambda build: build.key)
