"""The overview: the outcome in one sentence, a few figures, and a table per phase."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import groupby

import altair as alt
import pandas as pd
import streamlit as st
from markupsafe import Markup

from analysis.compare.cell_comparison import CHANGES, CellComparison, Look, Outcome, Transition
from analysis.compare.comparison import Comparison
from analysis.compare.suite_groups import Counts, average_change
from analysis.elements import charts, wording
from analysis.elements.addresses import cell_query
from analysis.elements.listings import change_table, describe, named, pair_lines, reason, record_table, where
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
from analysis.elements.wording import (
    ABSENT,
    THIN,
    anchor,
    bullets,
    count,
    joined,
    lines,
    number,
    paragraph,
    share,
    signed,
    status_tag,
    table,
)
from analysis.history.branch_series import RATE
from analysis.history.regression_record import cell_of
from analysis.present import failing_alone, noise_line
from analysis.rerun import stored_repro
from analysis.stats.averages import geomean
from collector.metrics import METRICS
from dashboard import url, widgets
from dashboard.data import Data, Pair
from dashboard.url import NOTHING, Selection, current
from dashboard.widgets import draw, markdown, show_figures, soft
from db.queries import details
from db.queries.cells import CellName
from db.queries.side_rows import CellState

#: Figures over the last nights that belong to the cards of a comparison, and to the cards of one side.
COMPARED = (RATE, "compiled_kernel_ms", "compiled_ms", "compile_cold_s", "compression")
ALONE = (RATE, "device_speedup", "speedup")
#: A figure in the colour of its look, as Streamlit's Markdown has it.
_COLOURED = {"worse": ":orange[{}]", "better": ":blue[{}]", "calm": "{}"}


@dataclass(frozen=True, slots=True)
class Card:
    """A key figure; `recent` names the figure over the last nights that belongs to it, if any does."""

    title: str
    figure: str
    note: str
    recent: str = ""
    look: Look = "calm"


def total(counts: Iterable[Counts]) -> Counts:
    """Return the counts over all groups together."""
    return Counts(*(sum(numbers) for numbers in zip(*map(astuple, counts), strict=True)))


def alone_sentence(side: Counts) -> str:
    """Return one sentence about one side."""
    numbers = {"{:,} fail": side.failed, "{:,} are missing": side.missing, "{} not applicable": side.not_applicable}
    parts = [words.format(number_of) for words, number_of in numbers.items() if number_of]
    passing = f"{side.passed:,} of {side.attempted:,} measured pass"
    return f"One side alone: {', '.join([count(side.planned, 'cell'), passing, *parts])}."


def compared_cards(comparison: Comparison, base: Counts, new: Counts) -> list[Card]:
    """Return the key figures of a comparison: the pass rate, and the changes of time, compile time and memory."""
    rates = [share(side.passed, side.attempted) for side in (base, new)]
    was = f"{_of_measured(new)}; base {rates[0]}, {_of_measured(base)}"
    is_timed = any("compiled_kernel_ms" in one.judged for one in comparison.cells)
    averages = (
        _average(comparison, metric)
        for metric in ("compiled_kernel_ms" if is_timed else "compiled_ms", "compile_cold_s", "compression")
    )
    return [Card("Passing", rates[1], was, RATE), *averages]


def alone_cards(cells: Sequence[CellState], side: Counts) -> list[Card]:
    """Return the key figures of one side."""
    passing = [state for state in cells if state.passes]
    measured = {(state.cell and state.cell.axes, _identity(state)): state for state in passing}
    once = ", equal programs once" if len(measured) < len(passing) else ""
    speedups = []
    for metric in ("device_speedup", "speedup"):
        values = [found for state in measured.values() if (found := state.values.get(metric, 0.0)) > 0]
        note = f"geometric mean, {count(len(values), 'cell')}{once}"
        title = METRICS[metric].title.capitalize()
        speedups.append(Card(title, number(metric, geomean(values)), note, metric))
    return [
        Card("Passing", share(side.passed, side.attempted), _of_measured(side), RATE),
        *speedups,
        Card("Failing", f"{side.failed:,}", "see below for the reasons"),
        Card("Missing", f"{side.missing:,}", "planned, not measured"),
    ]


def draw_cards(items: Sequence[Card], recent: Mapping[str, Sequence[float]]) -> None:
    """Draw the cards, with the course of a figure over the last nights where it is known.

    An average is drawn relative to the newest night's, over groups of about as many cells; a card's own figure is paired.
    """
    for column, card in zip(st.columns(len(items)), items, strict=True):
        values = recent.get(card.recent, ())
        with column, st.container(border=True):
            st.metric(card.title, _COLOURED[card.look].format(card.figure))
            draw(Markup("<small>{}</small>").format(card.note))
            if sum(value == value for value in values) > 1:
                words = in_words(card, values)
                show_figures([charts.Figure(f"recent_{card.recent}", sparkline(values), f"{card.title} over {words}")])
                draw(Markup("<small>{}</small>").format(words))


def sparkline(values: Sequence[float]) -> alt.Chart:
    """Return a small line chart without axes; the line goes on over NaN."""
    known = pd.DataFrame({"night": range(len(values)), "value": values}).dropna()
    x, y = alt.X("night:Q", axis=None), alt.Y("value:Q", axis=None, scale=alt.Scale(zero=False))
    drawn = alt.Chart(known, height=38).mark_line(strokeWidth=1.4, color=charts.NEUTRAL).encode(x=x, y=y)
    return drawn.configure_view(stroke=None)


def in_words(card: Card, values: Sequence[float]) -> str:
    """Return the course of a figure over the last nights in words; NaN is a night without it."""
    known = [value for value in values if value == value]
    first, last, low, high = (_spelled(card.recent, value) for value in (known[0], known[-1], min(known), max(known)))
    gaps = f", {len(values) - len(known)} without it" if len(known) < len(values) else ""
    relative = "" if card.recent == RATE else ", relative to the newest"
    return f"{count(len(values), 'night')}{gaps}{relative}: from {first} to {last}, lowest {low}, highest {high}"


def _of_measured(side: Counts) -> str:
    missing = f", {side.missing:,} missing" if side.missing else ""
    return f"{side.passed:,} of {side.attempted:,} measured{missing}"


def _average(comparison: Comparison, metric: str) -> Card:
    """Return the change of an average over the cells that pass on both sides, on one machine.

    The drift of the machine is removed from times, as in the verdicts. A program under several names is measured under one of
    them, and counts once: its figures under all of them would weigh several times.
    """
    title = METRICS[metric].title.capitalize()
    here = [one for one in comparison.cells if one.is_comparable]
    distinct = {(one.cell.axes, _identity(one.base), _identity(one.new)): one for one in reversed(here)}
    found = average_change(metric, reversed(distinct.values()), is_adjusted=True)
    words = wording.averaged(found)
    if found is None or words is None:
        return Card(title, ABSENT, "no cell has it on both sides, on one machine", metric)
    mean = "mean" if METRICS[metric].average == "mean" else "geometric mean"
    of = f" of {len(here)}" if found.n < len(distinct) else ""
    once = ", equal programs once" if len(distinct) < len(here) else ""
    cells = f"{found.n}{of} cells" if of else count(found.n, "cell")
    note = ", ".join(filter(None, (words.word, words.interval, mean, f"{cells}{once}")))
    return Card(title, signed(100 * (found.ratio - 1)), note, metric, found.look)


def _identity(state: CellState) -> tuple[object, ...]:
    """Return the values of a state that tell a measurement from a copy of another's."""
    times = (state.values.get(name) for name in ("compiled_ms", "compiled_kernel_ms"))
    return state.run_id, state.program_id, state.started_at, *times


