"""What the eager runs of all cells have in common from base to new, and whether that is the machine."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from analysis.stats.arrays import Mask, Numbers
from analysis.stats.repeats import common_drift, is_one_group
from collector.metrics import METRICS

#: The largest common move of eager device time, relative, that is taken for the machine's: a GPU that is not held back keeps its
#: clocks. The nights of `data/nights` differ by 0.02 %. Times of a host have no such limit.
CAP = 0.03
#: How far a common move may miss what it does to one cell, as a part of it: where 0 to 2 times as much are equally likely, the
#: standard deviation is 1 / sqrt(3). The compiled runs of a slow night lost 1.67 times as much as the eager ones.
SENSITIVITY = 3**-0.5
#: The eager program of a cell changed if its time moved by this, relative, and by so many standard errors.
EAGER_CHANGED, _BEYOND = 0.02, 4.0
#: The same where a host's latency is all that there is.
_LATENCY_CHANGED = 0.1


@dataclass(frozen=True, slots=True)
class CommonMove:
    """The common move of a control from base to new.

    Attributes:
        metric: the control.
        change: the median move over the cells, of ln.
        is_common: whether the cells moved as one group.
        cap: the largest relative change that is taken for the machine's; None for no limit.
        changed: the cells whose eager program changed; an entry for each paired cell.
        change_of_changed: the median move of these, of ln; 0 for none.
    """

    metric: str
    change: float
    is_common: bool
    cap: float | None
    changed: Mask
    change_of_changed: float

    @property
    def drift(self) -> float:
        """What is taken from the change of every cell, of ln: the common move, if it is the machine's."""
        within = self.cap is None or abs(self.change) <= np.log1p(self.cap)
        return self.change if self.is_common and within else 0.0


def common_move(metric: str, moved: Numbers, error: Numbers, *, of_device: bool) -> CommonMove:
    """Return what the cells of one testbed have in common by a control that moved by `moved` (of ln) with standard `error`."""
    change = common_drift(moved)
    # Without repeats the scatter of the moves is all that is known of their noise.
    apart = np.abs(moved - change)
    known = apart[np.isfinite(apart)]
    spread = 1.4826 * float(np.median(known)) if known.size else np.nan
    error = np.where(np.isfinite(error), error, spread)
    cap, least = (CAP, EAGER_CHANGED) if of_device else (None, _LATENCY_CHANGED)
    found = CommonMove(metric, change, is_one_group(moved - change, error), cap, np.zeros(len(moved), dtype=bool), 0.0)
    beyond = np.abs(moved - found.drift)
    changed = (beyond >= np.log1p(least)) & (beyond > _BEYOND * error)
    of_changed = float(np.median(moved[changed])) if changed.any() else 0.0
    return CommonMove(metric, change, found.is_common, cap, changed, of_changed)


@dataclass(frozen=True, slots=True)
class EagerFacts:
    """What eager did from base to new: in how many of how many models it changed, and by how much (relative).

    `common` is the common move of all cells (relative), `corrected` the part of it that was taken from every cell.
    """

    metric: str
    models: int
    of: int
    change: float
    common: float
    corrected: float

    @property
    def lines(self) -> tuple[str, ...]:
        """A sentence for an eager program that changed, and for a common move that is not corrected."""
        title = METRICS[self.metric].title
        if self.models:
            told = f"eager changed in {self.models} of {self.of} models, by {self.change:+.1%} ({title})"
            return (f"{told}: its change is not taken for the machine's".replace("%", " %"),)
        if self.corrected != self.common and abs(self.common) >= 0.0005:
            line = (
                f"the common move of {self.common:+.1%} by {title} is not corrected: models moved by different amounts"
            )
            return (line.replace("%", " %"),)
        return ()

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with stable keys."""
        return asdict(self)
