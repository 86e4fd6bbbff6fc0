"""Sides in words: for pickers, heads of pages and sentences."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup, escape

from analysis.compare.comparison import Comparison
from analysis.present import commit_title
from analysis.reports.permalinks import fixed_side
from dashboard import url
from dashboard.components import code_host
from dashboard.components.formats import moment
from dashboard.components.markup import anchor, joined
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
    """The commit of a run: digits of its sha, release, branch, and title, shortened before the number of its pull request."""
    title = " ".join((run.commit_title or "").split())
    if len(title) > _TITLE:
        head, _, tail = title.rpartition(" (#")
        tail = f" (#{tail}" if head else ""
        title = f"{title[: _TITLE - len(tail) - 1]}\N{HORIZONTAL ELLIPSIS}{tail}"
    return [part for part in (run.commit[:10], run.release, run.branch, title) if part]


def describe(side: Side) -> Markup:
    """A side in a few words, with links to its commits: what it is of, when its newest run started, its devices and labels."""
    labels = dict.fromkeys(run.label for run in side.runs if run.label)
    devices = dict.fromkeys(device_name(run.testbed) or run.testbed_id for run in side.runs)
    titled = commit_title(side)
    title = anchor(url.link("commit", new=fixed_side(side), base=""), titled) if titled else ""
    parts = [_title(side), title, f"{moment(side.runs[0].started_at)} UTC", *devices, *labels]
    return joined(" · ", parts)


def pair_lines(comparison: Comparison) -> list[Markup]:
    """Both sides, and what landed between them, a line each."""
    landed = code_host.between(comparison.base, comparison.new)
    sides = [Markup("base ") + describe(comparison.base), Markup("new ") + describe(comparison.new)]
    return [*sides, *([Markup("commits ") + landed] if landed else [])]


def _title(side: Side) -> Markup:
    """The title of a side with links for its commits."""
    repos = {run.commit: run.repo for run in side.runs}
    branches = f"{'+'.join(side.branches)}@"
    rest = side.title.removeprefix(branches + "+".join(sha[: code_host.SHOWN] for sha in side.commits))
    return escape(branches) + joined("+", (code_host.commit(repos[sha], sha) for sha in side.commits)) + rest
