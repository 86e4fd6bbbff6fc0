"""Records opened from two sides: what the verdicts of a comparison say got worse, or the cells that a person names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pandas as pd
from sqlalchemy import Engine

from analysis.compare.results import Comparison
from analysis.compare.verdicts import Outcome, compare_and_judge
from collector.metrics import MIN_EFFECT
from db.errors import RecordError, nearest, one_line
from db.regressions.records import Finding, RegressionInfo, open_regression
from jobs.regressions.recording import kind_of

#: What a record is opened for without being asked.
_WORSE = (Outcome.REGRESSED, Outcome.BROKE)


@dataclass(frozen=True, slots=True)
class Opened:
    """The records as they stand, which of them are new, and what could not be recorded, a line each."""

    records: tuple[RegressionInfo, ...]
    new: tuple[str, ...]
    left_out: tuple[str, ...]


def open_from_sides(
    engine: Engine, base: str, new: str, wanted: Sequence[str], *, at: datetime, author: str, text: str = ""
) -> Opened:
    """Opens a record for each cell that regressed or broke from base to new, or for the `wanted` ones, all or nothing.

    A wanted cell, by its name or cell_id, is recorded whatever the verdict if it is slower or fails, since a person says so.
    The run of base is the pinned one. A cell that the sides measured on two branches or testbeds has no record: a wanted
    one is refused, the others are named.

    Raises:
        SideError: a text names no side.
        RecordError: no such cell, or a wanted one that did not get worse or cannot be recorded.
    """
    with engine.connect() as conn:
        comparison, judgement = compare_and_judge(conn, base, new)
    rows = comparison.cells.join(judgement.cells)
    if wanted:
        rows = rows.loc[[_find(comparison, name) for name in dict.fromkeys(wanted)]]
    else:
        rows = rows[rows["verdict"].isin([outcome.value for outcome in _WORSE])]
    records, fresh, left_out = [], [], []
    with engine.begin() as conn:
        for row in rows.to_dict("records"):
            try:
                record = open_regression(conn, _finding(row), at=at, author=author, text=text or f"{row['verdict']}")
            except RecordError as error:
                if wanted:
                    raise
                left_out.append(f"{row['cell']}: {error}")
                continue
            records.append(record)
            if len(record.events) == 1 and record.opened_at == at:
                fresh.append(record.regression_id)
    return Opened(tuple(records), tuple(fresh), tuple(left_out))


def _find(comparison: Comparison, name: str) -> Any:
    cells = comparison.cells
    matching = cells.index[(cells["cell"] == name) | (cells["cell_id"] == name)]
    if not len(matching):
        raise RecordError(f"these sides have no cell {one_line(name, 200)!r}{nearest(name, cells['cell'])}")
    return matching[0]


def _finding(row: Mapping[Any, Any]) -> Finding:
    """What got worse. Raises `RecordError` where nothing did, or a side was not measured."""
    cell, base, new = row["cell_id"], row["run_id_base"], row["run_id_new"]
    if not isinstance(base, str) or not isinstance(new, str):
        raise RecordError("it was not measured on both sides: there is no run to pin")
    if row["status_base"] == "pass" and row["status_new"] != "pass":
        return Finding(cell, base, new, "broke")
    metric = _worse_metric(row)
    if metric is None:
        raise RecordError(f"{one_line(str(row['cell']), 200)} did not get worse from base to new: nothing to record")
    values = float(row[f"{metric}_base"]), float(row[f"{metric}_new"])
    return Finding(cell, base, new, kind_of(metric), metric, *values)


def _worse_metric(row: Mapping[Any, Any]) -> str | None:
    """The metric that the verdict names, else the one that grew most beyond the smallest change that matters."""
    if row["verdict"] == Outcome.REGRESSED and isinstance(row["verdict_metric"], str):
        return str(row["verdict_metric"])
    grown = {
        name: row[f"{name}_ratio"] - 1 - least
        for name, least in MIN_EFFECT.items()
        if not pd.isna(row[f"{name}_ratio"])
    }
    worst = max(grown, key=lambda name: grown[name], default=None)
    return worst if worst is not None and grown[worst] >= 0 else None
