"""The overview's first lines: what was compared, in one sentence and a few figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from analysis.compare.changes import percent, ratio
from analysis.compare.figures import FIGURES, Counts
from analysis.compare.pairing import AXES
from analysis.history.recent import RATE, Recent
from analysis.stats.averages import geomean
from analysis.stats.bootstrap import geomean_interval, sums_interval
from collector.vocabulary import NOT_APPLICABLE, Status
from dashboard import url
from dashboard.components import changes, palette
from dashboard.components.formats import ABSENT, THIN, count, share, signed
from dashboard.components.markup import anchor, span, text
from dashboard.components.outcomes import OUTCOMES
from dashboard.components.sparkline import sparkline

#: Title, figure and note of a key figure; figure and note are HTML.
Card = tuple[str, str, str]
_TITLES = {
    "compiled_kernel_ms": "Device time",
    "compiled_ms": "Compiled latency",
    "compile_cold_s": "Cold compile",
    "compression": "Compression",
}
#: The figure over the last nights that belongs to a card, by its title.
_RECENT = {title: metric for metric, title in _TITLES.items()} | {
    "Passing": RATE,
    "Device speedup": "device_speedup",
    "Speedup": "speedup",
}
#: Figures over the last nights that belong to the cards of a comparison, and to those of one side.
COMPARED = (RATE, *_TITLES)
ALONE = (RATE, "device_speedup", "speedup")
#: What of a side tells a measurement from a copy of another's.
_TOLD = ("run_id", "program_id", "started_at", "compiled_ms", "compiled_kernel_ms")
_NEEDED = frozenset((*AXES, *(f"{name}_{side}" for name in _TOLD for side in ("base", "new"))))
#: The outcomes that the sentence names whether there are any or not, and those that it names if there are.
_CHANGED, _ALWAYS = ("regressed", "improved"), ("broke", "fixed", "missing")
_IF_ANY = ("flaky", "unchanged", "environment_changed", "still_failing", "missing_in_both", "not_applicable")


def compared_sentence(cells: pd.DataFrame, outcomes: Counter[str]) -> str:
    """One sentence (HTML) whose counts lead to the cells meant."""
    paired = int((cells["expected_base"] & cells["expected_new"]).sum())
    link = url.linker()
    changed = ", ".join(_linked(outcomes, name, link) for name in _CHANGED)
    open_ones = _linked(outcomes, "inconclusive", link) + text(_advice(cells)) if outcomes["inconclusive"] else ""
    rest = [_linked(outcomes, name, link) for name in (*_ALWAYS, *(name for name in _IF_ANY if outcomes[name]))]
    parts = [changed, *([open_ones] if open_ones else []), ", ".join(rest)]
    return f"Of {text(count(paired, 'cell'))} on both sides, {'; '.join(parts)}."


def _advice(cells: pd.DataFrame) -> str:
    """How many more runs would settle more than half of what is inconclusive, where any number is known to."""
    more = cells["more_runs"][cells["outcome"] == "inconclusive"]
    if more.isna().all():
        return ""
    needed = sorted(more.where(more > 0, np.inf))[len(more) // 2]
    if np.isinf(needed):
        return " (even 50 more runs of each side would not settle most)"
    return f" ({count(int(needed), 'more run')} of each side would settle most)"


def alone_sentence(cells: pd.DataFrame) -> str:
    """One sentence about one side."""
    total = counts(cells, "")
    parts = [f"{total.passed:,} of {total.asked:,} asked pass"]
    parts += [
        f"{number:,} {what}" for number, what in ((total.failed, "fail"), (total.missing, "are missing")) if number
    ]
    parts += [f"{total.not_applicable:,} could not be asked here"] if total.not_applicable else []
    return f"One side alone: {text(count(len(cells), 'cell'))}, {text(', '.join(parts))}."


def compared_cards(cells: pd.DataFrame) -> list[Card]:
    """The four key figures of a comparison: what passes, and what became of time, compile time and memory."""
    base, new = (counts(cells[[f"status{side}"]][cells[f"expected{side}"]], side) for side in ("_base", "_new"))
    was = f"base {_rate(base)} ({base.passed:,}/{base.asked:,})"
    timed = "compiled_kernel_ms" if cells["compiled_kernel_ms_adjusted"].notna().any() else "compiled_ms"
    return [
        ("Passing", text(_rate(new)), text(f"{new.passed:,}/{new.asked:,}, {was}")),
        *(_average(cells, metric) for metric in (timed, "compile_cold_s", "compression")),
    ]


def alone_cards(cells: pd.DataFrame) -> list[Card]:
    """Title, figure and note of the key figures of one side."""
    total = counts(cells, "")
    passing = cells[cells["status"] == Status.PASS.value]
    measured, once = _once(passing, "")
    found = []
    for metric, title in (("device_speedup", "Device speedup"), ("speedup", "Speedup")):
        values = measured[metric][measured[metric] > 0].tolist()
        average = geomean(values)
        shown = f"{average:.2f}\N{MULTIPLICATION SIGN}" if average is not None else ABSENT
        found.append((title, shown, f"geometric mean, {text(count(len(values), 'cell'))}{once}"))
    return [
        ("Passing", text(_rate(total)), f"{total.passed}/{total.asked} asked"),
        *found,
        ("Failing", f"{total.failed:,}", "see below for the reasons"),
        ("Missing", f"{total.missing:,}", "planned, not measured"),
    ]


def counts(cells: pd.DataFrame, side: str) -> Counts:
    """The counts over all groups together."""
    status = cells[f"status{side}"]
    passed = int((status == Status.PASS.value).sum())
    unasked = int(status.isin([each.value for each in NOT_APPLICABLE]).sum())
    measured = int(status.notna().sum())
    return Counts(len(cells), measured, passed, measured - passed - unasked, unasked)


def _rate(found: Counts) -> str:
    """The pass rate; where nothing that was asked was measured there is none, rather than 0."""
    return ABSENT if found.missing == found.asked else share(found.passed, found.asked)


def _average(cells: pd.DataFrame, metric: str) -> Card:
    """The change of an average over what passes on both sides, on one machine.

    Of times the drift of the machine is taken away, as in the verdicts.
    """
    title = _TITLES[metric]
    needed = [name for name in cells.columns if name in _NEEDED or name.startswith((f"{metric}_base", f"{metric}_new"))]
    here = cells[[*needed, *([f"{metric}_adjusted"] if f"{metric}_adjusted" in cells else [])]][cells["comparable"]]
    base, new = (here[f"{metric}_{side}"].to_numpy(dtype=float) for side in ("base", "new"))
    if FIGURES[metric] == "geomean" and f"{metric}_adjusted" in here:
        ratios = 1 + here[f"{metric}_adjusted"].to_numpy(dtype=float)
    else:
        ratios = np.divide(new, base, out=np.full(base.shape, np.nan), where=(base > 0) & (new > 0))
    both, once = _once(here.assign(_ratio=ratios)[np.isfinite(ratios)], "_base", "_new")
    found = _averaged(both, metric)
    if found is None:
        return title, ABSENT, "no cell has it on both sides, on one machine"
    kind = "geometric mean" if FIGURES[metric] == "geomean" else "mean"
    said = [found.word, found.interval, kind, f"{count(len(both), 'cell')}{once}"]
    return title, span(found.look, text(signed(percent(found.ratio)))), text(", ".join(part for part in said if part))


def _averaged(both: pd.DataFrame, metric: str) -> changes.Change | None:
    if both.empty:
        return None
    # Numbers are drawn much faster than names.
    models = pd.factorize(both["model"], sort=True)[0]
    if FIGURES[metric] == "geomean":
        ratios = both["_ratio"].to_numpy()
        return changes.averaged(metric, geomean(ratios.tolist()), geomean_interval(ratios, models))
    base, new = (both[f"{metric}_{side}"].to_numpy(dtype=float) for side in ("base", "new"))
    return changes.averaged(metric, ratio(base.sum(), new.sum()), sums_interval(base, new, models))


def _once(cells: pd.DataFrame, *sides: str) -> tuple[pd.DataFrame, str]:
    """The cells without those that show another's outcome, and words that say so if there are any.

    Of one program under several names one is measured, and its figures under all of them would weigh several times.
    """
    found = cells.drop_duplicates([*AXES, *(f"{name}{side}" for side in sides for name in _TOLD)])
    return found, ", equal programs once" if len(found) < len(cells) else ""


def with_recent(cards: Sequence[Card], found: Recent, base: str = "") -> list[Card]:
    """The cards with how their figure went over the last nights, where it is known; `base` names the night that is marked.

    An average's line is what it was beside the newest night's, over groups of as many cells; a card's own figure is paired.
    """
    return [(title, figure, note + _line(title, found, base)) for title, figure, note in cards]


def _line(title: str, found: Recent, base: str) -> str:
    name = _RECENT.get(title, "")
    values = found.values.get(name, ())
    known = [value for value in values if value == value]
    if len(known) < 2:
        return ""
    first, last, low, high = (_spelled(name, value) for value in (known[0], known[-1], min(known), max(known)))
    marked = found.nights.index(base) if base in found.nights else None
    nights = count(len(values), "night")
    gaps = f", {len(values) - len(known)} without it" if len(known) < len(values) else ""
    beside = "" if name == RATE else " beside the newest"
    said = f"{title} over {nights}{gaps}{beside}: from {first} to {last}, lowest {low}, highest {high}"
    said += "; the ring is base" if marked is not None else ""
    drawn = sparkline(values, said, color=palette.ink(), marked=marked)
    return f"{drawn}<small>{text(f'{nights}{gaps}{beside}: ' + (f'{low} to {high}' if low != high else low))}</small>"


def _spelled(name: str, value: float) -> str:
    return f"{100 * value:.1f}{THIN}%" if name == RATE else signed(percent(value))


def _linked(outcomes: Counter[str], outcome: str, link: Callable[..., str]) -> str:
    shown = f"{outcomes[outcome]:,} {OUTCOMES[outcome]}"
    return anchor(link("compare", outcome=outcome), text(shown)) if outcomes[outcome] else text(shown)
