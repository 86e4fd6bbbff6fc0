"""The page of every cell of two sides, or of two configs of one side: the changes, sortable, with links to the models."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, TypeVar

import pandas as pd
import streamlit as st
from markupsafe import Markup

from analysis.compare.adjustment import CONTROL
from analysis.compare.cell_comparison import CellComparison, Outcome
from analysis.compare.cell_verdicts import LEAK
from analysis.compare.side_differences import SAME, WRAPPER
from analysis.elements import wording
from analysis.elements.addresses import cell_query
from analysis.elements.listings import describe, pair_lines
from analysis.elements.wording import (
    ABSENT,
    OUTCOMES,
    Cell,
    ChangeWords,
    anchor,
    count,
    glyph,
    joined,
    judged,
    lines,
    look,
    number,
    said,
    span,
    status,
    table,
    unjudged,
)
from analysis.present import eager_words, noise_line
from collector.metrics import METRICS, MIN_EFFECT, Dimension, Place, shown_in
from collector.vocabulary import CHECKED_BY, batch_words, status_words
from dashboard import url, widgets
from dashboard.data import Data, Pair
from dashboard.url import Selection, current
from dashboard.widgets import draw, known, known_many, segments, select, select_many, soft, switch
from db.exporter import without_formulas
from db.queries.cells import CellName
from db.queries.side_rows import CellState
from db.store_errors import FilterError

#: A table's columns by their heads.
Columns = dict[str, list[Any]]
#: The address of a cell's page.
Link = Callable[[CellName], str]
T = TypeVar("T", CellComparison, CellState)

#: Columns that can be shown, in the table's order, and columns that are shown unless somebody picks.
COLUMNS, USUAL = shown_in(Place.COLUMN, Place.COMPARE), shown_in(Place.COLUMN)
#: The kinds of change of generated code, with their titles. The key is also the address's value.
CODES = {"kernels": "kernels changed", "wrapper": WRAPPER, "same": SAME, "unknown": "not known"}
#: The text in brackets behind a change, which the columns have, too.
_BESIDE = re.compile(r" \([^)]*\)")
_ORDER = tuple(dict.fromkeys(("broke", "missing", "regressed", "improved", "inconclusive", *OUTCOMES)))


def verdict_on(one: CellComparison, dimension: str) -> Outcome | None:
    """Return the verdict on a cell in a dimension, or on the whole cell; None where the dimension has none."""
    if not dimension:
        return one.outcome
    found = (finding.verdict for finding in one.findings if finding.dimension == dimension)
    return next(found, None)


def compared_order(cells: Sequence[CellComparison], sort: str = "", dimension: str = "") -> list[CellComparison]:
    """Return the cells in an order: broken ones first, or by `sort`, which is `model`, a metric's name, or `-` and that name.

    By default: broke, missing, regressed, improved, no clear change, then the rest, and within each the largest change
    first. By a metric the largest increase is first, with `-` the largest decrease. With a `dimension` its changes count.
    """
    metric = sort.removeprefix("-")
    if metric in METRICS:
        known = [one for one in cells if one.passes and one.ratio(metric) is not None]
        sign = -1 if sort == metric else 1
        ordered = sorted(known, key=lambda one: (sign * (one.ratio(metric) or 0.0), str(one.cell)))
        left = {one.cell.cell_id for one in known}
        return [
            *ordered,
            *sorted((one for one in cells if one.cell.cell_id not in left), key=lambda one: str(one.cell)),
        ]
    if sort:
        return sorted(cells, key=lambda one: (one.cell.model, str(one.cell)))

    def place(one: CellComparison) -> tuple[int, float, str]:
        of_dimension = (finding for finding in one.findings if finding.dimension == dimension)
        finding = next(of_dimension, None) or one.leading
        return _ORDER.index(verdict_on(one, dimension) or one.outcome), -finding.size if finding else 0.0, str(one.cell)

    return sorted(cells, key=place)


def compared(
    rows: Sequence[CellComparison], cells: Sequence[CellComparison], metrics: Sequence[str], link: Link
) -> Columns:
    """Return the table of some rows of `cells`, a comparison's, as HTML.

    A column is there if any of `cells` has a value for it.
    """
    shown = _names([one.cell for one in cells], [one.cell for one in rows], link)
    shown["outcome"] = [Cell(_outcome(one), look(one).replace("calm", "")) for one in rows]
    if any(one.code for one in cells):
        shown["generated code"] = [one.code or ABSENT for one in rows]
    for metric in metrics:
        if any(metric in one.base.values or metric in one.new.values for one in cells):
            shown[METRICS[metric].title] = [_metric(one, metric) for one in rows]
    return shown


def alone(rows: Sequence[CellState], cells: Sequence[CellState], metrics: Sequence[str], link: Link) -> Columns:
    """Return the table of the cells of one side."""
    shown = _names([state.cell for state in cells if state.cell], [state.cell for state in rows if state.cell], link)
    shown["status"] = [status(state) for state in rows]
    if any(state.same_code_as for state in cells):
        nights = [state.same_code_as for state in rows]
        shown["generated code"] = [f"same code as {night}" if night else ABSENT for night in nights]
    for metric in metrics:
        if any(metric in state.values for state in cells):
            shown[METRICS[metric].title] = [Cell(number(metric, state.values.get(metric)), "n") for state in rows]
    return shown


def matching(cells: Sequence[T], words: str, configs: Sequence[str]) -> list[T]:
    """Return the cells whose text has all the words and whose config is one of `configs`, if there are any."""
    wanted = words.lower().split()

    def fits(cell: CellName | None) -> bool:
        if cell is None or (configs and cell.config not in configs):
            return False
        text = " ".join((cell.suite, cell.model, cell.phase, cell.dtype, cell.device, cell.config)).lower()
        return all(word in text for word in wanted)

    return [one for one in cells if fits(one.cell)]


def code_kind(one: CellComparison) -> str:
    """Return what became of a cell's generated code, as a key of `CODES`."""
    if one.code == WRAPPER:
        return "wrapper"
    if one.code_changed is None:
        return "same" if one.new.same_code_as else "unknown"
    return "kernels" if one.code_changed else "same"


