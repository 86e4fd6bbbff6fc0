"""How hand-written HTML and charts look. Colours of HTML are mixed with the text's own, so that light and dark need one sheet."""

from __future__ import annotations

import streamlit as st

from analysis.elements.charts import COLORS, Colors

SHEET = """
<style>
[data-testid="stMainBlockContainer"] { padding: 2.2rem 2.2rem 4rem; max-width: 110rem; }
[data-testid="stCaptionContainer"], [data-testid="stCaptionContainer"] p { opacity: 1;
  color: color-mix(in srgb, var(--st-text-color) 80%, var(--st-background-color)); }
[data-testid="stMultiSelect"] [data-tag] { background-color: var(--st-secondary-background-color) !important;
  border: 1px solid color-mix(in srgb, var(--st-text-color) 30%, transparent) !important; }
[data-testid="stMultiSelect"] [data-tag], [data-testid="stMultiSelect"] [data-tag] * { color: var(--st-text-color) !important; }
[data-testid="stSelectboxVirtualDropdown"]:has(:is([aria-label="Base"], [aria-label="New"])) {
  width: min(58rem, calc(100vw - 2rem)) !important; max-width: none !important; }
.iw { --iw-worse: #d9731f; --iw-better: #2f86d1; --iw-line: color-mix(in srgb, currentColor 16%, transparent);
  --iw-soft: color-mix(in srgb, currentColor 74%, transparent);
  font-variant-numeric: tabular-nums; font-size: .875rem; line-height: 1.35; }
.iw p, .iw ul { margin: 0 0 .35rem; }
.iw p, .iw ul, .iw ul li { font-size: inherit; }
.iw a { color: inherit; text-decoration: none; }
.iw a:hover, .iw a:focus-visible { text-decoration: underline; text-underline-offset: 2px; }
.iw a.out { text-decoration: underline dotted; text-underline-offset: 2px; }
.iw a.out:hover, .iw a.out:focus-visible { text-decoration-style: solid; }
.iw-scroll { overflow-x: auto; max-width: 100%; }
.iw-scroll:focus-visible { outline: 2px solid currentColor; outline-offset: 2px; }
.iw table { border-collapse: collapse; width: 100%; margin: 0; }
.iw caption { caption-side: top; text-align: left; font-weight: 600; padding: 0 0 .3rem; color: inherit; }
.iw caption small { font-weight: 400; color: var(--iw-soft); font-size: .8rem; }
.iw th, .iw td { border: 0; border-bottom: 1px solid var(--iw-line); padding: .28rem .6rem; text-align: left;
  vertical-align: top; }
.iw thead th { font-weight: 500; color: var(--iw-soft); font-size: .8rem; white-space: nowrap; vertical-align: bottom; }
.iw tbody th { font-weight: 400; overflow-wrap: anywhere; min-width: 7.5rem; }
.iw tbody th:has(.soft) { min-width: 13rem; }
.iw tbody th:has(.iw-mono) { min-width: 17rem; }
.iw td:not(.n):has(.soft) { min-width: 9rem; }
.iw td.n, .iw th.n { text-align: right; white-space: nowrap; }
.iw td.c { white-space: nowrap; }
.iw td.c > a, .iw td.c > span, .iw td.c .line { display: block; }
.iw .arrow { color: var(--iw-soft); padding: 0 .15em; }
.iw .calm, .iw .soft { color: var(--iw-soft); }
.iw .worse { color: color-mix(in oklab, var(--iw-worse) 55%, currentColor); font-weight: 600; }
.iw .better { color: color-mix(in oklab, var(--iw-better) 60%, currentColor); font-weight: 600; }
.iw td.worse { background: color-mix(in srgb, var(--iw-worse) 15%, transparent); color: inherit; font-weight: inherit; }
.iw td.better { background: color-mix(in srgb, var(--iw-better) 15%, transparent); color: inherit; font-weight: inherit; }
.iw td.unplanned { color: var(--iw-soft); }
.iw .iw-ways a { display: inline-block; padding: .25rem .7rem; margin-right: .4rem; border: 1px solid currentColor;
  border-radius: .4rem; }
.iw .tag { display: inline-block; padding: 0 .4em; border-radius: .25rem; font-size: .8rem; white-space: nowrap;
  border: 1px solid var(--iw-line); }
.iw .tag.fail { border-color: color-mix(in srgb, var(--iw-worse) 60%, transparent);
  background: color-mix(in srgb, var(--iw-worse) 15%, transparent); }
.iw .tag.pass { background: color-mix(in srgb, var(--iw-better) 12%, transparent); }
.iw .tag.missing { border-style: dashed; border-color: var(--iw-soft); }
[data-testid="stMain"]:has(.iw-verdict) :is(.st-key-at-once, [data-testid="stLayoutWrapper"]:has(> .st-key-at-once)) {
  display: none; }
.iw p.iw-verdict { font-size: 1.05rem; line-height: 1.4; margin: 0 0 .2rem; max-width: 110ch; }
.iw p.iw-verdict a, .iw p.iw-links a { text-decoration: underline; text-underline-offset: 3px; text-decoration-thickness: 1px; }
.iw small { color: var(--iw-soft); }
.iw-grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, var(--iw-least, 27rem)), 1fr));
  gap: 1.3rem 2rem;
  align-items: start; }
.iw-short { gap: .5rem 1.6rem; }
.iw .iw-short th, .iw .iw-short td { padding: .16rem .22rem; font-size: .78rem; white-space: nowrap; }
.iw-short tbody th, .iw-short tbody th:has(.soft), .iw-short td:not(.n):has(.soft) { min-width: 0; }
.iw .iw-short td .worse { font-weight: 600; }
.iw-list tbody th, .iw-list td { white-space: nowrap; padding: .2rem .5rem; }
.iw .iw-list tbody th, .iw .iw-list td { min-width: 0; }
.iw-mono { font-family: var(--st-code-font, monospace); font-size: .8rem; overflow-wrap: anywhere; }
.iw td:has(.iw-mono) { min-width: 9rem; }
.iw-narrow { max-width: 56rem; }
.iw-narrower { max-width: 30rem; }
.iw ul.iw-dimensions a { text-decoration: underline; text-underline-offset: 3px; text-decoration-thickness: 1px; }
.iw ul.iw-dimensions { padding-left: 1.1rem; }
.iw ul.iw-sides, .iw ul.iw-notes { list-style: none; padding: 0; }
.iw ul.iw-sides li { margin: 0 0 .2rem; }
.iw ul.iw-short { gap: .5rem 1.6rem; }
.iw .iw-short th, .iw .iw-short td { padding: .16rem .22rem; font-size: .78rem; white-space: nowrap; }
.iw-short tbody th, .iw-short tbody th:has(.soft), .iw-short td:not(.n):has(.soft) { min-width: 0; }
.iw .iw-short td .worse { font-weight: 600; }
.iw-list tbody th, .iw-list td { white-space: nowrap; padding: .2rem .5rem; }
.iw .iw-list tbody th, .iw .iw-list td { min-width: 0; }
.iw-mono { padding-left: 1.2rem; }
.iw-state { border-left: 3px solid var(--iw-soft); padding: .35rem 0 .35rem 1rem; max-width: 75ch; }
.iw-state h1 { font-size: 1.35rem; padding: 0; margin: 0 0 .15rem; }
@media (max-width: 640px) {
  [data-testid="stMainBlockContainer"] { padding: 3rem 1rem 3rem; }
  .iw th, .iw td { padding: .25rem .4rem; }
  .iw tbody th { min-width: 8.5rem; }
  .iw .iw-list tbody th { white-space: normal; overflow-wrap: anywhere; min-width: 8.5rem; max-width: 10rem; }
  .iw .iw-changes :is(th, td):is(:nth-child(3), :nth-child(4)) { display: none; }
  .st-key-intervals [data-testid="stVerticalBlock"] { overflow-x: auto; }
  .st-key-intervals [data-testid="stVegaLiteChart"] { min-width: 32rem; }
}
</style>
"""


def colors() -> Colors:
    """The colours of the page as the reader's browser shows it now."""
    return COLORS["dark" if st.context.theme.type == "dark" else "light"]
