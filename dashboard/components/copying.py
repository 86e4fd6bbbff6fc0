"""A button that copies a text, or a link to a page of this dashboard."""

from __future__ import annotations

import streamlit as st

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


def button(key: str, label: str, copied: str, *, text: str = "", query: str = "", title: str = "") -> None:
    """Draws the button, which says `copied` once it has copied `text`, or this page's address with that query."""
    data = {"label": label, "copied": copied, "text": text, "query": query, "title": title}
    _button(key=key, data=data, width="content")
