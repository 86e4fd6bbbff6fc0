"""The overview's first lines: what was compared, in one sentence and a few key figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass

import altair as alt
import numpy as np
import pandas as pd
import streamlit as st
from markupsafe import Markup

from analysis.compare.changes import percent, ratio
from analysis.compare.pairing import AXES
from analysis.compare.results import Counts
from analysis.history.recent import RATE
from analysis.reports.permalinks import cell_query
from analysis.reports.suites import Look, allowed_looks, average_interval
from analysis.stats.averages import geomean
from analysis.stats.bootstrap import geomean_interval
from collector.metrics import METRICS
from collector.vocabulary import Status
from dashboard import url
from dashboard.components import changes, charts, outcomes, palette
from dashboard.components.formats import ABSENT, THIN, count, number, share, signed
from dashboard.components.markup import anchor, draw, joined
from dashboard.components.outcomes import OUTCOMES

#: Figures over the last nights that belong to the cards of a comparison, and to those of one side.
COMPARED = (RATE, "compiled_kernel_ms", "compiled_ms", "compile_cold_s", "compression")
ALONE = (RATE, "device_speedup", "speedup")
#: What of a side tells a measurement from a copy of another's.
_IDENTITY = ("run_id", "program_id", "started_at", "compiled_ms", "compiled_kernel_ms")
#: What the answer counts, the worst first: a model counts once, by its worst cell.
_TOLD = (
    *("broke", "regressed", "missing", "flaky", "still_failing", "fixed", "improved"),
    *("inconclusive", "unchanged", "environment_changed"),
)
_WORSE = ("broke", "regressed")
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


def answer(cells: pd.DataFrame) -> Markup:
    """Whether to worry, in a sentence: how many models had which outcome as their worst, and what changed most."""
    paired = cells[cells["outcome"].isin(_TOLD)]
    worst = paired["outcome"].map(_TOLD.index).groupby([paired["suite"], paired["model"]]).min()
    if not len(worst):
        return Markup("Nothing was measured on both sides.")
    told = {
        name: Markup("{} {}{}").format(f"{models:,}", OUTCOMES[name], _most(paired, name))
        for place, name in enumerate(_TOLD)
        if (models := int((worst == place).sum()))
    }
    begins = "Look: of" if any(name in told for name in _WORSE) else "Nothing got worse. Of"
    return Markup("{} {}, {}.").format(begins, count(len(worst), "model"), joined(", ", told.values()))


def _most(cells: pd.DataFrame, outcome: str) -> Markup:
    """The cell that changed most for the worse or the better, and by how much: from the least to the most by one metric."""
    moved = cells[(cells["outcome"] == outcome) & cells["outcome_change"].notna()]
    if outcome not in outcomes.CHANGED or moved.empty:
        return Markup("")
    moved = moved.sort_values("outcome_change")
    record = moved.iloc[-1]
    metric = str(record["outcome_metric"])
    ends = [signed(percent(1 + float(row[f"{metric}_adjusted"]))) for _, row in moved.iloc[[0, -1]].iterrows()]
    if len(moved) > 1 and moved["outcome_metric"].eq(metric).all() and ends[0] != ends[1]:
        ends[0] += " to "
    else:
        ends[0] = ""
    name = anchor(url.link("model", **cell_query(record.to_dict())), f"{record['model']} {record['config']}")
    superlative = "worst" if outcome == "regressed" else "best"
    return Markup(" ({} {}, {} {})").format(METRICS[metric].title, "".join(ends), superlative, name)


def compared_sentence(cells: pd.DataFrame) -> Markup:
    """What became of all cells of both sides; each number leads to its cells, and they add up to the first."""
    counted = Counter(cells["outcome"])
    parts = [
        anchor(url.link("compare", outcome=name), f"{counted[name]:,} {words}")
        + (_advice(cells) if name == "inconclusive" else "")
        for name, words in OUTCOMES.items()
        if counted[name]
    ]
    return Markup("{}: {}.").format(count(len(cells), "cell"), joined(", ", parts))


def _advice(cells: pd.DataFrame) -> str:
    """How many more runs would settle more than half of the inconclusive cells, where any number is known to."""
    more = cells["more_runs"][cells["outcome"] == "inconclusive"]
    if more.isna().all():
        return ""
    needed = sorted(more.where(more > 0, np.inf))[len(more) // 2]
    if np.isinf(needed):
        return " (even 50 more runs of each side would not settle most)"
    return f" ({count(int(needed), 'more run')} of each side would settle most)"


def total(counts: Iterable[Counts]) -> Counts:
    """The counts over all groups together."""
    return Counts(*(sum(numbers) for numbers in zip(*map(astuple, counts), strict=True)))


def alone_sentence(side: Counts) -> str:
    """One sentence about one side."""
    numbers = {"{:,} fail": side.failed, "{:,} are missing": side.missing, "{} not applicable": side.not_applicable}
    parts = [words.format(number_of) for words, number_of in numbers.items() if number_of]
    passing = f"{side.passed:,} of {side.attempted:,} measured pass"
    return f"One side alone: {', '.join([count(side.planned, 'cell'), passing, *parts])}."


def compared_cards(cells: pd.DataFrame, base: Counts, new: Counts) -> list[Card]:
    """The key figures of a comparison: what passes, and what became of time, compile time and memory."""
    rates = [share(side.passed, side.attempted) for side in (base, new)]
    was = f"{_of_measured(new)}; base {rates[0]}, {_of_measured(base)}"
    timed = "compiled_kernel_ms" if cells["compiled_kernel_ms_adjusted"].notna().any() else "compiled_ms"
    averages = (_average(cells, metric) for metric in (timed, "compile_cold_s", "compression"))
    return [Card("Passing", rates[1], was, RATE), *averages]


def alone_cards(cells: pd.DataFrame, side: Counts) -> list[Card]:
    """The key figures of one side."""
    measured, once = _once(cells[cells["status"] == Status.PASS.value], "")
    speedups = []
    for metric in ("device_speedup", "speedup"):
        values = measured[metric][measured[metric] > 0].tolist()
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
                charts.show([charts.Figure(f"recent_{card.recent}", sparkline(values), f"{card.title} over {words}")])
                draw(Markup("<small>{}</small>").format(words))


def sparkline(values: Sequence[float]) -> alt.Chart:
    """A small line without axes; it goes on over NaN."""
    known = pd.DataFrame({"night": range(len(values)), "value": values}).dropna()
    x, y = alt.X("night:Q", axis=None), alt.Y("value:Q", axis=None, scale=alt.Scale(zero=False))
    drawn = alt.Chart(known, height=38).mark_line(strokeWidth=1.4, color=palette.NEUTRAL).encode(x=x, y=y)
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


def _average(cells: pd.DataFrame, metric: str) -> Card:
    """The change of an average over what passes on both sides, on one machine.

    Of times the drift of the machine is removed, as in the verdicts.
    """
    title, is_geometric = METRICS[metric].title.capitalize(), METRICS[metric].average == "geomean"
    sides = [f"{metric}_base", f"{metric}_new"]
    needed = [*AXES, *(f"{name}_{side}" for name in _IDENTITY for side in ("base", "new")), *sides]
    here = cells[list(dict.fromkeys(needed))][cells["comparable"]]
    ratios = (here[sides[1]] / here[sides[0]]).where((here[sides] > 0).all(axis=1))
    if is_geometric and f"{metric}_adjusted" in cells:
        ratios = 1 + cells[f"{metric}_adjusted"][cells["comparable"]]
    both, once = _once(here.assign(ratio=ratios.astype(float)).dropna(subset="ratio"), "_base", "_new")
    if both.empty:
        return Card(title, ABSENT, "no cell has it on both sides, on one machine", metric)
    allowed = allowed_looks(metric, cells[cells["comparable"]])
    if is_geometric:
        interval = geomean_interval(both["ratio"].to_numpy(), pd.factorize(both["model"], sort=True)[0])
        change = changes.averaged(metric, geomean(both["ratio"].tolist()), interval, allowed)
    else:
        change = changes.averaged(metric, ratio(*both[sides].sum()), average_interval(metric, both), allowed)
    assert change is not None  # noqa: S101 -- there are ratios
    mean = "geometric mean" if is_geometric else "mean"
    words = [change.word, change.interval, mean, f"{count(len(both), 'cell')}{once}"]
    return Card(title, signed(percent(change.ratio)), ", ".join(filter(None, words)), metric, change.look)


def _once(cells: pd.DataFrame, *sides: str) -> tuple[pd.DataFrame, str]:
    """The cells without those that show another's measurement, and words that say so if there are any.

    Of one program under several names one is measured, and its figures under all of them would weigh several times.
    """
    distinct = cells.drop_duplicates([*AXES, *(f"{name}{side}" for side in sides for name in _IDENTITY)])
    return distinct, ", equal programs once" if len(distinct) < len(cells) else ""


def _spelled(name: str, value: float) -> str:
    return f"{100 * value:.1f}{THIN}%" if name == RATE else signed(percent(value))
