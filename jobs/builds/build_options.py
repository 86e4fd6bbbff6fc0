"""Options for the torch to measure: builds with an environment each, or a commit's Python files over the installed torch.

A build is named by its version (PEP 440): `2.9.1`, `2.13.0+cpu`, `2.14.0.dev20261101`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click
from packaging.version import InvalidVersion, Version

from jobs.options import FOLDER, INPUT_FILE, as_one
from jobs.output.terminal import tell
from jobs.pool.child import ChildError
from jobs.requested_options import RequestedOptions, RunNames


class BuildError(ChildError):
    """An error for a torch build that cannot be installed or used; its text is one line with the reason and maybe the remedy."""


def parse_build(text: str) -> Version:
    """Return the version in a text, with or without `torch==`. Raises `BuildError` for any other text."""
    try:
        version = Version(text.strip().removeprefix("torch").removeprefix("=="))
    except InvalidVersion:
        version = None
    if version is None or len(version.release) < 2:
        raise BuildError(f"{text.strip()[:80]!r} is no version of torch: write 2.9.1 or 2.14.0.dev20261101")
    return version


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """Options for making environments of torch builds; the fields are the names of the options."""

    envs: Path = Path("torch-builds")
    python: Path | None = None
    index_url: str | None = None
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    packages: tuple[str, ...] = ()
    cuda_builds: bool | None = None

    @property
    def base(self) -> Path:
        """The Python that environments are made with."""
        return self.python or Path(sys.executable)

    def words(self, of_torch: bool = True) -> list[str]:
        """Return the options of pip or uv that say where packages come from; `--index-url` is for torch only."""
        words = ["--index-url", self.index_url] if self.index_url and of_torch else []
        words += [word for place in self.find_links for word in ("--find-links", place)]
        return [*words, *(["--no-index"] if self.no_index else [])]


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Options for laying a commit's Python files over the installed torch; the fields are the names of the options."""

    source: str | None = None
    python_only: bool = False
    wheel_commit: str = ""
    overlays: Path = Path("~/.cache/inductor-watch/overlays")

    def applied(self, names: RunNames, requested: RequestedOptions) -> tuple[RunNames, RequestedOptions]:
        """Return the names and options of a run of the source, and make its overlay. Raises what `make_overlay` raises."""
        if not self.source:
            if self.python_only or self.wheel_commit:
                raise click.UsageError("--python-only and --wheel-commit go with --source")
            return names, requested
        from jobs.builds.overlay import make_overlay

        overlay = make_overlay(self.source, self.overlays, python_only=self.python_only, wheel_commit=self.wheel_commit)
        tell(f"source: {overlay.words()}")
        names = replace(
            names,
            branch=names.branch or overlay.branch or None,
            commit=names.commit or overlay.commit,
            commit_title=names.commit_title or overlay.title,
            commit_date=names.commit_date or overlay.date,
        )
        execution = replace(requested.execution, overlay=str(overlay.folder), source=str(overlay))
        return names, replace(requested, execution=execution)

    def import_commits(self, names: RunNames, database: str | None) -> None:
        """Import the commits that the blame range of the source's run needs, if there are a source and a database."""
        if self.source and database:
            path, _, ref = self.source.rpartition("@")
            import_commits(Path(path), ["HEAD" if ref == "." else ref], names, database)


def import_commits(clone: Path, refs: Sequence[str], names: RunNames, database: str) -> None:
    """Import the commits that the blame ranges of these refs need into the database, and print a line about it."""
    from jobs.git_log import Repository, import_around

    if line := import_around(database, Repository(clone.expanduser()), names.repo, refs, names.branch or ""):
        tell(line)


overlays_option = click.option(
    "--overlays",
    type=FOLDER,
    default=SourceOptions().overlays,
    envvar="INDUCTOR_WATCH_OVERLAYS",
    help="Folder in which a commit's Python files are laid over the installed torch.",
)
_OVERLAYS = (
    click.option("--python-only", is_flag=True, help="Leave out files of a commit that need a build of torch."),
    click.option(
        "--wheel-commit",
        default="",
        show_default=False,
        metavar="SHA",
        help="The clone's commit that the installed torch was built from [what torch says].",
    ),
    overlays_option,
)
#: Options for measuring commits without a build.
overlay_options = as_one("source", SourceOptions, *_OVERLAYS)
#: `overlay_options` and the option for the commit.
source_options = as_one(
    "source",
    SourceOptions,
    click.option(
        "--source",
        metavar="REPO@REF",
        help="Measure a PyTorch commit without a build: its Python files over the installed torch. REPO is a clone, REF "
        "a branch, tag or sha of it, or . for the working tree.",
    ),
    *_OVERLAYS,
)
build_options = as_one(
    "options",
    BuildOptions,
    click.option(
        "--envs",
        type=FOLDER,
        default=Path("torch-builds"),
        help="Folder of the environments, one a build; made once.",
    ),
    click.option("--python", type=INPUT_FILE, metavar="EXE", help="The Python to make them with. [this one]"),
    click.option("--index-url", metavar="URL", help="The index that torch comes from, e.g. one of CPU wheels. [pip's]"),
    click.option("--find-links", multiple=True, metavar="PLACE", help="A folder or page of wheels to look at besides."),
    click.option("--no-index", is_flag=True, help="Look at --find-links only."),
    click.option(
        "--with",
        "packages",
        multiple=True,
        metavar="REQUIREMENT",
        help="What each gets besides torch. [click, rich, numpy and transformers, in the versions installed here]",
    ),
    click.option(
        "--cuda-builds/--no-cuda-builds",
        default=None,
        help="Whether torch may bring CUDA's libraries, gigabytes of them. [where there is a GPU]",
    ),
)
