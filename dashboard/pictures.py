"""The charts of a page as pictures to hand on: SVG and PNG, drawn when they are asked for and not before."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import streamlit as st

from analysis.reports.png import SCALE, PictureError, converter
from dashboard import palette

#: Pixels of a picture's plot; on the page a chart is as wide as there is room.
_WIDTH = 720
_PAPER = {"light": ("#ffffff", "#31333f", "#dfe2e6"), "dark": ("#0e1117", "#fafafa", "#3a3f4a")}


@dataclass
class Gallery:
    """The charts of one page, as they are drawn."""

    shown: dict[str, Any] = field(default_factory=dict)

    def show(self, where: Any, chart: Any, *, key: str, alt: str) -> None:
        """Draws an Altair chart into `where`, with `alt` for those who hear it, and remembers it for `offer`."""
        where.altair_chart(chart, key=key, alt=alt)
        self.shown[key] = chart

    def offer(self) -> None:
        """Draws a fold with a line for each chart; closed, it costs nothing."""
        if not self.shown:
            return
        fold = st.expander("Pictures to hand on", icon=":material/image:", key="pictures", on_change="rerun")
        if not fold.open:
            return
        with fold:
            try:
                converter()
            except PictureError as error:
                st.caption(f"{error}. Without it each chart has a button at its corner that saves it as PNG.")
                return
            st.caption("As they are now, in the colours of this page.")
            for key, chart in self.shown.items():
                _offered(key, chart)


def _offered(key: str, chart: Any) -> None:
    name = key.replace("_", " ")
    with st.container(horizontal=True):
        for kind, draw, mime in (("SVG", svg, "image/svg+xml"), ("PNG", png, "image/png")):
            make = partial(draw, chart, palette.theme())
            download(f"{kind} of {name}", make, f"{file_name(name)}.{kind.lower()}", mime, key=f"picture_{key}_{kind}")


def download(label: str, make: Callable[[], bytes], name: str, mime: str, *, key: str, said: str | None = None) -> None:
    """A button that makes its file once it is pressed."""
    st.download_button(
        label, make, name, mime, key=key, help=said, on_click="ignore", icon=":material/download:", type="tertiary"
    )


def svg(chart: Any, theme: str = "light") -> bytes:
    """An Altair chart as SVG. Raises `PictureError` where vl-convert is not installed."""
    drawn: str = converter().vegalite_to_svg(_spec(chart, theme), allowed_base_urls=[])
    return drawn.encode()


def png(chart: Any, theme: str = "light") -> bytes:
    """An Altair chart as PNG. Raises `PictureError` where vl-convert is not installed."""
    drawn: bytes = converter().vegalite_to_png(_spec(chart, theme), scale=SCALE, allowed_base_urls=[])
    return drawn


def file_name(words: str) -> str:
    """A text as a file's name: letters, digits, dots and dashes."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", words).strip("-.")[:120] or "picture"


def _spec(chart: Any, theme: str) -> dict[str, Any]:
    import altair as alt

    back, ink, line = _PAPER[theme]
    whole = (
        chart.properties(width=_WIDTH, background=back, padding=16)
        .configure(font="sans-serif")
        .configure_axis(labelColor=ink, titleColor=ink, gridColor=line, domainColor=line, tickColor=line)
        .configure_legend(labelColor=ink, titleColor=ink)
        .configure_title(color=ink)
        .configure_view(stroke=None)
    )
    # The limit of 5,000 rows is for notebooks.
    with alt.data_transformers.enable("default", max_rows=None):
        found: dict[str, Any] = whole.to_dict()
    return found
