"""The address of a page holds all that is chosen: it is read from there and written there, and links are made from it.

A widget is set from the address before it is drawn and writes to the address when it changes. Streamlit's own binding of
widgets to the address drops defaults and replaces unknown values without a message.
"""

from __future__ import annotations

from collections.abc import Iterable

import streamlit as st

from analysis.elements.addresses import address as address
from db.store_errors import nearest, one_line

#: What every page shares. Everything else belongs to one page and is left behind by a link that does not ask for it.
SHARED = ("base", "new", "device", "phase", "dtype", "suite", "configs", "since", "until", "by")
#: What belongs to one page or another. The page says of any other key that nothing reads it.
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
#: Keys with few values: these, besides none.
_CHOICES = {
    **dict.fromkeys(("mode", "versus"), ("configs",)),
    **dict.fromkeys(("rows", "runs"), ("all",)),
    **dict.fromkeys(("log", "dates", "closed"), ("1",)),
    "kernels": ("compiled", "eager", "beside"),
    "sources": ("both",),
    "by": ("day", "week", "month"),
}
#: Streamlit's own keys, and what older addresses have.
_IGNORED = ("embed", "embed_options", "charts")

Value = str | Iterable[str] | None


def get(key: str) -> str:
    """The value under `key`; empty where there is none."""
    return st.query_params.get(key, "")


def get_all(key: str) -> list[str]:
    """Every value under `key`, each once."""
    return list(dict.fromkeys(st.query_params.get_all(key)))


def choice(key: str) -> str:
    """The value under a key with few values; empty where it is none of them, of which `problems` has a sentence."""
    return get(key) if get(key) in _CHOICES[key] else ""


def problems() -> list[str]:
    """A sentence for each key of this address that nothing here reads, and for each impossible value of a `_CHOICES` key."""
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
    """Says that the address has a value that does not exist, with the nearest ones that do."""
    return f"The address has {key} {one_line(wanted)!r}, which is not known here{nearest(wanted, known)}. It is not applied."


def put(key: str, value: Value) -> None:
    """Writes a value, or takes the key away for None, an empty text or no values."""
    if any(values := _as_list(value)):
        st.query_params[key] = values
    else:
        st.query_params.pop(key, None)


def parameters(**changes: Value) -> dict[str, list[str]]:
    """What all pages share as it is now, with changes; an empty change takes a key away."""
    # A page has hundreds of links: most addresses have few of the keys.
    present = set(st.query_params)
    values = {key: get_all(key) if key in present else [] for key in SHARED}
    values |= {key: _as_list(value) for key, value in changes.items()}
    return {key: value for key, value in values.items() if any(value)}


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


def _as_list(value: Value) -> list[str]:
    return [value] if isinstance(value, str) else list(value or ())
