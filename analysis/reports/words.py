"""Numbers and sides in words, the same on a terminal, in Markdown, in HTML and in pictures."""

from __future__ import annotations

import math
from collections.abc import Mapping

from analysis.compare.results import Counts
from collector.metrics import METRICS
from db.queries.sides import Side
from db.runs import device_name

#: What stands for "not measured".
NOTHING = "-"
#: What outcomes are called; others are called by their key, with spaces. Files, JSON and addresses have the key.
_CALLED = {"inconclusive": "no clear change"}
#: Units that are shown in another one: from which value on, divisor and name.
_SHOWN = {"B": (1e5, 1e6, "MB")}


def value(metric: str | None, number: float | None) -> str:
    """A value of a metric with its unit, many bytes in MB (10^6)."""
    if metric is None or number is None:
        return NOTHING
    unit = METRICS[metric].unit
    least, divisor, shown = _SHOWN.get(unit, (0.0, 1.0, unit))
    divisor, unit = (divisor, shown) if number >= least else (1.0, unit)
    return f"{number / divisor:.4g} {unit}".rstrip()


def percent(change: float | None) -> str:
    """A relative change (0.02 is 2 %) with its sign."""
    return NOTHING if change is None else f"{round(100 * change, 1) + 0.0:+.1f} %"  # no minus before a zero


def interval(low: float | None, high: float | None) -> str:
    """Both ends of an interval of relative changes."""
    return NOTHING if low is None or high is None else f"{100 * low:+.1f} .. {100 * high:+.1f} %"


def ruled_out(low: float | None, high: float | None) -> str:
    """`more than 4 % ruled out`, by both ends of an interval of relative changes; empty where it is not known."""
    ends = [abs(end) for end in (low, high) if end is not None and math.isfinite(end)]
    return f"more than {math.ceil(round(100 * max(ends), 6)):,} % ruled out" if len(ends) == 2 else ""


def called(outcome: str) -> str:
    """What an outcome, or another key of ours, is called."""
    return _CALLED.get(outcome, outcome.replace("_", " "))


def tally(counts: Mapping[str, int]) -> str:
    """`2 regressed, 1 broke`; empty for nothing."""
    return ", ".join(f"{count} {called(word)}" for word, count in counts.items())


def describe_side(side: Side) -> str:
    """A side in one line: branch, commit, night or runs, where and when."""
    newest = side.runs[0]
    names = ", ".join([*side.releases, *side.run_ids[:3]]) + (", ..." if len(side.runs) > 3 else "")
    what = side.title if len(side.nights) == 1 else f"{newest.branch}@{newest.commit[:10]} ({names})"
    device = device_name(newest.testbed) or "unknown testbed"
    labels = sorted({run.label for run in side.runs if run.label})
    label = f" [{', '.join(labels)}]" if labels else ""
    return f"{what}, {newest.started_at:%Y-%m-%d %H:%M} UTC, {device}{label}"


def whole_percent(part: int, whole: int) -> int:
    """A share in whole percent, never rounded up to 100."""
    percents = 100 * part / whole
    return math.floor(percents) if percents > 99 else round(percents)


def pass_rate(counts: Counts) -> str:
    """`92% 11/12` of the measured cells, with what is missing or does not apply behind it; `-` where none was measured."""
    rate = f"{whole_percent(counts.passed, counts.attempted)}% " if counts.attempted else ""
    text = f"{rate}{counts.passed}/{counts.attempted}" if rate else NOTHING
    if counts.missing:
        text += f" ({counts.missing} missing)"
    return f"{text} ({counts.not_applicable} n/a)" if counts.not_applicable else text
