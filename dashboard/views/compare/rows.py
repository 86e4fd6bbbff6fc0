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
from analysis.compare.transitions import Transition
from collector.metrics import METRICS, MIN_EFFECT, Metric
from dashboard.components.changes import VERDICT_LOOKS, Look
from dashboard.components.formats import signed
from dashboard.components.outcomes import GLYPHS, LOOKS, OUTCOMES
from db.exporting.formats import without_formulas


@dataclass(frozen=True, slots=True)
class Column:
    """How a metric is shown: head, the factor into the head's unit, and the format of its values.

    Changes of counts and leaks are differences, since 0 to 2 is no ratio.
    """

    head: str
    scale: float = 1.0
    shape: str = "%.2f\N{MULTIPLICATION SIGN}"
    is_difference: bool = False


def _columns() -> dict[str, Column]:
    """The columns in the table's order; heads and formats come from the metric's title and unit."""
    order = ("compiled_kernel_ms", "compiled_ms", "device_speedup", "speedup", "compile_cold_s", "compiled_peak_bytes",
             "compression", LEAK, "compile_warm_s", "compile_instructions", "graph_breaks", "cudagraph_skips")  # fmt: skip
    return {name: _column(METRICS[name]) for name in order}


def _column(metric: Metric) -> Column:
    title = metric.title
    if metric.name == LEAK or metric.is_count:
        return Column(f"{title} B" if metric.unit else title, 1.0, "%d", True)
    match metric.unit:
        case "ms":
            return Column(f"{title} ms", 1.0, "%.3f")
        case "s":
            return Column(f"{title} s", 1.0, "%.1f")
        case "B":
            return Column(f"{title} GB", 1e-9, "%.2f")
        case "x":
            return Column(title)
    return Column(f"{title}, 10\N{SUPERSCRIPT NINE}", 1e-9, "%.2f")


METRIC_COLUMNS = _columns()
#: Instead of a number of further runs; both sort as texts.
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
    order = _order(cells)
    ordered = cells.iloc[order[:limit]].reset_index(drop=True)
    shown = _names(ordered)
    named = zip(*(ordered[name] for name in ("outcome", "status_new", "outcome_metric")), strict=True)
    shown["outcome"] = [_spell(*values) for values in named]
    looks: dict[str, list[Look]] = {"outcome": [LOOKS.get(outcome, "calm") for outcome in ordered["outcome"]]}
    if cells["more_runs"].notna().any():
        shown["more runs"] = [_runs(value) for value in ordered["more_runs"]]
    for metric in _measured(cells, metrics, ("_base", "_new")):
        head, scale = METRIC_COLUMNS[metric].head, METRIC_COLUMNS[metric].scale
        shown[f"{head} Δ"], looks[f"{head} Δ"] = _change(ordered, metric)
        if metric in CONTROL:
            shown[f"{head} adjusted Δ"] = _percent(ordered[f"{metric}_adjusted"])
        if metric in MIN_EFFECT:
            shown[f"{head} 95 %"] = _intervals(ordered, metric)
        for side in ("base", "new"):
            shown[f"{head} {side}"] = _scaled(ordered[f"{metric}_{side}"], scale)
    sides = ("expected_base", "status_base", "expected_new", "status_new")
    shown["status"] = [_statuses(*values) for values in zip(*(ordered[name] for name in sides), strict=True)]
    frame = pd.DataFrame(shown | _axes(cells, ordered))
    calm: list[Look] = ["calm"] * len(frame)
    return Rows(frame, pd.DataFrame({name: looks.get(str(name), calm) for name in frame}, dtype=object), cells, order)


def alone_rows(cells: pd.DataFrame, metrics: Sequence[str], limit: int | None = None) -> Rows:
    """Rows of one side, what does not pass first; the first `limit` of them are shown."""
    order = np.argsort(cells["status"].eq("pass").fillna(False).to_numpy(dtype=bool), kind="stable")
    ordered = cells.iloc[order[:limit]].reset_index(drop=True)
    shown = _names(ordered)
    shown["status"] = [status if isinstance(status, str) else "missing" for status in ordered["status"]]
    for metric in _measured(cells, metrics, ("",)):
        head, scale = METRIC_COLUMNS[metric].head, METRIC_COLUMNS[metric].scale
        shown[head] = _scaled(ordered[metric], scale)
    frame = pd.DataFrame(shown | _axes(cells, ordered))
    return Rows(frame, pd.DataFrame("calm", index=frame.index, columns=frame.columns, dtype=object), cells, order)


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
    """The metrics that some cell has on some side."""
    return [
        metric
        for metric in metrics
        if any(f"{metric}{side}" in cells and cells[f"{metric}{side}"].notna().any() for side in sides)
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
        return f"{shown}: {METRICS[str(metric)].title}"
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
    passing = cells["transition"] == Transition.BOTH_PASS.value
    if METRIC_COLUMNS[metric].is_difference:
        differences = (cells[f"{metric}_new"] - cells[f"{metric}_base"]).where(passing)
        if metric == LEAK:
            return differences, _looks(cells, metric)
        looks: list[Look] = ["worse" if value > 0 else "better" if value < 0 else "calm" for value in differences]
        return differences, looks
    if metric not in MIN_EFFECT:
        return _percent(cells[f"{metric}_ratio"].where(passing) - 1), ["calm"] * len(cells)
    return _percent(cells[f"{metric}_change"]), _looks(cells, metric)


def _looks(cells: pd.DataFrame, metric: str) -> list[Look]:
    verdicts = zip(cells[f"{metric}_verdict"], cells["comparable"], strict=True)
    return [VERDICT_LOOKS.get(verdict, "calm") if comparable else "calm" for verdict, comparable in verdicts]


def _percent(values: pd.Series) -> pd.Series:
    return (values * 100).round(1).replace(-0.0, 0.0).astype(np.float64)


def _intervals(cells: pd.DataFrame, metric: str) -> list[str | None]:
    ends = zip(100 * cells[f"{metric}_low"], 100 * cells[f"{metric}_high"], strict=True)
    return [f"{signed(low, unit='')}, {signed(high, unit='')}" if low == low else None for low, high in ends]
