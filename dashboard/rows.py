"""The compare page's table: a row per cell with both sides' values, the change of each, and how each change is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.verdicts import SMALLEST
from dashboard import changes
from dashboard.changes import VERDICT_LOOKS, Look
from dashboard.formats import TITLES, signed
from dashboard.outcomes import LOOKS, OUTCOMES

#: Metric, head and scale (into the unit that the head names) of the columns, in the table's order.
METRIC_COLUMNS: dict[str, tuple[str, float]] = {
    "compiled_kernel_ms": ("device ms", 1.0),
    "compiled_ms": ("latency ms", 1.0),
    "device_speedup": ("device speedup", 1.0),
    "speedup": ("speedup", 1.0),
    "compile_cold_s": ("compile s", 1.0),
    "compiled_peak_bytes": ("peak GB", 1e-9),
    "compression": ("compression", 1.0),
    "graph_breaks": ("breaks", 1.0),
    "cudagraph_skips": ("cudagraph skips", 1.0),
}
#: Counts have no percentage: from 0 to 2 is no ratio. Their change is a difference.
COUNTS = tuple(metric for metric in METRIC_COLUMNS if metric in changes.COUNTS)
#: Further runs that are too many to be worth it; spelled so that the column sorts as text.
TOO_MANY, AT_THE_LIMIT = "> 50", "at the limit"
_FIRST = ("broke", "missing", "regressed", "improved", "inconclusive")


@dataclass(frozen=True, slots=True)
class Rows:
    """What is shown (`shown`), how (`looks`, of the same shape), and all cells in the same order, also those not shown."""

    shown: pd.DataFrame
    looks: pd.DataFrame
    cells: pd.DataFrame


def compared_rows(cells: pd.DataFrame, metrics: Sequence[str], limit: int | None = None) -> Rows:
    """Rows of a comparison with outcomes: broke, missing, regressed, improved, inconclusive (largest first), the rest.

    The first `limit` of them are shown: to spell out 1,800 cells takes longer than to compare them.
    """
    every = _sorted(cells)
    ordered = every.head(limit) if limit is not None else every
    shown = _names(ordered)
    told = zip(*(ordered[name] for name in ("outcome", "status_new", "outcome_metric")), strict=True)
    shown["outcome"] = [_spell(*values) for values in told]
    looks: dict[str, list[Look]] = {"outcome": [LOOKS.get(outcome, "calm") for outcome in ordered["outcome"]]}
    if every["more_runs"].notna().any():
        shown["more runs"] = [_runs(value) for value in ordered["more_runs"]]
    for metric in metrics:
        head, scale = METRIC_COLUMNS[metric]
        shown[f"{head} Δ"], looks[f"{head} Δ"] = _change(ordered, metric)
        if metric in SMALLEST:
            shown[f"{head} 95 %"] = _intervals(ordered, metric)
        for side in ("base", "new"):
            shown[f"{head} {side}"] = _scaled(ordered[f"{metric}_{side}"], scale)
    sides = ("expected_base", "status_base", "expected_new", "status_new")
    shown["status"] = [_statuses(*values) for values in zip(*(ordered[name] for name in sides), strict=True)]
    shown = shown.join(_axes(every), how="left")
    styles = _calm(shown)
    for name, values in looks.items():
        styles[name] = values
    return Rows(shown, styles, every)


def alone_rows(cells: pd.DataFrame, metrics: Sequence[str], limit: int | None = None) -> Rows:
    """Rows of one side, what does not pass first; the first `limit` of them are shown."""
    failing = (cells["status"] != "pass").astype(int)
    every = cells.assign(_failing=failing).sort_values(["_failing"], ascending=False, kind="stable")
    every = every.drop(columns="_failing").reset_index(drop=True)
    ordered = every.head(limit) if limit is not None else every
    shown = _names(ordered)
    shown["status"] = [status if isinstance(status, str) else "missing" for status in ordered["status"]]
    for metric in metrics:
        head, scale = METRIC_COLUMNS[metric]
        shown[head] = _scaled(ordered[metric], scale)
    shown = shown.join(_axes(every), how="left")
    return Rows(shown, _calm(shown), every)


def matching(cells: pd.DataFrame, words: str, configs: Sequence[str]) -> pd.DataFrame:
    """The cells whose text has all the words and whose config is one of those named, if any are."""
    keep = pd.Series(True, index=cells.index)
    if words and len(cells):
        names = cells[["model", "phase", "dtype", "device", "config"]].astype(str)
        texts = cells["suite"].astype(str).str.cat(names, sep=" ").str.lower()
        for word in words.lower().split():
            keep &= texts.str.contains(word, regex=False)
    return cells[keep & cells["config"].isin(list(configs))] if configs else cells[keep]


def csv(cells: pd.DataFrame) -> bytes:
    """All columns in full precision. A name that a spreadsheet would run as a formula gets an apostrophe before it."""
    texts = cells.select_dtypes(include=["object", "str"]).columns
    safe = cells.copy()
    for name in texts:
        safe[name] = cells[name].map(_inert)
    return str(safe.to_csv(index=False)).encode()


def _inert(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t") else value


def _calm(shown: pd.DataFrame) -> pd.DataFrame:
    # As Python's own texts: pandas' take ten times as long to be written to.
    return pd.DataFrame("calm", index=shown.index, columns=shown.columns, dtype=object)


def _sorted(cells: pd.DataFrame) -> pd.DataFrame:
    order = {outcome: place for place, outcome in enumerate(dict.fromkeys((*_FIRST, *OUTCOMES)))}
    keys = cells.assign(_order=[order[outcome] for outcome in cells["outcome"]])
    keys = keys.sort_values(["_order", "outcome_change", "cell"], ascending=[True, False, True], na_position="last")
    return keys.drop(columns="_order").reset_index(drop=True)


def _names(cells: pd.DataFrame) -> pd.DataFrame:
    """What tells cells apart at a glance."""
    return cells[["model", "config", "phase"]].astype(str)


def _axes(cells: pd.DataFrame) -> pd.DataFrame:
    """The rest of what names a cell, less that in which all are the same."""
    several = [name for name in ("dtype", "device", "batch_size") if cells[name].nunique() > 1]
    return cells[["suite", *several]].rename(columns={"batch_size": "batch"})


def _spell(outcome: str, status: object, metric: object) -> str:
    shown = OUTCOMES[outcome]
    if outcome in VERDICT_LOOKS:
        return f"{shown}: {TITLES[str(metric)]}"
    return f"{shown}: {status}" if outcome in ("broke", "still_failing") else shown


def _runs(value: float) -> str | None:
    """No more runs are needed where the interval is narrow and the change itself lies at the limit of what matters."""
    if np.isnan(value):
        return None
    return TOO_MANY if np.isinf(value) else f"{value:2.0f}" if value else AT_THE_LIMIT


def _statuses(expected_base: bool, base: object, expected_new: bool, new: object) -> str:
    sides = ((expected_base, base), (expected_new, new))
    shown = [status if isinstance(status, str) else "missing" if asked else "not planned" for asked, status in sides]
    return shown[0] if shown[0] == shown[1] else " → ".join(shown)


def _scaled(values: pd.Series, scale: float) -> pd.Series:
    """Rounded here: a screen reader is read the value and not its format."""
    return (values.astype(float) * scale).round(3)


def _change(cells: pd.DataFrame, metric: str) -> tuple[pd.Series, list[Look]]:
    """The change of one metric with its looks: in percent, or as a difference for counts; only for cells that pass twice."""
    passing = cells["transition"] == "both_pass"
    if metric in COUNTS:
        found = (cells[f"{metric}_new"] - cells[f"{metric}_base"]).where(passing)
        worse_or_better: list[Look] = ["worse" if value > 0 else "better" if value < 0 else "calm" for value in found]
        return found, worse_or_better
    if metric not in SMALLEST:
        return _percent(cells[f"{metric}_ratio"].where(passing) - 1), ["calm"] * len(cells)
    told = zip(cells[f"{metric}_verdict"], cells["comparable"], strict=True)
    looks = [VERDICT_LOOKS.get(verdict, "calm") if comparable else "calm" for verdict, comparable in told]
    return _percent(cells[f"{metric}_change"]), looks


def _percent(values: pd.Series) -> pd.Series:
    return (values * 100).round(1).replace(-0.0, 0.0).astype(np.float64)


def _intervals(cells: pd.DataFrame, metric: str) -> list[str | None]:
    ends = zip(100 * cells[f"{metric}_low"], 100 * cells[f"{metric}_high"], strict=True)
    return [f"{signed(low, unit='')}, {signed(high, unit='')}" if low == low else None for low, high in ends]
