"""The compare page's table: a row per cell with both sides' values, the change of each, and how each change is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.compare.adjustment import CONTROL
from analysis.compare.leaks import LEAK
from collector.metrics import MIN_EFFECT
from dashboard.components import changes
from dashboard.components.changes import VERDICT_LOOKS, Look
from dashboard.components.formats import TITLES, signed
from dashboard.components.outcomes import GLYPHS, LOOKS, OUTCOMES
from db.exporting.formats import without_formulas

#: Metric, head and scale (into the unit that the head names) of the columns, in the table's order.
METRIC_COLUMNS: dict[str, tuple[str, float]] = {
    "compiled_kernel_ms": ("device ms", 1.0),
    "compiled_ms": ("latency ms", 1.0),
    "device_speedup": ("device speedup", 1.0),
    "speedup": ("speedup", 1.0),
    "compile_cold_s": ("compile s", 1.0),
    "compiled_peak_bytes": ("peak GB", 1e-9),
    "compression": ("compression", 1.0),
    LEAK: ("leak B", 1.0),
    "compile_warm_s": ("warm compile s", 1.0),
    "compile_instructions": ("instructions G", 1e-9),
    "graph_breaks": ("breaks", 1.0),
    "cudagraph_skips": ("cudagraph skips", 1.0),
}
#: Counts and leaks have no percentage: from 0 to 2 is no ratio. Their change is a difference.
COUNTS = tuple(metric for metric in METRIC_COLUMNS if metric in (*changes.COUNTS, LEAK))
#: What not every night measures: columns of nothing are left out.
_SELDOM = (LEAK, "compile_warm_s", "compile_instructions")
#: Further runs that are too many to be worth it; spelled so that the column sorts as text.
TOO_MANY, AT_THE_LIMIT = "> 50", "at the limit"
_FIRST = ("broke", "missing", "regressed", "improved", "inconclusive")


@dataclass(frozen=True, slots=True)
class Rows:
    """What is shown (`shown`), how (`looks`, of the same shape), and the order of all cells, also of those not shown."""

    shown: pd.DataFrame
    looks: pd.DataFrame
    unordered: pd.DataFrame
    order: NDArray[np.intp]

    @property
    def cells(self) -> pd.DataFrame:
        """All cells in the table's order: to put hundreds of columns in order takes as long as all else, so only when asked."""
        return self.unordered.iloc[self.order].reset_index(drop=True)


def compared_rows(cells: pd.DataFrame, metrics: Sequence[str], limit: int | None = None) -> Rows:
    """Rows of a comparison with outcomes: broke, missing, regressed, improved, inconclusive (largest first), the rest.

    The first `limit` of them are shown: to spell out 1,800 cells takes longer than to compare them.
    """
    every, order = cells, _order(cells)
    ordered = cells.iloc[order[:limit]].reset_index(drop=True)
    shown = _names(ordered)
    told = zip(*(ordered[name] for name in ("outcome", "status_new", "outcome_metric")), strict=True)
    shown["outcome"] = [_spell(*values) for values in told]
    looks: dict[str, list[Look]] = {"outcome": [LOOKS.get(outcome, "calm") for outcome in ordered["outcome"]]}
    if every["more_runs"].notna().any():
        shown["more runs"] = [_runs(value) for value in ordered["more_runs"]]
    for metric in _measured(every, metrics, ("_base", "_new")):
        head, scale = METRIC_COLUMNS[metric]
        shown[f"{head} Δ"], looks[f"{head} Δ"] = _change(ordered, metric)
        if metric in CONTROL:
            shown[f"{head} adjusted Δ"] = _percent(ordered[f"{metric}_adjusted"])
        if metric in MIN_EFFECT:
            shown[f"{head} 95 %"] = _intervals(ordered, metric)
        for side in ("base", "new"):
            shown[f"{head} {side}"] = _scaled(ordered[f"{metric}_{side}"], scale)
    sides = ("expected_base", "status_base", "expected_new", "status_new")
    shown["status"] = [_statuses(*values) for values in zip(*(ordered[name] for name in sides), strict=True)]
    found = pd.DataFrame(shown | _axes(cells, ordered))
    calm: list[Look] = ["calm"] * len(found)
    styles = pd.DataFrame({name: looks.get(str(name), calm) for name in found}, dtype=object)
    return Rows(found, styles, cells, order)


