"""Widgets that show what the address says, and write to the address what a person picks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import streamlit as st

from dashboard import url
from dashboard.components.markup import alert, anchor, draw, joined, paragraph, span

_NO_NAMES: Mapping[str, str] = MappingProxyType({})


def select(
    key: str,
    title: str,
    options: Sequence[str],
    value: str | None,
    *,
    default: str = "",
    names: Mapping[str, str] = _NO_NAMES,
    where: Any = st,
) -> None:
    """A box of which one option is picked; `default` is no entry in the address, `names` are what options are called."""
    where.selectbox(
        title,
        options,
        format_func=lambda option: names.get(option, option),
        key=url.bind(key, value),
        on_change=url.changed,
        args=(key, default),
    )


def select_many(
    key: str,
    title: str,
    options: Iterable[str],
    value: Sequence[str],
    *,
    names: Mapping[str, str] = _NO_NAMES,
    most: int | None = None,
    placeholder: str = "all",
    where: Any = st,
    default: Sequence[str] = (),
) -> None:
    """A box of which several options are picked, at most `most`."""
    where.multiselect(
        title,
        list(options),
        format_func=lambda option: names.get(option, option),
        key=url.bind(key, list(value)),
        on_change=url.changed,
        args=(key, list(default)),
        max_selections=most,
        placeholder=placeholder,
    )


def switch(key: str, title: str, on: str = "1", *, where: Any = st) -> bool:
    """A toggle that writes `on` to the address or takes the key away; whether it is on."""
    where.toggle(title, key=url.bind(key, url.get(key) == on), on_change=_switched, args=(key, on))
    return url.get(key) == on


def segments(key: str, title: str, names: Mapping[str, str], value: str, default: str = "") -> None:
    """Options beside each other, of which one is picked; the title is for screen readers."""
    st.segmented_control(
        title,
        list(names),
        format_func=lambda option: names[option],
        key=url.bind(key, value),
        on_change=url.changed,
        args=(key, default),
        required=True,
        label_visibility="collapsed",
    )


def ways(where: Any, picked: Sequence[str], labels: Mapping[str, str], link: Callable[..., str], what: str) -> None:
    """Draws where the clicked names lead: to one, or to the comparison of the last two, the first of `labels` as base.

    `labels` are of all names, in their order; `link` makes an address from `base` and `new`; `what` is what a point stands for.
    """
    named = [name for name in dict.fromkeys(picked) if name in labels][-2:]
    if not named:
        where.caption(f"Click a point to open its {what}, and a second one to compare the two.")
        return
    links = [anchor(link(base="", new=named[-1]), f"Open this {what}")]
    if len(named) == 2:
        base, new = sorted(named, key=list(labels).index)
        links.insert(0, anchor(link(base=base, new=new), "Compare these two"))
    with where:
        draw(
            paragraph(
                "iw-ways",
                joined(" ", [*links, span("soft", " and ".join(f"{labels[name]} ({name})" for name in named))]),
            )
        )


def known(key: str, options: Iterable[str], default: str) -> str:
    """The value that the address has, if it is one of `options`; else the default, with a message if it has another one."""
    return next(iter(known_many(key, options)), default)


def known_many(key: str, options: Iterable[str], wanted: Sequence[str] | None = None) -> list[str]:
    """The values that the address has (or `wanted`) and that are among `options`, with a message for each other one."""
    wanted, options = url.get_all(key) if wanted is None else wanted, list(options)
    alert(*(url.not_known(key, name, options) for name in wanted if name not in options))
    return [name for name in wanted if name in options]


def _switched(key: str, on: str) -> None:
    url.put(key, on if st.session_state[url.widget(key)] else None)
