"""How far two stretches of a series lie apart, beyond what the steps between them tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr, stdtrit

from analysis.stats.level_changes import LevelChange
from analysis.stats.pieces import piece_of, welch_error
from analysis.stats.verdicts import LEVEL

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LevelDrift:
    """Levels in the unit of the values. `ratio` is `steps` times `drift`, whose 95 % interval is `low` to `high`; p two-sided."""

    before: float
    now: float
    ratio: float
    steps: float
    drift: float
    low: float
    high: float
    p: float


def level_drift(base: Numbers, newest: Numbers, steps: Sequence[LevelChange]) -> LevelDrift:
    """The drift from `base` to `newest`, positive values of at least two points each, with the `steps` in between.

    In ln: d = mean(newest) - mean(base) - sum of the steps. Its error is Welch's, widened for correlated nights
    (`pieces.welch_error`), and that of every step, taken from its interval, added in squares; Welch's degrees of freedom.

    Raises:
        ValueError: fewer than two points.
    """
    if min(base.size, newest.size) < 2:
        raise ValueError("a level needs two points")
    old, new = piece_of(np.log(base)), piece_of(np.log(newest))
    error, freedom = welch_error(old, new)
    told = float(sum(np.log(step.ratio) for step in steps))
    error = float(np.hypot(error, np.sqrt(sum(_error(step) ** 2 for step in steps))))
    whole = new.mean - old.mean
    drift = whole - told
    half = -float(stdtrit(freedom, LEVEL / 2)) * error
    p = 2 * float(stdtr(freedom, -abs(drift) / error)) if error else float(drift == 0)
    return LevelDrift(
        before=float(np.exp(old.mean)),
        now=float(np.exp(new.mean)),
        ratio=float(np.exp(whole)),
        steps=float(np.exp(told)),
        drift=float(np.exp(drift)),
        low=float(np.exp(drift - half)),
        high=float(np.exp(drift + half)),
        p=p,
    )


def _error(step: LevelChange) -> float:
    """Of a step's 95 % interval, of which a normal one is 3.92 standard errors wide."""
    return float(np.log(step.high / step.low)) / 3.92
