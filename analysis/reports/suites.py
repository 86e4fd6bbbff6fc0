"""The suite table of a report: pass rates, and paired averages with an interval over models."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from analysis.compare.changes import direction
from analysis.compare.results import Comparison, Group, SuiteChange
from analysis.compare.transitions import Transition
from analysis.compare.verdicts import Judgement, Outcome
from analysis.stats.bootstrap import Interval, geomean_interval, sums_interval
from collector.metrics import METRICS

Look = Literal["better", "worse", "calm"]

#: The averages of the table and what they are called: compression is eager over compiled peak memory.
SHOWN = {name: METRICS[name].title for name in ("speedup", "compile_cold_s", "compression")}
#: What a verdict looks like. All else, known or not, is neither good nor bad.
VERDICT_LOOKS: dict[str, Look] = {Outcome.REGRESSED.value: "worse", Outcome.IMPROVED.value: "better"}
#: The metric whose verdicts an average of another goes by.
_DECIDES = {"speedup": "compiled_ms", "device_speedup": "compiled_kernel_ms", "compression": "compiled_peak_bytes"}
#: A smaller relative change would be shown as 0.0 %.
SHOWN_AS_NONE = 5e-4
#: What a group of cells is made of.
GROUP = ["suite", "phase", "dtype", "device", "config_id"]
#: Of a group's average: its interval, and the looks that the verdicts of its cells allow.
Sure = tuple[Interval | None, frozenset[Look]]
NOT_SURE: Sure = (None, frozenset())


@dataclass(frozen=True, slots=True)
class SuiteFacts:
    """A group that both sides measured, with the interval of new over base of each average; None below 5 models.

    `looks` are by `average_look`.
    """

    paired: SuiteChange
    intervals: dict[str, Interval | None]
    looks: dict[str, Look]

    def to_json(self) -> dict[str, Any]:
        """By metric the ends of its interval and the number of models; null where there is none."""
        return {name: within and asdict(within) for name, within in self.intervals.items()}


def suite_facts(comparison: Comparison, judgement: Judgement) -> tuple[SuiteFacts, ...]:
    """The groups of which both sides have measured something, in the order of their names."""
    known = group_intervals(comparison.cells.join(judgement.cells.filter(like="_verdict")), SHOWN)
    return tuple(
        _facts(suite, {metric: known.get((name_of(suite.group), metric), NOT_SURE) for metric in SHOWN})
        for suite in comparison.suites
        if suite.base.measured and suite.new.measured
    )


def _facts(suite: SuiteChange, known: Mapping[str, Sure]) -> SuiteFacts:
    looks = {metric: average_look(metric, suite.figures[metric].ratio, *of) for metric, of in known.items()}
    return SuiteFacts(suite, {metric: within for metric, (within, _) in known.items()}, looks)


def group_intervals(cells: pd.DataFrame, metrics: Iterable[str]) -> dict[tuple[str, str], Sure]:
    """For every group (`name_of`) and metric the interval of its change over models, from the judged cells that pass twice."""
    metrics = tuple(metrics)
    values = [f"{metric}_{side}" for metric in metrics for side in ("base", "new")]
    # Rows of a frame with all columns are taken slowly.
    values += [str(name) for name in cells if str(name).endswith("_verdict")]
    passing = cells[["model", "testbed_changed", *GROUP, *values]]
    passing = passing[cells["transition"] == Transition.BOTH_PASS.value]
    intervals: dict[tuple[str, str], Sure] = {}
    for names, rows in passing.groupby(GROUP, sort=False, observed=True):
        for metric in metrics:
            intervals["\n".join(map(str, names)), metric] = average_interval(metric, rows), allowed_looks(metric, rows)
    return intervals


def name_of(group: Group) -> str:
    """The values of `GROUP`, one a line."""
    return "\n".join(str(getattr(group, name)) for name in GROUP)


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


def allowed_looks(metric: str, cells: pd.DataFrame) -> frozenset[Look]:
    """The looks that an average of a metric over these judged cells may have: those that a cell has beyond its own noise.

    A ratio is formed on one machine. A mean of times over cells of which one changed the machine has none.
    """
    verdicts = f"{_DECIDES.get(metric, metric)}_verdict"
    if verdicts not in cells or (METRICS[metric].average == "mean" and cells["testbed_changed"].eq(True).any()):
        return frozenset()
    return frozenset(VERDICT_LOOKS[verdict] for verdict in cells[verdicts].unique() if verdict in VERDICT_LOOKS)


def average_look(metric: str, ratio: float | None, within: Interval | None, allowed: Collection[Look]) -> Look:
    """Better or worse where an average is known to have changed, else neither: THE rule of all colours of averages.

    Its interval over models excludes no change, and a cell in it changed likewise (`allowed_looks`): an interval over models
    knows no noise from run to run, so alone it would colour two nights of one commit.
    """
    if ratio is None or within is None or within.low <= 1 <= within.high or abs(ratio - 1) < SHOWN_AS_NONE:
        return "calm"
    look = direction(metric, 1.0, ratio)
    return look if look in ("better", "worse") and look in allowed else "calm"
