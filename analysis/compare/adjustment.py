"""Adjust the changes of two sides' cells for the machine: common drift, the host's pace, throttled clocks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from analysis.compare.noise import Noise, RepeatRows, common_moves, learn_noise
from analysis.stats.averages import NORMAL_CONSISTENCY, Labels, Mask, Numbers
from analysis.stats.run_noise import FEWEST_REPEATED, common_drift, disturbance, is_one_group
from collector.bundle import CHECK, CONFIRM
from collector.metrics import GPU_YARDSTICKS, HOST_YARDSTICKS, METRICS
from db.queries.series import THROTTLED
from db.queries.sides import Side

YARDSTICKS = (*GPU_YARDSTICKS, *HOST_YARDSTICKS)
#: The fewest cells whose yardsticks show the drift. No commit moves a yardstick, so that fewer cells are enough than for eager
#: runs.
FEWEST_MOVED = 5
#: The largest common move of eager device time, relative, that is taken for the machine's: a GPU that is not held back keeps its
#: clocks. The nights of `data/nights` differ by 0.02 %. Times of a host have no such limit.
CAP = 0.03
#: Standard deviation of one cell's move around the common move, as a part of it: 1 / sqrt(3) if a cell is equally likely to move
#: by anything from 0 to 2 times as much. The compiled runs of a slow night lost 1.67 times as much as the eager ones.
SENSITIVITY = 3**-0.5
#: The relative move, and the number of standard errors, by which the eager program of a cell changed.
EAGER_CHANGED, _BEYOND = 0.02, 4.0
#: The relative move by which the eager program changed where only a latency is measured, no device time.
_LATENCY_CHANGED = 0.1


@dataclass(frozen=True, slots=True)
class CommonMove:
    """The common move of a control from base to new.

    Attributes:
        metric: the control.
        change: the median move over the cells, of ln.
        is_common: whether the cells moved as one group.
        cap: the largest relative change that is taken for the machine's; None for no limit.
        changed: whether the eager program of each paired cell changed.
        change_of_changed: the median move of the cells that changed, of ln; 0 for none.
        machine: the machine's move by the yardsticks, of ln; None where too few cells have them on both sides.
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
        """The move (of ln) to subtract from every cell: the machine's, else the common one if it is taken for the machine's."""
        if self.machine is not None:
            return self.machine
        within = self.cap is None or abs(self.change) <= np.log1p(self.cap)
        return self.change if self.is_common and within else 0.0


def machine_move(moves: Sequence[Numbers]) -> float | None:
    """Return the move of the machine, of ln, from the moves of each yardstick by cell: the mean of their medians.

    None where fewer than `FEWEST_MOVED` cells have a yardstick on both sides.
    """
    measured = [moved[np.isfinite(moved)] for moved in moves]
    if min(len(moved) for moved in measured) < FEWEST_MOVED:
        return None
    return float(np.mean([np.median(moved) for moved in measured]))


def common_move(
    metric: str, moved: Numbers, error: Numbers, machine: float | None = None, *, of_device: bool
) -> CommonMove:
    """Return the common move of cells of one testbed whose control moved by `moved` (of ln) with the standard error `error`."""
    change = common_drift(moved)
    # Without repeats only the scatter of the moves shows their noise.
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
    """Changes of eager from base to new: in `models` of `of` models, by `change` (relative).

    `common` is the common move of all cells (relative), `corrected` the move that was subtracted from every cell, and
    `by_yardstick` whether the latter comes from the yardsticks.
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
        """A sentence for an eager program that changed, or for a common move that is not corrected."""
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


#: The control of each metric. The eager run of the same process does not depend on the commit of Inductor: if it moves, the
#: machine has moved.
CONTROL: Mapping[str, str] = {"compiled_ms": "eager_ms", "compiled_kernel_ms": "eager_kernel_ms"}
#: The metric that the host's pace moves, cell by cell. Device time does not depend on it.
WAITS_FOR_HOST = "compiled_ms"
#: Standard deviations by which an eager latency must move apart from the other cells if its own program changed.
_ALONE = 6.0
#: Fewest runs of each side that show it in a check: of base, new, new, base both processes of new may have had a slow
#: host, which looks like another program.
_FEWEST_IN_TURN = 4


@dataclass(frozen=True, slots=True)
class SideValues:
    """Values of one side: ln of every cell's value, the number of runs behind it and of their nights; NaN for none."""

    log: Numbers
    runs: Numbers
    nights: Numbers

    def independent_runs(self, between: Numbers) -> Numbers:
        """Return how many runs, each in a night of its own, the mean is worth if nights have the part `between` of the variance.

        The variance of the mean of R runs in N nights is s² (b / N + (1 - b) / R).
        """
        return 1 / (between / self.nights + (1 - between) / self.runs)


