"""What the eager runs of all cells have in common from base to new, and whether that is the machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from analysis.stats.arrays import Mask, Numbers
from analysis.stats.averages import NORMAL_CONSISTENCY
from analysis.stats.repeats import common_drift, is_one_group
from collector.metrics import GPU_YARDSTICKS, HOST_YARDSTICKS, METRICS

YARDSTICKS = (*GPU_YARDSTICKS, *HOST_YARDSTICKS)
#: The fewest cells whose yardsticks tell the drift. No commit moves a yardstick, so that fewer will do than of eager runs.
FEWEST = 5
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
        machine: what the yardsticks say that the machine moved by, of ln; None where a side has none.
    """

    metric: str
    change: float
    is_common: bool
    cap: float | None
    changed: Mask
    change_of_changed: float
    machine: float | None = None

    @property
    def drift(self) -> float:
        """What is taken from the change of every cell, of ln: the machine's move, else the common one if it is the machine's."""
        if self.machine is not None:
            return self.machine
        within = self.cap is None or abs(self.change) <= np.log1p(self.cap)
        return self.change if self.is_common and within else 0.0


def machine_move(moves: Sequence[Numbers]) -> float | None:
    """Return the move of the machine, of ln, from the moves of each yardstick by cell: the mean of their medians.

    None where fewer than `FEWEST` cells have one on both sides.
    """
    measured = [moved[np.isfinite(moved)] for moved in moves]
    if min(len(moved) for moved in measured) < FEWEST:
        return None
    return float(np.mean([np.median(moved) for moved in measured]))


def common_move(
    metric: str, moved: Numbers, error: Numbers, machine: float | None = None, *, of_device: bool
) -> CommonMove:
    """Return what the cells of one testbed have in common by a control that moved by `moved` (of ln) with standard `error`."""
    change = common_drift(moved)
    # Without repeats the scatter of the moves is all that is known of their noise.
    apart = np.abs(moved - change)
    known = apart[np.isfinite(apart)]
    spread = NORMAL_CONSISTENCY * float(np.median(known)) if known.size else np.nan
    error = np.where(np.isfinite(error), error, spread)
    cap, least = (CAP, EAGER_CHANGED) if of_device else (None, _LATENCY_CHANGED)
    nobody = np.zeros(len(moved), dtype=bool)
    found = CommonMove(metric, change, is_one_group(moved - change, error), cap, nobody, 0.0, machine)
    beyond = np.abs(moved - found.drift)
    changed = (beyond >= np.log1p(least)) & (beyond > _BEYOND * error)
    return replace(found, changed=changed, change_of_changed=float(np.median(moved[changed])) if changed.any() else 0.0)


@dataclass(frozen=True, slots=True)
class EagerFacts:
    """What eager did from base to new: in how many of how many models it changed, and by how much (relative).

    `common` is the common move of all cells (relative), `corrected` what was taken from every cell, `by_yardstick` whether the
    yardsticks say so.
    """

    metric: str
    models: int
    of: int
    change: float
    common: float
    corrected: float
    by_yardstick: bool = False

    @property
    def lines(self) -> tuple[str, ...]:
        """A sentence for an eager program that changed, and for a common move that is not corrected."""
        title = METRICS[self.metric].title
        if self.models:
            told = f"eager changed in {self.models} of {self.of} models, by {self.change:+.1%} ({title})"
            return (f"{told}: its change is not taken for the machine's".replace("%", " %"),)
        if not self.by_yardstick and self.corrected != self.common and abs(self.common) >= 0.0005:
            line = (
                f"the common move of {self.common:+.1%} by {title} is not corrected: models moved by different amounts"
            )
            return (line.replace("%", " %"),)
        return ()

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with stable keys."""
        return asdict(self)
