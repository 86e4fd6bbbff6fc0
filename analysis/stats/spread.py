"""Robust spread of repeated samples: what one outlier among thirty cannot move."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

#: 1 / Phi^-1(3/4): makes the MAD of normal data estimate its standard deviation.
NORMAL_CONSISTENCY = 1.4826


def mad(values: Sequence[float]) -> float:
    """Median absolute deviation from the median, in the unit of the values.

    Hampel, "The influence curve and its role in robust estimation", JASA 69 (1974). Up to half the values may be
    outliers before it breaks down.

    Raises:
        ValueError: no values.
    """
    if len(values) == 0:
        raise ValueError("a median needs values")
    samples = np.asarray(values, dtype=np.float64)
    return float(np.median(np.abs(samples - np.median(samples))))


def robust_sigma(values: Sequence[float]) -> float:
    """Robust standard deviation, 1.4826 x MAD, in the unit of the values. Raises `ValueError` without values."""
    return NORMAL_CONSISTENCY * mad(values)


def relative_spread(values: Sequence[float]) -> float | None:
    """Robust coefficient of variation, 1.4826 x MAD / median: 0.01 is one per cent.

    None for fewer than two values or a median that is not positive. Describes the samples of one process; what
    differs from process to process is not in it, and is often larger.
    """
    if len(values) < 2:
        return None
    middle = float(np.median(np.asarray(values, dtype=np.float64)))
    return robust_sigma(values) / middle if middle > 0 else None
