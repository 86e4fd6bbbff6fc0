"""Groups of cells of one suite and config: pass rates with their counts, averages with their n, intervals and looks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any, TypeVar

import numpy as np

from analysis.compare.cell_comparison import CellComparison, Look, Transition, direction, ratio
from analysis.stats.averages import geomean
from analysis.stats.verdicts import Interval, geomean_interval, sums_interval
from collector.metrics import METRICS
from collector.vocabulary import PYTORCH_CHECK, batch_word
from db.queries.cells import CellName
from db.queries.side_rows import CellState

#: The averages of a group, in the order that tables show them.
FIGURES = (
    *("speedup", "device_speedup", "compiled_ms", "compiled_kernel_ms", "eager_ms", "compression"),
    "compile_cold_s",
)
#: Relative changes below this are shown as 0.0 %.
SHOWN_AS_NONE = 5e-4

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Group:
    """Keys of a group: cells of one suite, phase, dtype, device and config have one set of averages."""

    suite: str
    phase: str
    dtype: str
    device: str
    config: str
    config_id: str

    @classmethod
    def of(cls, cell: CellName) -> Group:
        """Return the group of a cell."""
        return cls(cell.suite, cell.phase, cell.dtype, cell.device, cell.config, cell.config_id)


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of cells of one group on one side. `planned` counts the expected cells: planned, or measured without a plan.

    `pytorch_passed` of `pytorch_judged` pass PyTorch's own accuracy check; both are 0 where no cell has its verdict.
    """

    planned: int
    measured: int
    passed: int
    failed: int
    not_applicable: int
    pytorch_passed: int = 0
    pytorch_judged: int = 0

    @classmethod
    def of(cls, states: Sequence[CellState]) -> Counts:
        """Count the states of a side."""
        measured = sum(state.status is not None for state in states)
        passed = sum(state.passes for state in states)
        not_applicable = sum(state.is_not_applicable for state in states)
        planned = sum(state.is_expected for state in states)
        theirs = [state.passes_pytorch for state in states if not state.is_not_applicable]
        known = [theirs.count(True), theirs.count(True) + theirs.count(False)]
        if not any(PYTORCH_CHECK in state.values for state in states):
            known = [0, 0]  # cells that failed before the check say nothing about it
        return cls(planned, measured, passed, measured - passed - not_applicable, not_applicable, *known)

    @property
    def missing(self) -> int:
        """Cells that were expected and have no measurement."""
        return self.planned - self.measured

    @property
    def attempted(self) -> int:
        """The pass rate's denominator: measured cells, without the unavailable and skipped ones."""
        return self.measured - self.not_applicable

    @property
    def pass_rate(self) -> float | None:
        """Passed over attempted, 0 to 1; None where nothing was attempted. Missing cells are counted apart."""
        return self.passed / self.attempted if self.attempted else None

    @property
    def pytorch_differs(self) -> bool:
        """Return whether PyTorch's own check has another pass rate."""
        return self.pytorch_passed * self.attempted != self.passed * self.pytorch_judged

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with stable keys."""
        return {**asdict(self), "missing": self.missing, "attempted": self.attempted, "pass_rate": self.pass_rate}


@dataclass(frozen=True, slots=True)
class Figure:
    """An average of one metric over the passing cells of a group that have it. `value` is None for n = 0."""

    metric: str
    n: int
    value: float | None

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with stable keys."""
        return {"kind": METRICS[self.metric].average, "n": self.n, "value": self.value}


