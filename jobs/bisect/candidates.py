"""Which builds, or commits, lie between a good and a bad one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jobs.builds.build import Build, BuildError, in_order, parse_build
from jobs.builds.index import ask
from jobs.builds.installer import Origin
from jobs.git.log import Repository


def builds_between(good: str, bad: str, named: Sequence[str], origin: Origin) -> list[str]:
    """The versions from good to bad: those that were named, else the releases that the index has (nightlies, where an end
    is one).

    Raises:
        BuildError: good is not older than bad, or the index cannot be asked.
    """
    first, last = parse_build(good), parse_build(bad)
    if first.key >= last.key:
        raise BuildError(
            f"--good {first.version} is not older than --bad {last.version}: --good is the older end, even if it is the "
            "slower one"
        )
    offered = [parse_build(text) for text in named] if named else _offered(origin, (first, last))
    inside = [build for build in offered if first.key < build.key < last.key]
    return [build.version for build in in_order([first, *inside, last])]


def _offered(origin: Origin, ends: tuple[Build, Build]) -> list[Build]:
    """Releases; where one of the ends is none, all that there is. One of 2.13.0 and 2.13.0+cpu is enough."""
    known = [Build(version) for version in ask(origin.words()).versions]
    plain = [build for build in known if "+" not in build.version]
    alone = [build for build in known if "+" in build.version and Build(build.public) not in plain]
    taken = {end.public for end in ends}
    wanted = [build for build in plain + alone if build.public not in taken]
    return [build for build in wanted if build.is_release or not all(end.is_release for end in ends)]


def commits_between(folder: Path, good: str, bad: str) -> list[str]:
    """The shas from good to bad, along the first parents of bad.

    Raises:
        GitError: no such repository, no such commit, or good is not among the ancestors of bad.
    """
    repository = Repository(folder)
    first, last = repository.sha_of(good), repository.sha_of(bad)
    return [first, *repository.landed(first, last)]