def _spelled(name: str, value: float) -> str:
    return f"{100 * value:.1f}{THIN}%" if name == RATE else signed(100 * (value - 1))


#: Rows of a list, rows of the changes, cells that broke with a line each: the model's page has all.
_ROWS, _CHANGES, _BROKEN = 40, 8, 5

#: A cell and one of its sides.
Named = tuple[CellName, CellState]


def changes(comparison: Comparison) -> None:
    """Draw the largest regressions and improvements, each by the metric that tells it best; nothing where there are none."""
    found = comparison.ranked_findings(CHANGES)
    if not found:
        return
    note = f"the first {_CHANGES} of {len(found)}, what regressed first" if len(found) > _CHANGES else ""
    draw(change_table("Changed most", found[:_CHANGES], url.link, note))


def broken(data: Data, cells: Sequence[CellComparison]) -> None:
    """Draw `cells`, which are the cells that broke."""
    if not cells:
        return
    draw(Markup("<p><b>Broke: {}</b></p>").format(len(cells)))
    for one in cells[:_BROKEN]:
        _line(data, one)
    reasons("Broke as well", [(one.cell, one.new) for one in cells[_BROKEN:]])


def _line(data: Data, one: CellComparison) -> None:
    cell_id, run_id = one.cell.cell_id, str(one.new.run_id)
    with st.container(horizontal=True, vertical_alignment="center"):
        with st.container(width="stretch"):
            draw(lines(named(one.cell, url.link), status_tag(one.new.status), reason(one.new)))
        menu = st.popover("Log", icon=":material/article:", key=f"log_of_{cell_id}", on_change="rerun", width="content")
        if menu.open:
            log = details.evidence(data.engine, run_id, cell_id)[1]
            menu.code(log or "No log was stored.", language=None, wrap_lines=True, height="content")
        if command := _command(data, cell_id, run_id):
            widgets.button(f"command_{cell_id}", "Copy command", "Copied.", text=command, title=command)


