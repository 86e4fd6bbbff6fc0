"""What happened, in one sentence, a few figures and a table per phase."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from analysis.reports.suites import Sure
from dashboard import url
from dashboard.components import changes, charts, empty_states, heading
from dashboard.components.markup import anchor, bullets, draw, markdown, paragraph, soft
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
    comparison, cells = data.comparison(pair, filters), data.judged(pair, filters)
    if not (cells["expected_base"] & cells["expected_new"]).any():
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
    draw(
        paragraph("iw-verdict", headline.answer(cells)),
        paragraph("", headline.compared_sentence(cells)),
        bullets("iw-dimensions", data.dimensions(pair, filters)),
        paragraph("soft", *pair_lines(comparison)),
    )
    lists.broken(data, cells[cells["outcome"] == "broke"])
    lists.lost(cells)
    lists.changes(cells)
    charts.show([figure] if (figure := intervals.figure(cells)) else [])
    recent = data.recent(pair.new, filters, headline.COMPARED)
    base, new = (headline.total(getattr(suite, side) for suite in comparison.suites) for side in ("base", "new"))
    headline.draw_cards(headline.compared_cards(cells, base, new), recent)
    _notes([changes.noise_line(data.judgement(pair)), *comparison.notes])
    _records(selection)
    _tables(groups.sections(comparison.suites), data.intervals(pair, filters))
    with st.expander("How is this decided?"):
        st.caption(f"{changes.RULE} {changes.GROUP_RULE}")
    lists.remaining(cells)


def _alone(selection: Selection) -> None:
    summary = selection.data.summary(selection.fixed_new, selection.filters)
    if summary.cells.empty:
        sentence = f"{summary.side.title} has no cell under these filters. Widen them at the left."
        empty_states.show("Nothing to show", sentence)
        empty_states.neighbours(summary.side, selection.data.nights_with(selection.filters), "")
        return
    counts = headline.total(suite.counts for suite in summary.suites)
    draw(paragraph("iw-verdict", headline.alone_sentence(counts)), paragraph("soft", describe(summary.side)))
    recent = selection.data.recent(selection.fixed_new, selection.filters, headline.ALONE)
    headline.draw_cards(headline.alone_cards(summary.cells, counts), recent)
    if url.get("base") == NOTHING:
        why = ["No base is chosen. Pick a base at the left to see changes."]
    else:
        why = ["No earlier night on this testbed planned any of these cells. Pick a base at the left to see changes."]
    _notes([*summary.notes, *([] if selection.base_is_unknown else why)])
    _tables(groups.sections(summary.suites), {})
    lists.alone(summary.cells)


def _tables(sections: dict[str, list[groups.Item]], intervals: dict[tuple[str, str], Sure]) -> None:
    for title, items in sections.items():
        st.header(markdown(title), anchor=False)
        draw(groups.section_tables(items, intervals))


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
