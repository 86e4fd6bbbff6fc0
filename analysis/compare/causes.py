"""The changes of a comparison grouped by what explains them: the kernels, the compiler's pass, a count, an error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from analysis.compare.cell_comparison import CellComparison
from analysis.compare.cell_outcome import CHANGES, Outcome
from analysis.compare.code import CodeChanges, changes
from analysis.compare.comparison import Comparison
from analysis.compare.findings import Finding
from analysis.compare.kernel_groups import OTHERS, explained
from collector.metrics import METRICS, Dimension
from db.queries.code import codes, with_kernels
from db.queries.details import evidence
from db.queries.side_rows import CellState

#: Kernels are named as the cause if they are this part of a change.
_LEADING = 0.25
#: Changes whose evidence is read, the largest first: it takes a few queries for each cell.
_MOST_READ = 100


@dataclass(frozen=True, slots=True)
class PassTime:
    """Seconds that a pass of the compiler took on both sides; None where a side has no such pass."""

    name: str
    base_s: float | None
    new_s: float | None

    @property
    def change_s(self) -> float:
        """How much longer new takes."""
        return (self.new_s or 0.0) - (self.base_s or 0.0)


@dataclass(frozen=True, slots=True)
class Cause:
    """The changes that one thing explains, the largest first."""

    title: str
    changes: tuple[tuple[CellComparison, Finding], ...]


def causes(conn: Connection, comparison: Comparison) -> list[Cause]:
    """Return what changed for the worse or the better, and what broke, by cause, the cause of most changes first."""
    ranked = comparison.ranked_findings((Outcome.BROKE, *CHANGES, Outcome.FIXED))
    grouped: dict[str, list[tuple[CellComparison, Finding]]] = {}
    for place, (one, finding) in enumerate(ranked):
        title = _cause(conn, one, finding) if place < _MOST_READ else "smaller changes"
        grouped.setdefault(title, []).append((one, finding))
    ordered = sorted(grouped.items(), key=lambda item: -len(item[1]))
    return [Cause(title, tuple(found)) for title, found in ordered]


def pass_times(base: Mapping[str, Any], new: Mapping[str, Any]) -> list[PassTime]:
    """Return the passes of two measurements' details, the largest change first. A pass holds those that it calls."""
    before, after = (_passes(details) for details in (base, new))
    names = dict.fromkeys((*before, *after))
    return sorted(
        (PassTime(name, before.get(name), after.get(name)) for name in names), key=lambda one: -abs(one.change_s)
    )


def _passes(details: Mapping[str, Any]) -> dict[str, float]:
    recorded = details.get("compile_phases_s")
    return {str(name): float(value) for name, value in recorded.items()} if isinstance(recorded, Mapping) else {}


def _cause(conn: Connection, one: CellComparison, finding: Finding) -> str:
    if finding.dimension is Dimension.CORRECTNESS:
        state = one.base if finding.verdict is Outcome.FIXED else one.new
        return " in ".join(filter(None, (state.exception or state.status, state.stage)))
    if finding.dimension is Dimension.LATENCY:
        return _kernels(conn, one)
    if finding.dimension is Dimension.COMPILE and finding.metric:
        times = pass_times(_details(conn, one.base), _details(conn, one.new))
        return f"compile time, most of it in {_innermost(times)}" if times else METRICS[finding.metric].title
    return METRICS[finding.metric].title if finding.metric else finding.dimension.value


def _innermost(times: list[PassTime]) -> str:
    """Return the pass with the largest change that is not merely the sum of the passes that it calls."""
    outer = ("dynamo", "aot_autograd", "inductor")
    inner = [one for one in times if one.name not in outer]
    largest = times[0]
    return inner[0].name if inner and abs(inner[0].change_s) >= abs(largest.change_s) / 2 else largest.name


def _kernels(conn: Connection, one: CellComparison) -> str:
    known = codes(conn, [key for key in (one.base.code_id, one.new.code_id) if key])
    before, after = (known.get(state.code_id or "") for state in (one.base, one.new))
    changed: CodeChanges | None = changes(before, after) if before and after else None
    parts = [
        part for part in explained(_details(conn, one.base), _details(conn, one.new), changed) if part.name != OTHERS
    ]
    if parts and parts[0].share >= _LEADING:
        return f"{parts[0].called} kernels"
    if one.code_changed is None:
        return "generated code not known"
    return "many kernels, none of them most of it" if one.code_changed else "the same generated code"


def _details(conn: Connection, state: CellState) -> dict[str, Any]:
    if state.run_id is None or state.cell_id is None:
        return {}
    return with_kernels(conn, state.cell_id, evidence(conn, state.run_id, state.cell_id, state.replicate)[0])
