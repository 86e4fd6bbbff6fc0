"""Numbers as people read them: one way per unit, a dash for what was not measured, never a 0."""

from __future__ import annotations

import math
from datetime import datetime

from analysis.present import NOTHING, value, whole_percent
from collector.metrics import METRICS

#: Stands for "not measured".
ABSENT = "\N{EN DASH}"
_MINUS = "\N{MINUS SIGN}"
#: Between a number and its unit.
THIN = "\N{NARROW NO-BREAK SPACE}"


def number(metric: str, found: float | None) -> str:
    """A metric's value with its unit."""
    shown = value(metric, found)
    if METRICS[metric].unit == "x":
        shown = shown.replace("x", "\N{MULTIPLICATION SIGN}")
    return ABSENT if shown == NOTHING else shown.replace(" ", THIN)


def axis_of(metric: str, title: str, unit: str = "") -> tuple[float, str]:
    """What an axis divides a metric by, and its title with the unit."""
    unit = METRICS[metric].unit if metric in METRICS else unit
    size, unit = (1e9, "GB") if unit == "B" else (1.0, unit)
    return size, f"{title} [{unit}]" if unit else title


def milliseconds(value: float) -> str:
    """Four digits that matter, no unit."""
    digits = 1 if value >= 100 else 2 if value >= 10 else 3
    return f"{value:.{digits}f}"


def seconds(value: float | None) -> str:
    """Seconds to a hundredth, with the unit."""
    return ABSENT if value is None else f"{value:.2f}{THIN}s"


def signed(value: float | None, digits: int = 1, unit: str = "%") -> str:
    """A change with its sign: `+3.7 %`, `-0.4 %`, and no sign for a zero."""
    if value is None or math.isnan(value):
        return ABSENT
    rounded = round(value, digits)
    sign = "+" if rounded > 0 else _MINUS if rounded < 0 else "\N{PLUS-MINUS SIGN}"
    return f"{sign}{abs(rounded):.{digits}f}{THIN}{unit}".rstrip(THIN)


def share(part: int, whole: int) -> str:
    """A share in whole percent, never rounded up to 100 %."""
    if not whole:
        return ABSENT
    return f"{whole_percent(part, whole)}{THIN}%"


def moment(value: datetime) -> str:
    """A moment in UTC to the minute."""
    return f"{value:%Y-%m-%d %H:%M}"


def count(number_of: int, one: str) -> str:
    """`1 cell`, `3 cells`."""
    return f"{number_of:,} {one}{'s' * (number_of != 1)}"