@dataclass(frozen=True, slots=True)
class Adjustment:
    """The machine's part of the cells' changes, per paired cell.

    `change` (of ln) is subtracted from the cell's change. `variance` from run to run and `df` are of the values without the
    machine's part. `doubt` is the variance of `change` over `variance`, and `between` is the part of `variance` that the runs of
    one night have in common.
    """

    change: Numbers
    variance: Numbers
    df: Numbers
    doubt: Numbers
    between: Numbers


@dataclass(frozen=True, slots=True)
class CellPairs:
    """Facts about the cells to judge, one entry per cell.

    Attributes:
        ids: for base and for new the cell_id, None where the side does not expect the cell.
        passes: whether the cell passes on both sides.
        same_testbed: whether both sides are known to have measured the cell on one testbed.
        same_code: whether both sides are known to have generated the same code.
        timed_in: for base and for new the night whose times count for a cell that was not timed again; None for none, and
            where both sides have the same code, which needs no times.
        shown: for each metric with an exact rule the values of base and of new, NaN for none.
    """

    ids: tuple[Sequence[str | None], Sequence[str | None]]
    passes: Mask
    same_testbed: Mask
    same_code: Mask
    timed_in: tuple[Sequence[str | None], Sequence[str | None]]
    shown: Mapping[str, tuple[Numbers, Numbers]] = field(default_factory=dict)

    @classmethod
    def of_ids(cls, ids: Sequence[str]) -> CellPairs:
        """Return cells that pass on both sides, on one testbed, and whose code is not known."""
        yes, no = np.ones(len(ids), dtype=bool), np.zeros(len(ids), dtype=bool)
        none = [None] * len(ids)
        return cls((ids, ids), yes, yes, no, (none, none))

    def __len__(self) -> int:
        return len(self.passes)


