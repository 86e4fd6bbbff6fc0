"""A comparison as files: the same report and pictures that `inductor-watch report` writes, made when asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import streamlit as st
from sqlalchemy import Engine

from analysis.reports.charts import PictureError, converter, draw, png, svg
from analysis.reports.facts import Report, build_config_report, build_report
from analysis.reports.html import html
from analysis.reports.permalinks import fixed_side
from dashboard.components.charts import download, file_name
from dashboard.selection import Selection
from db.queries.filters import CellFilter

Build = Callable[[], Report]
_TITLES = {"changes": "what changed", "suites": "the suites"}


def offer(selection: Selection, filters: CellFilter, configs: tuple[str, str] | None = None) -> None:
    """A popover with the report and its pictures, of two sides or of two configs (base, new) of the new one."""
    if selection.base is None and configs is None:
        return
    menu = st.popover("Report and pictures", icon=":material/ios_share:", key="downloads", on_change="rerun")
    if not menu.open:
        return
    new = fixed_side(selection.new)
    base = fixed_side(selection.base) if selection.base else new
    place = dashboard_address(st.context.url or "")
    build = partial(_built, selection.data.engine, base, new, filters, configs, place)
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
        try:
            converter()
        except PictureError as error:
            st.caption(str(error))
            return
        for chart, title in _TITLES.items():
            _chart(build, chart, title, f"{name}-{chart}")


def _chart(build: Build, chart: str, title: str, name: str) -> None:
    with st.container(horizontal=True):
        drawn = partial(_svg, build, chart)
        download(f"SVG of {title}", lambda: drawn().encode(), f"{name}.svg", "image/svg+xml", key=f"{chart}_svg")
        download(f"PNG of {title}", lambda: png(drawn()), f"{name}.png", "image/png", key=f"{chart}_png")


def _svg(build: Build, chart: str) -> str:
    report = build()
    return svg(report, chart) or draw(report.sentence, ["There is no change for this picture to show."], [], [], [])


def _built(
    engine: Engine, base: str, new: str, filters: CellFilter, configs: tuple[str, str] | None, place: str
) -> Report:
    with engine.connect() as connection:
        if configs:
            return build_config_report(connection, new, configs, filters, place)
        return build_report(connection, base, new, filters, place)


def dashboard_address(page: str) -> str:
    """The dashboard's own address, from that of its compare page."""
    return page.partition("?")[0].rstrip("/").removesuffix("/compare")
