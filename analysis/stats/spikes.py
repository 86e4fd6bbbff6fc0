"""Single bad nights taken back to where they can still be seen but no longer weigh."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from analysis.stats.spread import NORMAL_CONSISTENCY

#: Points of the running median. A shift of less than half of them counts as spikes, one of 5 (`changepoints.SHORTEST`) stays.
WIDTH = 9
#: Robust standard deviations from the running median beyond which a value is a spike: Hampel's identifier takes 3 to 4.
LIMIT = 4.0
#: sqrt(pi / 2): makes the mean absolute deviation of normal data estimate its standard deviation.
MEAN_CONSISTENCY = float(np.sqrt(np.pi / 2))


def clip_spikes(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The values, those further than 4 s from the running median m of 9 points moved to m +- 4 s. Same unit.

    s is 1.4826 x MAD of values - m; where more than half of the values equal m (quantised series), which would make it
    zero, 1.2533 x their mean absolute value. At the ends the series is mirrored. Winsorised and not replaced by the
    median, so that the spread of the rest stays what it is.
    Hampel's identifier: Pearson, "Outliers in process modeling and identification", IEEE Trans. CST 10(1), 2002.
    """
    half = WIDTH // 2
    if values.size <= half:
        return values.copy()
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(values, half, mode="reflect"), WIDTH)
    middle = np.median(windows, axis=1)
    away = np.abs(values - middle)
    spread = NORMAL_CONSISTENCY * float(np.median(away)) or MEAN_CONSISTENCY * float(np.mean(away))
    return np.clip(values, middle - LIMIT * spread, middle + LIMIT * spread)