class PairedCells:
    """The cells of a comparison, with the runs that the store has of them."""

    def __init__(self, rows: RepeatRows, base: Side, new: Side, cells: CellPairs) -> None:
        self.rows, self.cells = rows, cells
        self.sides = {"base": base, "new": new}
        self._known: dict[str, tuple[SideValues, SideValues]] = {}
        self._moves: dict[str, Numbers] = {}
        self._common: dict[str, CommonMove] = {}
        #: The index of each cell in `rows.cells`, -1 for none.
        self._indices: dict[str, Labels] = {
            name: rows.cells.get_indexer(pd.Index(np.array(ids, dtype=object)))
            for name, ids in zip(self.sides, cells.ids, strict=True)
        }

    def values(self, metric: str) -> tuple[SideValues, SideValues]:
        """Return both sides' values of a metric; NaN for a cell for which neither side is above the metric's floor."""
        if metric not in self._known:
            both = self._values("base", metric), self._values("new", metric)
            if floor := METRICS[metric].floor:
                at_floor = np.maximum(both[0].log, both[1].log) <= np.log(floor)
                both = tuple(replace(side, log=np.where(at_floor, np.nan, side.log)) for side in both)  # type: ignore[assignment]
            self._known[metric] = both
        return self._known[metric]

    def _values(self, name: str, metric: str) -> SideValues:
        values = self._of_runs(self.sides[name].keys, name, metric)
        for night, cells in self._timed_in[name].items():
            timed = self._of_runs(self.rows.of_night(night), name, metric)
            lacking = cells & np.isnan(values.log)
            values = SideValues(
                *(np.where(lacking, getattr(timed, part), getattr(values, part)) for part in ("log", "runs", "nights"))
            )
        return values

    def _of_runs(self, keys: Iterable[int], name: str, metric: str) -> SideValues:
        logs, *counts = (self.of_cell(values, name) for values in self.rows.of_side(keys, metric))
        return SideValues(logs, *(np.where(count > 0, count, np.nan) for count in counts))

    @cached_property
    def _timed_in(self) -> dict[str, dict[str, Mask]]:
        """For each side the nights whose times count for cells that were not timed again, with a mask of these cells."""
        return {
            name: {night: np.array([one == night for one in nights]) for night in dict.fromkeys(nights) if night}
            for name, nights in zip(self.sides, self.cells.timed_in, strict=True)
        }

    def moved(self, metric: str) -> Numbers:
        """Return the change of a metric from base to new, of ln."""
        before, after = self.values(metric)
        return after.log - before.log

    def extremes(self, metric: str) -> tuple[tuple[Numbers, Numbers], tuple[Numbers, Numbers]]:
        """Return for both sides the least and the greatest value of measurements that passed, zeros included; NaN for none."""
        ends = {name: self.rows.extremes(side.keys, metric) for name, side in self.sides.items()}
        (a, b), (c, d) = (tuple(self.of_cell(end, name) for end in both) for name, both in ends.items())
        return (a, b), (c, d)

    @cached_property
    def throttled(self) -> Mask:
        """Mask of the cells for which power or heat held the GPU's clocks down while either side was measured."""
        (_, before), (_, after) = self.extremes(THROTTLED)
        is_throttled: Mask = (before > 0) | (after > 0)
        return is_throttled

    def of_cell(self, values: Numbers, name: str) -> Numbers:
        """Return the values of one side's cells from `values`, which has an entry for each of `rows.cells`; NaN for none."""
        return np.append(values, np.nan)[self._indices[name]]

    @cached_property
    def between(self) -> tuple[int, int] | None:
        """Indices in `rows.runs` of the earlier side's last run and the later side's first run; None if a side has no run."""
        runs = [np.flatnonzero(np.isin(self.rows.runs, list(side.keys))) for side in self.sides.values()]
        if not all(of_side.size for of_side in runs):
            return None
        earlier, later = sorted(runs, key=lambda of_side: int(of_side[-1]))
        return int(earlier[-1]), int(later[0])

    def part_of_drift(self, metric: str) -> Numbers:
        """Return the part of the common drift that each cell has: runs of base that were measured again beside new have none."""
        base = self.sides["base"]
        own = [run.key for run in base.runs if run.trigger != CONFIRM]
        if len(own) == len(base.runs) or not self.is_base_earlier:
            return np.ones(len(self.cells))
        of_own, of_all = (self.of_cell(self.rows.of_side(keys, metric)[1], "base") for keys in (own, base.keys))
        with np.errstate(invalid="ignore"):
            part: Numbers = np.where(of_all > 0, of_own / of_all, 1.0)
        return part

    @cached_property
    def is_base_earlier(self) -> bool:
        """Return whether all runs of base lie before all runs of new."""
        ends = self.between
        return ends is not None and ends[0] < ends[1] and int(self.rows.runs[ends[0]]) in self.sides["base"].keys

    def common_moves(self, control: str) -> Numbers:
        """Return the common move of each row's run (`analysis.compare.noise.common_moves`), by the metric that `common` uses."""
        used = self.common(control).metric
        if used not in self._moves:
            self._moves[used] = common_moves(self.rows, used)
        return self._moves[used]

    def common(self, control: str) -> CommonMove:
        """Return the common move of all cells, by their yardsticks where both sides have them, else by their eager runs.

        For wall-clock time, too, it is the common move of device time: the host's pace moves some cells and others not at all.
        Where no device time was measured (a CPU) it is the common move of the eager latency.
        """
        of_device = CONTROL["compiled_kernel_ms"]
        # Another testbed differs by more than a slow night.
        is_measured = np.isfinite(self.moved(of_device)[self.cells.same_testbed]).any()
        used = of_device if is_measured else control
        if used not in self._common:
            moved = np.where(self.cells.same_testbed, self.moved(used), np.nan)
            if used not in self._moves:
                self._moves[used] = common_moves(self.rows, used)
            error = self.error(used, self.learn(used, common=self._moves[used]))
            yardsticks = GPU_YARDSTICKS if is_measured else HOST_YARDSTICKS
            machine = machine_move([self.moved(name)[self.cells.same_testbed] for name in yardsticks])
            self._common[used] = common_move(used, moved, error, machine, of_device=used == of_device)
        return self._common[used]

    @cached_property
    def is_check(self) -> bool:
        """Return whether any run is one of `check`, which measures both sides in turn."""
        return any(run.trigger == CHECK for side in self.sides.values() for run in side.runs)

    def learn(self, metric: str, control: str | None = None, common: Numbers | None = None) -> Noise:
        """Return the noise of a metric (`learn_noise`); a check assumes the usual one of its metric before it has repeats."""
        assumed = METRICS[metric].usual_noise if self.is_check else None
        return learn_noise(self.rows, metric, control, common, self.between, assumed)

    def error(self, metric: str, noise: Noise) -> Numbers:
        """Return the standard error of each cell's move from base to new by a metric whose noise is `noise`."""
        before, after = self.values(metric)
        between = self.of_cell(noise.between, "new")
        runs = (side.independent_runs(between) for side in (before, after))
        error: Numbers = np.sqrt(self.of_cell(noise.variance, "new") * sum(1 / of_side for of_side in runs))
        return error


