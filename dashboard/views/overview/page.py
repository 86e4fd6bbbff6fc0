"""What happened, in one sentence, a few figures and a table per phase."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st
from markupsafe import Markup

from analysis.compare.cell_outcome import Outcome
from analysis.present import noise_line
from dashboard import url
from dashboard.components import changes, charts, empty_states, heading
from dashboard.components.markup import anchor, bullets, draw, joined, markdown, paragraph, soft
from dashboard.components.sides import describe, pair_lines
from dashboard.data import Pair
from dashboard.selection import NOTHING, Selection, current
from dashboard.views.overview import groups, headline, intervals, lists
from dashboard.views.regressions.record_rows import record_table

#: Records of regressions that are shown.
_RECORDS = 5
#: Nights that are asked whether they share cells with new, where base has none.
_LOOK_BACK = 20


def page(selection: Selection) -> None:
    """Draws the page."""
    heading.title("Overview")
    if selection.pair is None:
        _alone(selection)
    else:
        _compared(selection, selection.pair)


def _compared(selection: Selection, pair: Pair) -> None:
    data, filters = selection.data, selection.filters
    comparison = data.comparison(pair, filters)
    if not comparison.in_common:
        # Tables of one side beside tables of another would only look like a comparison.
        empty_states.show(
            "Nothing to compare",
            f"No cell is planned on both sides under these filters. Base is {comparison.base.title}; new is "
            f"{comparison.new.title}. Pick another base at the left, or none to see new alone.",
        )
        wanted = data.cell_ids(pair.new)
        shared = [night for night in data.nights()[:_LOOK_BACK] if wanted & data.cell_ids(night.night)]
        empty_states.neighbours(comparison.new, shared, "", "base")
        return
    # A new tab has loaded the code for Markdown before anything is drawn. What needs other code waits for that of charts, too,
    # since it comes in one go with them: then the sentence with its links takes this one's place.
    answer = headline.answer(comparison)
    st.container(key="at-once").markdown(markdown(answer.striptags()))
    draw(
        paragraph("iw-verdict", answer),
        paragraph("", headline.compared_sentence(comparison)),
        paragraph("soft", *pair_lines(comparison)),
    )
    draw(
        groups.grid(comparison.suites), _two_configs(comparison.suites)
    )  # apart: averages take longer than the sentence
    lists.broken(data, comparison.of(Outcome.BROKE))
    lists.lost(comparison)
    lists.changes(comparison)
    draw(bullets("iw-dimensions", headline.dimensions(comparison)))
    if drawn := intervals.figure(comparison):
        fold = st.expander(drawn.alt, key="intervals", on_change="rerun")
        if fold.open:
            with fold:
                charts.show([drawn])
    recent = data.recent(pair.new, filters, headline.COMPARED)
    base, new = (headline.total(getattr(suite, side) for suite in comparison.suites) for side in ("base", "new"))
    headline.draw_cards(headline.compared_cards(comparison, base, new), recent)
    _notes([noise_line(comparison), *comparison.notes])
    _records(selection)
    _tables(groups.sections(comparison.suites))
    with st.expander("How is this decided?"):
        st.caption(f"{changes.RULE} {changes.GROUP_RULE}")
    lists.remaining(comparison)


def _alone(selection: Selection) -> None:
    summary = selection.data.summary(selection.fixed_new, selection.filters)
    if not summary.cells:
        sentence = f"{summary.side.title} has no cell under these filters. Widen them at the left."
        empty_states.show("Nothing to show", sentence)
        empty_states.neighbours(summary.side, selection.data.nights_with(selection.filters), "")
        return
    counts = headline.total(suite.counts for suite in summary.suites)
    sentence = paragraph("iw-verdict", headline.alone_sentence(counts))
    draw(sentence, paragraph("soft", describe(summary.side)), groups.grid(summary.suites), _two_configs(summary.suites))
    recent = selection.data.recent(selection.fixed_new, selection.filters, headline.ALONE)
    headline.draw_cards(headline.alone_cards(summary.cells, counts), recent)
    if url.get("base") == NOTHING:
        why = ["No base is chosen. Pick a base at the left to see changes."]
    else:
        why = ["No earlier night on this testbed planned any of these cells. Pick a base at the left to see changes."]
    _notes([*summary.notes, *([] if selection.base_is_unknown else why)])
    _tables(groups.sections(summary.suites))
    lists.alone(summary.cells)


def _two_configs(items: Sequence[groups.Item]) -> Markup:
    links = groups.config_links(items)
    return paragraph("iw-configs", joined(" ", ["Compare two configs:", links])) if links else Markup()


def _tables(sections: dict[str, list[groups.Item]]) -> None:
    """Draws every average of every group, folded: the grid has what most people look for."""
    fold = st.expander("All averages with their intervals", key="averages", on_change="rerun")
    if not fold.open:
        return
    with fold:
        for title, items in sections.items():
            st.header(markdown(title), anchor=False)
            draw(groups.section_tables(items))


def _notes(notes: Sequence[str]) -> None:
    if notes:
        draw(bullets("soft iw-notes", notes))


def _records(selection: Selection) -> None:
    """Draws the newest of the open records; the page of records has all."""
    records = selection.data.records(False)
    if not records:
        soft("No regression is recorded as open.")
        return
    note = f"the newest {_RECORDS} of {len(records)}" if len(records) > _RECORDS else ""
    more = paragraph("", anchor(url.link("regressions"), "All open records")) if note else ""
    draw(record_table("Newest open regressions", records[:_RECORDS], note), more)


page(current())
