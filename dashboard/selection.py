"""What a person is looking at: base, new and the filters, as the address says, with a sentence for whatever is odd in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import streamlit as st

from analysis.elements.addresses import fixed_side as fixed
from dashboard import url
from dashboard.data import Data, Pair
from db.queries.cells import Axes, CellFilter
from db.queries.sides import Side
from db.store_errors import SideError

LATEST, PREVIOUS, NOTHING = "latest", "previous", "none"
#: What an address without the key stands for.
DEFAULTS = {"new": LATEST, "base": PREVIOUS}
_KEY = "selection"


@dataclass(frozen=True, slots=True)
class Selection:
    """Both sides, the filters, and what to say about the address. Without a base only one side is shown."""

    data: Data
    new: Side
    base: Side | None
    filters: CellFilter
    warnings: tuple[str, ...] = ()
    base_is_unknown: bool = False

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

    Raises `SideError` where the new side names nothing; without it there is nothing to show.
    """
    filters, warnings = _filters(data.axes())
    warnings += url.problems()
    _add_suite(data.axes())
    newest = _newest(data, filters) if url.get("new") in ("", LATEST) else ""
    if newest:
        what = "this model" if url.get("model") else "a cell under these filters"
        warnings.append(f"The latest night does not have {what}. New is the newest night that does.")
    new = data.side(newest or url.get("new") or LATEST)
    try:
        return Selection(data, new, _base(data, new), filters, tuple(warnings))
    except SideError as error:
        return Selection(data, new, None, filters, (*warnings, f"Base: {error}"), base_is_unknown=True)


def remember(selection: Selection | None) -> None:
    """Hands the selection to the page that is drawn next, and to callbacks; None where the address names no side."""
    st.session_state[_KEY] = selection


def remembered() -> Selection | None:
    """What `remember` was given last in this session."""
    return cast("Selection | None", st.session_state.get(_KEY))


def current() -> Selection:
    """What `remember` was given for the page that is drawn now."""
    return cast(Selection, st.session_state[_KEY])


def _add_suite(axes: Axes) -> None:
    """Name the suite of a model of which the address has the name alone, as the command line does, if one suite has it."""
    suites = [model.suite for model in axes.models if model.name == url.get("model")]
    if len(suites) == 1:
        url.put("model", f"{suites[0]}/{url.get('model')}")


def _newest(data: Data, filters: CellFilter) -> str:
    """The newest night that has the model of the address, or a cell under the filters; empty for the latest, or none."""
    suite, _, model = url.get("model").partition("/")
    nights = data.nights_of(suite, model) if model else data.nights_with(filters)
    return nights[0].night if nights and nights[0] != data.nights()[0] else ""


def _base(data: Data, new: Side) -> Side | None:
    wanted = url.get("base") or PREVIOUS
    if wanted == PREVIOUS:
        night = data.previous(fixed(new))
        return data.side(night) if night else None
    return None if wanted == NOTHING else data.side(wanted)


def _filters(axes: Axes) -> tuple[CellFilter, list[str]]:
    """The filters of the address that some cell has, and a sentence for each other one."""
    names = {"suite": axes.suites, "phase": axes.phases, "dtype": axes.dtypes, "device": axes.devices}
    names |= {"configs": tuple(info.name for info in axes.configs)}
    chosen, warnings = {}, []
    for key, known in names.items():
        wanted = url.get_all(key) if key == "configs" else [url.get(key)]
        chosen[key if key == "configs" else f"{key}s"] = tuple(name for name in wanted if name in known)
        warnings += [url.not_known(key, name, known) for name in wanted if name and name not in known]
    return CellFilter(**chosen), warnings
