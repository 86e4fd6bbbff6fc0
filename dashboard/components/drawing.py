"""Altair as the pages use it: what it checks again with every chart is checked by the tests instead. Import `alt` from here.

A chart with five parts took the server a tenth of a second more with the checks of Vega-Lite's schema, which every part of it
was held against. For the same reason channels are given as objects (`alt.X("n:Q")`, not `x="n:Q"`), since a text is tried
against all classes of the schema, and layers have their height and title from the beginning (`layered`).
"""

from __future__ import annotations

from typing import Any

import altair as alt
from altair.utils import schemapi

__all__ = ["alt", "layered"]

schemapi.disable_debug_mode()


class _Unchecked(alt.LayerChart):  # type: ignore[misc]  # Altair has no types for it
    """A chart that is not held against the schema when it is handed over; `to_dict(validate=True)` does so."""

    def to_dict(self, validate: bool = False, **how: Any) -> dict[str, Any]:
        """The chart as Vega-Lite."""
        found: dict[str, Any] = super().to_dict(validate=validate, **how)
        return found


def layered(*layers: alt.Chart | alt.LayerChart, height: int, title: str) -> alt.LayerChart:
    """Layers as one chart with a title, `height` in pixels, as wide as there is room."""
    head = alt.TitleParams(text=title, anchor="start", fontSize=13, fontWeight=600)
    return _Unchecked(layer=list(layers), height=height, title=head)