def csv(cells: pd.DataFrame) -> bytes:
    """Return all columns as CSV in full precision, with an apostrophe before each text that a spreadsheet takes for a formula."""
    return str(without_formulas(cells).to_csv(index=False)).encode()


def _names(cells: Sequence[CellName], rows: Sequence[CellName], link: Link) -> Columns:
    """Return two columns: the model as a link, with what else tells it from other cells, and the config."""
    axes = ("phase", "suite", "dtype", "device", "batch_size")
    several = [name for name in axes if len({getattr(cell, name) for cell in cells}) > 1]

    def where(cell: CellName) -> str:
        return ", ".join(
            batch_words(cell.batch_size) if name == "batch_size" else getattr(cell, name) for name in several
        )

    models = [
        lines(anchor(link(cell), cell.model), span("soft", words) if (words := where(cell)) else "") for cell in rows
    ]
    return {"model": models, "config": [cell.config for cell in rows]}


def _outcome(one: CellComparison) -> Markup:
    parts = []
    for outcome, detail in said(one):
        words = f"{glyph(outcome)} {OUTCOMES[outcome]}".lstrip()
        short = detail.partition(", ")[0] if outcome is Outcome.INCONCLUSIVE else _BESIDE.sub("", detail)
        shown = lines(words, span("soft", short) if short else "")
        parts.append(Markup('<span title="{}">{}</span>').format(detail, shown) if detail != short else shown)
    eager = eager_words(one.new)
    return lines(*parts, span("soft", eager) if eager else "")


def _metric(one: CellComparison, metric: str) -> Cell:
    """Return base and new with the change between them, whose `title` is `_about`; a change only where both sides pass."""
    base, new = one.base.values.get(metric), one.new.values.get(metric)
    if base is None and new is None:
        return Cell(ABSENT, "n")
    values = joined(str(span("arrow", "→")), (number(metric, base), number(metric, new)))
    if not one.passes:
        return Cell(values, "n")
    if metric == LEAK or METRICS[metric].is_count:
        known = judged(one, metric)
        difference = f"{new - base:+,.0f}" if base is not None and new is not None and new != base else ""
        return Cell(lines(values, difference), f"n {known.look}" if known and known.look != "calm" else "n")
    known = judged(one, metric) if metric in MIN_EFFECT else unjudged(base, new)
    css = "n" if known is None or known.look == "calm" else f"n {known.look}"
    about = _about(one, metric, known)
    shown = lines(values, *_change_lines(known))
    return Cell(Markup('<span title="{}">{}</span>').format(about, shown) if about else shown, css)