def _command(data: Data, cell_id: str, run_id: str) -> str:
    """Return the command that measures the cell again; empty where another version's request cannot be read."""
    with data.engine.connect() as conn:
        cell = cell_of(conn, cell_id)
        return stored_repro(conn, cell, run_id) if cell else ""


def lost(comparison: Comparison) -> None:
    """Draw the cells that sometimes pass, and the cells that are missing in new."""
    flaky = [one for one in comparison.of(Outcome.FLAKY) if one.transition is Transition.BROKE]
    reasons("Flaky: failed in some runs of one side", [(one.cell, one.new) for one in flaky])
    _missing("Missing in new", [one.cell for one in comparison.of(Outcome.MISSING)])


def remaining(comparison: Comparison) -> None:
    """Draw the other cells that do not pass on both sides."""

    def of(transition: Transition) -> list[CellComparison]:
        return [one for one in comparison.cells if one.transition is transition]

    reasons("Failing in new, not judged in base", [(one.cell, one.new) for one in failing_alone(comparison)])
    reasons("Still failing", [(one.cell, one.new) for one in of(Transition.STILL_FAILING)])
    reasons("Fixed (why it failed in base)", [(one.cell, one.base) for one in of(Transition.FIXED)])
    reasons("Not applicable", [(one.cell, one.new) for one in of(Transition.NOT_APPLICABLE) if not one.new.fails])
    _missing("Missing in both", [one.cell for one in of(Transition.MISSING_IN_BOTH)])
    entered = [(one.cell, one.new) for one in of(Transition.ENTERED) if not one.new.passes and not one.new.fails]
    reasons("Planned in new only, not passing", entered)


def alone(cells: Iterable[CellState]) -> None:
    """Draw the cells of one side that do not pass."""
    rows = [(state.cell, state) for state in cells if state.cell and not state.passes]
    measured = [row for row in rows if row[1].status is not None]
    reasons("Failing", [row for row in measured if not row[1].is_not_applicable])
    _missing("Missing", [cell for cell, state in rows if state.status is None])
    reasons("Not applicable", [row for row in measured if row[1].is_not_applicable])


def reasons(title: str, cells: Sequence[Named]) -> None:
    """Draw a row per cell: its status and the reason for it."""
    if not cells:
        return
    rows = [(named(cell, url.link), status_tag(state.status), reason(state)) for cell, state in cells[:_ROWS]]
    note = f"the first {_ROWS} of {len(cells)}" if len(cells) > _ROWS else ""
    draw(table(f"{title}: {len(cells)}", ["cell", "status", "reason"], rows, note=note))


