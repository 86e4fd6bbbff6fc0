"""The address of a page holds all that is chosen: it is read from there and written there, and links are made from it.

A widget is set from the address before it is drawn and writes to the address when it changes. Streamlit's own binding of
widgets to the address drops defaults and replaces unknown values without a message. A `Selection` has the sides and filters
that the address names, with a sentence for anything odd in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import streamlit as st

from analysis.elements.addresses import address as address
from analysis.elements.addresses import fixed_side as fixed
from dashboard.data import Data, Pair
from db.queries.cells import Axes, CellFilter
from db.queries.sides import Side
from db.store_errors import SideError, nearest, one_line

#: Keys that every page shares. Every other key belongs to one page, and a link drops it unless the link sets it.
SHARED = ("base", "new", "device", "phase", "dtype", "suite", "configs", "since", "until", "by")
#: Keys that belong to one page or another. The page reports any other key as one that nothing reads.
_OF_PAGES = (
    *(
        "mode",
        "from",
        "to",
        "q",
        "config",
        "columns",
        "dimension",
        "outcome",
        "rows",
        "sort",
        "model",
        "setting",
        "versus",
    ),
    *(
        "branch",
        "metric",
        "log",
        "dates",
        "closed",
        "record",
        "state",
        "runs",
        "kernels",
        "kernel",
        "code",
        "sources",
        "cell",
    ),
)
#: Keys with few values, and the values that they may have besides none.
_CHOICES = {
    **dict.fromkeys(("mode", "versus"), ("configs",)),
    **dict.fromkeys(("rows", "runs"), ("all",)),
    **dict.fromkeys(("log", "dates", "closed"), ("1",)),
    "kernels": ("compiled", "eager", "beside"),
    "sources": ("both",),
    "by": ("day", "week", "month"),
}
#: Streamlit's own keys, and keys of older addresses.
_IGNORED = ("embed", "embed_options", "charts")

Value = str | Iterable[str] | None


def get(key: str) -> str:
    """Return the value under `key`; empty where there is none."""
    return st.query_params.get(key, "")


def get_all(key: str) -> list[str]:
    """Return every value under `key`, each once."""
    return list(dict.fromkeys(st.query_params.get_all(key)))


def choice(key: str) -> str:
    """Return the value under a key with few values; empty for any other value, of which `problems` has a sentence."""
    return get(key) if get(key) in _CHOICES[key] else ""


def problems() -> list[str]:
    """Return a sentence for each key of this address that nothing reads, and for each impossible value of a `_CHOICES` key."""
    keys = (*SHARED, *_OF_PAGES)
    return [
        *(
            f"The address has {one_line(key)!r}, which nothing here reads{nearest(key, keys)}."
            for key in st.query_params
            if key not in (*keys, *_IGNORED)
        ),
        *(not_known(key, get(key), values) for key, values in _CHOICES.items() if get(key) not in ("", *values)),
    ]


def not_known(key: str, wanted: str, known: Iterable[str]) -> str:
    """Return a sentence on a value of the address that does not exist, with the nearest values that do."""
    return f"The address has {key} {one_line(wanted)!r}, which is not known here{nearest(wanted, known)}. It is not applied."


def put(key: str, value: Value) -> None:
    """Write a value, or take the key away for None, an empty text or no values."""
    if any(values := _as_list(value)):
        st.query_params[key] = values
    else:
        st.query_params.pop(key, None)


def parameters(**changes: Value) -> dict[str, list[str]]:
    """Return the present values of the keys that all pages share, with changes; an empty change takes a key away."""
    # A page has hundreds of links: most addresses have few of the keys.
    present = set(st.query_params)
    values = {key: get_all(key) if key in present else [] for key in SHARED}
    values |= {key: _as_list(value) for key, value in changes.items()}
    return {key: value for key, value in values.items() if any(value)}


def link(page: str, **changes: Value) -> str:
    """Return an address relative to any page, so that it holds behind a proxy's path too."""
    return address(f"./{page}", parameters(**changes))


