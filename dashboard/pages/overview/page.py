"""What happened, in one sentence, a few figures and a table per phase."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pandas as pd
import streamlit as st

from analysis.compare.results import Comparison
from analysis.compare.transitions import Transition
from analysis.reports.permalinks import fixed_side as fixed
from collector.vocabulary import NOT_APPLICABLE, Status
from dashboard import url
from dashboard.components import changes, code_host, outcomes
from dashboard.components import empty_states as states
from dashboard.components.markup import anchor, block, cards, markdown, text
from dashboard.components.noise import noise_line
from dashboard.components.reasons import LISTED, change_table, missing_table, reason_table
from dashboard.components.sidebar import describe, described
from dashboard.data import Pair
from dashboard.pages.overview import groups, headline
from dashboard.pages.regressions.record_rows import record_table
from dashboard.selection import NOTHING, Selection, current

#: Records of regressions that are shown.
_RECORDS = 5
_UNASKED = [status.value for status in NOT_APPLICABLE]


def page(selection: Selection) -> None:
    """Draws the page."""
    st.title("Overview", anchor=False)
    if selection.pair is None:
        _alone(selection)
    else:
        _compared(selection, selection.pair)


def _compared(selection: Selection, pair: Pair) -> None:
    data, filters = selection.data, selection.filters
    found, judgement = data.comparison(pair, filters), data.judgement(pair)
    cells = data.judged(pair, filters)
    if not (cells["expected_base"] & cells["expected_new"]).any():
        _nothing_shared(found)
        return
    recent = data.recent(pair.new, filters, headline.COMPARED)
    _head(
        headline.compared_sentence(cells, outcomes.counts(cells)),
        _sides(found),
        headline.with_recent(headline.compared_cards(cells), recent, found.base.nights[0]),
        (noise_line(judgement), *found.notes),
    )
    _records(selection)
    if moved := change_table(cells):
        st.html(block(moved))
    listed = cells[["transition", *LISTED]]
    is_lost = listed["transition"].isin([Transition.BROKE.value, Transition.MISSING.value])
    _lists(listed[is_lost])
    intervals = data.intervals(pair, filters)
    for setting, items in groups.sections(found.suites).items():
        st.header(markdown(setting.title), anchor=False)
        st.html(block(groups.section_tables(items, intervals)))
    st.caption(f"{changes.RULE} {changes.GROUP_RULE}")
    _lists(listed[~is_lost])


def _records(selection: Selection) -> None:
    """The newest of the records that somebody has still to do something about; the page of records has all."""
    found = selection.data.records(with_closed=False)
    if not found:
        st.html(block('<p class="soft">No regression is recorded as open.</p>'))
        return
    note = f"the newest {_RECORDS} of {len(found)}" if len(found) > _RECORDS else ""
    more = anchor(url.link("regressions"), "All open records")
    shown = record_table("Newest open regressions", found[:_RECORDS], note)
    st.html(block(shown, f"<p>{more}</p>" if note else ""))


def _nothing_shared(found: Comparison) -> None:
    """Tables of one side beside tables of another would only look like a comparison."""
    states.show(
        "Nothing to compare",
        f"No cell is planned on both sides under these filters. Base is {describe(found.base)}; new is "
        f"{describe(found.new)}. Pick another base at the left, or none to see new alone.",
    )


_NOT_THERE = (Transition.MISSING, Transition.MISSING_IN_BOTH)


def _lists(cells: pd.DataFrame) -> None:
    # A list that is not there is not drawn.
    there = set(cells["transition"])
    wanted = {
        "Broke": (Transition.BROKE, "_new"),
        "Missing in new": (Transition.MISSING, "_new"),
        "Still failing": (Transition.STILL_FAILING, "_new"),
        "Fixed (why it failed in base)": (Transition.FIXED, "_base"),
        "Not applicable": (Transition.NOT_APPLICABLE, "_new"),
        "Missing in both": (Transition.MISSING_IN_BOTH, "_new"),
    }
    for title, (transition, side) in wanted.items():
        if transition.value in there:
            rows = cells[cells["transition"] == transition.value]
            draw = missing_table if transition in _NOT_THERE else partial(reason_table, side=side)
            st.html(block(draw(f"{title}: {len(rows)}", rows)))
    new = cells[cells["transition"] == Transition.ENTERED.value]
    failing = new[new["status_new"] != Status.PASS.value]
    if len(failing):
        st.html(block(reason_table(f"Planned in new only, not passing: {len(failing)}", failing, "_new")))


def _alone(selection: Selection) -> None:
    found = selection.data.summary(fixed(selection.new), selection.filters)
    cells = found.cells
    if cells.empty:
        states.show(
            "Nothing to show", f"{describe(found.side)} has no cell under these filters. Widen them at the left."
        )
        return
    why = "" if selection.problems else f"{_why_alone()} Pick a base at the left to see changes."
    notes = (*found.notes, why) if why else found.notes
    recent = selection.data.recent(fixed(selection.new), selection.filters, headline.ALONE)
    figures = headline.with_recent(headline.alone_cards(cells), recent)
    _head(headline.alone_sentence(cells), described(found.side), figures, notes)
    for setting, items in groups.sections(found.suites).items():
        st.header(markdown(setting.title), anchor=False)
        st.html(block(groups.section_tables(items, {})))
    asked = ~cells["status"].isin(_UNASKED)
    failed = cells[cells["status"].notna() & asked & (cells["status"] != Status.PASS.value)]
    lists = {"Failing": failed, "Missing": cells[cells["status"].isna()], "Could not be asked here": cells[~asked]}
    for title, rows in lists.items():
        if len(rows):
            draw = missing_table if title == "Missing" else reason_table
            st.html(block(draw(f"{title}: {len(rows)}", rows)))


def _why_alone() -> str:
    if url.get("base") == NOTHING:
        return "No base is chosen."
    return "No earlier night on this testbed planned any of these cells."


def _sides(found: Comparison) -> str:
    """Both sides as HTML, and what landed between them."""
    landed = code_host.between(found.base, found.new)
    lines = [f"base {described(found.base)}", f"new {described(found.new)}"]
    return "<br>".join([*lines, *([f"commits {landed}"] if landed else [])])


def _head(sentence: str, sides: str, figures: Sequence[headline.Card], notes: tuple[str, ...]) -> None:
    said = "".join(f"<li>{text(note)}</li>" for note in notes)
    st.html(
        block(
            f'<p class="iw-verdict">{sentence}</p><p class="soft">{sides}</p>',
            cards(figures) if figures else "",
            f'<ul class="soft iw-notes">{said}</ul>' if said else "",
        )
    )


page(current())
