"""What else differs between the two sides of a change: kernels, counts, reasons and eager times. This is no proof of a cause."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from analysis.compare.adjustment import CONTROL
from analysis.compare.code import CodeChanges, changes
from analysis.compare.evidence import REST, ReasonDifference, count_differences, reason_differences
from analysis.compare.kernel_groups import KernelGroup, KernelShare, compared_kernels, explained
from analysis.history.changes import Change
from db.connecting import Source, connected
from db.queries.code import code_of, with_kernels
from db.queries.details import evidence, measurement

#: Maximum number of kernels listed.
MOST_KERNELS = 10


@dataclass(frozen=True, slots=True)
class Evidence:
    """Differences between the last measurement before a change and the first one after it.

    - `counts`: metrics that are counts and differ (before, after)
    - `code`: what became of the generated code, in words; None where a side has none
    - `explained`: the kernels that explain the change of device time, the largest share first
    - `kernels`: kernels whose number of launches differs, the largest change of time first
    - `reasons`: reasons of graph breaks, recompiles and cudagraph skips that only one side has
    - `control`: the eager time `before` and `after`, and its `metric`: if it changed too, the machine or ATen changed
    - `exception`: the exception of the cell, if its status changed
    """

    base_run: str
    onset_run: str
    counts: dict[str, tuple[float, float]]
    code: str | None
    explained: tuple[KernelShare, ...]
    kernels: tuple[KernelGroup, ...]
    reasons: tuple[ReasonDifference, ...]
    control: dict[str, Any] | None
    exception: str | None

    def to_json(self) -> dict[str, Any]:
        """A JSON object with stable keys."""
        return {**asdict(self), "kernels": [one.to_json() for one in self.kernels]}


def evidence_of(source: Source, change: Change) -> Evidence | None:
    """The evidence of a change; None where a measurement of either side is no longer stored."""
    sides = (change.span.base.runs[::-1], change.span.onset.runs)
    with connected(source) as conn:
        stored = [[measurement(conn, run.run_id, change.cell_id) for run in runs] for runs in sides]
        base, onset = (next((info for info in infos if info is not None), None) for infos in stored)
        if base is None or onset is None:
            return None
        code = code_changes(conn, base.run_id, onset.run_id, change.cell_id)
    # A kernel that only takes longer is left out: the metric shows that.
    kernels = [
        one
        for one in compared_kernels(base.details, onset.details, code)
        if one.name != REST and not one.unlisted and one.base_launches != one.new_launches
    ]
    control = CONTROL.get(change.metric, "")
    before, after = base.metrics.get(control), onset.metrics.get(control)
    return Evidence(
        base_run=base.run_id,
        onset_run=onset.run_id,
        counts=count_differences(base.metrics, onset.metrics),
        code=code.words if code else None,
        explained=explained(base.details, onset.details, code),
        kernels=tuple(kernels[:MOST_KERNELS]),
        reasons=tuple(reason_differences(base.details, onset.details)),
        control=None if None in (before, after) else {"metric": control, "before": before, "after": after},
        exception=onset.exception if not change.metric else None,
    )


def code_changes(source: Source, base_run: str, onset_run: str, cell_id: str) -> CodeChanges | None:
    """What became of a cell's generated code between two runs; None where one of them has none."""
    with connected(source) as conn:
        base, onset = (code_of(conn, run_id, cell_id) for run_id in (base_run, onset_run))
    return changes(base, onset) if base and onset else None


def explanation_of(source: Source, base_run: str, onset_run: str, cell_id: str) -> tuple[str, ...]:
    """What became of a cell's generated code between two runs, and the kernels that explain the change, a line each."""
    with connected(source) as conn:
        code = code_changes(conn, base_run, onset_run, cell_id)
        details = (evidence(conn, run_id, cell_id)[0] for run_id in (base_run, onset_run))
        base, onset = (with_kernels(conn, cell_id, of_run) for of_run in details)
    lines = [f"generated code: {code.words}"] if code else []
    return (*lines, *(part.text for part in explained(base, onset, code)))
