"""The overview's first lines: what was compared, in one sentence and a few figures."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd

from analysis.changes import percent
from analysis.figures import Counts
from analysis.pairing import AXES
from analysis.stats.bootstrap import geomean_interval
from analysis.stats.geomean import geomean
from analysis.transitions import Transition
from collector.vocabulary import NOT_APPLICABLE, Status
from dashboard import changes, url
from dashboard.formats import ABSENT, count, share, signed
from dashboard.markup import anchor, span, text
from dashboard.outcomes import OUTCOMES

#: The outcomes that the sentence names whether there are any or not, and those that it names if there are.
_CHANGED, _ALWAYS = ("regressed", "improved"), ("broke", "fixed", "missing")
_IF_ANY = ("flaky", "unchanged", "environment_changed", "still_failing", "missing_in_both", "not_applicable")


def compared_sentence(cells: pd.DataFrame, outcomes: Counter[str]) -> str:
    """One sentence (HTML) whose counts lead to the cells meant."""
    paired = int((cells["expected_base"] & cells["expected_new"]).sum())
    changed = ", ".join(_linked(outcomes, name) for name in _CHANGED)
    open_ones = _linked(outcomes, "inconclusive") + text(_advice(cells)) if outcomes["inconclusive"] else ""
    rest = [_linked(outcomes, name) for name in (*_ALWAYS, *(name for name in _IF_ANY if outcomes[name]))]
    parts = [changed, *([open_ones] if open_ones else []), ", ".join(rest)]
    return f"Of {text(count(paired, 'cell'))} on both sides, {'; '.join(parts)}."


def _advice(cells: pd.DataFrame) -> str:
    """How many more runs would settle more than half of what is inconclusive, where any number is known to."""
    more = cells[cells["outcome"] == "inconclusive"]["more_runs"]
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


def compared_cards(cells: pd.DataFrame, outcomes: Counter[str]) -> list[tuple[str, str, str]]:
    """Title, figure and note of the key figures of a comparison."""
    base, new = (counts(cells[cells[f"expected{side}"]], side) for side in ("_base", "_new"))
    both = int((cells["transition"] == Transition.BOTH_PASS.value).sum())
    was = f"base {_rate(base)} ({base.passed}/{base.asked})"
    return [
        ("Passing", text(_rate(new)), text(f"{new.passed}/{new.asked}, {was}")),
        _average(cells),
        (
            "Regressed / improved",
            _two(outcomes, "regressed", "improved"),
            f"of {count(both, 'cell')} that pass twice, {outcomes['unchanged']:,} unchanged",
        ),
        ("Inconclusive", f"{outcomes['inconclusive']:,}", "neither shown to change nor to stay"),
        ("Broke / fixed", _two(outcomes, "broke", "fixed"), f"cells, {outcomes['still_failing']} still failing"),
        (
            "Missing in new",
            f"{outcomes['missing']:,}",
            f"planned, not measured; {outcomes['missing_in_both']:,} in both",
        ),
    ]


def alone_cards(cells: pd.DataFrame) -> list[tuple[str, str, str]]:
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


def _average(cells: pd.DataFrame) -> tuple[str, str, str]:
    """The drift of the machine is taken away, as in the verdicts; cells on another machine are left out."""
    here = cells[cells["comparable"]]
    metric, title = "compiled_kernel_ms", "Device time"
    if here[f"{metric}_change"].isna().all():
        metric, title = "compiled_ms", "Compiled latency"
    both, once = _once(here[here[f"{metric}_change"].notna()], "_base", "_new")
    ratios = (1 + both[f"{metric}_change"]).to_numpy()
    found = changes.averaged(metric, geomean(ratios.tolist()), geomean_interval(ratios, both["model"].to_numpy()))
    if found is None:
        return title, ABSENT, "no cell has it on both sides, on one machine"
    said = [found.word, found.interval, "geometric mean", f"{count(len(both), 'cell')}{once}"]
    return title, span(found.look, text(signed(percent(found.ratio)))), text(", ".join(part for part in said if part))


def _once(cells: pd.DataFrame, *sides: str) -> tuple[pd.DataFrame, str]:
    """The cells without those that show another's outcome, and words that say so if there are any.

    Of one program under several names one is measured, and its figures under all of them would weigh several times.
    """
    told = ("run_id", "program_id", "started_at", "compiled_ms", "compiled_kernel_ms")
    found = cells.drop_duplicates([*AXES, *(f"{name}{side}" for side in sides for name in told)])
    return found, ", equal programs once" if len(found) < len(cells) else ""


def _linked(outcomes: Counter[str], outcome: str) -> str:
    shown = f"{outcomes[outcome]:,} {OUTCOMES[outcome]}"
    return anchor(url.link("compare", outcome=outcome), text(shown)) if outcomes[outcome] else text(shown)


def _two(outcomes: Counter[str], bad: str, good: str) -> str:
    first = span("worse" if outcomes[bad] else "calm", f"{outcomes[bad]:,}")
    return f"{first} / {span('better' if outcomes[good] else 'calm', f'{outcomes[good]:,}')}"
