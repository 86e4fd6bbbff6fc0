"""The compare page's table: a row per cell with both sides' values, the change of each, and how each change is shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup
from numpy.typing import NDArray

from analysis.compare.adjustment import CONTROL
from analysis.compare.code import SAME, WRAPPER
from analysis.compare.leaks import LEAK
from analysis.compare.transitions import Transition
from analysis.reports.suites import VERDICT_LOOKS
from collector.metrics import METRICS, MIN_EFFECT
from collector.vocabulary import batch_words
from dashboard.components.changes import Change, change, judged
from dashboard.components.formats import ABSENT, number
from dashboard.components.markup import Cell, anchor, joined, lines, span
from dashboard.components.outcomes import GLYPHS, LOOKS, OUTCOMES, said, status
from db.exporting.formats import without_formulas

Record = Mapping[Any, Any]

#: What can be shown, in the table's order, and what is shown unless somebody picks.
COLUMNS = (
    *("compiled_ms", "compiled_kernel_ms", "compile_cold_s", "compiled_peak_bytes", "device_speedup", "speedup"),
    *("compression", LEAK, "compile_warm_s", "compile_instructions", "graph_breaks", "cudagraph_skips"),
)
USUAL = COLUMNS[:4]
#: What may have become of generated code, and what it is called. The key is also what the address says.
CODES = {"kernels": "kernels changed", "wrapper": WRAPPER, "same": SAME, "unknown": "not known"}
_ORDER = tuple(dict.fromkeys(("broke", "missing", "regressed", "improved", "inconclusive", *OUTCOMES)))
#: What tells cells apart besides model and config; a name in which all cells are the same is not shown.
_AXES = ("phase", "suite", "dtype", "device", "batch_size")


def compared_order(cells: pd.DataFrame, sort: str = "") -> NDArray[np.intp]:
    """Where the rows of a comparison stand: what broke first, or by `sort`: `model`, a metric's name, or `-` and that name.

    By default: broke, missing, regressed, improved, no clear change, then the rest, and within each the largest change
    first. By a metric the largest increase is first, with `-` the largest decrease.
    """
    metric = sort.removeprefix("-")
    if metric in METRICS:
        ratios = cells[f"{metric}_ratio"].where(cells["transition"] == Transition.BOTH_PASS.value)
        keys = pd.DataFrame({"by": ratios.to_numpy(dtype=float), "cell": cells["cell"].to_numpy()})
        return keys.sort_values(["by", "cell"], ascending=[sort != metric, True]).index.to_numpy()
    keys = (
        cells[["outcome_change", "model", "cell"]]
        .assign(outcome=cells["outcome"].map(_ORDER.index))
        .reset_index(drop=True)
    )
    by = ["model", "cell"] if sort else ["outcome", "outcome_change", "cell"]
    return keys.sort_values(by, ascending=[name != "outcome_change" for name in by]).index.to_numpy()


def alone_order(cells: pd.DataFrame) -> NDArray[np.intp]:
    """The same of the cells of one side: what does not pass first."""
    return np.argsort(cells["status"].eq("pass").fillna(False).to_numpy(dtype=bool), kind="stable")


def compared(
    rows: pd.DataFrame, cells: pd.DataFrame, metrics: Sequence[str], link: Callable[[Record], str]
) -> pd.DataFrame:
    """The table of some rows of `cells`, a comparison with outcomes, as HTML. `link` is the address of a cell's model.

    `cells` say which columns there are: those of which some cell has a value.
    """
    records = rows.to_dict("records")
    shown: dict[str, list[Any]] = _names(cells, records, link)
    shown["outcome"] = [Cell(_outcome(row), LOOKS.get(row["outcome"], "")) for row in records]
    if cells["code"].notna().any():
        shown["generated code"] = [row["code"] if isinstance(row["code"], str) else ABSENT for row in records]
    for metric in _measured(cells, metrics, ("_base", "_new")):
        shown[METRICS[metric].title] = [_metric(row, metric) for row in records]
    return pd.DataFrame(shown, dtype=object)


def alone(
    rows: pd.DataFrame, cells: pd.DataFrame, metrics: Sequence[str], link: Callable[[Record], str]
) -> pd.DataFrame:
    """The same of the cells of one side."""
    records = rows.to_dict("records")
    shown: dict[str, list[Any]] = _names(cells, records, link)
    shown["status"] = [status(row["status"], is_expected=True) for row in records]
    if cells["same_code_as"].notna().any():
        nights = [row["same_code_as"] for row in records]
        shown["generated code"] = [f"same code as {night}" if isinstance(night, str) else ABSENT for night in nights]
    for metric in _measured(cells, metrics, ("",)):
        shown[METRICS[metric].title] = [Cell(number(metric, row[metric]), "n") for row in records]
    return pd.DataFrame(shown, dtype=object)


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


def _names(cells: pd.DataFrame, records: Sequence[Record], link: Callable[[Record], str]) -> dict[str, list[Any]]:
    """The model as a link, with what else tells it from other cells, and the config."""
    several = [name for name in _AXES if cells[name].nunique() > 1]
    where = [
        ", ".join(batch_words(row[name]) if name == "batch_size" else row[name] for name in several) for row in records
    ]
    models = [
        lines(anchor(link(row), row["model"]), span("soft", words) if words else "")
        for row, words in zip(records, where, strict=True)
    ]
    return {"model": models, "config": [row["config"] for row in records]}


def _outcome(row: Record) -> Markup:
    word, detail = said(row)
    shown = f"{GLYPHS.get(str(LOOKS.get(row['outcome'], row['outcome'])), '')} {word}".lstrip()
    return lines(shown, span("soft", detail) if detail else "")


def _metric(row: Record, metric: str) -> Cell:
    """Base and new, the change between them, and how the machine moved beside it; a change only where both sides pass."""
    base, new = row[f"{metric}_base"], row[f"{metric}_new"]
    if np.isnan(base) and np.isnan(new):
        return Cell(ABSENT, "n")
    values = joined(str(span("arrow", "→")), (number(metric, base), number(metric, new)))
    if row["transition"] != Transition.BOTH_PASS.value:
        return Cell(values, "n")
    if metric == LEAK or METRICS[metric].is_count:
        look = "worse" if new > base else "better" if new < base else "calm"
        if metric == LEAK:
            look = VERDICT_LOOKS.get(row[f"{metric}_verdict"], "calm") if row["comparable"] else "calm"
        return Cell(
            lines(values, f"{new - base:+,.0f}" if new != base else ""), f"n {look.replace('calm', '')}".rstrip()
        )
    known = judged(metric, row, comparable=row["comparable"]) if metric in MIN_EFFECT else change(metric, base, new)
    css = "n" if known is None or known.look == "calm" else f"n {known.look}"
    return Cell(lines(values, *_change_lines(row, known)), css)


def _change_lines(row: Record, known: Change | None) -> list[Markup]:
    """The change with its interval; where the machine's part was removed, a line says so; and how many runs it is of."""
    if known is None:
        return []
    parts = [span("soft", part) for part in known.intervals]
    sizes = lines(known.size, *parts) if len(parts) > 1 else joined(" ", (known.size, *parts))
    runs = [row.get(f"{known.metric}_runs_{side}", np.nan) for side in ("base", "new")]
    is_mean = known.metric in CONTROL and np.nanmax([*runs, 0]) > 1
    return [sizes, span("soft", f"mean of {runs[0]:.0f} / {runs[1]:.0f} runs") if is_mean else Markup("")]
