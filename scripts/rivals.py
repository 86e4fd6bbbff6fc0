"""How other systems tell a regression of one cell from noise, written anew from what they document, to compare ours with.

Each rule sees one metric (the larger, the worse): `history`, the earlier runs' values, oldest first; `base`; `new`, one value
or two of the commit in question; and the samples within the processes of base and the first new run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats


@dataclass(frozen=True, slots=True)
class Case:
    """What a rule may look at. Values and samples in milliseconds."""

    history: Sequence[float]
    base: float
    new: Sequence[float]
    base_samples: Sequence[float]
    new_samples: Sequence[float]


Rule = Callable[[Case], bool]


def hud_two_point(case: Case) -> bool:
    """The HUD's cells: worse than base by more than 5 %."""
    return case.new[0] / case.base > 1.05


def hud_two_in_a_row(case: Case) -> bool:
    """The HUD's nightly report: the last two runs both worse by more than 5 % than the median of six earlier ones.

    The four newer days that it looks at are here the new runs; with fewer than two of them it says nothing.
    """
    middle = float(np.median([*case.history, case.base][-6:]))
    return len(case.new) >= 2 and all(value / middle > 1.05 for value in case.new[:2])


def rustc_fence(case: Case) -> bool:
    """rustc-perf: a change of at least Q3 + 3 (Q3 - Q1) of the relative changes between neighbours in the history.

    Without two of those it says nothing.
    """
    series = np.array([*case.history, case.base])
    if len(series) < 3:
        return False
    changes = np.abs(np.diff(series)) / series[:-1]
    low, high = np.quantile(changes, [0.25, 0.75])
    return bool(case.new[0] / case.base - 1 >= high + 3 * (high - low))


def pooled_mann_whitney(case: Case) -> bool:
    """Mann-Whitney's U on the samples of two processes, p < .05, worse in the median."""
    if np.median(case.new_samples) <= np.median(case.base_samples):
        return False
    return bool(stats.mannwhitneyu(case.new_samples, case.base_samples).pvalue < 0.05)


def otava(case: Case) -> bool:
    """Otava's test of a change point before the new runs: Student's t with equal variances, p < .001, no least magnitude."""
    before, after = np.array([*case.history, case.base]), np.array(case.new)
    if len(after) < 2 or after.mean() <= before.mean():
        return False
    return bool(stats.ttest_ind(before, after).pvalue < 0.001)


#: By the name under which a table shows them, and the metric that each decides by.
RIVALS: dict[str, Rule] = {
    "HUD, 5 % two-point": hud_two_point,
    "HUD, 6-run median, two in a row": hud_two_in_a_row,
    "rustc-perf's fence": rustc_fence,
    "Mann-Whitney U, pooled samples": pooled_mann_whitney,
    "Otava": otava,
}
