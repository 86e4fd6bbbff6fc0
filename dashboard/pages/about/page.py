"""What the words and numbers mean, and how a verdict is reached."""

from __future__ import annotations

import streamlit as st

from collector.metrics import METRICS
from collector.vocabulary import NOT_APPLICABLE, Status
from dashboard.components import meanings
from dashboard.components.formats import TITLES
from dashboard.components.markup import block, cell, row, status_tag, table, text


def page() -> None:
    """Draws the page."""
    st.title("About the numbers", anchor=False)
    st.html(block(*(f"<p>{text(line)}</p>" for line in meanings.METHOD)))
    for drawn in (_metrics(), _verdicts(), _statuses()):
        st.html(block(drawn))


def _metrics() -> str:
    rows = [
        row(
            text(TITLES.get(name, name)),
            [cell(text(metric.unit or "a number")), cell(text(metric.better)), cell(text(metric.meaning))],
        )
        for name, metric in METRICS.items()
    ]
    return table("Metrics", ("metric", "unit", "better", "meaning"), rows)


def _verdicts() -> str:
    rows = [row(text(word), [cell(text(meaning))]) for word, meaning in meanings.verdicts().items()]
    return table("Verdicts", ("verdict", "meaning"), rows)


def _statuses() -> str:
    rows = [
        row(status_tag(status.value), [cell(text(meanings.STATUSES[status] + _leaves(status)))]) for status in Status
    ]
    return table("Statuses", ("status", "meaning"), [*rows, row(status_tag(None), [cell(text(meanings.MISSING))])])


def _leaves(status: Status) -> str:
    return "; leaves the pass rate's denominator" if status in NOT_APPLICABLE else ""


page()
