"""The compare page's table: a row per cell with both sides' values, the change of each, and how each change is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.compare.adjustment import CONTROL
from analysis.compare.code import SAME, WRAPPER
from analysis.compare.leaks import LEAK
from analysis.compare.transitions import Transition
from collector.metrics import METRICS, MIN_EFFECT
from dashboard.components.changes import VERDICT_LOOKS, Look
from dashboard.components.formats import signed
from dashboard.components.outcomes import GLYPHS, LOOKS, OUTCOMES
from db.exporting.formats import without_formulas

Table = tuple[pd.DataFrame, pd.DataFrame]


@dataclass(frozen=True, slots=True)
class Column:
    """How a metric is shown: head, the factor into the head's unit, and the format of its values."""

    head: str
    scale: float
    shape: str
    is_difference: bool


#: How the values of a unit are shown: what stands behind the title, factor, format.
_UNITS = {
    "ms": (" ms", 1.0, "%.3f"),
    "s": (" s", 1.0, "%.1f"),
    "B": (" GB", 1e-9, "%.2f"),
    "x": ("", 1.0, "%.2f\N{MULTIPLICATION SIGN}"),
    "": (", 10\N{SUPERSCRIPT NINE}", 1e-9, "%.2f"),
}


def _column(metric: str) -> Column:
    """Changes of counts and leaks are differences, since 0 to 2 is no ratio."""
    found = METRICS[metric]
    is_difference = metric == LEAK or found.is_count
    behind, scale, shape = (f" {found.unit}".rstrip(), 1.0, "%d") if is_difference else _UNITS[found.unit]
    return Column(found.title + behind, scale, shape, is_difference)


#: In the table's order.
METRIC_COLUMNS = {
    name: _column(name)
    for name in (
        *("compiled_kernel_ms", "compiled_ms", "device_speedup", "speedup", "compile_cold_s", "compiled_peak_bytes"),
        *("compression", LEAK, "compile_warm_s", "compile_instructions", "graph_breaks", "cudagraph_skips"),
    )
}
#: What may have become of generated code, and what it is called. The key is also what the address says.
CODES = {"kernels": "kernels changed", "wrapper": WRAPPER, "same": SAME, "unknown": "not known"}
#: Instead of a number of further runs; both sort as texts.
TOO_MANY, AT_THE_LIMIT = "> 50", "at the limit"
_ORDER = tuple(dict.fromkeys(("broke", "missing", "regressed", "improved", "inconclusive", *OUTCOMES)))


def compared_order(cells: pd.DataFrame) -> NDArray[np.intp]:
    """Where the rows of a comparison stand in the table: broke, missing, regressed, improved, inconclusive, then the rest.

    Within each the largest change is first.
    """
    keys = cells[["outcome_change", "cell"]].assign(outcome=cells["outcome"].map(_ORDER.index)).reset_index(drop=True)
    keys = keys.sort_values(["outcome", "outcome_change", "cell"], ascending=[True, False, True])
    return keys.index.to_numpy()


def alone_order(cells: pd.DataFrame) -> NDArray[np.intp]:
    """The same of the cells of one side: what does not pass first."""
    return np.argsort(cells["status"].eq("pass").fillna(False).to_numpy(dtype=bool), kind="stable")


def compared(rows: pd.DataFrame, cells: pd.DataFrame, metrics: Sequence[str]) -> Table:
    """The table of some rows of `cells`, a comparison with outcomes, and the look of each of its fields.

    `cells` say which columns there are: those of which some cell has a value.
    """
    shown = _names(rows)
    named = zip(*(rows[name] for name in ("outcome", "status_new", "outcome_metric")), strict=True)
    shown["outcome"] = [_spell(*values) for values in named]
    looks: dict[str, list[Look]] = {"outcome": [LOOKS.get(outcome, "calm") for outcome in rows["outcome"]]}
    if cells["code"].notna().any():
        shown["code"] = rows["code"]
    if cells["more_runs"].notna().any():
        shown["more runs"] = [_runs(value) for value in rows["more_runs"]]
    for metric in _measured(cells, metrics, ("_base", "_new")):
        column = METRIC_COLUMNS[metric]
        shown[f"{column.head} Δ"], looks[f"{column.head} Δ"] = _change(rows, metric)
        if metric in CONTROL:
            shown[f"{column.head} adjusted Δ"] = _percent(rows[f"{metric}_adjusted"])
        if metric in MIN_EFFECT:
            shown[f"{column.head} 95 %"] = _intervals(rows, metric)
        for side in ("base", "new"):
            shown[f"{column.head} {side}"] = _scaled(rows[f"{metric}_{side}"], column.scale)
    sides = ("expected_base", "status_base", "expected_new", "status_new")
    shown["status"] = [_statuses(*values) for values in zip(*(rows[name] for name in sides), strict=True)]
    frame = pd.DataFrame(shown | _axes(cells, rows))
    return frame, pd.DataFrame({name: looks.get(str(name), "calm") for name in frame}, index=frame.index, dtype=object)


