"""The values of two sides' cells, and what of their difference is the machine's and not the code's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.compare.noise import Noise, common_moves, learn_noise
from analysis.compare.repeated import Mask, Numbers, RepeatRows
from analysis.stats.averages import NORMAL_CONSISTENCY
from analysis.stats.repeats import common_drift, unrest
from analysis.stats.shrinkage import FEWEST
from db.packing.throttling import THROTTLED
from db.queries.sides import Side

#: The eager run of the same process does not know the commit of Inductor: what moves it has moved the machine.
CONTROL: Mapping[str, str] = {"compiled_ms": "eager_ms", "compiled_kernel_ms": "eager_kernel_ms"}
#: What the host's pace moves, cell by cell; device time knows nothing of it.
WAITS_FOR_HOST = "compiled_ms"
#: Relative change of the eager device time from which on the eager program itself has changed.
EAGER_CHANGED = 0.02
#: The same of its latency, where no device time is measured, and by how many standard deviations it moves apart from others.
_ANOTHER, _ALONE = 0.1, 6.0


@dataclass(frozen=True, slots=True)
class OfSide:
    """Of one side the mean ln value of every cell, and how many runs that is of; NaN for none."""

    mean: Numbers
    runs: Numbers


@dataclass(frozen=True, slots=True)
class Taken:
    """Per paired cell: `change` (of ln) is the machine's part, to be taken from the cell's; `variance` from run to run and
    `df` are of what is left, `doubt` is the variance of what was taken over that variance."""

    change: Numbers
    variance: Numbers
    df: Numbers
    doubt: Numbers


class PairedValues:
    """The paired cells with what the store knows of them: `at` leads from each to its place in `rows.cells`, -1 for none."""

    def __init__(self, rows: RepeatRows, base: Side, new: Side, cells: pd.DataFrame) -> None:
        self.rows, self.cells = rows, cells
        self.sides = {"base": base, "new": new}
        self._cell_ids = {name: pd.Index(cells[f"cell_id_{name}"]) for name in self.sides}
        self.at = {name: rows.cells.get_indexer(cell_ids) for name, cell_ids in self._cell_ids.items()}
        self._values: dict[str, tuple[OfSide, OfSide]] = {}
        # What was learned of one metric is by the same cells as what was learned of most others.
        self._places: list[tuple[pd.Index, str, npt.NDArray[np.intp]]] = []

    def values(self, metric: str) -> tuple[OfSide, OfSide]:
        """Both sides of a metric."""
        if metric not in self._values:
            before, after = (self._of_side(name, metric) for name in self.sides)
            self._values[metric] = before, after
        return self._values[metric]

    def extremes(self, metric: str) -> tuple[tuple[Numbers, Numbers], tuple[Numbers, Numbers]]:
        """Of both sides the least and the greatest value of any measurement that passed, zeros included; NaN for none."""
        before, after = (
            tuple(_at(values, self.at[name]) for values in self.rows.extremes(self.sides[name].keys, metric))
            for name in self.sides
        )
        return (before[0], before[1]), (after[0], after[1])

    def held_back(self) -> Mask:
        """Where the GPU was held back by power or heat while either side was measured, by what a run of it says."""
        (_, before), (_, after) = self.extremes(THROTTLED)
        found: Mask = (before > 0) | (after > 0)
        return found

    @cached_property
    def between(self) -> tuple[int, int] | None:
        """The places in `rows.runs` of the last run of the earlier side and of the first of the later one; None for none."""
        found = [np.flatnonzero(np.isin(self.rows.runs, list(side.keys))) for side in self.sides.values()]
        if not all(places.size for places in found):
            return None
        earlier, later = sorted(found, key=lambda places: int(places[-1]))
        return int(earlier[-1]), int(later[0])

    def common_moves(self, control: str) -> Numbers:
        """What `drift` is of the two sides, of every run that the noise is learned from:
        `analysis.compare.noise.common_moves`."""
        of_device = CONTROL["compiled_kernel_ms"]
        control = control if self._drift(of_device) is None else of_device
        return self.rows.worked_out(("moves", control), lambda: common_moves(self.rows, control))

    def drift(self, control: str) -> float:
        """What all cells have in common (of ln): the median move of their eager runs.

        Of wall-clock time, too, it is that of the device: the host's pace moves some cells and others not at all. Where no
        device time was measured (a CPU) the eager latency has to do.
        """
        of_device = self._drift(CONTROL["compiled_kernel_ms"])
        return of_device if of_device is not None else self._drift(control) or 0.0

    def _drift(self, control: str) -> float | None:
        # Another testbed differs by more than a slow night.
        here = self.cells["testbed_changed"].eq(False).to_numpy(dtype=bool)
        before, after = self.values(control)
        moved = (after.mean - before.mean)[here]
        return common_drift(moved) if np.isfinite(moved).any() else None

    def taken(self, noise: Noise, drift: float) -> Taken:
        """What all cells have in common, with the noise of the noisier cell: under two configs they are two programs."""
        (variance, df), (new_variance, new_df) = (
            (self.of_cell(noise.variance, name), self.of_cell(noise.df, name)) for name in self.sides
        )
        new_is_wider = ~(variance >= new_variance)
        count = len(self.cells)
        return Taken(
            np.full(count, drift),
            np.where(new_is_wider, new_variance, variance),
            np.where(new_is_wider, new_df, df),
            np.zeros(count),
        )

    def of_cell(self, values: pd.Series, name: str) -> Numbers:
        """The entries of one side's cells; `values` goes by cell_id."""
        known = (found for index, of_side, found in self._places if of_side == name and index.is_(values.index))
        places = next(known, None)
        if places is None:
            places = values.index.get_indexer(self._cell_ids[name])
            self._places.append((values.index, name, places))
        return _at(values.to_numpy(dtype=np.float64), places)

    def _of_side(self, name: str, metric: str) -> OfSide:
        mean, runs = self.rows.of_side(self.sides[name].keys, metric)
        return OfSide(_at(mean, self.at[name]), _at(np.where(runs > 0, runs, np.nan), self.at[name]))