def _change_lines(known: ChangeWords | None) -> list[Markup]:
    """Return the change with its interval, on one line."""
    if known is None:
        return []
    parts = [span("soft", part) for part in known.intervals]
    adjusted = span("soft", "adjusted") if len(parts) > 1 else ""  # base and new do not show this change
    return [joined(" ", (known.size, adjusted, *parts[:1]))]


def _about(one: CellComparison, metric: str, known: ChangeWords | None) -> str:
    """Return the text that a pointer at a change shows: the change as measured, the change of eager, and the numbers of runs."""
    of = one.judged.get(metric)
    runs = [of.base_runs or 0, of.new_runs or 0] if of and metric in CONTROL else [0, 0]
    mean = f"mean of {runs[0]:.0f} / {runs[1]:.0f} runs" if max(runs) > 1 else ""
    return ", ".join(filter(None, (*(known.intervals[1:] if known else ()), mean)))


#: Rows that are shown unless all are asked for: a table takes longer than all else on the page.
_QUICK_ROWS = 100


def page(selection: Selection) -> None:
    """Draw the page."""
    widgets.title("Compare")
    mode = url.choice("mode")
    segments("mode", "What is compared", {"": "two sides", "configs": "two configs"}, mode)
    if mode:
        _across_configs(selection)
    elif selection.pair is None:
        side = selection.fixed_new
        cells = selection.data.summary(side, selection.filters).cells
        soft(describe(selection.new, url.link) + ". One side alone: pick a base at the left to see changes.")
        kept = _matching(cells)
        kept.sort(key=lambda state: (state.passes, state.is_not_applicable))  # failures first
        shown = _with_checks(selection.data, kept[: _limit()], side)
        frame = partial(pd.DataFrame, [_state_row(state) for state in kept])
        _table(alone(shown, kept, _metrics(), _cell_link), len(kept), len(cells), frame, lambda: None)
    else:
        _compared(selection, selection.pair)


def _across_configs(selection: Selection) -> None:
    side = selection.fixed_new
    cells = selection.data.summary(side, selection.filters).cells
    names = sorted({state.cell.config for state in cells if state.cell})
    if len(names) < 2:
        soft(
            describe(selection.new, url.link)
            + f" has {count(len(names), 'config')} under these filters: two are needed."
        )
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
    """Draw the comparison of two sides, or of two configs of one. Raises `FilterError` where a config is not there."""
    data = selection.data
    comparison = data.comparison(pair, selection.filters)
    heads = pair_lines(comparison, url.link)
    if pair.configs:
        heads = [describe(comparison.new, url.link) + f": {pair.configs[0]} against {pair.configs[1]}"]
    soft(*heads, noise_line(comparison), *comparison.notes)
    kept = _filtered(comparison.cells, with_config=pair.configs is None)
    configs = {one.cell.config for one in comparison.cells}
    chosen = () if pair.configs else tuple(name for name in url.get_all("config") if name in configs)
    filters = replace(selection.filters, configs=chosen or selection.filters.configs)
    offer = partial(widgets.offer_report, selection, filters, pair.configs)
    kept = compared_order(kept, url.get("sort") if url.get("sort") in _orders() else "", url.get("dimension"))
    first = kept[: _limit()]
    sides = (
        _with_checks(data, [one.base for one in first], pair.base),
        _with_checks(data, [one.new for one in first], pair.new),
    )
    shown = [replace(one, base=base, new=new) for one, base, new in zip(first, *sides, strict=True)]
    frame = replace(comparison, cells=tuple(kept)).to_frame
    _table(compared(shown, kept, _metrics(), _model_link(pair)), len(kept), len(comparison.cells), frame, offer)
    with st.expander("How is this decided?"):
        st.caption(f"{wording.SHOWN} {wording.RULE}")


def _matching(cells: Sequence[T], *, with_config: bool = True, columns: Sequence[Any] = ()) -> list[T]:
    """Draw the filters that every table has, and return the cells that they leave."""
    columns = columns or st.columns(3)
    words = url.get("q")
    columns[0].text_input(
        "Filter", key=url.bind("q", words), on_change=url.changed, args=("q",), placeholder="model, suite, config"
    )
    names = sorted({one.cell.config for one in cells if one.cell})
    configs = _pick_many(columns[1], "config", "Configs", {name: name for name in names})
    heads = {name: METRICS[name].title for name in COLUMNS}
    _pick_many(columns[2], "columns", "Columns", heads, placeholder="the usual four")
    return matching(cells, words, configs if with_config else [])


