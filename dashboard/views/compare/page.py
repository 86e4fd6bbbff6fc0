"""Every cell of two sides, or of two configs of one side: what changed, sortable, with the way to its model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, TypeVar

import pandas as pd
import streamlit as st
from markupsafe import Markup

from analysis.compare.cell_comparison import CellComparison
from analysis.present import noise_line
from analysis.reports.permalinks import cell_query
from collector.metrics import METRICS, Dimension
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
from db.queries.cell_names import CellName
from db.queries.side_rows import CellState

T = TypeVar("T", CellComparison, CellState)
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
        kept = _matching(cells)
        kept.sort(key=lambda state: state.passes)  # what does not pass first
        shown = _with_checks(selection.data, kept[: _limit()], side)
        frame = partial(pd.DataFrame, [_state_row(state) for state in kept])
        _table(rows.alone(shown, kept, _metrics(), _cell_link), len(kept), len(cells), frame, lambda: None)
    else:
        _compared(selection, selection.pair)


def _across_configs(selection: Selection) -> None:
    side = selection.fixed_new
    cells = selection.data.summary(side, selection.filters).cells
    names = sorted({state.cell.config for state in cells if state.cell})
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
    comparison = data.comparison(pair, selection.filters)
    heads = pair_lines(comparison)
    if pair.configs:
        heads = [describe(comparison.new) + f": {pair.configs[0]} against {pair.configs[1]}"]
    soft(*heads, noise_line(comparison), *comparison.notes)
    kept = _filtered(comparison.cells, with_config=pair.configs is None)
    configs = {one.cell.config for one in comparison.cells}
    chosen = () if pair.configs else tuple(name for name in url.get_all("config") if name in configs)
    filters = replace(selection.filters, configs=chosen or selection.filters.configs)
    offer = partial(downloads.offer, selection, filters, pair.configs)
    kept = rows.compared_order(kept, url.get("sort") if url.get("sort") in _orders() else "", url.get("dimension"))
    first = kept[: _limit()]
    sides = (
        _with_checks(data, [one.base for one in first], pair.base),
        _with_checks(data, [one.new for one in first], pair.new),
    )
    shown = [replace(one, base=base, new=new) for one, base, new in zip(first, *sides, strict=True)]
    frame = replace(comparison, cells=tuple(kept)).to_frame
    _table(rows.compared(shown, kept, _metrics(), _model_link(pair)), len(kept), len(comparison.cells), frame, offer)
    with st.expander("How is this decided?"):
        st.caption(f"{changes.SHOWN} {changes.RULE}")


def _matching(cells: Sequence[T], *, with_config: bool = True, columns: Sequence[Any] = ()) -> list[T]:
    """Draws the filters that every table has and applies them."""
    columns = columns or st.columns(3)
    words = url.get("q")
    columns[0].text_input(
        "Filter", key=url.bind("q", words), on_change=url.changed, args=("q",), placeholder="model, suite, config"
    )
    names = sorted({one.cell.config for one in cells if one.cell})
    configs = _pick_many(columns[1], "config", "Configs", {name: name for name in names})
    heads = {name: METRICS[name].title for name in rows.COLUMNS}
    _pick_many(columns[2], "columns", "Columns", heads, placeholder="the usual four")
    return rows.matching(cells, words, configs if with_config else [])


def _filtered(cells: Sequence[CellComparison], *, with_config: bool) -> list[CellComparison]:
    """Draws the filters of a comparison's table and applies them."""
    # Bundles of earlier versions have no generated code.
    with_code = any(one.code for one in cells)
    columns = st.columns(6 + with_code)
    kept = _matching(cells, with_config=with_config, columns=columns)
    orders = _orders()
    value = known("sort", orders, "")
    select("sort", "Sort by", list(orders), value, names=orders, where=columns[-1])
    if with_code:
        kinds = Counter(map(rows.code_kind, kept))
        names = {key: f"{title} ({kinds[key]})" for key, title in rows.CODES.items()}
        wanted = _pick_many(columns[5], "code", "Generated code", names)
        kept = [one for one in kept if rows.code_kind(one) in wanted] if wanted else kept
    dimension = _dimension()
    dimensions = {"": "all together", **{one.value: one.value for one in Dimension}}
    select("dimension", "Dimension", list(dimensions), dimension, names=dimensions, where=columns[3])
    verdicts = {one.cell.cell_id: rows.verdict(one, dimension) for one in kept}
    tally = Counter(verdict.value for verdict in verdicts.values() if verdict)
    names = {key: f"{title} ({tally[key]})" for key, title in outcomes.OUTCOMES.items()}
    wanted = _pick_many(columns[4], "outcome", "Outcomes", names) or list(outcomes.OUTCOMES)
    return [one for one in kept if verdicts[one.cell.cell_id] in wanted]


