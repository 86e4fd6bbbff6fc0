"""The address of a page is its only memory: what is chosen is read from it and written to it, and links are made from it.

Streamlit's own binding of widgets to the address drops defaults, writes labels and replaces unknown values without a
word, so it is not used: a widget is set from the address before it is drawn and writes to the address when it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import streamlit as st

from analysis.reports.permalinks import address as address

#: What every page shares. Everything else belongs to one page and is left behind by a link that does not ask for it.
SHARED = ("base", "new", "device", "phase", "dtype", "suite", "configs", "since", "until", "by")
#: What belongs to one page or another. Anything else in an address is a slip of the pen, and is said to be one.
OF_PAGES = (
    *("mode", "from", "to", "q", "config", "columns", "outcome", "rows", "model", "setting", "versus"),
    *("branch", "metric", "log", "dates", "closed", "record", "runs", "kernels", "charts"),
)
#: Keys with few values: these, besides none.
CHOICES = {
    "mode": ("configs",),
    "versus": ("configs",),
    "rows": ("all",),
    "runs": ("all",),
    "kernels": ("compiled", "eager"),
    "charts": ("interactive",),
    **dict.fromkeys(("log", "dates", "closed"), ("1",)),
}
#: Streamlit's own.
OF_STREAMLIT = ("embed", "embed_options")

Value = str | Iterable[str] | None


def get(key: str, default: str = "") -> str:
    """The value under `key`, or `default`."""
    return st.query_params.get(key, default)


def get_all(key: str) -> list[str]:
    """Every value under `key`, each once."""
    return list(dict.fromkeys(st.query_params.get_all(key)))


def unknown() -> list[str]:
    """The keys of this address that nothing here reads."""
    return [key for key in st.query_params if key not in (*SHARED, *OF_PAGES, *OF_STREAMLIT)]


def impossible() -> list[str]:
    """The keys of `CHOICES` whose value in this address is none of theirs."""
    return [key for key, values in CHOICES.items() if get(key) and get(key) not in values]


def put(key: str, value: Value) -> None:
    """Writes a value, or takes the key away for None, an empty text or no values."""
    found = [value] if isinstance(value, str) else list(value or ())
    if any(found):
        st.query_params[key] = found
    else:
        st.query_params.pop(key, None)


def parameters(**changes: Value) -> dict[str, list[str]]:
    """What all pages share as it is now, with changes; an empty change takes a key away."""
    return _changed(_shared(), changes)


def link(page: str, **changes: Value) -> str:
    """An address relative to any page, so that it holds behind a proxy's path too."""
    return linker()(page, **changes)


def linker() -> Callable[..., str]:
    """`link` for many links: what the address says is asked once, which takes longer than to write a link."""
    shared = _shared()

    def link(page: str, **changes: Value) -> str:
        return address(f"./{page}", _changed(shared, changes))

    return link


def _shared() -> dict[str, list[str]]:
    return {key: get_all(key) for key in SHARED if key in st.query_params}


def _changed(shared: Mapping[str, list[str]], changes: Mapping[str, Value]) -> dict[str, list[str]]:
    found = {key: shared.get(key, []) for key in SHARED}
    for key, value in changes.items():
        found[key] = [value] if isinstance(value, str) else list(value or ())
    return {key: values for key, values in found.items() if any(values)}


def widget(key: str) -> str:
    """The key of the widget that shows the value under `key`."""
    return f"{key}_widget"


def bind(key: str, value: str | list[str] | bool | None) -> str:
    """Sets the widget of `key` before it is drawn, and returns its key; pair it with `changed`."""
    st.session_state[widget(key)] = value
    return widget(key)


def changed(key: str, default: str = "") -> None:
    """For `on_change`: writes what the widget shows to the address, where a default is no entry."""
    value = st.session_state[widget(key)]
    put(key, None if value == default else value)
