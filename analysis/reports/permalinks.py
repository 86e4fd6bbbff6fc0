"""Addresses of the dashboard's pages that say tomorrow what they say today; `dashboard/url.py` reads them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import urlencode

from db.queries.cells import CellName
from db.queries.sides import Side


def fixed_side(side: Side) -> str:
    """A text that names the same side tomorrow: a night, a run, or a branch with the commit in full."""
    if side.kind in ("latest", "night"):
        return side.nights[0]
    if side.kind == "run" or len(side.branches) > 1:
        return side.run_ids[0]
    return f"{side.branches[0]}@{side.commits[0]}"


def address(page: str, query: Mapping[str, Iterable[str]]) -> str:
    """A page with its query."""
    text = urlencode([(key, value) for key, values in query.items() for value in values], safe="/@~,")
    return f"{page}?{text}" if text else page


def comparison_link(dashboard: str, base: Side, new: Side, across: tuple[str, str] | None = None) -> str:
    """The page of all cells of two sides, or of two configs of one side, under the dashboard's own address."""
    query = _sides(base, new)
    if across:
        query |= {"mode": ["configs"], "from": [across[0]], "to": [across[1]]}
    return address(f"{dashboard.rstrip('/')}/compare", query)


def cell_link(dashboard: str, base: Side, new: Side, cell: CellName, across: tuple[str, str] | None = None) -> str:
    """The page of one cell (see `cell_query`) of two sides, or of two configs of one side."""
    query = _sides(base, new) | cell_query(cell)
    if across:
        query |= {"config": list(across), "versus": ["configs"]}
    return address(f"{dashboard.rstrip('/')}/model", query)


def cell_query(cell: CellName) -> dict[str, list[str]]:
    """What the model page's address has of a cell: suite, model, phase, dtype, device, batch_size and config."""
    setting = ",".join(map(str, cell.axes[2:]))
    return {"model": [f"{cell.suite}/{cell.model}"], "setting": [setting], "config": [cell.config]}


def _sides(base: Side, new: Side) -> dict[str, list[str]]:
    return {"base": [fixed_side(base)], "new": [fixed_side(new)]}
