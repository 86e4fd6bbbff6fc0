"""Lists of cells that did not pass, with the reason that was recorded."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import pandas as pd

from dashboard import url
from dashboard.components import markup
from dashboard.components.changes import judged
from dashboard.components.formats import TITLES, number
from dashboard.components.markup import anchor, cell, row, span, status_tag, table, text

#: A row of cells, as pandas hands it over.
Record = dict[Hashable, Any]
Link = Callable[..., str]
#: What of a cell names it and leads to it, and what says why it did not pass: of a hundred columns these are turned to rows.
_NAMES = ("suite", "model", "phase", "dtype", "device", "batch_size", "config")
_REASON = ("status", "stage", "exception", "message", "hint")
#: The columns of a comparison that the lists below read, for either side.
LISTED = (*_NAMES, *(f"{name}{side}" for name in _REASON for side in ("_base", "_new")))
#: Longer messages are cut here; the model's page has all of it.
_LIMIT = 220


def reason_table(caption: str, rows: pd.DataFrame, side: str = "", limit: int = 40) -> str:
    """A row per cell: its status on `side` ("", "_base" or "_new") and why. Cells come in their own order."""
    link = url.linker()
    needed = [*_NAMES, *(f"{name}{side}" for name in _REASON)]
    shown = [_row(record, side, link) for record in rows.head(limit)[needed].to_dict("records")]
    note = f"the first {limit} of {len(rows)}" if len(rows) > limit else ""
    return table(caption, ["cell", "status", "reason"], shown, note=note)


def change_table(cells: pd.DataFrame, limit: int = 8) -> str:
    """The cells that regressed or improved most, by what decided; nothing where there are none."""
    moved = cells[["outcome", "outcome_change"]][cells["outcome"].isin(["regressed", "improved"])]
    moved = moved.sort_values(
        ["outcome", "outcome_change"], ascending=False
    )  # r comes after i: what regressed is first
    if moved.empty:
        return ""
    link = url.linker()
    first = cells.loc[moved.index[:limit]]
    # Of hundreds of columns those of what decided.
    metrics = tuple(f"{metric}_" for metric in set(first["outcome_metric"]))
    needed = [name for name in first.columns if name in _NAMES or name == "outcome_metric" or name.startswith(metrics)]
    rows = [_change_row(record, link) for record in first[needed].to_dict("records")]
    note = f"the first {limit} of {len(moved)}, what regressed first" if len(moved) > limit else ""
    return table(
        "Changed most", ["cell", "what", "base", "new", "change", "95 %", "verdict"], rows, note=note, numbers=2
    )


def _change_row(record: Record, link: Link) -> str:
    metric = record["outcome_metric"]
    base, new = record[f"{metric}_base"], record[f"{metric}_new"]
    found = judged(metric, record)
    values = [cell(text(number(metric, value)), "n") for value in (base, new)]
    return row(_named(record, link), [cell(text(TITLES[metric])), *values, *markup.change(found)])


def _named(record: Record, link: Link) -> str:
    name = f"{text(record['model'])} {span('soft', text(record['config']))}"
    where = span("soft", text(f"{record['suite']}, {record['phase']}, {record['dtype']}"))
    return f"{anchor(model_link(record, link), name)}<br>{where}"


def missing_table(caption: str, rows: pd.DataFrame, limit: int = 40) -> str:
    """Missing cells, which have no reason of their own: a row per model, with the configs that are missing."""
    keys = ["suite", "model", "phase", "dtype", "device", "batch_size"]
    shown, link = [], url.linker()
    for _, cells in rows[[*keys, "config"]].groupby(keys, sort=False):
        records = cells.to_dict("records")
        configs = ", ".join(anchor(model_link(record, link), text(record["config"])) for record in records)
        where = span("soft", text(f"{records[0]['suite']}, {records[0]['phase']}, {records[0]['dtype']}"))
        shown.append(row(f"{text(records[0]['model'])}<br>{where}", [cell(configs)]))
    note = "planned, and no measurement was stored" + (f"; the first {limit} models" if len(shown) > limit else "")
    return table(caption, ["model", "configs"], shown[:limit], note=note)


def model_link(record: Record, link: Link) -> str:
    """The address of the model's page for a row of cells, made by what `url.linker` gave."""
    setting = ",".join(str(record[name]) for name in ("phase", "dtype", "device", "batch_size"))
    return link("model", model=f"{record['suite']}/{record['model']}", setting=setting, config=str(record["config"]))


def _row(record: Record, side: str, link: Link) -> str:
    status = record[f"status{side}"]
    return row(
        _named(record, link),
        [cell(status_tag(status if isinstance(status, str) else None)), cell(_reason(record, side))],
    )


def _reason(record: Record, side: str) -> str:
    if not isinstance(record[f"status{side}"], str):
        return span("soft", "planned, and no measurement of it was stored")
    stage, exception, message, hint = (
        _text(record[f"{name}{side}"]) for name in ("stage", "exception", "message", "hint")
    )
    head = " in ".join(_present((exception, stage)))
    parts = _present((head, message if message != exception else ""))
    said = ": ".join(parts)
    shown = text(said if len(said) <= _LIMIT else f"{said[:_LIMIT]}...")
    return shown + (f"<br>{span('soft', text(f'Hint: {hint}'))}" if hint else "") or span(
        "soft", "no reason was recorded"
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _present(values: Iterable[str]) -> list[str]:
    return [value for value in values if value]
