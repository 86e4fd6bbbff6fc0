"""The log that is stored of one side's measurement: all of it, as text, to read and to take along."""

from __future__ import annotations

import streamlit as st

from dashboard.components.formats import count
from dashboard.components.pictures import download, file_name
from dashboard.pages.model.choice import Half

_KEPT = (
    "This is all that is stored: of a log a bundle keeps the last 8 KiB, and of a cell that passes one where TORCH_LOGS asked "
    "for it. What was before is kept nowhere."
)


def show(half: Half) -> None:
    """Draws the fold with the log and a button that saves it; nothing where no log was kept."""
    found = half.found
    if found is None or not found.log_tail:
        return
    log = found.log_tail
    lines = len(log.splitlines())
    label = f"Log of {half.role}: {count(lines, 'line')}, {len(log.encode(errors='replace')) / 1024:.1f} KiB"
    fold = st.expander(label, icon=":material/article:", key=f"log_{half.role}", on_change="rerun")
    if not fold.open:
        return
    with fold:
        named = (found.cell.suite, found.cell.model, found.cell.config, found.run_id)
        download(
            "Log as text",
            lambda: log.encode(errors="replace"),
            f"{file_name(' '.join(named))}.log.txt",
            "text/plain",
            key=f"save_log_{half.role}",
        )
        st.code(
            log, language=None, wrap_lines=True, height="content"
        )  # nothing to scroll sideways that keys do not reach
        st.caption(_KEPT)
