"""What happened, in one sentence, a few figures and a table per phase."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from analysis.results import Comparison
from analysis.transitions import Transition
from collector.vocabulary import NOT_APPLICABLE, Status
from dashboard import changes, groups, headline, outcomes
from dashboard.markup import block, cards, text
from dashboard.reasons import reason_table
from dashboard.selection import Selection, current, fixed
from dashboard.sidebar import describe

_UNASKED = [status.value for status in NOT_APPLICABLE]


def page(selection: Selection) -> None:
    """Draws the page."""
    st.title("Overview", anchor=False)
    pair = selection.pair
    if pair is None:
        _alone(selection)
    else:
        _compared(selection.data.comparison(*pair, selection.filters))


def _compared(found: Comparison) -> None:
    cells = outcomes.with_outcomes(found.cells)
    tally = outcomes.counts(cells)
    _head(
        headline.compared_sentence(cells, tally),
        f"base {describe(found.base)}\nnew {describe(found.new)}",
        headline.compared_cards(cells, tally) if len(cells) else [],
        found.notes,
    )
    bands = groups.group_bands(cells)
    for setting, items in groups.sections(found.suites).items():
        st.subheader(setting.title, anchor=False)
        st.html(block(groups.section_tables(items, bands)))
    if len(cells):
        st.caption(changes.RULE)
    _lists(cells)


def _lists(cells: pd.DataFrame) -> None:
    wanted = {
        "Broke": (Transition.BROKE, "_new"),
        "Missing in new": (Transition.MISSING, "_new"),
        "Still failing": (Transition.STILL_FAILING, "_new"),
        "Fixed (why it failed in base)": (Transition.FIXED, "_base"),
        "Not applicable": (Transition.NOT_APPLICABLE, "_new"),
    }
    for title, (transition, side) in wanted.items():
        rows = cells[cells["transition"] == transition.value]
        if len(rows):
            st.html(block(reason_table(f"{title}: {len(rows)}", rows, side)))
    new = cells[cells["transition"] == Transition.ENTERED.value]
    failing = new[new["status_new"] != Status.PASS.value]
    if len(failing):
        st.html(block(reason_table(f"Planned in new only, not passing: {len(failing)}", failing, "_new")))


def _alone(selection: Selection) -> None:
    found = selection.data.summary(fixed(selection.new), selection.filters)
    cells = found.cells
    why = "" if selection.problems else "No base: pick one at the left to see changes."
    notes = (*found.notes, why) if why else found.notes
    _head(
        headline.alone_sentence(cells), describe(found.side), headline.alone_cards(cells) if len(cells) else [], notes
    )
    for setting, items in groups.sections(found.suites).items():
        st.subheader(setting.title, anchor=False)
        st.html(block(groups.section_tables(items, {})))
    asked = ~cells["status"].isin(_UNASKED)
    failed = cells[cells["status"].notna() & asked & (cells["status"] != Status.PASS.value)]
    lists = {"Failing": failed, "Missing": cells[cells["status"].isna()], "Could not be asked here": cells[~asked]}
    for title, rows in lists.items():
        if len(rows):
            st.html(block(reason_table(f"{title}: {len(rows)}", rows)))


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