@dataclass(frozen=True, slots=True)
class PairedFigure:
    """An average of one metric, in its unit, over the cells that pass on both sides and have it there.

    `base_all` and `new_all` are the averages over all cells that pass on one side. They differ from `base` and `new` where
    the set of passing models changed.
    """

    metric: str
    n: int
    base: float | None
    new: float | None
    base_all: Figure
    new_all: Figure

    @property
    def ratio(self) -> float | None:
        """New over base; None where either is unknown, or base is 0 and new is not."""
        return ratio(self.base, self.new)

    @property
    def change(self) -> float | None:
        """The relative change from base to new; 0.02 is 2 %."""
        return None if self.ratio is None else self.ratio - 1

    @property
    def ratio_all(self) -> float | None:
        """New over base of the unpaired averages, which also depends on which models pass."""
        return ratio(self.base_all.value, self.new_all.value)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with stable keys."""
        return {
            **{"kind": METRICS[self.metric].average, "n": self.n, "base": self.base, "new": self.new},
            "ratio": self.ratio,
            "direction": direction(self.metric, self.base, self.new),
            "base_all": self.base_all.to_json(),
            "new_all": self.new_all.to_json(),
            "ratio_all": self.ratio_all,
        }


@dataclass(frozen=True, slots=True)
class AverageChange:
    """Change of an average over `n` cells, new over base, with its 95 % interval over models; None below 5 models.

    `look` is better or worse where the average is known to have changed: the interval excludes 1, and a cell in the average
    changed in the same direction. An interval over models knows no noise from run to run, so alone it would colour two nights of
    one commit.
    """

    metric: str
    n: int
    ratio: float
    interval: Interval | None
    look: Look


@dataclass(frozen=True, slots=True)
class SuiteSummary:
    """One group on one side."""

    group: Group
    counts: Counts
    figures: dict[str, Figure]


@dataclass(frozen=True)
class SuiteChange:
    """One group on both sides. `group.config` is the new side's; `base_config` differs when configs are compared.

    `listed` names the models (with the batch size where a model has several) of every transition but `both_pass`.
    """

    group: Group
    base_config: str
    base: Counts
    new: Counts
    cells: tuple[CellComparison, ...]
    listed: dict[Transition, tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def figures(self) -> dict[str, PairedFigure]:
        """The averages of `FIGURES`."""
        return {metric: _paired(metric, self.cells) for metric in FIGURES}

    @cached_property
    def changes(self) -> dict[str, AverageChange | None]:
        """The changes of the averages of `FIGURES`; None where there is none."""
        return {metric: average_change(metric, self.cells) for metric in FIGURES}

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with stable keys."""
        return {
            **asdict(self.group),
            "base_config": self.base_config,
            "base": self.base.to_json(),
            "new": self.new.to_json(),
            "figures": {name: figure.to_json() for name, figure in self.figures.items()},
            "listed": {transition.value: list(self.listed.get(transition, ())) for transition in Transition},
        }


def summarise_groups(states: Iterable[CellState]) -> tuple[SuiteSummary, ...]:
    """Return every group of one side's cells, in the order of their names."""
    grouped = _grouped(states, lambda state: Group.of(state.cell))  # type: ignore[arg-type]  # a side's own cells
    return tuple(
        SuiteSummary(group, Counts.of(of_group), {metric: _average(metric, of_group) for metric in FIGURES})
        for group, of_group in grouped
    )


def compare_groups(cells: Iterable[CellComparison]) -> tuple[SuiteChange, ...]:
    """Return every group of compared cells, in the order of their names."""
    return tuple(_compared(*of_group) for of_group in _grouped(cells, lambda one: Group.of(one.cell)))


def _compared(group: Group, cells: Sequence[CellComparison]) -> SuiteChange:
    configs = (one.base.cell.config for one in cells if one.base.cell)
    several = [one.cell.model for one in cells]
    listed: dict[Transition, tuple[str, ...]] = {}
    for one in cells:
        if not one.passes:
            size = f" {batch_word(one.cell.batch_size)}" if several.count(one.cell.model) > 1 else ""
            listed[one.transition] = (*listed.get(one.transition, ()), f"{one.cell.model}{size}")
    sides = Counts.of([one.base for one in cells]), Counts.of([one.new for one in cells])
    return SuiteChange(group, next(configs, group.config), *sides, tuple(cells), listed)