def _filtered(cells: Sequence[CellComparison], *, with_config: bool) -> list[CellComparison]:
    """Draw the filters of a comparison's table, and return the cells that they leave."""
    # Bundles of earlier versions have no generated code.
    with_code = any(one.code for one in cells)
    columns = st.columns(6 + with_code)
    kept = _matching(cells, with_config=with_config, columns=columns)
    orders = _orders()
    value = known("sort", orders, "")
    select("sort", "Sort by", list(orders), value, names=orders, where=columns[-1])
    if with_code:
        kinds = Counter(map(code_kind, kept))
        names = {key: f"{title} ({kinds[key]})" for key, title in CODES.items()}
        wanted = _pick_many(columns[5], "code", "Generated code", names)
        kept = [one for one in kept if code_kind(one) in wanted] if wanted else kept
    dimension = known("dimension", ["", *Dimension], "")
    dimensions = {"": "all together", **{one.value: one.value for one in Dimension}}
    select("dimension", "Dimension", list(dimensions), dimension, names=dimensions, where=columns[3])
    verdicts = {one.cell.cell_id: verdict_on(one, dimension) for one in kept}
    tally = Counter(verdict.value for verdict in verdicts.values() if verdict)
    names = {key: f"{title} ({tally[key]})" for key, title in wording.OUTCOMES.items()}
    wanted = _pick_many(columns[4], "outcome", "Outcomes", names) or list(wording.OUTCOMES)
    return [one for one in kept if verdicts[one.cell.cell_id] in wanted]


def _pick_many(where: Any, key: str, title: str, names: dict[str, str], placeholder: str = "any") -> list[str]:
    chosen = known_many(key, names)
    select_many(key, title, names, chosen, names=names, placeholder=placeholder, where=where)
    return chosen


def _metrics() -> list[str]:
    picked = [name for name in COLUMNS if name in url.get_all("columns")]
    of_dimension = [name for name in COLUMNS if METRICS[name].dimension == url.get("dimension")]
    return picked or of_dimension or list(USUAL)


def _orders() -> dict[str, str]:
    """Return the orders by which the table can be sorted, with their titles."""
    names = {"": "what matters most", "model": "model"}
    for metric in _metrics():
        names |= {metric: f"{METRICS[metric].title}: up first", f"-{metric}": f"{METRICS[metric].title}: down first"}
    return names


def _limit() -> int | None:
    """Return the number of first rows that are shown; None for all rows."""
    return None if url.choice("rows") else _QUICK_ROWS


def _with_checks(data: Data, states: Sequence[CellState], side: str) -> list[CellState]:
    """Return the states of a side with statuses that say which passes no reference confirms."""
    found: dict[Any, str] = data.references(side, frozenset(state.cell_id for state in states if state.cell_id))
    checked = [{CHECKED_BY: found.get((state.run_id, state.cell_id, state.replicate))} for state in states]
    return [
        replace(state, status=status_words(state.status, details)) if state.status else state
        for state, details in zip(states, checked, strict=True)
    ]


def _state_row(state: CellState) -> dict[str, Any]:
    """Return a cell of one side as a row of a spreadsheet."""
    row = asdict(state)
    names, values = row.pop("cell"), row.pop("values")
    return {**(names or {}), **row, **{metric: values.get(metric) for metric in METRICS}}


def _table(
    shown: Columns, matched: int, total: int, frame: Callable[[], pd.DataFrame], offer: Callable[[], None]
) -> None:
    """Draw the first of `matched` rows, and the controls for all of them, which `frame` makes."""
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
            data=lambda: csv(frame()),
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


def _model_link(pair: Pair) -> Link:
    """Return the function that makes the address of a cell's page, with both configs where two configs are compared."""
    if not pair.configs:
        return _cell_link
    both: dict[str, Any] = {"config": list(pair.configs), "versus": ["configs"]}
    return lambda cell: url.link("model", **(cell_query(cell) | both))


if __name__ == "__main__":  # as Streamlit runs a page; other modules import parts of it
    page(current())
