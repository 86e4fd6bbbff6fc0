"""What a torch build is called, and the order of several: by version, as PEP 440 orders them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import click

_VERSION = re.compile(
    r"(?P<release>\d+(?:\.\d+){1,3})(?:(?P<pre>a|b|rc)(?P<pre_number>\d+))?"
    r"(?:\.post(?P<post>\d+))?(?:\.dev(?P<dev>\d+))?(?:\+(?P<local>[a-zA-Z0-9]+(?:[._-][a-zA-Z0-9]+)*))?"
)
#: Before the pre-releases of a version come its nightlies, after them the release itself.
_STAGES = {"dev": 0, "a": 1, "b": 2, "rc": 3, "": 4}


class BuildError(click.ClickException):
    """A torch build that cannot be had or used; the text is one line that says why and, where it helps, what to do."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Build:
    """One torch build by its version: `2.9.1`, `2.13.0+cpu`, `2.14.0.dev20261101`."""

    version: str

    @property
    def requirement(self) -> str:
        """What an installer is asked for."""
        return f"torch=={self.version}"

    @property
    def name(self) -> str:
        """What its folders are called."""
        return f"torch-{self.version}"

    @property
    def public(self) -> str:
        """The version without what follows a `+`."""
        return self.version.partition("+")[0]

    @property
    def is_release(self) -> bool:
        """Neither a nightly nor a candidate."""
        found = _VERSION.fullmatch(self.version)
        return bool(found) and not (found["pre"] or found["dev"]) if found else False

    @property
    def date(self) -> str | None:
        """The day in a nightly's version, ISO 8601; None for other builds."""
        found = re.search(r"\.dev(\d{4})(\d{2})(\d{2})$", self.public)
        return "-".join(found.groups()) if found else None

    @property
    def key(self) -> tuple[tuple[int, ...], int, int, int, int, str]:
        """Sorts builds by version."""
        found = _VERSION.fullmatch(self.version)
        if found is None:
            raise BuildError(f"{self.version[:80]!r} is no version of torch: write 2.9.1 or 2.14.0.dev20261101")
        release = tuple(int(number) for number in found["release"].split("."))
        stage = found["pre"] or ("dev" if found["dev"] and not found["post"] else "")
        numbers = (int(found[name] or 0) for name in ("pre_number", "post", "dev"))
        return (release + (0,) * (4 - len(release)), _STAGES[stage], *numbers, found["local"] or "")  # type: ignore[return-value]


def parse_build(text: str) -> Build:
    """The build of a version, written with or without `torch==`.

    Raises:
        BuildError: no version.
    """
    build = Build(text.strip().removeprefix("torch").removeprefix("=="))
    _ = build.key
    return build


def in_order(builds: Iterable[Build]) -> list[Build]:
    """Each build once, oldest version first."""
    return sorted(dict.fromkeys(builds), key=lambda build: build.key)
