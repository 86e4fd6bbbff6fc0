"""The overview's first lines: what was compared, in one sentence and a few key figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass

import altair as alt
import pandas as pd
import streamlit as st
from markupsafe import Markup

from analysis.compare.cell_comparison import Look
from analysis.compare.comparison import Comparison
from analysis.compare.suite_groups import Counts, average_change
from analysis.elements import charts, wording
from analysis.elements.wording import ABSENT, THIN, count, number, share, signed
from analysis.history.branch_series import RATE
from analysis.stats.averages import geomean
from collector.metrics import METRICS
from dashboard.components.drawing import draw, show_figures
from db.queries.side_rows import CellState

#: Figures over the last nights that belong to the cards of a comparison, and to those of one side.
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
    """The counts over all groups together."""
    return Counts(*(sum(numbers) for numbers in zip(*map(astuple, counts), strict=True)))


def alone_sentence(side: Counts) -> str:
    """One sentence about one side."""
    numbers = {"{:,} fail": side.failed, "{:,} are missing": side.missing, "{} not applicable": side.not_applicable}
    parts = [words.format(number_of) for words, number_of in numbers.items() if number_of]
    passing = f"{side.passed:,} of {side.attempted:,} measured pass"
    return f"One side alone: {', '.join([count(side.planned, 'cell'), passing, *parts])}."


def compared_cards(comparison: Comparison, base: Counts, new: Counts) -> list[Card]:
    """The key figures of a comparison: what passes, and what became of time, compile time and memory."""
    rates = [share(side.passed, side.attempted) for side in (base, new)]
    was = f"{_of_measured(new)}; base {rates[0]}, {_of_measured(base)}"
    is_timed = any("compiled_kernel_ms" in one.judged for one in comparison.cells)
    averages = (
        _average(comparison, metric)
        for metric in ("compiled_kernel_ms" if is_timed else "compiled_ms", "compile_cold_s", "compression")
    )
    return [Card("Passing", rates[1], was, RATE), *averages]


def alone_cards(cells: Sequence[CellState], side: Counts) -> list[Card]:
    """The key figures of one side."""
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
    """Draws the cards, with how a figure went over the last nights where that is known.

    An average is drawn relative to the newest night's, over groups of as many cells; a card's own figure is paired.
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
    """A small line without axes; it goes on over NaN."""
    known = pd.DataFrame({"night": range(len(values)), "value": values}).dropna()
    x, y = alt.X("night:Q", axis=None), alt.Y("value:Q", axis=None, scale=alt.Scale(zero=False))
    drawn = alt.Chart(known, height=38).mark_line(strokeWidth=1.4, color=charts.NEUTRAL).encode(x=x, y=y)
    return drawn.configure_view(stroke=None)


def in_words(card: Card, values: Sequence[float]) -> str:
    """How a figure went over the last nights; NaN is a night without it."""
    known = [value for value in values if value == value]
    first, last, low, high = (_spelled(card.recent, value) for value in (known[0], known[-1], min(known), max(known)))
    gaps = f", {len(values) - len(known)} without it" if len(known) < len(values) else ""
    relative = "" if card.recent == RATE else ", relative to the newest"
    return f"{count(len(values), 'night')}{gaps}{relative}: from {first} to {last}, lowest {low}, highest {high}"


def _of_measured(side: Counts) -> str:
    missing = f", {side.missing:,} missing" if side.missing else ""
    return f"{side.passed:,} of {side.attempted:,} measured{missing}"


def _average(comparison: Comparison, metric: str) -> Card:
    """The change of an average over what passes on both sides, on one machine.

    Of times the drift of the machine is removed, as in the verdicts. Of one program under several names one is measured, and
    its figures under all of them would weigh several times.
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
    """What of a side tells a measurement from a copy of another's."""
    times = (state.values.get(name) for name in ("compiled_ms", "compiled_kernel_ms"))
    return state.run_id, state.program_id, state.started_at, *times


def _spelled(name: str, value: float) -> str:
    return f"{100 * value:.1f}{THIN}%" if name == RATE else signed(100 * (value - 1))