def _grouped(items: Iterable[T], group_of: Callable[[T], Group]) -> list[tuple[Group, list[T]]]:
    def key(item: T) -> tuple[str, ...]:
        group = group_of(item)
        return group.suite, group.phase, group.dtype, group.device, group.config, group.config_id

    return [(Group(*names), list(of_group)) for names, of_group in groupby(sorted(items, key=key), key)]


def _usable(metric: str, state: CellState) -> float | None:
    """Return the value of a cell that passes, or None. Some tools write a ratio or latency of 0 for "failed": it is no value."""
    found = state.values.get(metric) if state.passes else None
    return found if found is not None and (found > 0 or METRICS[metric].average == "mean") else None


def _mean(metric: str, values: Sequence[float]) -> float | None:
    if METRICS[metric].average == "mean":
        return math.fsum(values) / len(values) if values else None
    return geomean(values)


def _average(metric: str, states: Sequence[CellState]) -> Figure:
    """Return the average over a side; no value where cells were not timed again, since it would leave these cells out."""
    values = [_usable(metric, state) for state in states]
    is_untimed = (state.passes and state.code_id and "compiled_ms" not in state.values for state in states)
    if any(untimed and value is None for untimed, value in zip(is_untimed, values, strict=True)):
        return Figure(metric, 0, None)
    known = [value for value in values if value is not None]
    return Figure(metric, len(known), _mean(metric, known))


def _paired(metric: str, cells: Sequence[CellComparison]) -> PairedFigure:
    both = [(_usable(metric, one.base), _usable(metric, one.new)) for one in cells]
    known = [(base, new) for base, new in both if base is not None and new is not None]
    return PairedFigure(
        metric,
        len(known),
        _mean(metric, [base for base, _ in known]),
        _mean(metric, [new for _, new in known]),
        _average(metric, [one.base for one in cells]),
        _average(metric, [one.new for one in cells]),
    )


def average_change(metric: str, cells: Iterable[CellComparison], *, is_adjusted: bool = False) -> AverageChange | None:
    """Return the change of an average over the cells that pass on both sides and have it there; None for no cell.

    `is_adjusted`: a geometric mean takes the changes of cells without the machine's part, as the verdicts do.
    """
    passing = [one for one in cells if one.passes]
    is_mean = METRICS[metric].average == "mean"
    values = [(one, _usable(metric, one.base), _usable(metric, one.new)) for one in passing]
    known = [(one, base, new) for one, base, new in values if base and new and base > 0 and new > 0]
    pairs = [(one.cell.model, base, new) for one, base, new in known]
    if is_adjusted and not is_mean and any(metric in one.judged for one in passing):
        judged = [(one.cell.model, one.judged[metric].adjusted) for one in passing if metric in one.judged]
        pairs = [(model, 1.0, 1 + change) for model, change in judged if change is not None]
    if not pairs:
        return None
    models, base, new = (np.array(column) for column in zip(*pairs, strict=True))
    if is_mean:
        found, interval = float(new.sum() / base.sum()), sums_interval(base, new, models)
    else:
        found, interval = float(np.exp(np.mean(np.log(new / base)))), geomean_interval(new / base, models)
    return AverageChange(metric, len(pairs), found, interval, _look(metric, found, interval, passing))


def _look(metric: str, found: float, interval: Interval | None, cells: Sequence[CellComparison]) -> Look:
    """Return the look of an average; see `AverageChange`.

    A ratio compares times of one machine. A mean of times is calm if any of its cells changed the machine.
    """
    if interval is None or interval.low <= 1 <= interval.high or abs(found - 1) < SHOWN_AS_NONE:
        return "calm"
    if METRICS[metric].average == "mean" and any(one.testbed_changed for one in cells):
        return "calm"
    decides = METRICS[metric].judged_by or metric
    allowed = {one.judged[decides].verdict.look for one in cells if decides in one.judged}
    look = direction(metric, 1.0, found)
    return look if look in ("better", "worse") and look in allowed else "calm"
