"""The sides of a comparison in a few words, with links to their commits."""

from __future__ import annotations

from markupsafe import Markup, escape

from analysis.compare.comparison import Comparison
from analysis.elements import outside_links
from analysis.elements.markup import Link, anchor, joined
from analysis.elements.wording import moment
from analysis.present import commit_title
from analysis.reports.permalinks import fixed_side
from db.nights import device_name
from db.queries.sides import Side


def describe(side: Side, link: Link) -> Markup:
    """Return a side in a few words with links to its commits: what it is of, when it started, its devices and labels."""
    labels = dict.fromkeys(run.label for run in side.runs if run.label)
    devices = dict.fromkeys(device_name(run.testbed) or run.testbed_id for run in side.runs)
    titled = commit_title(side)
    title = anchor(link("commit", new=fixed_side(side), base=""), titled) if titled else ""
    parts = [_title(side), title, f"{moment(side.runs[0].started_at)} UTC", *devices, *labels]
    return joined(" · ", parts)


def pair_lines(comparison: Comparison, link: Link) -> list[Markup]:
    """Return both sides, and what landed between them, a line each."""
    landed = outside_links.between(comparison.base, comparison.new)
    sides = [Markup("base ") + describe(comparison.base, link), Markup("new ") + describe(comparison.new, link)]
    return [*sides, *([Markup("commits ") + landed] if landed else [])]


def _title(side: Side) -> Markup:
    """The title of a side with links for its commits."""
    repos = {run.commit: run.repo for run in side.runs}
    branches = f"{'+'.join(side.branches)}@"
    rest = side.title.removeprefix(branches + "+".join(sha[: outside_links.SHOWN] for sha in side.commits))
    return escape(branches) + joined("+", (outside_links.commit(repos[sha], sha) for sha in side.commits)) + rest
