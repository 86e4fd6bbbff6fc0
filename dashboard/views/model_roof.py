"""The model page's roof: how far each kernel is from what its bytes and operations take at this device's best rates."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from analysis.elements.markup import paragraph
from analysis.elements.program_tables import ROOF_CAPTION, rate_words, roof_table, roof_times
from dashboard.components.drawing import draw, markdown, soft
from dashboard.views.model_choice import Half


def show(halves: Sequence[Half]) -> None:
    """Draw the kernels that lose most against the roof, of both sides; a sentence where a side has none, and nothing on a CPU."""
    sides = [(half, half.measured.details if half.measured else {}) for half in halves]
    rows = [roof_times(details) for _, details in sides]
    reasons = [f"{half.title}: {details['no_roof']}." for half, details in sides if details.get("no_roof")]
    if not any(rows) and not reasons:
        return
    st.header("Distance from the roof", anchor=False)
    shares = [(half.role, half.measured.metrics.get("roof_share")) for half in halves if half.measured]
    if told := [f"{role} {share:.0%}" for role, share in shares if share is not None]:
        draw(paragraph("", f"The kernels together are at {', '.join(told)} of the roof."))
    if any(rows):
        draw(roof_table([half.role for half in halves], rows, [details for _, details in sides]))
    if reasons:
        soft(*(f"No share of the roof for {reason}" for reason in reasons))
    st.caption(" ".join(filter(None, (markdown(rate_words(sides[-1][1])), ROOF_CAPTION))))
