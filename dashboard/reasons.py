"""Lists of cells that did not pass, with the reason that was recorded."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from dashboard import url
from dashboard.markup import anchor, cell, row, span, status_tag, table, text

#: Longer messages are cut here; the model's page has all of it.
_LIMIT = 220


def reason_table(caption: str, rows: pd.DataFrame, side: str = "", limit: int = 40) -> str:
    """A row per cell: its status on `side` ("", "_base" or "_new") and why. Cells come in their own order."""
    shown = [_row(record, side) for record in rows.head(limit).to_dict("records")]
    note = f"the first {limit} of {len(rows)}" if len(rows) > limit else ""
    return table(caption, ["cell", "status", "reason"], shown, note=note)


def model_link(record: dict[str, object]) -> str:
    """The address of the model's page for a row of cells."""
    setting = ",".join(str(record[name]) for name in ("phase", "dtype", "device", "batch_size"))
    return url.link(
        "model", model=f"{record['suite']}/{record['model']}", setting=setting, config=str(record["config"])
    )


def _row(record: dict[str, object], side: str) -> str:
    name = f"{text(record['model'])} {span('soft', text(record['config']))}"
    where = span("soft", text(f"{record['suite']}, {record['phase']}, {record['dtype']}"))
    status = record[f"status{side}"]
    return row(
        f"{anchor(model_link(record), name)}<br>{where}",
        [cell(status_tag(status if isinstance(status, str) else None)), cell(_reason(record, side))],
    )


def _reason(record: dict[str, object], side: str) -> str:
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
