"""Numbers of a report in words, the same in Markdown and HTML; `-` for what was not measured."""

from __future__ import annotations

from collections.abc import Mapping

from collector.metrics import METRICS
from jobs.tables import NOTHING

#: Units that are shown in another one: divisor and name.
_SHOWN = {"B": (1e6, "MB")}


def value(metric: str | None, found: float | None) -> str:
    """A value of a metric with its unit, bytes in MB (10^6)."""
    if metric is None or found is None:
        return NOTHING
    unit = METRICS[metric].unit
    divisor, unit = _SHOWN.get(unit, (1.0, unit))
    return f"{found / divisor:.4g} {unit}".rstrip()


def percent(change: float | None) -> str:
    """A relative change (0.02 is 2 %) with its sign."""
    return NOTHING if change is None else f"{100 * change:+.1f} %"


def interval(low: float | None, high: float | None) -> str:
    """Both ends of an interval of relative changes."""
    return NOTHING if low is None or high is None else f"{100 * low:+.1f} .. {100 * high:+.1f} %"


def tally(counts: Mapping[str, int]) -> str:
    """`2 regressed, 1 broke`; empty for nothing."""
    return ", ".join(f"{count} {word.replace('_', ' ')}" for word, count in counts.items())


def several(count: int, what: str) -> str:
    """`1 cell`, `2 cells`."""
    return f"{count} {what}{'' if count == 1 else 's'}"
