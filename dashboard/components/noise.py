"""The noise behind the verdicts in words: how far runs of the same code lie apart, and what all cells have in common."""

from __future__ import annotations

from collections.abc import Iterable

from analysis.compare.verdicts import Judgement
from analysis.stats.shrinkage import FEWEST
from collector.metrics import MIN_EFFECT
from dashboard.components.formats import TITLES, count, signed

_UNKNOWN = (
    "How far runs of the same code lie apart is not known yet: no cell was measured twice at one commit. Only leaks and "
    "statuses can be judged. Measure one side again (inductor-watch nightly on the same commit and machine)."
)
_OWN = (
    f"Noise from run to run: fewer than {FEWEST} cells have repeats, so that each is judged by its own. A "
    "cell without any is inconclusive."
)
#: Less drift than this would be shown as 0.0 %.
_LEAST = 5e-4


def noise_line(found: Judgement, metrics: Iterable[str] = tuple(MIN_EFFECT)) -> str:
    """Typical noise per metric, from how many repeats, and the drift that was taken away; what to do where none is known."""
    metrics = tuple(metrics)
    known = {name: value for name in metrics if (value := found.noise[name]) is not None}
    if not known:
        return _OWN if any(found.repeats[name] for name in metrics) else _UNKNOWN
    parts = ", ".join(f"{TITLES[name]} {signed(100 * value).lstrip('+')}" for name, value in known.items())
    return f"Noise from run to run: {parts}, {_learned(found, known)}.{_drift(found, known)}"


def _learned(found: Judgement, known: Iterable[str]) -> str:
    """Degrees of freedom are what repeats are worth."""
    few, many = (int(pick(found.repeats[name] for name in known)) for pick in (min, max))
    return f"learned from {count(many, 'repeat') if few == many else f'{few:,} to {many:,} repeats'}"


def _drift(found: Judgement, known: Iterable[str]) -> str:
    drift = {name: signed(100 * value) for name in known if abs(value := found.drift.get(name, 0.0)) >= _LEAST}
    if not drift:
        return ""
    said = ", ".join(f"{TITLES[name]} {value}" for name, value in drift.items())
    return f" Drift of the eager runs, taken away: {said}."
