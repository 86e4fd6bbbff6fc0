"""One commit: what it is, and what it changed, cells grouped by what explains them."""

from __future__ import annotations

import streamlit as st
from markupsafe import Markup

from analysis.elements import outside_links
from analysis.elements.cell_tables import change_table
from analysis.elements.markup import anchor, paragraph, table
from analysis.elements.overview_tables import answer, compared_sentence
from analysis.elements.side_words import pair_lines
from analysis.elements.wording import ABSENT, count, moment
from analysis.present import commit_title
from dashboard import url
from dashboard.components import widgets
from dashboard.components.drawing import draw, soft
from dashboard.selection import Selection, current
from db.commits.ranges import commit_range
from db.queries.sides import Side
from db.store_errors import CommitError

#: Commits of a range, and changes of one cause, that are shown.
_COMMITS, _CHANGES = 30, 12


def page(selection: Selection) -> None:
    """Draws the page."""
    widgets.title("Commit")
    draw(_facts(selection.new))
    if selection.pair is None:
        soft("There is nothing to compare it with: pick a base at the left.")
        return
    comparison = selection.data.comparison(selection.pair, selection.filters)
    draw(
        paragraph("iw-verdict", answer(comparison, url.link)),
        paragraph("", compared_sentence(comparison, url.link)),
        paragraph("soft", *pair_lines(comparison, url.link)),
    )
    _landed(selection)
    causes = selection.data.causes(selection.pair, selection.filters)
    if not causes:
        soft("No cell changed for the worse or for the better.")
    for cause in causes:
        note = f"the first {_CHANGES}" if len(cause.changes) > _CHANGES else ""
        title = f"{cause.title}: {count(len(cause.changes), 'change')}"
        draw(change_table(title[:1].upper() + title[1:], cause.changes[:_CHANGES], url.link, note))
    more = anchor(url.link("compare", columns=["compiled_ms", "compiled_kernel_ms"]), "All cells on Compare")
    draw(paragraph("iw-links", more))
    st.caption(
        "A cause is what the evidence of both measurements shows: the kernels that hold most of the change, the pass of the "
        "compiler, or the error. It is no proof. With several commits in between any of them may be the reason."
    )


def _facts(side: Side) -> Markup:
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


def _landed(selection: Selection) -> None:
    """Draws the commits after the base up to this one, where their order is known."""
    base, new = selection.base, selection.new
    if base is None or len(base.commits) != 1 or len(new.commits) != 1:
        return
    try:
        landed = commit_range(selection.data.engine, base.commits[0], new.commits[0], new.runs[0].repo)
    except CommitError:
        return
    if not landed.distance:
        return
    rows = [
        (
            outside_links.commit(one.repo, one.sha),
            one.title or "no title",
            outside_links.pull(one.repo, one.pr_number, ABSENT),
        )
        for one in landed.commits[::-1][:_COMMITS]
    ]
    note = f"{count(landed.distance, 'commit')} after the base, the newest first"
    draw(table("Landed", ("commit", "title", "pull request"), rows, note=note))


page(current())
