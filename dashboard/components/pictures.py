"""The charts of a page as pictures to hand on: SVG and PNG, drawn when they are asked for and not before."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import streamlit as st

from analysis.reports.charts import SCALE, PictureError, converter
from dashboard import url
from dashboard.components import palette
from dashboard.components.markup import block

#: Pixels of a picture's plot; on the page a chart is as wide as there is room.
_WIDTH = 720
_PAPER = {"light": ("#ffffff", "#31333f", "#dfe2e6"), "dark": ("#0e1117", "#fafafa", "#3a3f4a")}


#: A chart that can be pointed at (Vega), and the same drawn as HTML.
Make = Callable[[], Any]


@dataclass
class Gallery:
    """The charts of one page: drawn as HTML, which is quick, or where `interactive` with Vega; and to be handed on."""

    interactive: bool = False
    shown: dict[str, Make] = field(default_factory=dict)
    _waiting: list[tuple[str, str, Callable[[], str]]] = field(default_factory=list)

    def show(self, where: Any, chart: Any, *, key: str, alt: str) -> None:
        """Draws an Altair chart into `where`, with `alt` for those who hear it, and remembers it for `offer`."""
        where.altair_chart(chart, key=key, alt=alt)
        self.shown[key] = lambda: chart

    def add(self, key: str, alt: str, chart: Make, html: Callable[[], str]) -> None:
        """A chart for the next `draw`: what makes it with Altair, and what makes it as HTML (which says `alt` itself)."""
        self.shown[key] = chart
        self._waiting.append((key, alt, html))

    def draw(self, head: str = "", columns: int = 2) -> None:
        """Draws the charts that were added, `head` (HTML) above them: unless `interactive` all as one element of the page."""
        waiting, self._waiting = self._waiting, []
        head = f'<div class="iw-head">{head}</div>' if head else ""
        if not self.interactive:
            kind = "iw-plots" if columns > 1 and len(waiting) > 1 else ""
            st.html(block(head, f'<div class="{kind}">{"".join(html() for _, _, html in waiting)}</div>'))
            return
        if head:
            st.html(block(head))
        places = st.columns(columns) if columns > 1 and len(waiting) > 1 else [st.container()]
        for number, (key, alt, _) in enumerate(waiting):
            places[number % len(places)].altair_chart(self.shown[key](), key=key, alt=alt)

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
                st.caption(
                    f"{error}. Without it each interactive chart has a button at its corner that saves it as PNG."
                )
                return
            st.caption("As they are now, in the colours of this page.")
            for key, chart in self.shown.items():
                _offered(key, chart)


def interactive(where: Any) -> bool:
    """Draws the switch between charts that are quick and those that can be pointed at; whether it is on."""
    where.toggle(
        "interactive",
        key=url.bind("charts", url.get("charts") == "interactive"),
        on_change=_switched,
        help="Charts by Vega: values under the pointer at once, their data as a table, full screen, PNG. Slower to draw.",
    )
    return url.get("charts") == "interactive"


def _switched() -> None:
    url.put("charts", "interactive" if st.session_state[url.widget("charts")] else None)


def _offered(key: str, chart: Make) -> None:
    name = key.replace("_", " ")
    with st.container(horizontal=True):
        for kind, draw, mime in (("SVG", svg, "image/svg+xml"), ("PNG", png, "image/png")):
            make = partial(_made, draw, chart, palette.theme())
            download(f"{kind} of {name}", make, f"{file_name(name)}.{kind.lower()}", mime, key=f"picture_{key}_{kind}")


def _made(draw: Callable[[Any, str], bytes], chart: Make, theme: str) -> bytes:
    return draw(chart(), theme)


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
