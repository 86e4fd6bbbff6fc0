"""Every cell of two sides, or of two configs of one side: what changed, sortable, with the way to its model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st
from numpy.typing import NDArray

from analysis.reports.permalinks import cell_query
from collector.metrics import METRICS
from collector.vocabulary import BY_COSINE, CHECKED_BY, status_words
from dashboard import url
from dashboard.components import changes, downloads, heading, outcomes
from dashboard.components.formats import count
from dashboard.components.markup import draw, soft, table
from dashboard.components.sides import describe, pair_lines
from dashboard.components.widgets import known, known_many, segments, select, select_many, switch
from dashboard.data import Data, Pair
from dashboard.selection import Selection, current
from dashboard.views.compare import rows
from db.errors import FilterError

#: Rows that are shown unless all are asked for: a table takes longer than all else on the page.
_QUICK_ROWS = 100


def page(selection: Selection) -> None:
    """Draws the page."""
    heading.title("Compare")
    mode = url.choice("mode")
    segments("mode", "What is compared", {"": "two sides", "configs": "two configs"}, mode)
    if mode:
        _across_configs(selection)
    elif selection.pair is None:
        side = selection.fixed_new
        cells = selection.data.summary(side, selection.filters).cells
        soft(describe(selection.new) + ". One side alone: pick a base at the left to see changes.")
        kept = _filtered(cells, with_outcome=False)
        order = rows.alone_order(kept)
        shown = _with_checks(selection.data, kept.iloc[order[: _limit()]], {"": side})
        _table(rows.alone(shown, kept, _metrics(), _model_link), kept, order, len(cells), lambda: None)
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
    order = rows.compared_order(kept, url.get("sort") if url.get("sort") in _orders() else "")
    shown = _with_checks(data, kept.iloc[order[: _limit()]], {"_base": pair.base, "_new": pair.new})
    _table(rows.compared(shown, kept, _metrics(), _model_link), kept, order, len(cells), offer)
    with st.expander("How is this decided?"):
        st.caption(f"{changes.SHOWN} {changes.RULE}")


def _filtered(cells: pd.DataFrame, *, with_outcome: bool, with_config: bool = True) -> pd.DataFrame:
    """Draws the filters of the table and applies them."""
    # Bundles of earlier versions have no generated code.
    with_code = with_outcome and bool(cells["code"].notna().any())
    columns = st.columns(3 + 2 * with_outcome + with_code)
    words = url.get("q")
    columns[0].text_input(
        "Filter", key=url.bind("q", words), on_change=url.changed, args=("q",), placeholder="model, suite, config"
    )
    configs = _pick_many(columns[1], "config", "Configs", {name: name for name in sorted(cells["config"].unique())})
    heads = {name: METRICS[name].title for name in rows.COLUMNS}
    _pick_many(columns[2], "columns", "Columns", heads, placeholder="the usual four")
    kept = rows.matching(cells, words, configs if with_config else [])
    if not with_outcome:
        return kept
    orders = _orders()
    value = known("sort", orders, "")
    select("sort", "Sort by", list(orders), value, names=orders, where=columns[-1])
    if with_code:
        kinds = rows.code_kinds(kept)
        names = {key: f"{title} ({(kinds == key).sum()})" for key, title in rows.CODES.items()}
        wanted = _pick_many(columns[4], "code", "Generated code", names)
        kept = kept[kinds.isin(wanted)] if wanted else kept
    tally = Counter(kept["outcome"])
    names = {key: f"{title} ({tally[key]})" for key, title in outcomes.OUTCOMES.items()}
    wanted = _pick_many(columns[3], "outcome", "Outcomes", names)
    return kept[kept["outcome"].isin(wanted)] if wanted else kept


def _pick_many(where: Any, key: str, title: str, names: dict[str, str], placeholder: str = "any") -> list[str]:
    chosen = known_many(key, names)
    select_many(key, title, names, chosen, names=names, placeholder=placeholder, where=where)
    return chosen


def _metrics() -> list[str]:
    return [name for name in rows.COLUMNS if name in url.get_all("columns")] or list(rows.USUAL)


def _orders() -> dict[str, str]:
    """What the table can be sorted by."""
    names = {"": "what matters most", "model": "model"}
    for metric in _metrics():
        names |= {metric: f"{METRICS[metric].title}: up first", f"-{metric}": f"{METRICS[metric].title}: down first"}
    return names


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


def _table(
    shown: pd.DataFrame, cells: pd.DataFrame, order: NDArray[np.intp], total: int, offer: Callable[[], None]
) -> None:
    """Draws the rows of `shown`, the first of `cells` in their order, and what can be done with all of them."""
    if shown.empty:
        soft("No cell is left: nothing was planned on these sides." if not total else "No cell matches these filters.")
        return
    matched = len(cells)
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        caption = st.container(width="content")
        if matched > _QUICK_ROWS:
            switch("rows", f"Show all {matched:,} rows", "all")
        first = f"The first {len(shown):,} of " if len(shown) < matched else ""
        of_all = f" that match, of {total:,}" if matched < total else ""
        caption.caption(
            f"{first}{count(matched, 'cell')}{of_all}. A model's name opens it; Tab and Enter do the same.",
            width="content",
        )
        st.download_button(
            "CSV",
            data=lambda: rows.csv(cells.iloc[order]),
            file_name="comparison.csv",
            mime="text/csv",
            icon=":material/download:",
            on_click="ignore",
        )
        offer()
    draw(table("Cells", [str(name) for name in shown], shown.itertuples(index=False, name=None)))


def _model_link(cell: Mapping[Any, Any]) -> str:
    query = cell_query(cell)
    if url.choice("mode"):
        configs = [str(cell[name]) for name in ("config_base", "config_new") if isinstance(cell[name], str)]
        query |= {"config": configs, "versus": ["configs"] if len(configs) == 2 else []}
    return url.link("model", **query)


page(current())