def alone_rows(cells: pd.DataFrame, metrics: Sequence[str], limit: int | None = None) -> Rows:
    """Rows of one side, what does not pass first; the first `limit` of them are shown."""
    every, order = cells, np.argsort(cells["status"].eq("pass").fillna(False).to_numpy(dtype=bool), kind="stable")
    ordered = cells.iloc[order[:limit]].reset_index(drop=True)
    shown = _names(ordered)
    shown["status"] = [status if isinstance(status, str) else "missing" for status in ordered["status"]]
    for metric in _measured(every, metrics, ("",)):
        head, scale = METRIC_COLUMNS[metric]
        shown[head] = _scaled(ordered[metric], scale)
    found = pd.DataFrame(shown | _axes(cells, ordered))
    return Rows(found, pd.DataFrame("calm", index=found.index, columns=found.columns, dtype=object), cells, order)


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
    return str(without_formulas(cells).to_csv(index=False)).encode()


def _measured(cells: pd.DataFrame, metrics: Sequence[str], sides: Sequence[str]) -> list[str]:
    """The metrics, of those that not every night measures only what some cell has."""
    return [
        name
        for name in metrics
        if name not in _SELDOM
        or any(cells[f"{name}{side}"].notna().any() for side in sides if f"{name}{side}" in cells)
    ]


def _order(cells: pd.DataFrame) -> NDArray[np.intp]:
    """The places of the cells in the order of the table."""
    order = {outcome: place for place, outcome in enumerate(dict.fromkeys((*_FIRST, *OUTCOMES)))}
    keys = pd.DataFrame(
        {
            "order": [order[outcome] for outcome in cells["outcome"]],
            "change": cells["outcome_change"].to_numpy(),
            "cell": cells["cell"].to_numpy(),
        }
    )
    keys = keys.sort_values(["order", "change", "cell"], ascending=[True, False, True], na_position="last")
    return keys.index.to_numpy()


def _names(cells: pd.DataFrame) -> dict[str, Any]:
    """What tells cells apart at a glance."""
    return {name: cells[name].astype(str) for name in ("model", "config", "phase")}


def _axes(cells: pd.DataFrame, ordered: pd.DataFrame) -> dict[str, Any]:
    """The rest of what names a cell, less that in which all cells are the same."""
    several = [name for name in ("dtype", "device", "batch_size") if cells[name].nunique() > 1]
    return {{"batch_size": "batch"}.get(name, name): ordered[name] for name in ("suite", *several)}


def _spell(outcome: str, status: object, metric: object) -> str:
    shown = f"{GLYPHS.get(outcome, '')} {OUTCOMES[outcome]}".lstrip()
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
        if metric == LEAK:
            return found, _looks(cells, metric)
        worse_or_better: list[Look] = ["worse" if value > 0 else "better" if value < 0 else "calm" for value in found]
        return found, worse_or_better
    if metric not in MIN_EFFECT:
        return _percent(cells[f"{metric}_ratio"].where(passing) - 1), ["calm"] * len(cells)
    return _percent(cells[f"{metric}_change"]), _looks(cells, metric)


def _looks(cells: pd.DataFrame, metric: str) -> list[Look]:
    told = zip(cells[f"{metric}_verdict"], cells["comparable"], strict=True)
    return [VERDICT_LOOKS.get(verdict, "calm") if comparable else "calm" for verdict, comparable in told]


def _percent(values: pd.Series) -> pd.Series:
    return (values * 100).round(1).replace(-0.0, 0.0).astype(np.float64)


def _intervals(cells: pd.DataFrame, metric: str) -> list[str | None]:
    ends = zip(100 * cells[f"{metric}_low"], 100 * cells[f"{metric}_high"], strict=True)
    return [f"{signed(low, unit='')}, {signed(high, unit='')}" if low == low else None for low, high in ends]
