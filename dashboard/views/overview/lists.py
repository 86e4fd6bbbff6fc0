"""The overview's lists of cells: those that changed most, those that did not pass with the reason, those that are missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from markupsafe import Markup

from analysis.compare.transitions import Transition
from collector.metrics import METRICS
from collector.vocabulary import NOT_APPLICABLE, Status
from dashboard import url
from dashboard.components.changes import judged
from dashboard.components.formats import number
from dashboard.components.markup import anchor, change_cells, draw, joined, lines, span, status_tag, table
from dashboard.components.outcomes import CHANGED

_SETTING = ("phase", "dtype", "device", "batch_size")
#: The columns of a comparison that the lists read, for either side: those of wide frames are few, so rows are made quickly.
_NAMES = ("suite", "model", *_SETTING, "config")
_REASON = ("status", "stage", "exception", "message", "hint")
_LISTED = [*_NAMES, "transition", *(f"{name}{side}" for name in _REASON for side in ("_base", "_new"))]
#: Rows of a list, rows of the changes, and characters of a message; the model's page has all of it.
_ROWS, _CHANGES, _MESSAGE = 40, 8, 220
_UNASKED = [status.value for status in NOT_APPLICABLE]

Record = Mapping[Any, Any]


def changes(cells: pd.DataFrame) -> None:
    """Draws the cells that regressed or improved most, by the metric that decided; nothing where there are none."""
    moved = cells[["outcome", "outcome_change"]][cells["outcome"].isin(CHANGED)]
    # r comes after i: what regressed is first.
    moved = moved.sort_values(["outcome", "outcome_change"], ascending=False)
    if moved.empty:
        return
    first = cells.loc[moved.index[:_CHANGES]]
    metrics = tuple(f"{metric}_" for metric in set(first["outcome_metric"]))
    needed = [name for name in first.columns if name in _NAMES or name == "outcome_metric" or name.startswith(metrics)]
    rows = [_change_row(record) for record in first[needed].to_dict("records")]
    note = f"the first {_CHANGES} of {len(moved)}, what regressed first" if len(moved) > _CHANGES else ""
    head = ["cell", "what", "base", "new", "change", "95 %", "verdict"]
    draw(table("Changed most", head, rows, note=note, numbers=range(2, 7)))


def lost(cells: pd.DataFrame) -> None:
    """Draws what broke and what is missing in new."""
    listed = cells[_LISTED]
    _of_transition("Broke", listed, Transition.BROKE)
    _of_transition("Missing in new", listed, Transition.MISSING)


def remaining(cells: pd.DataFrame) -> None:
    """Draws the other cells that do not pass on both sides."""
    listed = cells[_LISTED]
    _of_transition("Still failing", listed, Transition.STILL_FAILING)
    _of_transition("Fixed (why it failed in base)", listed, Transition.FIXED, "_base")
    _of_transition("Not applicable", listed, Transition.NOT_APPLICABLE)
    _of_transition("Missing in both", listed, Transition.MISSING_IN_BOTH)
    entered = listed[listed["transition"] == Transition.ENTERED.value]
    _reasons("Planned in new only, not passing", entered[entered["status_new"] != Status.PASS.value], "_new")


def alone(cells: pd.DataFrame) -> None:
    """Draws the cells of one side that do not pass."""
    status = cells["status"]
    unasked = status.isin(_UNASKED)
    _reasons("Failing", cells[status.notna() & ~unasked & (status != Status.PASS.value)])
    _missing("Missing", cells[status.isna()])
    _reasons("Could not be asked here", cells[unasked])


def _of_transition(title: str, cells: pd.DataFrame, transition: Transition, side: str = "_new") -> None:
    rows = cells[cells["transition"] == transition.value]
    if transition in (Transition.MISSING, Transition.MISSING_IN_BOTH):
        _missing(title, rows)
    else:
        _reasons(title, rows, side)


def _reasons(title: str, cells: pd.DataFrame, side: str = "") -> None:
    """A row per cell: its status on `side` ("", "_base" or "_new") and why."""
    if cells.empty:
        return
    columns = [*_NAMES, *(f"{name}{side}" for name in _REASON)]
    rows = []
    for record in cells[columns].head(_ROWS).to_dict("records"):
        failure = {name: record[f"{name}{side}"] for name in _REASON}
        rows.append((_named(record), status_tag(failure["status"]), _reason(failure)))
    note = f"the first {_ROWS} of {len(cells)}" if len(cells) > _ROWS else ""
    draw(table(f"{title}: {len(cells)}", ["cell", "status", "reason"], rows, note=note))


def _missing(title: str, cells: pd.DataFrame) -> None:
    """Missing cells have no reason: a row per model, with the configs that are missing."""
    if cells.empty:
        return
    rows = []
    for _, of_model in cells[list(_NAMES)].groupby(["suite", "model", *_SETTING], sort=False):
        records = of_model.to_dict("records")
        configs = joined(", ", (anchor(_model_link(record), record["config"]) for record in records))
        rows.append((lines(records[0]["model"], _where(records[0])), configs))
    note = "planned, and no measurement was stored" + (f"; the first {_ROWS} models" if len(rows) > _ROWS else "")
    draw(table(f"{title}: {len(cells)}", ["model", "configs"], rows[:_ROWS], note=note))


def _change_row(record: Record) -> tuple[Any, ...]:
    metric = record["outcome_metric"]
    values = [number(metric, record[f"{metric}_{side}"]) for side in ("base", "new")]
    return _named(record), METRICS[metric].title, *values, *change_cells(judged(metric, record))


def _named(record: Record) -> Markup:
    name = joined(" ", [record["model"], span("soft", record["config"])])
    return lines(anchor(_model_link(record), name), _where(record))


def _where(record: Record) -> Markup:
    return span("soft", f"{record['suite']}, {record['phase']}, {record['dtype']}")


def _model_link(record: Record) -> str:
    setting = ",".join(str(record[name]) for name in _SETTING)
    return url.link(
        "model", model=f"{record['suite']}/{record['model']}", setting=setting, config=str(record["config"])
    )


def _reason(failure: Record) -> Markup:
    if not isinstance(failure["status"], str):
        return span("soft", "planned, and no measurement of it was stored")
    stage, exception, message, hint = (
        value if isinstance(value := failure[name], str) else "" for name in ("stage", "exception", "message", "hint")
    )
    head = " in ".join(part for part in (exception, stage) if part)
    words = ": ".join(part for part in (head, message if message != exception else "") if part)
    words = words if len(words) <= _MESSAGE else f"{words[:_MESSAGE]}..."
    return lines(words, span("soft", f"Hint: {hint}") if hint else "") or span("soft", "no reason was recorded")
