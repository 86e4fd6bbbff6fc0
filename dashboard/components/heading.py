"""The title of a page, and a button that copies a text, or a link to what is shown."""

from __future__ import annotations

import streamlit as st

from analysis.reports.permalinks import fixed_side
from dashboard import url
from dashboard.selection import NOTHING, remembered

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
