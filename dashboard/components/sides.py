"""Sides in words: for pickers, heads of pages and sentences."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from analysis.compare.results import Comparison
from dashboard.components import code_host
from dashboard.components.formats import moment
from db.queries.sides import Side
from db.runs import RunInfo, describe_places, device_name

#: Letters of a commit's title; its end has the number of its pull request.
_TITLE = 64


def label(name: str, runs: Sequence[RunInfo]) -> str:
    """A night or a run on one line: when, what, on which devices, and what its label says."""
    newest = runs[0]
    place = describe_places(run.testbed for run in runs) or newest.testbed_id
    parts = [moment(newest.started_at), *commit_words(newest), place, newest.label, name]
    return " · ".join(part for part in parts if part)


def commit_words(run: RunInfo) -> list[str]:
    """The commit of a run: digits of its sha, branch, and title, shortened before the number of its pull request."""
    title = " ".join((run.commit_title or "").split())
    if len(title) > _TITLE:
        head, _, tail = title.rpartition(" (#")
        tail = f" (#{tail}" if head else ""
        title = f"{title[: _TITLE - len(tail) - 1]}\N{HORIZONTAL ELLIPSIS}{tail}"
    return [run.commit[:10], run.branch, *([title] if title else [])]


def describe(side: Side) -> str:
    """A side in a few words: what it is of, when its newest run started, its devices and labels."""
    labels = dict.fromkeys(run.label for run in side.runs if run.label)
    devices = dict.fromkeys(device_name(run.testbed) or run.testbed_id for run in side.runs)
    return " · ".join([side.title, f"{moment(side.runs[0].started_at)} UTC", *devices, *labels])


def described(side: Side) -> Markup:
    """`describe` with links to the side's commits."""
    return code_host.side(side, describe(side))


def pair_lines(comparison: Comparison) -> list[Markup]:
    """Both sides, and what landed between them, a line each."""
    landed = code_host.between(comparison.base, comparison.new)
    sides = [Markup("base ") + described(comparison.base), Markup("new ") + described(comparison.new)]
    return [*sides, *([Markup("commits ") + landed] if landed else [])]
