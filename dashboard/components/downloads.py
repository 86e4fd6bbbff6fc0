"""Buttons that save files, made once they are pressed: a comparison as the report and pictures of `inductor-watch report`."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import streamlit as st
from sqlalchemy import Engine

from analysis.elements.addresses import fixed_side
from analysis.reports.facts import Report, build_report
from analysis.reports.html_report import PictureError, converter, draw, html, png, svg
from dashboard.selection import Selection
from db.queries.cells import CellFilter

Build = Callable[[], Report]
_TITLES = {"changes": "what changed", "suites": "the suites"}
_KINDS = {"SVG": "image/svg+xml", "PNG": "image/png"}


def download(label: str, make: Callable[[], bytes], name: str, mime: str, *, key: str, help: str | None = None) -> None:
    """A button that makes its file once it is pressed."""
    st.download_button(
        label, make, name, mime, key=key, help=help, on_click="ignore", icon=":material/download:", type="tertiary"
    )


def file_name(words: str) -> str:
    """A text as a file's name: letters, digits, dots and dashes."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", words).strip("-.")[:120] or "file"


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
        try:
            converter()
        except PictureError as error:
            st.caption(f"{error}.")
            return
        for chart, title in _TITLES.items():
            with st.container(horizontal=True):
                for kind, mime in _KINDS.items():
                    make, label = partial(_picture, build, chart, kind), f"{kind} of {title}"
                    download(label, make, f"{name}-{chart}.{kind.lower()}", mime, key=label)


def dashboard_address(page: str) -> str:
    """The dashboard's own address, from that of its compare page."""
    return page.partition("?")[0].rstrip("/").removesuffix("/compare")


def _picture(build: Build, chart: str, kind: str) -> bytes:
    report = build()
    none = "There is no change for this picture to show."
    drawn = svg(report, chart) or draw(report.sentence, [none], [], [], [])
    return png(drawn) if kind == "PNG" else drawn.encode()


def _built(
    engine: Engine, base: str, new: str, filters: CellFilter, configs: tuple[str, str] | None, place: str
) -> Report:
    with engine.connect() as connection:
        return build_report(connection, base, new, filters, place, configs)
