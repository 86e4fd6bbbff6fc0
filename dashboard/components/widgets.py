"""Widgets: pickers that show what the address says and write to it, the title of a page, and a button that copies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import streamlit as st

from analysis.elements.addresses import fixed_side
from analysis.elements.markup import anchor, joined, paragraph, span
from dashboard import url
from dashboard.components.drawing import alert, draw
from dashboard.selection import NOTHING, remembered

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


_HTML = '<button type="button"></button> <span role="status"></span>'
_CSS = """
button { font: inherit; font-size: .875rem; color: inherit; background: transparent; cursor: pointer; white-space: nowrap;
  border: 1px solid color-mix(in srgb, var(--st-text-color) 45%, transparent); border-radius: .5rem; padding: .3rem .75rem; }
button:hover, button:focus-visible { border-color: var(--st-text-color); }
button:focus-visible { outline: 2px solid currentColor; outline-offset: 2px; }
span { font-size: .875rem; }
"""
#: The clipboard is there only on https and on this machine. Elsewhere the text is shown, selected, to be copied by hand.
_JS = """
export default function ({ data, parentElement }) {
  const button = parentElement.querySelector("button"), said = parentElement.querySelector("span");
  button.textContent = data.label;
  button.title = data.title;
  said.textContent = "";
  button.onclick = async () => {
    const text = data.text || new URL(data.query, window.location.href).href;
    try {
      await navigator.clipboard.writeText(text);
      said.textContent = data.copied;
    } catch {
      const box = Object.assign(document.createElement("input"), { value: text, readOnly: true, size: 40 });
      box.setAttribute("aria-label", `${data.label}: text to copy`);
      said.replaceChildren(box);
      box.select();
    }
  };
}
"""
_button = st.components.v2.component("copy_text", html=_HTML, css=_CSS, js=_JS)
_HELP = (
    "The link names base and new as they are shown now: a night or a run stays as it is, a commit takes in further runs of it. "
    "In the browser's own address, latest, previous and a branch follow newer runs."
)
_COPIED = "Copied. Newer nights do not change what it shows."


def button(key: str, label: str, copied: str, *, text: str = "", query: str = "", title: str = "") -> None:
    """Draws the button, which says `copied` once it has copied `text`, or this page's address with that query."""
    data = {"label": label, "copied": copied, "text": text, "query": query, "title": title}
    _button(key=key, data=data, width="content")


def title(text: str) -> None:
    """Draws the title of a page with *Copy link* beside it; `text` is Markdown."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.title(text, anchor=False, width="content")
        button("copy_link", "Copy link", _COPIED, query=frozen_query(), title=_HELP)


def frozen_query() -> str:
    """The query of this page with both sides spelled out, so that it means the same tomorrow."""
    query = {key: url.get_all(key) for key in st.query_params}
    if selection := remembered():
        base = fixed_side(selection.base) if selection.base else NOTHING
        query |= {"base": [base], "new": [fixed_side(selection.new)]}
    return url.address("", query) or "?"
