"""A comparison as files: the same report and pictures that `inductor-watch report` writes, made when asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import streamlit as st
from sqlalchemy import Engine

from analysis.reports.charts import draw, png, svg
from analysis.reports.facts import Report, build_report
from analysis.reports.html import html
from analysis.reports.permalinks import fixed_side
from dashboard.components.charts import can_make_pictures, download, file_name, picture_buttons
from dashboard.selection import Selection
from db.queries.filters import CellFilter

Build = Callable[[], Report]
_TITLES = {"changes": "what changed", "suites": "the suites"}


def offer(selection: Selection, filters: CellFilter, configs: tuple[str, str] | None = None) -> None:
    """A popover with the report and its pictures, of two sides or of two configs (base, new) of the new one."""
    if selection.base is None and configs is None:
        return
    menu = st.popover("Export report and charts", icon=":material/ios_share:", key="downloads", on_change="rerun")
    if not menu.open:
        return
    new = fixed_side(selection.new)
    base = fixed_side(selection.base) if selection.base else new
    build = partial(_built, selection.data.engine, base, new, filters, configs, dashboard_address(st.context.url or ""))
    name = file_name(" ".join([*configs, new] if configs else [base, new]))
    with menu:
        st.caption(
            "Of all cells under the filters at the left and the configs chosen here, whatever else narrows the table."
        )
        download(
            "Report, one HTML file",
            lambda: html(build()).encode(errors="replace"),
            f"{name}.html",
            "text/html",
            key="report_html",
            help="Verdict, evidence, suites, environment and what to measure again; it loads nothing from anywhere.",
        )
        for chart, title in _TITLES.items() if can_make_pictures() else ():
            makers = (partial(_picture, build, chart, kind) for kind in ("svg", "png"))
            picture_buttons(title, f"{name}-{chart}", *makers)


def dashboard_address(page: str) -> str:
    """The dashboard's own address, from that of its compare page."""
    return page.partition("?")[0].rstrip("/").removesuffix("/compare")


def _picture(build: Build, chart: str, kind: str) -> bytes:
    report = build()
    none = "There is no change for this picture to show."
    drawn = svg(report, chart) or draw(report.sentence, [none], [], [], [])
    return png(drawn) if kind == "png" else drawn.encode()


def _built(
    engine: Engine, base: str, new: str, filters: CellFilter, configs: tuple[str, str] | None, place: str
) -> Report:
    with engine.connect() as connection:
        return build_report(connection, base, new, filters, place, configs)
