"""Rows of cells as JSON: nested, with the same keys in every row, and null for what was not measured."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np
import pandas as pd

from analysis.compare.changes import direction, percent
from collector.metrics import METRICS

_CELL = ("cell_id", "suite", "model", "phase", "dtype", "device", "batch_size", "config", "config_id")
_MEASURED = (
    *("run_id", "testbed_id", "replicate", "status", "started_at", "wall_s", "program_id", "environment_id"),
    *("stage", "exception", "message", "hint", "spread"),
)


def comparison_cells(cells: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of `analysis.compare.pairing.pair`."""
    return [_compared(row) for row in _records(cells)]


def _compared(row: dict[str, Any]) -> dict[str, Any]:
    return {
        **{name: row[name] for name in _CELL},
        "transition": row["transition"],
        "program_changed": row["program_changed"],
        "testbed_changed": row["testbed_changed"],
        "base": _side(row, "base"),
        "new": _side(row, "new"),
        "change": {name: _change(row, name) for name in METRICS if _both(row, name)},
        "rank_metric": row["rank_metric"],
        "rank_ratio": row["rank_ratio"],
    }


def _side(row: dict[str, Any], side: str) -> dict[str, Any]:
    return {
        "expected": row[f"expected_{side}"],
        **{name: row[f"{name}_{side}"] for name in ("cell_id", "config", "config_id", *_MEASURED)},
        "metrics": {name: value for name in METRICS if (value := row[f"{name}_{side}"]) is not None},
    }


def _change(row: dict[str, Any], metric: str) -> dict[str, Any]:
    ratio = row[f"{metric}_ratio"]
    better = direction(metric, row[f"{metric}_base"], row[f"{metric}_new"])
    return {"ratio": ratio, "percent": percent(ratio), "direction": better}


def _both(row: dict[str, Any], metric: str) -> bool:
    return row[f"{metric}_base"] is not None and row[f"{metric}_new"] is not None


def _records(cells: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): _plain(value) for name, value in row.items()} for row in cells.to_dict("records")]


def _plain(value: Any) -> Any:
    """A value that JSON has a word for; whatever pandas says for "nothing" becomes None."""
    if value is None or value is pd.NA or value is pd.NaT or value != value:
        return None
    if isinstance(value, datetime):
        return value.isoformat()
    return value.item() if isinstance(value, np.generic) else value
