"""Every cell of two sides, or of two configs of one side: what changed, sortable, with the way to its model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st
from numpy.typing import NDArray

from analysis.reports.permalinks import cell_query
from collector.vocabulary import BY_COSINE, CHECKED_BY, status_words
from dashboard import url
from dashboard.components import changes, downloads, heading, outcomes, palette
from dashboard.components.formats import ABSENT, count
from dashboard.components.markup import soft
from dashboard.components.sides import describe, pair_lines
from dashboard.components.widgets import known_many, segments, select, select_many, switch
from dashboard.data import Data, Pair
from dashboard.selection import Selection, current
from dashboard.views.compare import rows
from dashboard.views.compare.rows import METRIC_COLUMNS, Table
from db.errors import FilterError

_ROW_HEIGHT, _MOST_ROWS = 35, 22
#: Rows that are shown unless all are asked for: a table takes longer than all else on the page.
_QUICK_ROWS = 100
_MORE_RUNS = (
    "Further runs of each side that an inconclusive cell needs. At the limit: the interval is narrow already, and the change is "
    "about as large as the smallest one that counts."
)
_ORDER = "Order: broken and missing cells, then regressed, improved and inconclusive ones, the largest change first."
#: Pixels of columns whose texts may be long, and the characters from which that width is given.
_WIDTHS = {"config": (230, 30), "outcome": (200, 16), "status": (180, 16)}


def page(selection: Selection) -> None:
    """Draws the page."""
    heading.title("Compare")
    mode = url.choice("mode")
    segments("mode", "What is compared", {"": "two sides", "configs": "two configs of new"}, mode)
    if mode:
        _across_configs(selection)
    elif selection.pair is None:
        side = selection.fixed_new
        cells = selection.data.summary(side, selection.filters).cells
        soft(describe(selection.new) + ". One side alone: pick a base at the left to see changes.")
        kept = _filtered(cells, with_outcome=False)
        order = rows.alone_order(kept)
        shown = _with_checks(selection.data, kept.iloc[order[: _limit()]], {"": side})
        _table(rows.alone(shown, kept, _metrics()), kept, order, len(cells), lambda: None)
    else:
        _compared(selection, selection.pair)


def _across_configs(selection: Selection) -> None:
    side = selection.fixed_new
    names = sorted(set(selection.data.summary(side, selection.filters).cells["config"]))
    if len(names) < 2:
        soft(describe(selection.new) + f" has {count(len(names), 'config')} under these filters: two are needed.")
        return
    left, right = st.columns(2)
    base = _pick_config(left, "from", "Base config", names[0], names)
    new = _pick_config(right, "to", "New config", names[1], names)
    try:
        _compared(selection, Pair(side, side, (base, new)))
    except FilterError as error:
        soft(f"{error}.")


def _pick_config(where: Any, key: str, title: str, default: str, names: list[str]) -> str:
    value = url.get(key) or default
    select(key, title, names if value in names else [*names, value], value, where=where)
    return value


def _compared(selection: Selection, pair: Pair) -> None:
    """Two sides, or two configs of one. Raises `FilterError` where a config is not there."""
    data = selection.data
    comparison, judgement = data.comparison(pair, selection.filters), data.judgement(pair)
    heads = pair_lines(comparison)
    if pair.configs:
        heads = [describe(comparison.new) + f": {pair.configs[0]} against {pair.configs[1]}"]
    soft(*heads, changes.noise_line(judgement), *comparison.notes)
    cells = data.judged(pair, selection.filters)
    kept = _filtered(cells, with_outcome=True, with_config=pair.configs is None)
    chosen = () if pair.configs else tuple(name for name in url.get_all("config") if (cells["config"] == name).any())
    filters = replace(selection.filters, configs=chosen or selection.filters.configs)
    offer = partial(downloads.offer, selection, filters, pair.configs)
    order = rows.compared_order(kept)
    shown = _with_checks(data, kept.iloc[order[: _limit()]], {"_base": pair.base, "_new": pair.new})
    _table(rows.compared(shown, kept, _metrics()), kept, order, len(cells), offer)
    st.caption(f"{_ORDER} {changes.RULE}")


def _filtered(cells: pd.DataFrame, *, with_outcome: bool, with_config: bool = True) -> pd.DataFrame:
    """Draws the filters of the table and applies them."""
    # Bundles of earlier versions have no generated code.
    with_code = with_outcome and bool(cells["code"].notna().any())
    columns = st.columns(3 + with_outcome + with_code)
    words = url.get("q")
    columns[0].text_input(
        "Filter", key=url.bind("q", words), on_change=url.changed, args=("q",), placeholder="model, suite, config"
    )
    configs = _pick_many(columns[1], "config", "Configs", {name: name for name in sorted(cells["config"].unique())})
    heads = {name: column.head for name, column in METRIC_COLUMNS.items()}
    _pick_many(columns[2], "columns", "Columns", heads, placeholder="all")
    kept = rows.matching(cells, words, configs if with_config else [])
    if not with_outcome:
        return kept
    if with_code:
        kinds = rows.code_kinds(kept)
        names = {key: f"{title} ({(kinds == key).sum()})" for key, title in rows.CODES.items()}
        wanted = _pick_many(columns[4], "code", "Generated code", names)
        kept = kept[kinds.isin(wanted)] if wanted else kept
    tally = outcomes.counts(kept)
    names = {key: f"{title} ({tally[key]})" for key, title in outcomes.OUTCOMES.items()}
    wanted = _pick_many(columns[3], "outcome", "Outcomes", names, outcomes.translated(url.get_all("outcome")))
    return kept[kept["outcome"].isin(wanted)] if wanted else kept


def _pick_many(
    where: Any, key: str, title: str, names: dict[str, str], wanted: list[str] | None = None, placeholder: str = "any"
) -> list[str]:
    chosen = known_many(key, names, wanted)
    select_many(key, title, names, chosen, names=names, placeholder=placeholder, where=where)
    return chosen


def _metrics() -> list[str]:
    return [name for name in METRIC_COLUMNS if name in url.get_all("columns")] or list(METRIC_COLUMNS)


def _limit() -> int | None:
    """How many rows are shown, those that matter most; None for all of them."""
    return None if url.choice("rows") else _QUICK_ROWS


def _with_checks(data: Data, shown: pd.DataFrame, sides: Mapping[str, str]) -> pd.DataFrame:
    """The rows in an order of their own, with statuses that say which passes were checked by cosine alone."""
    statuses = {}
    for suffix, side in sides.items():
        measured = [shown[f"{name}{suffix}"] for name in ("run_id", "cell_id", "replicate", "status")]
        weak = data.checked_by_cosine(side, frozenset(measured[1].dropna()))
        statuses[f"status{suffix}"] = [
            status_words(status, {CHECKED_BY: BY_COSINE}) if (run, cell, replicate) in weak else status
            for run, cell, replicate, status in zip(*measured, strict=True)
        ]
    return shown.assign(**statuses).reset_index(drop=True)


def _table(table: Table, cells: pd.DataFrame, order: NDArray[np.intp], total: int, offer: Callable[[], None]) -> None:
    """Draws the rows of `table`, the first of `cells` in their order, and what can be done with all of them."""
    shown, looks = table
    if shown.empty:
        soft("No cell is left: nothing was planned on these sides." if not total else "No cell matches these filters.")
        return
    matched = len(cells)
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        caption = st.container(width="content")
        if matched > _QUICK_ROWS:
            plain = f"Sorting covers what is shown. More than {palette.MOST_PAINTED} rows are shown without colours."
            switch("rows", f"Show all {matched:,} rows", "all", help=plain)
        first = f"The first {len(shown):,} of " if len(shown) < matched else ""
        of_all = f" that match, of {total:,}" if matched < total else ""
        caption.caption(f"{first}{count(matched, 'cell')}{of_all}. Tick a row to open its model.", width="content")
        st.download_button(
            "CSV",
            data=lambda: rows.csv(cells.iloc[order]),
            file_name="comparison.csv",
            mime="text/csv",
            icon=":material/download:",
            on_click="ignore",
        )
        offer()
    st.dataframe(
        palette.painted(shown, looks),
        hide_index=True,
        column_config=_column_config(shown),
        height=_ROW_HEIGHT * (min(len(shown), _MOST_ROWS) + 1) + 3,
        key="cells",
        on_select=_opened,
        selection_mode="single-row",
        placeholder=ABSENT,
        alt=f"{count(len(shown), 'cell')}, what broke or regressed first",
    )
    picked = st.session_state.pop("opened", None)
    if picked is not None and picked < matched:
        url.open_page("views/model/page.py", _model_query(cells.iloc[order[picked]]))


def _opened() -> None:
    """Remembers the row for this one run: a selection that lives on must not send a person away again."""
    if picked := st.session_state["cells"]["selection"]["rows"]:
        st.session_state["opened"] = picked[0]


def _model_query(cell: pd.Series) -> dict[str, list[str]]:
    query = cell_query(cell.to_dict())
    if url.choice("mode"):
        configs = [str(cell[name]) for name in ("config_base", "config_new") if isinstance(cell[name], str)]
        query |= {"config": configs, "versus": ["configs"] if len(configs) == 2 else []}
    return url.parameters(**query)


def _column_config(shown: pd.DataFrame) -> dict[str, Any]:
    configs: dict[str, Any] = {"model": st.column_config.TextColumn(pinned=True)}
    if "more runs" in shown:
        configs["more runs"] = st.column_config.TextColumn(help=_MORE_RUNS)
    for name, (width, longest) in _WIDTHS.items():
        if name in shown and shown[name].str.len().max() > longest:
            configs[name] = st.column_config.TextColumn(width=width)
    for column in METRIC_COLUMNS.values():
        change = "%+d" if column.is_difference else "%+.1f%%"
        shapes = {"": column.shape, " base": column.shape, " new": column.shape, " Δ": change, " adjusted Δ": change}
        for suffix, shape in shapes.items():
            if (name := column.head + suffix) in shown:
                configs[name] = st.column_config.NumberColumn(format=shape)
    return configs


page(current())