def _dimension() -> str:
    return known("dimension", ["", *Dimension], "")


def _pick_many(where: Any, key: str, title: str, names: dict[str, str], placeholder: str = "any") -> list[str]:
    chosen = known_many(key, names)
    select_many(key, title, names, chosen, names=names, placeholder=placeholder, where=where)
    return chosen


def _metrics() -> list[str]:
    picked = [name for name in rows.COLUMNS if name in url.get_all("columns")]
    of_dimension = [name for name in rows.COLUMNS if METRICS[name].dimension == url.get("dimension")]
    return picked or of_dimension or list(rows.USUAL)


def _orders() -> dict[str, str]:
    """What the table can be sorted by."""
    names = {"": "what matters most", "model": "model"}
    for metric in _metrics():
        names |= {metric: f"{METRICS[metric].title}: up first", f"-{metric}": f"{METRICS[metric].title}: down first"}
    return names


def _limit() -> int | None:
    """How many rows are shown, those that matter most; None for all of them."""
    return None if url.choice("rows") else _QUICK_ROWS


def _with_checks(data: Data, states: Sequence[CellState], side: str) -> list[CellState]:
    """The states of a side with statuses that say which passes were checked by cosine alone."""
    weak = data.checked_by_cosine(side, frozenset(state.cell_id for state in states if state.cell_id))
    words = {CHECKED_BY: BY_COSINE}
    return [
        replace(state, status=status_words(state.status, words))
        if state.status and (state.run_id, state.cell_id, state.replicate) in weak
        else state
        for state in states
    ]


def _state_row(state: CellState) -> dict[str, Any]:
    """A cell of one side for a spreadsheet."""
    row = asdict(state)
    names, values = row.pop("cell"), row.pop("values")
    return {**(names or {}), **row, **{metric: values.get(metric) for metric in METRICS}}


def _table(
    shown: rows.Columns, matched: int, total: int, frame: Callable[[], pd.DataFrame], offer: Callable[[], None]
) -> None:
    """Draws the first of `matched` rows, and what can be done with all of them, which `frame` makes."""
    count_shown = len(shown["model"])
    if not count_shown:
        soft("No cell is left: nothing was planned on these sides." if not total else "No cell matches these filters.")
        return
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        caption = st.container(width="content")
        if matched > _QUICK_ROWS:
            switch("rows", f"Show all {matched:,} rows", "all")
        first = f"The first {count_shown:,} of " if count_shown < matched else ""
        of_all = f" that match, of {total:,}" if matched < total else ""
        caption.caption(
            f"{first}{count(matched, 'cell')}{of_all}. A model's name opens it; Tab and Enter do the same.",
            width="content",
        )
        st.download_button(
            "CSV",
            data=lambda: rows.csv(frame()),
            file_name="comparison.csv",
            mime="text/csv",
            icon=":material/download:",
            on_click="ignore",
        )
        offer()
    cells = table("Cells", list(shown), zip(*shown.values(), strict=True))
    draw(Markup('<div class="iw-list">{}</div>').format(cells))


def _cell_link(cell: CellName) -> str:
    return url.link("model", **cell_query(cell))


def _model_link(pair: Pair) -> rows.Link:
    """The address of a cell's page, with both configs where two configs are compared."""
    if not pair.configs:
        return _cell_link
    both: dict[str, Any] = {"config": list(pair.configs), "versus": ["configs"]}
    return lambda cell: url.link("model", **(cell_query(cell) | both))


page(current())
