"""The page of one commit: its facts, and its changes, with cells grouped by the cause of their change."""

from __future__ import annotations

import streamlit as st

from analysis.elements.listings import change_table, commit_facts, landed_commits, landed_table, pair_lines
from analysis.elements.overview_tables import answer, compared_sentence
from analysis.elements.wording import anchor, count, paragraph
from dashboard import url, widgets
from dashboard.url import Selection, current
from dashboard.widgets import draw, soft

#: Changes of one cause that are shown.
_CHANGES = 12


def page(selection: Selection) -> None:
    """Draw the page."""
    widgets.title("Commit")
    draw(commit_facts(selection.new))
    if selection.pair is None:
        soft("There is nothing to compare it with: pick a base at the left.")
        return
    comparison = selection.data.comparison(selection.pair, selection.filters)
    draw(
        paragraph("iw-verdict", answer(comparison, url.link)),
        paragraph("", compared_sentence(comparison, url.link)),
        paragraph("soft", *pair_lines(comparison, url.link)),
    )
    if selection.base and (landed := landed_commits(selection.data.engine, selection.base, selection.new)):
        draw(landed_table(landed))
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


page(current())