def _missing(title: str, cells: Sequence[CellName]) -> None:
    """Draw missing cells, which have no reason: a row per model, with the configs that are missing."""
    if not cells:
        return
    rows = []
    for _, of_model in groupby(cells, key=lambda cell: cell.axes):
        names = list(of_model)
        configs = joined(", ", (anchor(url.link("model", **cell_query(cell)), cell.config) for cell in names))
        rows.append((lines(names[0].model, where(names[0])), configs))
    note = "planned, and no measurement was stored" + (f"; the first {_ROWS} models" if len(rows) > _ROWS else "")
    draw(table(f"{title}: {len(cells)}", ["model", "configs"], rows[:_ROWS], note=note))


#: Records of regressions that are shown.
_RECORDS = 5
#: The newest nights that are searched for cells in common with new, where base has none.
_LOOK_BACK = 20


def page(selection: Selection) -> None:
    """Draw the page."""
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
        widgets.show_nothing(
            "Nothing to compare",
            f"No cell is planned on both sides under these filters. Base is {comparison.base.title}; new is "
            f"{comparison.new.title}. Pick another base at the left, or none to see new alone.",
        )
        wanted = data.cell_ids(pair.new)
        shared = [night for night in data.nights()[:_LOOK_BACK] if wanted & data.cell_ids(night.night)]
        widgets.link_neighbours(comparison.new, shared, "", "base")
        return
    # A new tab has loaded the code for Markdown before anything is drawn. Elements that need other code wait for the code of
    # charts, too, since both come in one go: then the sentence with its links takes this one's place.
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
    broken(data, comparison.of(Outcome.BROKE))
    lost(comparison)
    changes(comparison)
    draw(bullets("iw-dimensions", dimensions(comparison, url.link)))
    if drawn := changes_figure(comparison, widgets.colors()):
        fold = st.expander(drawn.alt, key="intervals", on_change="rerun")
        if fold.open:
            with fold:
                show_figures([drawn])
    recent = data.recent(pair.new, filters, COMPARED)
    base, new = (total(getattr(suite, side) for suite in comparison.suites) for side in ("base", "new"))
    draw_cards(compared_cards(comparison, base, new), recent)
    _notes([noise_line(comparison), *comparison.notes])
    _records(selection)
    _tables(sections(comparison.suites))
    with st.expander("How is this decided?"):
        st.caption(f"{wording.RULE} {wording.GROUP_RULE}")
    remaining(comparison)


def _alone(selection: Selection) -> None:
    summary = selection.data.summary(selection.fixed_new, selection.filters)
    if not summary.cells:
        sentence = f"{summary.side.title} has no cell under these filters. Widen them at the left."
        widgets.show_nothing("Nothing to show", sentence)
        widgets.link_neighbours(summary.side, selection.data.nights_with(selection.filters), "")
        return
    counts = total(suite.counts for suite in summary.suites)
    sentence = paragraph("iw-verdict", alone_sentence(counts))
    draw(
        sentence,
        paragraph("soft", describe(summary.side, url.link)),
        grid(summary.suites, url.link),
        _two_configs(summary.suites),
    )
    recent = selection.data.recent(selection.fixed_new, selection.filters, ALONE)
    draw_cards(alone_cards(summary.cells, counts), recent)
    if url.get("base") == NOTHING:
        why = ["No base is chosen. Pick a base at the left to see changes."]
    else:
        why = ["No earlier night on this testbed planned any of these cells. Pick a base at the left to see changes."]
    _notes([*summary.notes, *([] if selection.base_is_unknown else why)])
    _tables(sections(summary.suites))
    alone(summary.cells)


def _two_configs(items: Sequence[Item]) -> Markup:
    links = config_links(items, url.link)
    return paragraph("iw-configs", joined(" ", ["Compare two configs:", links])) if links else Markup()


def _tables(sections: dict[str, list[Item]]) -> None:
    """Draw every average of every group, folded: the grid has the figures that most people look for."""
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
    """Draw the newest of the open records; the page of records has all."""
    records = selection.data.records(False)
    if not records:
        soft("No regression is recorded as open.")
        return
    note = f"the newest {_RECORDS} of {len(records)}" if len(records) > _RECORDS else ""
    more = paragraph("", anchor(url.link("regressions"), "All open records")) if note else ""
    draw(record_table("Newest open regressions", records[:_RECORDS], url.link, note), more)


if __name__ == "__main__":  # as Streamlit runs a page; other modules import parts of it
    page(current())
