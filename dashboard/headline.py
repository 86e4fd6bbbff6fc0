"""The overview's first lines: what was compared, in one sentence and a few figures."""

from __future__ import annotations

from collections import Counter
from statistics import median

import pandas as pd

from analysis.changes import percent
from analysis.figures import Counts
from analysis.pairing import AXES
from analysis.stats.geomean import geomean
from collector.vocabulary import NOT_APPLICABLE, Status
from dashboard import changes, url
from dashboard.formats import ABSENT, count, share, signed
from dashboard.markup import anchor, span, text

#: Of the outcomes, those that the sentence always names.
_ALWAYS = ("slower", "faster", "broke", "fixed", "missing")


def compared_sentence(cells: pd.DataFrame, outcomes: Counter[str]) -> str:
    """One sentence (HTML) whose counts lead to the cells meant."""
    paired = int((cells["expected_base"] & cells["expected_new"]).sum())
    words = {"slower": "slower", "faster": "faster", "broke": "broke", "fixed": "fixed", "missing": "missing in new"}
    parts = [_linked(outcomes[name], name, words[name]) for name in _ALWAYS]
    rest = [
        ("still_failing", "still failing"),
        ("missing_in_both", "missing in both"),
        ("not_applicable", "not applicable"),
    ]
    parts += [_linked(outcomes[name], name, shown) for name, shown in rest if outcomes[name]]
    return (
        f"Of {text(count(paired, 'cell'))} on both sides, {', '.join(parts[:2])} beyond the runs' own spread; "
        f"{', '.join(parts[2:])}."
    )


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
    was = f"base {_rate(base)} ({base.passed}/{base.asked})"
    return [
        ("Passing", text(_rate(new)), text(f"{new.passed}/{new.asked}, {was}")),
        _average(cells),
        ("Slower / faster", _two(outcomes, "slower", "faster"), "cells, beyond spread"),
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
    both = cells[(cells["transition"] == "both_pass") & (cells["compiled_kernel_ms_ratio"] > 0)]
    metric, title = "compiled_kernel_ms", "Device time"
    if both.empty:
        metric, title = "compiled_ms", "Compiled latency"
        both = cells[(cells["transition"] == "both_pass") & (cells["compiled_ms_ratio"] > 0)]
    both, once = _once(both, "_base", "_new")
    average = geomean(both[f"{metric}_ratio"].tolist())
    if average is None:
        return title, ABSENT, "no cell has it on both sides"
    spreads = (both["spread_base"] + both["spread_new"]).dropna().tolist()
    look = changes.look(metric, average, median(spreads) if spreads else None)
    note = f"geometric mean, {count(len(both), 'cell')}{once}"
    word = changes.word(metric, average) if look != "calm" else "within spread"
    return title, span(look, text(signed(percent(average)))), text(f"{word}, {note}")


def _once(cells: pd.DataFrame, *sides: str) -> tuple[pd.DataFrame, str]:
    """The cells without those that show another's outcome, and words that say so if there are any.

    Of one program under several names one is measured, and its figures under all of them would weigh several times.
    """
    told = ("run_id", "program_id", "started_at", "compiled_ms", "compiled_kernel_ms")
    found = cells.drop_duplicates([*AXES, *(f"{name}{side}" for side in sides for name in told)])
    return found, ", equal programs once" if len(found) < len(cells) else ""


def _linked(number: int, outcome: str, words: str) -> str:
    shown = f"{number:,} {words}"
    return anchor(url.link("compare", outcome=outcome), text(shown)) if number else text(shown)


def _two(outcomes: Counter[str], bad: str, good: str) -> str:
    first = span("worse" if outcomes[bad] else "calm", f"{outcomes[bad]:,}")
    return f"{first} / {span('better' if outcomes[good] else 'calm', f'{outcomes[good]:,}')}"
