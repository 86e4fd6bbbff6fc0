"""The census commit by commit: which commit changed which cell's generated code, with the difference a click away."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st
from markupsafe import Markup

from analysis.elements import addresses
from analysis.elements.wording import ABSENT, anchor, count, lines, paragraph, span, table
from analysis.history.over_commits import CommitCodes
from analysis.history.regression_record import cell_of
from collector.vocabulary import batch_word
from dashboard import url, widgets
from dashboard.data import Data, opened
from dashboard.url import remembered
from dashboard.views import model_parts
from dashboard.views.model_parts import Half
from dashboard.widgets import draw
from db.queries.cells import EVERYTHING, CellName
from db.queries.details import measurement

#: Commits and cells that a table shows; the cells that changed most often come first.
_COMMITS, _CELLS = 60, 16
_FILL = "inductor-watch census --git ~/pytorch GOOD..BAD --model 'Bert*' --config triton"


def page() -> None:
    """Draw the page."""
    widgets.title("Census")
    data, selection = opened(), remembered()
    found = data.code_changes(selection.filters if selection else EVERYTHING)
    if not found:
        widgets.show_nothing(
            "No census", "The database has no generated code of a census under these filters. Take one:", _FILL
        )
        return
    for name, commits in found.items():
        draw(_table(name, commits))
    st.caption(
        "The code that Inductor generates, without a GPU. A mark says that the code differs from that of the nearest commit "
        "below that has the cell; it leads to the kernels that differ. The reason may also be a commit between them that has no "
        "census, or another torch, library or inductor-watch."
    )
    for one in [one for commits in found.values() for one in commits]:
        for cell in one.changed:
            if url.get("cell") == cell.cell_id and url.get("new") == one.cells[cell].run_id:
                _differences(data, one, cell)


def _differences(data: Data, one: CommitCodes, cell: CellName) -> None:
    """Draw the kernels of a cell that a commit changed."""
    draw(paragraph("", f"{cell} at {one.run.commit[: addresses.SHOWN]}, {one.run.commit_title or 'no title'}"))
    run_ids = {"base": one.cells[cell].changed_from, "new": one.cells[cell].run_id}
    which = cell_of(data.engine, cell.cell_id)
    halves = [
        Half(role, role, data.side(run_id), which, measurement(data.engine, run_id, cell.cell_id))
        for role, run_id in run_ids.items()
    ]
    model_parts.show(data, halves)


def _table(name: str, commits: Sequence[CommitCodes]) -> Markup:
    """Return a table with commits down and cells across."""
    cells = sorted({cell for one in commits for cell in one.cells}, key=lambda cell: cell.place)
    changes = {cell: sum(cell in one.changed for one in commits) for cell in cells}
    cells = sorted(cells, key=lambda cell: -changes[cell])
    shown, hidden = cells[:_CELLS], cells[_CELLS:]
    head = ["commit", "title", "changed", *map(_name, shown)]
    rows = [
        [
            addresses.commit(one.run.repo, one.run.commit),
            one.run.commit_title or "no title",
            f"{len(one.changed)} of {len(one.cells)}",
            *(_mark(one, cell) for cell in shown),
        ]
        for one in commits[:_COMMITS]
    ]
    notes = [
        count(len(commits), "commit") + (f", the newest {_COMMITS}" if len(commits) > _COMMITS else ""),
        f"without {count(len(hidden), 'cell')} that changed least often" if hidden else "",
    ]
    return table(f"Code for {name}", head, rows, note=", ".join(filter(None, notes)))


def _name(cell: CellName) -> Markup:
    return lines(cell.model, f"{cell.phase} {cell.dtype}", f"{batch_word(cell.batch_size)} {cell.config}")


def _mark(one: CommitCodes, cell: CellName) -> str:
    """Return the mark of a cell at a commit: changed, with a link to both kernels; same; or not known."""
    found = one.cells.get(cell)
    if found is None:
        return ABSENT
    if not found.changed_from:
        return span("soft", "same")
    address = url.link("census", base=found.changed_from, new=found.run_id, cell=cell.cell_id)
    return anchor(address, "changed")


page()
