"""What a second quantity of the same run explains of the first: analysis of covariance on repeats of one code.

A launch-bound program waits for the host, and so does the eager run beside it in the same process: where one was slow the other
was too. y = a + b x + e within repeats of one code; what is left of y once b x is taken away is far steadier than y (Cochran,
"Analysis of covariance: its nature and uses", Biometrics 13 (1957)).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analysis.stats.arrays import Numbers

#: What a slope is taken for before anything was measured: programs that wait for the host have about 1, replayed graphs and
#: those that wait for the device next to 0.
USUAL = 0.5
#: What that is worth, as a sum of squares: x moved by 3 % once. A slope is then good to 0.5 where s is 1.5 %.
WORTH = 0.03**2


@dataclass(frozen=True, slots=True)
class Slopes:
    """Per owner: `slope` b; `spread`, what the slope's variance is the residual one divided by; `taken`, the degrees of
    freedom that the slope used up (0 to 1); `left`, the sum of squares of y that x does not explain."""

    slope: Numbers
    spread: Numbers
    taken: Numbers
    left: Numbers


def fit_slopes(xx: Numbers, xy: Numbers, yy: Numbers) -> Slopes:
    """Slopes from the sums of squares and products around the means of what was measured of one code, one entry an owner.

    b = (Sxy + w b0) / (Sxx + w) with b0 = `USUAL` and w = `WORTH`: the mean of the slope after the data when it was normal
    with mean b0 and variance s² / w before (Lindley and Smith, JRSS B 34 (1972)); its variance is s² / (Sxx + w). It takes
    Sxx / (Sxx + w) degrees of freedom. So where x hardly moved among the repeats little is known, and this says so.
    b stays within 0 and 1: a slow host takes no more from the compiled program than from the eager one. Without the limit
    a model that took 36 ms and then 40 ms, whose eager run rose by 11 %, was judged 4.6 % faster.
    """
    spread = xx + WORTH
    slope = np.clip((xy + WORTH * USUAL) / spread, 0, 1)
    # What is 0 may come out a little less.
    left = np.maximum(yy - 2 * slope * xy + slope**2 * xx, 0)
    return Slopes(slope, spread, xx / spread, left)
