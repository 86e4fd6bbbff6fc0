"""What else differs between the two sides of a change: kernels, counts, reasons and eager times. This is no proof of a cause."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from analysis.compare.adjustment import CONTROL
from analysis.compare.evidence import COUNTS, REASONS, KernelChange, kernel_changes, kernels, reasons
from analysis.history.changes import Change
from analysis.history.series import Point
from db.connecting import Source, connected
from db.queries.details import MeasurementInfo, measurement

#: Maximum number of kernels listed.
MOST_KERNELS = 10


@dataclass(frozen=True, slots=True)
class Evidence:
    """Differences between the last measurement before a change and the first one after it.

    - `counts`: metrics that are counts and differ (before, after)
    - `kernels`: kernels whose launches or names changed, the largest change of time first
    - `reasons`: reasons of graph breaks, recompiles and cudagraph skips that only one side has (kind, side, text)
    - `control`: the eager time (metric, before, after). If it changed too, the machine or ATen changed.
    - `exception`: the exception of the cell, if its status changed
    """

    base_run: str
    onset_run: str
    counts: dict[str, tuple[float, float]]
    kernels: tuple[KernelChange, ...]
    reasons: tuple[tuple[str, str, str], ...]
    control: tuple[str, float, float] | None
    exception: str | None

    def to_json(self) -> dict[str, Any]:
        """A JSON object with stable keys."""
        return {
            "base_run": self.base_run,
            "onset_run": self.onset_run,
            "counts": {name: list(both) for name, both in self.counts.items()},
            "kernels": [
                {name: getattr(kernel, name) for name in kernel.__dataclass_fields__} for kernel in self.kernels
            ],
            "reasons": [dict(zip(("what", "side", "text"), one, strict=True)) for one in self.reasons],
            "control": dict(zip(("metric", "before", "after"), self.control, strict=True)) if self.control else None,
            "exception": self.exception,
        }


def evidence_of(source: Source, change: Change) -> Evidence | None:
    """The evidence of a change; None where a measurement of either side is no longer stored."""
    with connected(source) as conn:
        base = _measured(conn, change, change.span.base, newest_first=True)
        onset = _measured(conn, change, change.span.onset)
    if base is None or onset is None:
        return None
    before, after = kernels(base.details, "compiled"), kernels(onset.details, "compiled")
    chosen = [one for one in kernel_changes(before, after) if _is_other(one)] if before and after else []
    return Evidence(
        base_run=base.run_id,
        onset_run=onset.run_id,
        counts=_counts(base, onset),
        kernels=tuple(chosen[:MOST_KERNELS]),
        reasons=_reasons(base, onset),
        control=_control(change.metric, base, onset),
        exception=onset.exception if not change.metric else None,
    )


def _measured(source: Source, change: Change, point: Point, *, newest_first: bool = False) -> MeasurementInfo | None:
    for run in point.runs[::-1] if newest_first else point.runs:
        if (info := measurement(source, run.run_id, change.cell_id)) is not None:
            return info
    return None


def _counts(base: MeasurementInfo, onset: MeasurementInfo) -> dict[str, tuple[float, float]]:
    counted = [name for name in COUNTS if name in base.metrics and name in onset.metrics]
    both = {name: (base.metrics[name], onset.metrics[name]) for name in counted}
    return {name: values for name, values in both.items() if values[0] != values[1]}


def _is_other(kernel: KernelChange) -> bool:
    """Whether the number of launches differs. A kernel that only takes longer is left out: the metric shows that."""
    return kernel.base_launches != kernel.new_launches


def _reasons(base: MeasurementInfo, onset: MeasurementInfo) -> tuple[tuple[str, str, str], ...]:
    differing = []
    for key, word in REASONS.items():
        sides = [dict.fromkeys(reasons(info.details, key)) for info in (base, onset)]
        differing += [(word, "before", text) for text in sides[0] if text not in sides[1]]
        differing += [(word, "after", text) for text in sides[1] if text not in sides[0]]
    return tuple(differing)


def _control(metric: str, base: MeasurementInfo, onset: MeasurementInfo) -> tuple[str, float, float] | None:
    control = CONTROL.get(metric, "")
    before, after = base.metrics.get(control), onset.metrics.get(control)
    return None if before is None or after is None else (control, before, after)