def alone(rows: pd.DataFrame, cells: pd.DataFrame, metrics: Sequence[str]) -> Table:
    """The same of the cells of one side."""
    shown = _names(rows)
    shown["status"] = rows["status"].fillna("missing").astype(str)
    if cells["same_code_as"].notna().any():
        shown["code"] = rows["same_code_as"].map("same code as {}".format, na_action="ignore")
    for metric in _measured(cells, metrics, ("",)):
        shown[METRIC_COLUMNS[metric].head] = _scaled(rows[metric], METRIC_COLUMNS[metric].scale)
    frame = pd.DataFrame(shown | _axes(cells, rows))
    return frame, pd.DataFrame("calm", index=frame.index, columns=frame.columns, dtype=object)


def matching(cells: pd.DataFrame, words: str, configs: Sequence[str]) -> pd.DataFrame:
    """The cells whose text has all the words and whose config is one of those named, if any are."""
    keep = cells["config"].isin(list(configs)) if configs else pd.Series(True, index=cells.index)
    if words and len(cells):
        names = cells[["model", "phase", "dtype", "device", "config"]].astype(str)
        texts = cells["suite"].astype(str).str.cat(names, sep=" ").str.lower()
        for word in words.lower().split():
            keep &= texts.str.contains(word, regex=False)
    return cells[keep]


def code_kinds(cells: pd.DataFrame) -> pd.Series:
    """What became of each cell's generated code, as a key of `CODES`."""
    known = cells["code_changed"].map({True: "kernels", False: "same"})
    known = known.mask(cells["same_code_as_new"].notna() & known.isna(), "same")
    return known.mask(cells["code"].eq(WRAPPER), "wrapper").fillna("unknown")


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


def _names(rows: pd.DataFrame) -> dict[str, Any]:
    """What tells cells apart at a glance."""
    return {name: rows[name].astype(str) for name in ("model", "config", "phase")}


def _axes(cells: pd.DataFrame, rows: pd.DataFrame) -> dict[str, Any]:
    """The rest of what names a cell, less that in which all cells are the same."""
    several = [name for name in ("dtype", "device", "batch_size") if cells[name].nunique() > 1]
    return {{"batch_size": "batch"}.get(name, name): rows[name] for name in ("suite", *several)}


def _spell(outcome: str, status: object, metric: object) -> str:
    shown = f"{GLYPHS.get(LOOKS.get(outcome, outcome), '')} {OUTCOMES[outcome]}".lstrip()
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
    return " → ".join(dict.fromkeys(shown))


def _scaled(values: pd.Series, scale: float) -> pd.Series:
    """Rounded here: a screen reader is read the value and not its format."""
    return (values.astype(float) * scale).round(3)


def _change(rows: pd.DataFrame, metric: str) -> tuple[pd.Series, list[Look]]:
    """The change of one metric with its looks: in percent, or as a difference for counts; only for cells that pass twice."""
    passing = rows["transition"] == Transition.BOTH_PASS.value
    difference = (rows[f"{metric}_new"] - rows[f"{metric}_base"]).where(passing)
    if metric == LEAK:
        return difference, _looks(rows, metric)
    if METRIC_COLUMNS[metric].is_difference:
        return difference, ["worse" if value > 0 else "better" if value < 0 else "calm" for value in difference]
    if metric in MIN_EFFECT:
        return _percent(rows[f"{metric}_change"]), _looks(rows, metric)
    return _percent(rows[f"{metric}_ratio"].where(passing) - 1), ["calm"] * len(rows)


def _looks(rows: pd.DataFrame, metric: str) -> list[Look]:
    verdicts = zip(rows[f"{metric}_verdict"], rows["comparable"], strict=True)
    return [VERDICT_LOOKS.get(verdict, "calm") if comparable else "calm" for verdict, comparable in verdicts]


def _percent(values: pd.Series) -> pd.Series:
    return (values * 100).round(1).replace(-0.0, 0.0).astype(np.float64)


def _intervals(rows: pd.DataFrame, metric: str) -> list[str | None]:
    ends = zip(100 * rows[f"{metric}_low"], 100 * rows[f"{metric}_high"], strict=True)
    return [f"{signed(low, unit='')}, {signed(high, unit='')}" if low == low else None for low, high in ends]
