"""What a person is looking at: base, new and the filters, as the address says, with a sentence for whatever is odd in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import streamlit as st

from analysis.reports.permalinks import fixed_side as fixed
from dashboard import url
from dashboard.data import Data, Pair
from db.errors import SideError, nearest, one_line
from db.queries.cells import Axes, NightInfo
from db.queries.filters import CellFilter
from db.queries.sides import Side

LATEST, PREVIOUS, NOTHING = "latest", "previous", "none"
#: What an address without the key stands for.
DEFAULTS = {"new": LATEST, "base": PREVIOUS}
#: How many earlier nights are asked whether they share cells with the new side.
_LOOK_BACK = 20
_KEY = "selection"


@dataclass(frozen=True, slots=True)
class Selection:
    """Both sides, the filters, and what to say about them. Without a base only one side is shown."""

    data: Data
    new: Side
    base: Side | None
    filters: CellFilter
    warnings: tuple[str, ...] = ()
    problems: tuple[str, ...] = field(default=())

    @property
    def pair(self) -> Pair | None:
        """The texts that name both sides for good; None while there is no base."""
        return None if self.base is None else Pair(fixed(self.base), self.fixed_new)

    @property
    def fixed_new(self) -> str:
        """The text that names the new side for good."""
        return fixed(self.new)


def read(data: Data) -> Selection:
    """The selection that the address asks for.

    Raises:
        SideError: the new side names nothing; without it there is nothing to show.
    """
    filters, warnings = _filters(data.axes())
    warnings += [
        f"The address has {one_line(key)!r}, which nothing here reads{nearest(key, url.SHARED + url.OF_PAGES)}."
        for key in url.unknown()
    ]
    warnings += [
        f"The address has {key}={one_line(url.get(key))!r}; there is only {' and '.join(url.CHOICES[key])}. It is not applied."
        for key in url.impossible()
    ]
    new = data.side(url.get("new") or LATEST)
    base, problems = None, []
    try:
        base = _base(data, new)
    except SideError as error:
        problems.append(f"Base: {error}")
    return Selection(data, new, base, filters, tuple(warnings), tuple(problems))


def remember(selection: Selection | None) -> None:
    """Hands the selection to the page that is drawn next, and to callbacks; None where the address names no side."""
    st.session_state[_KEY] = selection


def remembered() -> Selection | None:
    """What `remember` was given last in this session."""
    return cast("Selection | None", st.session_state.get(_KEY))


def current() -> Selection:
    """What `remember` was given for the page that is drawn now."""
    return cast(Selection, st.session_state[_KEY])


def previous(data: Data, new: Side) -> NightInfo | None:
    """The newest earlier night that has at least half of new's cells, else any of them, else None.

    One of its testbeds is one of new's: of several GPUs some may be others, and a comparison says of how many cells.
    """
    testbeds = {run.testbed_id for run in new.runs}
    before = min(run.started_at for run in new.runs)
    earlier = [
        night
        for night in data.nights()
        if night.started_at < before and any(run.testbed_id in testbeds for run in night.runs)
    ][:_LOOK_BACK]
    if not earlier:
        return None
    wanted = data.cell_ids(fixed(new))
    any_shared = None
    for night in earlier:
        shared = len(wanted & data.cell_ids(night.night))
        if shared and shared * 2 >= len(wanted):
            return night
        any_shared = any_shared or (night if shared else None)
    return any_shared


def _base(data: Data, new: Side) -> Side | None:
    wanted = url.get("base") or PREVIOUS
    if wanted == NOTHING:
        return None
    if wanted != PREVIOUS:
        return data.side(wanted)
    found = previous(data, new)
    return data.side(found.night) if found else None


def _filters(axes: Axes) -> tuple[CellFilter, list[str]]:
    """Known names only; a name that no cell has is told and not applied."""
    known = {"suite": axes.suites, "phase": axes.phases, "dtype": axes.dtypes, "device": axes.devices}
    chosen: dict[str, tuple[str, ...]] = {}
    warnings = []
    for key, names in known.items():
        wanted = url.get(key)
        if wanted and wanted not in names:
            warnings.append(
                f"The address asks for {key} {one_line(wanted)!r}, which no stored cell has{nearest(wanted, names)}. "
                f"It is not applied: all are shown."
            )
        elif wanted:
            chosen[f"{key}s"] = (wanted,)
    configs = {info.name for info in axes.configs}
    for wanted in url.get_all("configs"):
        if wanted in configs:
            chosen["configs"] = (*chosen.get("configs", ()), wanted)
        else:
            warnings.append(
                f"The address asks for the config {one_line(wanted)!r}, which no stored cell has{nearest(wanted, configs)}. "
                "It is not applied."
            )
    return CellFilter(**chosen), warnings
