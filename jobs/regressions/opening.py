"""Records opened from two sides: what the verdicts of a comparison say got worse, or the cells that a person names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Engine

from analysis.compare.cell_comparison import CellComparison
from analysis.compare.compare_sides import compare_named
from analysis.compare.comparison import Comparison
from analysis.compare.findings import WORSE
from collector.metrics import MIN_EFFECT
from db.regression_records import Finding, RegressionInfo, open_regression
from db.store_errors import RecordError, nearest, one_line
from jobs.regressions.recording import kind_of


@dataclass(frozen=True, slots=True)
class Opened:
    """The records as they stand, which of them are new, and what could not be recorded, a line each."""

    records: tuple[RegressionInfo, ...]
    new: tuple[str, ...]
    left_out: tuple[str, ...]


def open_from_sides(
    engine: Engine, base: str, new: str, wanted: Sequence[str], *, at: datetime, author: str, text: str = ""
) -> Opened:
    """Opens a record for each dimension in which a cell regressed or broke, or for the `wanted` cells, all or nothing.

    A wanted cell, by its name or cell_id, is recorded whatever the verdict if it is slower or fails, since a person says so.
    The run of base is the pinned one. A cell that the sides measured on two branches or testbeds has no record: a wanted
    one is refused, the others are named.

    Raises:
        SideError: a text names no side.
        RecordError: no such cell, or a wanted one that did not get worse or cannot be recorded.
    """
    with engine.connect() as conn:
        comparison = compare_named(conn, base, new)
    cells = [_find(comparison, name) for name in dict.fromkeys(wanted)] if wanted else list(comparison.cells)
    records, fresh, left_out = [], [], []
    with engine.begin() as conn:
        for one in cells:
            try:
                opened = [
                    open_regression(conn, finding, at=at, author=author, text=text or one.outcome.value)
                    for finding in _findings(one, is_wanted=bool(wanted))
                ]
            except RecordError as error:
                if wanted:
                    raise
                left_out.append(f"{one.cell}: {error}")
                continue
            records += opened
            fresh += [each.regression_id for each in opened if len(each.events) == 1 and each.opened_at == at]
    return Opened(tuple(records), tuple(fresh), tuple(left_out))


def _find(comparison: Comparison, name: str) -> CellComparison:
    found = next((one for one in comparison.cells if name in (str(one.cell), one.cell.cell_id)), None)
    if found is None:
        names = (str(one.cell) for one in comparison.cells)
        raise RecordError(f"these sides have no cell {one_line(name, 200)!r}{nearest(name, names)}")
    return found


def _findings(one: CellComparison, *, is_wanted: bool) -> Iterator[Finding]:
    """Yield what got worse in each dimension. Raises `RecordError` for a wanted cell where nothing did or a side is missing."""
    cell_id, base, new = one.cell.cell_id, one.base.run_id, one.new.run_id
    worse = [finding for finding in one.findings if finding.verdict in WORSE]
    if not worse and not is_wanted:
        return
    if base is None or new is None:
        raise RecordError("it was not measured on both sides: there is no run to pin")
    if one.base.passes and not one.new.passes:
        yield Finding(cell_id, base, new, "broke")
        return
    grown = _grown_most(one)
    metrics = [finding.metric for finding in worse if finding.metric] or ([grown] if grown else [])
    if not metrics:
        raise RecordError(f"{one_line(str(one.cell), 200)} did not get worse from base to new: nothing to record")
    for metric in metrics:
        values = one.base.values[metric], one.new.values[metric]
        yield Finding(cell_id, base, new, kind_of(metric), metric, *values)


def _grown_most(one: CellComparison) -> str | None:
    """Return the metric that grew most beyond the smallest change that matters; None where none did."""
    grown = {name: found - 1 - least for name, least in MIN_EFFECT.items() if (found := one.ratio(name)) is not None}
    worst = max(grown, key=lambda name: grown[name], default=None)
    return worst if worst is not None and grown[worst] >= 0 else None