def beside_eager(known: PairedValues, metric: str, noise: Noise, taken: Taken) -> tuple[Noise, Taken]:
    """Of a metric also what the eager run of the same process explains cell by cell, and the noise that is left.

    - `WAITS_FOR_HOST`: the host's pace, of every cell whose eager program did not change. Where it did, it is no witness,
      unless the GPU was held back: then absolute times are compared.
    - device time: the clock, of cells that ran while the GPU was held back by power or heat
    (`db.packing.throttling`). Of all others
      it is the same in every run.

    A cell without a witness, as all are of two configs, stays as `taken`; where no cell has one, `noise` is the noise. Where
    eager runs moved further than their repeats do, the machine was disturbed, and the compiled runs are as restless.
    """
    control, held_back = CONTROL[metric], known.held_back()
    asked = _one_config(known.cells) & (held_back | (metric == WAITS_FOR_HOST))
    if not asked.any():
        return noise, taken
    common = known.common_moves(control)
    of_control = learn_noise(known.rows, control, common=common, between=known.between)
    before, after = known.values(control)
    moved = after.mean - before.mean - taken.change
    error = np.sqrt(known.of_cell(of_control.variance, "new") * (1 / before.runs + 1 / after.runs))
    witnessed = asked & (held_back | ~_another_program(known, moved, error))
    learned = learn_noise(known.rows, metric, control, common, known.between)
    slope = known.of_cell(learned.slope, "new")
    variance = known.of_cell(learned.variance, "new") * unrest(np.where(witnessed, moved / error, np.nan))
    doubt = moved**2 / known.of_cell(learned.spread, "new")
    is_witness = witnessed & np.isfinite(moved)
    if not is_witness.any():
        return noise, taken
    # Of device time few cells have a witness: the typical noise is that of the others.
    return learned if metric == WAITS_FOR_HOST else noise, Taken(
        np.where(is_witness, taken.change + slope * moved, taken.change),
        np.where(is_witness, variance, taken.variance),
        np.where(is_witness, known.of_cell(learned.df, "new"), taken.df),
        np.where(is_witness, doubt, taken.doubt),
    )


def _one_config(cells: pd.DataFrame) -> Mask:
    same: Mask = (cells["cell_id_base"] == cells["cell_id_new"]).to_numpy(dtype=bool)
    return same


def _another_program(known: PairedValues, moved: Numbers, error: Numbers) -> Mask:
    """Where the eager program itself has changed: by its device time, and where none is measured, if its latency moved alone.

    A host slows many models: one that moved by 10 % and by six standard deviations more than the others did, of which
    there must be five, is another model now. `moved` and `error` are of ln of the eager latency.
    """
    control = CONTROL["compiled_kernel_ms"]
    before, after = known.values(control)
    of_device = np.abs(after.mean - before.mean - known.drift(control))
    known_moves = moved[np.isfinite(moved)]
    if known_moves.size <= FEWEST:
        alone = np.zeros(moved.shape, dtype=bool)
    else:
        apart = np.abs(moved - np.median(known_moves))
        usual = np.hypot(np.nan_to_num(error), NORMAL_CONSISTENCY * float(np.median(apart[np.isfinite(apart)])))
        alone = (apart >= np.log1p(_ANOTHER)) & (apart > _ALONE * usual)
    found: Mask = np.where(np.isfinite(of_device), of_device >= np.log1p(EAGER_CHANGED), alone)
    return found


def _at(values: Numbers, places: npt.NDArray[np.intp]) -> Numbers:
    """The values at these places, NaN for -1."""
    return np.append(values, np.nan)[places]
