"""The address of a page holds all that is chosen: it is read from there and written there, and links are made from it.

A widget is set from the address before it is drawn and writes to the address when it changes. Streamlit's own binding of
widgets to the address drops defaults and replaces unknown values without a message.
"""

from __future__ import annotations

from collections.abc import Iterable

import streamlit as st

from analysis.reports.permalinks import address as address

#: What every page shares. Everything else belongs to one page and is left behind by a link that does not ask for it.
SHARED = ("base", "new", "device", "phase", "dtype", "suite", "configs", "since", "until", "by")
#: What belongs to one page or another. The page says of any other key that nothing reads it.
OF_PAGES = (
    *("mode", "from", "to", "q", "config", "columns", "outcome", "rows", "model", "setting", "versus"),
    *("branch", "metric", "log", "dates", "closed", "record", "runs", "kernels"),
)
#: Keys with few values: these, besides none.
CHOICES = {
    "mode": ("configs",),
    "versus": ("configs",),
    "rows": ("all",),
    "runs": ("all",),
    "kernels": ("compiled", "eager"),
    **dict.fromkeys(("log", "dates", "closed"), ("1",)),
}
#: Streamlit's own keys, and what older addresses have.
_IGNORED = ("embed", "embed_options", "charts")

Value = str | Iterable[str] | None


def get(key: str, default: str = "") -> str:
    """The value under `key`, or `default`."""
    return st.query_params.get(key, default)


def get_all(key: str) -> list[str]:
    """Every value under `key`, each once."""
    return list(dict.fromkeys(st.query_params.get_all(key)))


def unknown() -> list[str]:
    """The keys of this address that nothing here reads."""
    return [key for key in st.query_params if key not in (*SHARED, *OF_PAGES, *_IGNORED)]


def impossible() -> list[str]:
    """The keys of `CHOICES` whose value in this address is none of theirs."""
    return [key for key, values in CHOICES.items() if get(key) and get(key) not in values]


def put(key: str, value: Value) -> None:
    """Writes a value, or takes the key away for None, an empty text or no values."""
    if any(values := as_list(value)):
        st.query_params[key] = values
    else:
        st.query_params.pop(key, None)


def parameters(**changes: Value) -> dict[str, list[str]]:
    """What all pages share as it is now, with changes; an empty change takes a key away."""
    now: dict[str, Value] = {key: get_all(key) for key in SHARED if key in st.query_params}
    values = {key: as_list(value) for key, value in (dict.fromkeys(SHARED) | now | changes).items()}
    return {key: value for key, value in values.items() if any(value)}


def as_list(value: Value) -> list[str]:
    """One value, several or none as a list."""
    return [value] if isinstance(value, str) else list(value or ())


def link(page: str, **changes: Value) -> str:
    """An address relative to any page, so that it holds behind a proxy's path too."""
    return address(f"./{page}", parameters(**changes))


def widget(key: str) -> str:
    """The key of the widget that shows the value under `key`."""
    return f"{key}_widget"


def bind(key: str, value: str | list[str] | bool | None) -> str:
    """Sets the widget of `key` before it is drawn, and returns its key; pair it with `changed`."""
    st.session_state[widget(key)] = value
    return widget(key)


def changed(key: str, default: str | list[str] = "") -> None:
    """For `on_change`: writes what the widget shows to the address, where a default is no entry."""
    value = st.session_state[widget(key)]
    put(key, None if value == default else value)
