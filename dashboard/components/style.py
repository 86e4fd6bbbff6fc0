"""How hand-written HTML and charts look. Colours of HTML are mixed with the text's own, so that light and dark need one sheet."""

from __future__ import annotations

from importlib.resources import files

import streamlit as st

from analysis.elements.charts import COLORS, Colors

_TABLES = (files("analysis.elements") / "tables.css").read_text(encoding="utf-8")
SHEET = f"""
<style>
[data-testid="stMainBlockContainer"] {{ padding: 2.2rem 2.2rem 4rem; max-width: 110rem; }}
[data-testid="stCaptionContainer"], [data-testid="stCaptionContainer"] p {{ opacity: 1;
  color: color-mix(in srgb, var(--st-text-color) 80%, var(--st-background-color)); }}
[data-testid="stMultiSelect"] [data-tag] {{ background-color: var(--st-secondary-background-color) !important;
  border: 1px solid color-mix(in srgb, var(--st-text-color) 30%, transparent) !important; }}
[data-testid="stMultiSelect"] [data-tag], [data-testid="stMultiSelect"] [data-tag] * {{ color: var(--st-text-color) !important; }}
[data-testid="stSelectboxVirtualDropdown"]:has(:is([aria-label="Base"], [aria-label="New"])) {{
  width: min(58rem, calc(100vw - 2rem)) !important; max-width: none !important; }}
[data-testid="stMain"]:has(.iw-verdict) :is(.st-key-at-once, [data-testid="stLayoutWrapper"]:has(> .st-key-at-once)) {{
  display: none; }}
{_TABLES}@media (max-width: 640px) {{
  [data-testid="stMainBlockContainer"] {{ padding: 3rem 1rem 3rem; }}
  .st-key-intervals [data-testid="stVerticalBlock"] {{ overflow-x: auto; }}
  .st-key-intervals [data-testid="stVegaLiteChart"] {{ min-width: 32rem; }}
}}
</style>
"""


def colors() -> Colors:
    """The colours of the page as the reader's browser shows it now."""
    return COLORS["dark" if st.context.theme.type == "dark" else "light"]
