"""What happened, in one sentence, a few figures and a table per phase."""

from __future__ import annotations

from functools import partial

import pandas as pd
import streamlit as st

from analysis.permalinks import fixed_side as fixed
from analysis.results import Comparison
from analysis.transitions import Transition
from analysis.verdicts import Judgement
from collector.vocabulary import NOT_APPLICABLE, Status
from dashboard import changes, groups, headline, outcomes, states, url
from dashboard.markup import block, cards, markdown, text
from dashboard.noise import noise_line
from dashboard.reasons import change_table, missing_table, reason_table
from dashboard.selection import NOTHING, Selection, current
from dashboard.sidebar import describe

_UNASKED = [status.value for status in NOT_APPLICABLE]


def page(selection: Selection) -> None:
    """Draws the page."""
    st.title("Overview", anchor=False)
    pair = selection.pair
    if pair is None:
        _alone(selection)
    else:
        _compared(selection.data.comparison(*pair, selection.filters), selection.data.judgement(*pair))


def _compared(found: Comparison, judgement: Judgement) -> None:
    cells = outcomes.with_outcomes(found.cells, judgement.cells)
    if not (cells["expected_base"] & cells["expected_new"]).any():
        _nothing_shared(found)
        return
    tally = outcomes.counts(cells)
    _head(
        headline.compared_sentence(cells, tally),
        f"base {describe(found.base)}\nnew {describe(found.new)}",
        headline.compared_cards(cells, tally),
        (noise_line(judgement), *found.notes),
    )
    if moved := change_table(cells):
        st.html(block(moved))
    _lists(cells[cells["transition"].isin([Transition.BROKE.value, Transition.MISSING.value])])
    intervals = groups.group_intervals(cells)
    for setting, items in groups.sections(found.suites).items():
        st.header(markdown(setting.title), anchor=False)
        st.html(block(groups.section_tables(items, intervals)))
    st.caption(f"{changes.RULE} {changes.GROUP_RULE}")
    _lists(cells[~cells["transition"].isin([Transition.BROKE.value, Transition.MISSING.value])])


def _nothing_shared(found: Comparison) -> None:
    """Tables of one side beside tables of another would only look like a comparison."""
    states.show(
        "Nothing to compare",
        f"No cell is planned on both sides under these filters. Base is {describe(found.base)}; new is "
        f"{describe(found.new)}. Pick another base at the left, or none to see new alone.",
    )


_NOT_THERE = (Transition.MISSING, Transition.MISSING_IN_BOTH)


def _lists(cells: pd.DataFrame) -> None:
    wanted = {
        "Broke": (Transition.BROKE, "_new"),
        "Missing in new": (Transition.MISSING, "_new"),
        "Still failing": (Transition.STILL_FAILING, "_new"),
        "Fixed (why it failed in base)": (Transition.FIXED, "_base"),
        "Not applicable": (Transition.NOT_APPLICABLE, "_new"),
        "Missing in both": (Transition.MISSING_IN_BOTH, "_new"),
    }
    for title, (transition, side) in wanted.items():
        rows = cells[cells["transition"] == transition.value]
        if len(rows):
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
    _head(headline.alone_sentence(cells), describe(found.side), headline.alone_cards(cells), notes)
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


def _head(sentence: str, sides: str, figures: list[tuple[str, str, str]], notes: tuple[str, ...]) -> None:
    lines = "<br>".join(text(line) for line in sides.splitlines())
    said = "".join(f"<li>{text(note)}</li>" for note in notes)
    st.html(
        block(
            f'<p class="iw-verdict">{sentence}</p><p class="soft">{lines}</p>',
            cards(figures) if figures else "",
            f'<ul class="soft iw-notes">{said}</ul>' if said else "",
        )
    )


page(current())
