"""What happened, in one sentence, a few figures and a table per phase."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st
from markupsafe import Markup

from analysis.compare.cell_comparison import Outcome
from analysis.elements import wording
from analysis.elements.listings import describe, pair_lines, record_table
from analysis.elements.markup import anchor, bullets, joined, paragraph
from analysis.elements.overview_tables import (
    Item,
    answer,
    changes_figure,
    compared_sentence,
    config_links,
    dimensions,
    grid,
    section_tables,
    sections,
)
from analysis.present import noise_line
from dashboard import url
from dashboard.components import sidebar, style, widgets
from dashboard.components.drawing import draw, markdown, show_figures, soft
from dashboard.data import Pair
from dashboard.selection import NOTHING, Selection, current
from dashboard.views import cell_lists, headline

#: Records of regressions that are shown.
_RECORDS = 5
#: Nights that are asked whether they share cells with new, where base has none.
_LOOK_BACK = 20


def page(selection: Selection) -> None:
    """Draws the page."""
    widgets.title("Overview")
    if selection.pair is None:
        _alone(selection)
    else:
        _compared(selection, selection.pair)


def _compared(selection: Selection, pair: Pair) -> None:
    data, filters = selection.data, selection.filters
    comparison = data.comparison(pair, filters)
    if not comparison.in_common:
        # Tables of one side beside tables of another would only look like a comparison.
        sidebar.show_nothing(
            "Nothing to compare",
            f"No cell is planned on both sides under these filters. Base is {comparison.base.title}; new is "
            f"{comparison.new.title}. Pick another base at the left, or none to see new alone.",
        )
        wanted = data.cell_ids(pair.new)
        shared = [night for night in data.nights()[:_LOOK_BACK] if wanted & data.cell_ids(night.night)]
        sidebar.link_neighbours(comparison.new, shared, "", "base")
        return
    # A new tab has loaded the code for Markdown before anything is drawn. What needs other code waits for that of charts, too,
    # since it comes in one go with them: then the sentence with its links takes this one's place.
    sentence = answer(comparison, url.link)
    st.container(key="at-once").markdown(markdown(sentence.striptags()))
    draw(
        paragraph("iw-verdict", sentence),
        paragraph("", compared_sentence(comparison, url.link)),
        paragraph("soft", *pair_lines(comparison, url.link)),
    )
    draw(
        grid(comparison.suites, url.link), _two_configs(comparison.suites)
    )  # apart: averages take longer than the sentence
    cell_lists.broken(data, comparison.of(Outcome.BROKE))
    cell_lists.lost(comparison)
    cell_lists.changes(comparison)
    draw(bullets("iw-dimensions", dimensions(comparison, url.link)))
    if drawn := changes_figure(comparison, style.colors()):
        fold = st.expander(drawn.alt, key="intervals", on_change="rerun")
        if fold.open:
            with fold:
                show_figures([drawn])
    recent = data.recent(pair.new, filters, headline.COMPARED)
    base, new = (headline.total(getattr(suite, side) for suite in comparison.suites) for side in ("base", "new"))
    headline.draw_cards(headline.compared_cards(comparison, base, new), recent)
    _notes([noise_line(comparison), *comparison.notes])
    _records(selection)
    _tables(sections(comparison.suites))
    with st.expander("How is this decided?"):
        st.caption(f"{wording.RULE} {wording.GROUP_RULE}")
    cell_lists.remaining(comparison)


def _alone(selection: Selection) -> None:
    summary = selection.data.summary(selection.fixed_new, selection.filters)
    if not summary.cells:
        sentence = f"{summary.side.title} has no cell under these filters. Widen them at the left."
        sidebar.show_nothing("Nothing to show", sentence)
        sidebar.link_neighbours(summary.side, selection.data.nights_with(selection.filters), "")
        return
    counts = headline.total(suite.counts for suite in summary.suites)
    sentence = paragraph("iw-verdict", headline.alone_sentence(counts))
    draw(
        sentence,
        paragraph("soft", describe(summary.side, url.link)),
        grid(summary.suites, url.link),
        _two_configs(summary.suites),
    )
    recent = selection.data.recent(selection.fixed_new, selection.filters, headline.ALONE)
    headline.draw_cards(headline.alone_cards(summary.cells, counts), recent)
    if url.get("base") == NOTHING:
        why = ["No base is chosen. Pick a base at the left to see changes."]
    else:
        why = ["No earlier night on this testbed planned any of these cells. Pick a base at the left to see changes."]
    _notes([*summary.notes, *([] if selection.base_is_unknown else why)])
    _tables(sections(summary.suites))
    cell_lists.alone(summary.cells)


def _two_configs(items: Sequence[Item]) -> Markup:
    links = config_links(items, url.link)
    return paragraph("iw-configs", joined(" ", ["Compare two configs:", links])) if links else Markup()


def _tables(sections: dict[str, list[Item]]) -> None:
    """Draws every average of every group, folded: the grid has what most people look for."""
    fold = st.expander("All averages with their intervals", key="averages", on_change="rerun")
    if not fold.open:
        return
    with fold:
        for title, items in sections.items():
            st.header(markdown(title), anchor=False)
            draw(section_tables(items, url.link))


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
    draw(record_table("Newest open regressions", records[:_RECORDS], url.link, note), more)


if __name__ == "__main__":  # as Streamlit runs a page; other modules import parts of it
    page(current())