def widget(key: str) -> str:
    """Return the key of the widget that shows the value under `key`."""
    return f"{key}_widget"


def bind(key: str, value: str | list[str] | bool | None) -> str:
    """Set the widget of `key` before it is drawn, and return the widget's key; pair it with `changed`."""
    st.session_state[widget(key)] = value
    return widget(key)


def changed(key: str, default: str | list[str] = "") -> None:
    """Write the value that a widget shows to the address, where a default is no entry; for `on_change`."""
    value = st.session_state[widget(key)]
    put(key, None if value == default else value)


def _as_list(value: Value) -> list[str]:
    return [value] if isinstance(value, str) else list(value or ())


LATEST, PREVIOUS, NOTHING = "latest", "previous", "none"
#: The values that an address without the key stands for.
DEFAULTS = {"new": LATEST, "base": PREVIOUS}
_KEY = "selection"


@dataclass(frozen=True, slots=True)
class Selection:
    """Both sides, the filters, and warnings about the address. Without a base only one side is shown."""

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


def read_selection(data: Data) -> Selection:
    """Return the selection that the address asks for.

    Raises `SideError` where the new side names nothing; without it there is nothing to show.
    """
    filters, warnings = _filters(data.axes())
    warnings += problems()
    _add_suite(data.axes())
    newest = _newest(data, filters) if get("new") in ("", LATEST) else ""
    if newest:
        what = "this model" if get("model") else "a cell under these filters"
        warnings.append(f"The latest night does not have {what}. New is the newest night that does.")
    new = data.side(newest or get("new") or LATEST)
    try:
        return Selection(data, new, _base(data, new), filters, tuple(warnings))
    except SideError as error:
        return Selection(data, new, None, filters, (*warnings, f"Base: {error}"), base_is_unknown=True)


def remember(selection: Selection | None) -> None:
    """Hand the selection to the page that is drawn next, and to callbacks; None where the address names no side."""
    st.session_state[_KEY] = selection


def remembered() -> Selection | None:
    """Return the selection that was remembered last in this session, if any."""
    return cast("Selection | None", st.session_state.get(_KEY))


def current() -> Selection:
    """Return the selection that was remembered for the page that is drawn now."""
    return cast(Selection, st.session_state[_KEY])


def _add_suite(axes: Axes) -> None:
    """Add the suite to a model that the address names without one, as the command line does, if one suite has the model."""
    suites = [model.suite for model in axes.models if model.name == get("model")]
    if len(suites) == 1:
        put("model", f"{suites[0]}/{get('model')}")


def _newest(data: Data, filters: CellFilter) -> str:
    """Return the newest night that has the model of the address, or a cell under the filters; empty for the latest, or none."""
    suite, _, model = get("model").partition("/")
    nights = data.nights_of(suite, model) if model else data.nights_with(filters)
    return nights[0].night if nights and nights[0] != data.nights()[0] else ""


def _base(data: Data, new: Side) -> Side | None:
    wanted = get("base") or PREVIOUS
    if wanted == PREVIOUS:
        night = data.previous(fixed(new))
        return data.side(night) if night else None
    return None if wanted == NOTHING else data.side(wanted)


def _filters(axes: Axes) -> tuple[CellFilter, list[str]]:
    """Return the filters of the address that some cell has, and a sentence for each other one."""
    names = {"suite": axes.suites, "phase": axes.phases, "dtype": axes.dtypes, "device": axes.devices}
    names |= {"configs": tuple(info.name for info in axes.configs)}
    chosen, warnings = {}, []
    for key, known in names.items():
        wanted = get_all(key) if key == "configs" else [get(key)]
        chosen[key if key == "configs" else f"{key}s"] = tuple(name for name in wanted if name in known)
        warnings += [not_known(key, name, known) for name in wanted if name and name not in known]
    return CellFilter(**chosen), warnings
