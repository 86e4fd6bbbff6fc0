"""The suite table of a report: pass rates, and paired averages with an interval over models."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.compare.results import Comparison, Group, SuiteChange
from analysis.compare.transitions import Transition
from analysis.stats.bootstrap import Interval, geomean_interval, sums_interval
from collector.metrics import METRICS

#: The averages of the table and what they are called: compression is eager over compiled peak memory.
SHOWN = {"speedup": "speedup", "compile_cold_s": "compile time", "compression": "compression"}
#: Where the set of models moved the unpaired average by this much more than the paired one, that is said.
_MOVED = 0.01
_GROUP = ["suite", "phase", "dtype", "device", "config_id"]


@dataclass(frozen=True, slots=True)
class SuiteFacts:
    """A group that both sides measured, with the interval of new over base of each average; None below 5 models.

    `moved` says where the set of models changed the unpaired speedup, else empty. `one_machine` is false where a cell was
    measured on two testbeds: a change of a mean of times is then no change of the code.
    """

    paired: SuiteChange
    intervals: dict[str, Interval | None]
    moved: str
    one_machine: bool

    def to_json(self) -> dict[str, Any]:
        """By metric the ends of its interval and the number of models; null where there is none."""
        return {name: within and asdict(within) for name, within in self.intervals.items()}


def suite_facts(comparison: Comparison) -> tuple[SuiteFacts, ...]:
    """The groups of which both sides have measured something, in the order of their names."""
    cells = comparison.cells[comparison.cells["transition"] == Transition.BOTH_PASS.value]
    of_group = {"\n".join(map(str, names)): rows for names, rows in cells.groupby(_GROUP, sort=False)}
    return tuple(
        _facts(suite, of_group.get(_name(suite.group)))
        for suite in comparison.suites
        if suite.base.measured and suite.new.measured
    )


def _facts(suite: SuiteChange, cells: pd.DataFrame | None) -> SuiteFacts:
    one_machine = cells is None or not cells["testbed_changed"].eq(True).any()
    intervals = {metric: None if cells is None else average_interval(metric, cells) for metric in SHOWN}
    return SuiteFacts(suite, intervals, _moved(suite), one_machine)


def _name(group: Group) -> str:
    return "\n".join(str(getattr(group, name)) for name in _GROUP)


def average_interval(metric: str, cells: pd.DataFrame) -> Interval | None:
    """The interval of new over base of a metric's average over cells that pass twice; None below 5 models.

    `cells` has model, and the metric on both sides as `<metric>_base` and `<metric>_new`.
    """
    models = pd.factorize(cells["model"], sort=True)[0]
    base, new = (cells[f"{metric}_{side}"].to_numpy(dtype=float) for side in ("base", "new"))
    if METRICS[metric].average == "mean":
        return sums_interval(base, new, models)
    usable = (base > 0) & (new > 0)
    return geomean_interval(np.divide(new, base, out=np.full(base.shape, np.nan), where=usable), models)


def _moved(suite: SuiteChange) -> str:
    figure = suite.figures["speedup"]
    if figure.ratio is None or figure.ratio_all is None or abs(figure.ratio_all / figure.ratio - 1) < _MOVED:
        return ""
    return (
        f"{suite.group.suite} {suite.group.phase} {suite.group.dtype} {suite.group.config}: over all that passes the "
        f"speedup went {figure.base_all.value:.2f} ({figure.base_all.n} cells) -> {figure.new_all.value:.2f} "
        f"({figure.new_all.n}), over the {figure.n} that pass twice {100 * (figure.ratio - 1):+.1f} %: the set of models moved it"
    )
