"""Every cell of two sides, or of two configs of one side: what changed, sortable, with the way to its model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from analysis.compare.results import Comparison
from analysis.reports.permalinks import fixed_side as fixed
from dashboard import url
from dashboard.components import changes, code_host, outcomes, palette
from dashboard.components import downloads as handing_on
from dashboard.components.formats import ABSENT, count
from dashboard.components.markup import block, text
from dashboard.components.noise import noise_line
from dashboard.components.sidebar import describe, described
from dashboard.data import Pair
from dashboard.pages.compare.rows import COUNTS, METRIC_COLUMNS, Rows, alone_rows, compared_rows, csv, matching
from dashboard.selection import Selection, current
from db.errors import FilterError, nearest, one_line

_SIDES, _CONFIGS = "two sides", "two configs of new"
_ROW_HEIGHT, _MOST_ROWS = 35, 22
#: A table takes longer than all else on the page, here and in the browser: half a second for the colours of 1,800 rows.
_QUICK_ROWS = 100
_MORE_RUNS = (
    "So many runs of each side, on top of what there is, narrow the interval enough to tell. At the limit: it is narrow, and the "
    "change is just about as large as one that matters."
)
#: Pixels of columns whose texts may be long, and the characters from which that width is given.
_WIDTHS = {"config": (230, 30), "outcome": (200, 16), "status": (180, 16)}


def page(selection: Selection) -> None:
    """Draws the page."""
    st.title("Compare", anchor=False)
    _chosen(selection)


def _chosen(selection: Selection) -> None:
    mode = url.get("mode") if url.get("mode") == "configs" else ""
    st.segmented_control(
        "What is compared",
        ["", "configs"],
        format_func=lambda option: _CONFIGS if option else _SIDES,
        key=url.bind("mode", mode),
        on_change=url.changed,
        args=("mode",),
        required=True,
        label_visibility="collapsed",
    )
    if mode:
        _across_configs(selection)
    elif selection.pair is None:
        cells = selection.data.summary(fixed(selection.new), selection.filters).cells
        _say_html(f"{described(selection.new)}. One side alone: pick a base at the left to see changes.")
        kept = _filtered(cells, with_outcome=False)
        _table(alone_rows(kept, _metrics(), _limit()), len(cells), lambda: None)
    else:
        _compared(selection, selection.pair)


def _across_configs(selection: Selection) -> None:
    side = fixed(selection.new)
    names = sorted(set(selection.data.summary(side, selection.filters).cells["config"]))
    if len(names) < 2:
        _say(f"{describe(selection.new)} has {count(len(names), 'config')} under these filters: two are needed.")
        return
    columns = st.columns(2)
    chosen = [
        _pick_config(columns[0], "from", "Base config", names, names[0]),
        _pick_config(columns[1], "to", "New config", names, names[1]),
    ]
    try:
        _compared(selection, Pair(side, side, (chosen[0], chosen[1])))
    except FilterError as error:
        _say(f"{error}.")


def _pick_config(where: Any, key: str, title: str, names: list[str], default: str) -> str:
    value = url.get(key) or default
    options = names if value in names else [*names, value]
    where.selectbox(title, options, key=url.bind(key, value), on_change=url.changed, args=(key,))
    return value


def _compared(selection: Selection, pair: Pair) -> None:
    """Two sides, or two configs of one. Raises `FilterError` where a config is not there."""
    found, judgement = selection.data.comparison(pair, selection.filters), selection.data.judgement(pair)
    _say_html(*_sides(found, pair), *(text(note) for note in (noise_line(judgement), *found.notes)))
    cells = selection.data.judged(pair, selection.filters)
    kept = _filtered(cells, with_outcome=True, with_config=pair.configs is None)
    chosen = () if pair.configs else tuple(name for name in url.get_all("config") if (cells["config"] == name).any())
    filters = replace(selection.filters, configs=chosen or selection.filters.configs)
    report = partial(handing_on.offer, selection, filters, pair.configs)
    _table(compared_rows(kept, _metrics(), _limit()), len(cells), report)
    order = "What broke or went missing comes first, then what regressed, improved or is inconclusive, the largest change first."
    st.caption(f"{order} {changes.RULE}")


def _sides(found: Comparison, pair: Pair) -> list[str]:
    """What is compared, as lines of HTML."""
    if pair.configs:
        return [f"{described(found.new)}: {text(' against '.join(pair.configs))}"]
    landed = code_host.between(found.base, found.new)
    lines = [f"base {described(found.base)}", f"new {described(found.new)}"]
    return [*lines, *([f"commits {landed}"] if landed else [])]


def _filtered(cells: pd.DataFrame, *, with_outcome: bool, with_config: bool = True) -> pd.DataFrame:
    """Draws the filters and applies them."""
    columns = st.columns([2, 2, 2, 2] if with_outcome else [2, 2, 2])
    columns[0].text_input(
        "Filter",
        key=url.bind("q", url.get("q")),
        on_change=url.changed,
        args=("q",),
        placeholder="model, suite, config",
    )
    configs = _pick_many(columns[1], "config", "Configs", {name: name for name in sorted(cells["config"].unique())})
    _pick_many(columns[2], "columns", "Columns", {name: head for name, (head, _) in METRIC_COLUMNS.items()}, "all")
    kept = matching(cells, url.get("q"), configs if with_config else [])
    if not with_outcome:
        return kept
    tally = outcomes.counts(kept)
    names = {key: f"{title} ({tally[key]})" for key, title in outcomes.OUTCOMES.items()}
    wanted = _pick_many(columns[3], "outcome", "Outcomes", names, wanted=outcomes.translated(url.get_all("outcome")))
    return kept[kept["outcome"].isin(wanted)] if wanted else kept


def _pick_many(
    where: Any, key: str, title: str, options: dict[str, str], empty: str = "any", wanted: list[str] | None = None
) -> list[str]:
    wanted = url.get_all(key) if wanted is None else wanted
    unknown = [name for name in wanted if name not in options]
    for name in unknown:
        _say(f"The address asks for {key} {one_line(name)!r}, which is not among these cells{nearest(name, options)}.")
    known = [name for name in wanted if name in options]
    where.multiselect(
        title,
        list(options),
        format_func=lambda option: options.get(option, option),
        key=url.bind(key, known),
        on_change=url.changed,
        args=(key,),
        placeholder=empty,
    )
    return known


def _metrics() -> list[str]:
    return [name for name in METRIC_COLUMNS if name in url.get_all("columns")] or list(METRIC_COLUMNS)


def _table(rows: Rows, total: int, hand_on: Callable[[], None]) -> None:
    if rows.shown.empty:
        _say("No cell is left: nothing was planned on these sides." if not total else "No cell matches these filters.")
        return
    found = len(rows.order)
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        said = st.container(width="content")
        if found > _QUICK_ROWS:
            _everything(found)
        first = f"The first {len(rows.shown):,} of " if len(rows.shown) < found else ""
        matching_cells = f" that match, of {total:,}" if found < total else ""
        said.caption(f"{first}{count(found, 'cell')}{matching_cells}. Tick a row to open its model.", width="content")
        st.download_button(
            "CSV",
            data=lambda: csv(rows.cells),
            file_name="comparison.csv",
            mime="text/csv",
            icon=":material/download:",
            on_click="ignore",
        )
        hand_on()
    st.dataframe(
        palette.painted(rows.shown, rows.looks),
        hide_index=True,
        column_config=_column_config(rows.shown),
        height=_ROW_HEIGHT * (min(len(rows.shown), _MOST_ROWS) + 1) + 3,
        key="cells",
        on_select=_opened,
        selection_mode="single-row",
        placeholder=ABSENT,
        alt=f"{count(len(rows.shown), 'cell')}, what broke or regressed first",
    )
    picked = st.session_state.pop("opened", None)
    if picked is not None and picked < len(rows.order):
        st.switch_page("pages/model/page.py", query_params=_model_query(rows.cells.iloc[picked]))


def _limit() -> int | None:
    """How many rows are shown, those that matter most; None for all of them."""
    return None if url.get("rows") == "all" else _QUICK_ROWS


def _everything(found: int) -> None:
    """Draws the switch between the rows that matter most and all of them."""
    st.toggle(
        f"Show all {found:,} rows",
        key=url.bind("rows", _limit() is None),
        on_change=_switched,
        help=f"Sorting covers what is shown. More than {palette.MOST_PAINTED} rows are shown without colours.",
    )


def _switched() -> None:
    url.put("rows", "all" if st.session_state[url.widget("rows")] else None)


def _opened() -> None:
    """Remembers the row for this one run: a selection that lives on must not send a person away again."""
    found = st.session_state["cells"]["selection"]["rows"]
    if found:
        st.session_state["opened"] = found[0]


def _model_query(cell: pd.Series) -> dict[str, list[str]]:
    setting = ",".join(str(cell[name]) for name in ("phase", "dtype", "device", "batch_size"))
    configs = [str(cell["config"])]
    versus = None
    if url.get("mode") == "configs":
        configs = [str(cell[name]) for name in ("config_base", "config_new") if isinstance(cell[name], str)]
        versus = "configs" if len(configs) == 2 else None
    model = f"{cell['suite']}/{cell['model']}"
    return url.parameters(model=model, setting=setting, config=configs, versus=versus)


def _column_config(shown: pd.DataFrame) -> dict[str, Any]:
    formats = {"latency ms": "%.3f", "device ms": "%.3f", "compile s": "%.1f", "peak GB": "%.2f"}
    formats |= {"warm compile s": "%.1f", "instructions G": "%.2f"}
    counts = {METRIC_COLUMNS[metric][0] for metric in COUNTS}
    found: dict[str, Any] = {"model": st.column_config.TextColumn(pinned=True)}
    if "more runs" in shown:
        found["more runs"] = st.column_config.TextColumn(help=_MORE_RUNS)
    for name, (width, longest) in _WIDTHS.items():
        if name in shown and shown[name].str.len().max() > longest:
            found[name] = st.column_config.TextColumn(width=width)
    for name in shown.columns:
        head = name.removesuffix(" base").removesuffix(" new").removesuffix(" Δ").removesuffix(" adjusted")
        if head not in {title for title, _ in METRIC_COLUMNS.values()}:
            continue
        if name.endswith("Δ"):
            shape = "%+d" if head in counts else "%+.1f%%"
        else:
            shape = "%d" if head in counts else formats.get(head, "%.2f\N{MULTIPLICATION SIGN}")
        found[name] = st.column_config.NumberColumn(format=shape)
    return found


def _say(*lines: str) -> None:
    _say_html(*(text(line) for line in lines))


def _say_html(*lines: str) -> None:
    st.html(block(f'<p class="soft">{"<br>".join(lines)}</p>'))


page(current())
