"""A commit in tables: what it is, and which commits landed before it."""

from __future__ import annotations

from markupsafe import Markup

from analysis.elements import outside_links
from analysis.elements.markup import table
from analysis.elements.wording import ABSENT, count, moment
from analysis.present import commit_title
from db.commits.ranges import CommitRange, commit_range
from db.connecting import Source
from db.queries.sides import Side
from db.store_errors import CommitError

#: Commits of a range that are shown.
_COMMITS = 30


def commit_facts(side: Side) -> Markup:
    """Return what is known of the commit of a side, as a table."""
    run = side.runs[0]
    commits = [outside_links.commit(run.repo, sha) for sha in side.commits]
    number = _pull_request(commit_title(side))
    facts = {
        "commit": Markup(", ").join(commits),
        "title": commit_title(side) or "not known",
        "pull request": outside_links.pull(run.repo, number, ABSENT),
        "written": f"{moment(run.commit_date)} UTC" if run.commit_date else ABSENT,
        "branch": f"{', '.join(side.branches)} of {run.repo}",
        "measured": f"{moment(run.started_at)} UTC, {count(len(side.runs), 'run')}",
    }
    return Markup('<div class="iw-narrow">{}</div>').format(table("Facts", ("field", "value"), list(facts.items())))


def _pull_request(title: str) -> int | None:
    """Return the number behind a title, as PyTorch's merge bot writes it."""
    head, _, tail = title.rstrip().rpartition("(#")
    return int(tail[:-1]) if head and tail[:-1].isdecimal() and tail.endswith(")") and len(tail) < 10 else None


def landed_commits(source: Source, base: Side, new: Side) -> CommitRange | None:
    """Return the commits after base up to new; None where their order is not known, or there are none."""
    if len(base.commits) != 1 or len(new.commits) != 1:
        return None
    try:
        landed = commit_range(source, base.commits[0], new.commits[0], new.runs[0].repo)
    except CommitError:
        return None
    return landed if landed.distance else None


def landed_table(landed: CommitRange) -> Markup:
    """Return the newest commits of a range, as a table."""
    rows = [
        (
            outside_links.commit(one.repo, one.sha),
            one.title or "no title",
            outside_links.pull(one.repo, one.pr_number, ABSENT),
        )
        for one in landed.commits[::-1][:_COMMITS]
    ]
    note = f"{count(landed.distance, 'commit')} after the base, the newest first"
    return table("Landed", ("commit", "title", "pull request"), rows, note=note)