def common_adjustment(pairs: PairedCells, noise: Noise, drift: Numbers) -> Adjustment:
    """Return the adjustment for the drift that all cells have in common, `drift` of ln for each cell.

    The noise is the larger one of base's and new's cell, since two configs are two programs. The common drift moves a single
    cell by more or less (`SENSITIVITY`), which widens its interval.
    """
    (variance, df, between), (new_variance, new_df, new_between) = (
        [pairs.of_cell(values, name) for values in (noise.variance, noise.df, noise.between)] for name in pairs.sides
    )
    new_is_wider = ~(variance >= new_variance)
    wider = np.where(new_is_wider, new_variance, variance)
    doubt = (SENSITIVITY * drift) ** 2 / wider
    wider_df, of_nights = np.where(new_is_wider, new_df, df), np.where(new_is_wider, new_between, between)
    return Adjustment(drift, wider, wider_df, doubt, of_nights)


def adjusted_for_eager(pairs: PairedCells, metric: str, noise: Noise, common: Adjustment) -> tuple[Noise, Adjustment]:
    """Return noise and adjustment of a metric, after the part that the eager run of the same process explains, cell by cell.

    The eager run explains the host's pace for `WAITS_FOR_HOST`, in cells whose eager program did not change, and the clock where
    the GPU was throttled. A cell without a control keeps its `common` adjustment, as do all cells of two configs. Where no cell
    has a control, `noise` and `common` are returned. Where eager runs moved further than their repeats do, the machine was
    disturbed: the variance of the compiled runs grows by `disturbance`.
    """
    control, throttled = CONTROL[metric], pairs.throttled
    same_config = np.array([base == new for base, new in zip(*pairs.cells.ids, strict=True)], dtype=bool)
    wanted = same_config & (throttled | (metric == WAITS_FOR_HOST))
    if not wanted.any():
        return noise, common
    moves = pairs.common_moves(control)
    of_control = pairs.learn(control, common=moves)
    before, after = pairs.values(control)
    moved = after.log - before.log - common.change
    error = pairs.error(control, of_control)
    controlled = wanted & (throttled | ~_another_program(pairs, moved, error))
    learned = pairs.learn(metric, control, moves)
    slope, spread = (pairs.of_cell(values, "new") for values in (learned.slope, learned.spread))
    variance = pairs.of_cell(learned.variance, "new") * disturbance(np.where(controlled, moved / error, np.nan))
    has_control = controlled & np.isfinite(moved)
    doubt = moved**2 / spread + (SENSITIVITY * common.change) ** 2 / variance
    if not has_control.any():
        return noise, common
    # For device time few cells have a control, so that the typical noise is the noise of the other cells.
    return learned if metric == WAITS_FOR_HOST else noise, Adjustment(
        np.where(has_control, common.change + slope * moved, common.change),
        np.where(has_control, variance, common.variance),
        np.where(has_control, pairs.of_cell(learned.df, "new"), common.df),
        np.where(has_control, doubt, common.doubt),
        np.where(has_control, pairs.of_cell(learned.between, "new"), common.between),
    )


def _another_program(pairs: PairedCells, moved: Numbers, error: Numbers) -> Mask:
    """Return a mask of the cells whose eager program itself changed: by its device time, else if its latency moved alone.

    A slow host slows many models. A model that moved by 10 % and by six standard deviations more than the others is another
    model now; there must be at least five others. In a check the processes of a cell follow each other, and a slow host
    may have had all of a side's: each side needs `_FEWEST_IN_TURN`. `moved` and `error` are of ln of the eager latency.
    """
    control = CONTROL["compiled_kernel_ms"]
    of_device = np.abs(pairs.moved(control) - pairs.common(control).drift)
    known = moved[np.isfinite(moved)]
    if known.size <= FEWEST_REPEATED:
        alone = np.zeros(moved.shape, dtype=bool)
    else:
        apart = np.abs(moved - np.median(known))
        usual = np.hypot(np.nan_to_num(error), NORMAL_CONSISTENCY * float(np.median(apart[np.isfinite(apart)])))
        alone = (apart >= np.log1p(_LATENCY_CHANGED)) & (apart > _ALONE * usual)
    if pairs.is_check:
        alone &= np.fmin(*(side.runs for side in pairs.values(CONTROL[WAITS_FOR_HOST]))) >= _FEWEST_IN_TURN
    changed: Mask = np.where(np.isfinite(of_device), of_device >= np.log1p(EAGER_CHANGED), alone)
    return changed
