"""The dashboard's entrance, for `streamlit run dashboard/app.py`: page config, pickers, navigation, nothing else.

Streamlit reads this file twice: as a module once, in which it finds `app` and so learns what is to be done at the start, and as
the script of every page, which is `__main__`.
"""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from dashboard import ahead, data, hud_links, in_browser, parts, selection, sending, turns, url, warm
from dashboard.components import empty_states as states
from dashboard.components import sidebar, style
from dashboard.components.markup import text
from dashboard.pages.overview import headline

#: Drawn here: an icon by name would be fetched from another host.
_ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="3" fill="#0B61A4"/>'
    '<path d="M2 9h3l2-5 3 8 1.5-3H14" fill="none" stroke="#fff" stroke-width="1.6"/></svg>'
)


def pages() -> list[st.Page]:
    """The pages, in the order of the navigation."""
    return [
        st.Page("pages/overview/page.py", title="Overview", icon=":material/grid_view:", default=True),
        st.Page("pages/compare/page.py", title="Compare", icon=":material/compare_arrows:", url_path="compare"),
        st.Page("pages/model/page.py", title="Model", icon=":material/stethoscope:", url_path="model"),
        st.Page("pages/trends/page.py", title="Trends", icon=":material/show_chart:", url_path="trends"),
        st.Page("pages/regressions/page.py", title="Regressions", icon=":material/flag:", url_path="regressions"),
        st.Page("pages/runs/page.py", title="Runs", icon=":material/event_available:", url_path="runs"),
        st.Page("pages/about/page.py", title="About the numbers", icon=":material/menu_book:", url_path="about"),
    ]


def main() -> None:
    """One run of the script: read what is asked for, draw the pickers, hand over to the page."""
    st.set_page_config(page_title="inductor-watch", page_icon=_ICON, layout="wide")
    listed = pages()
    page = st.navigation(listed, position="hidden")
    st.html(style.SHEET)
    in_browser.start()
    selection.remember(None)
    with states.said_plainly():
        _draw(page, listed)


def _draw(page: st.Page, listed: Sequence[st.Page]) -> None:
    store = data.opened()
    if not store.nights():
        states.show("No runs yet", "The database is there and holds no runs. Fill it, then reload:", states.FILL)
        return
    notes = _from_hud()
    with st.sidebar:
        _navigation(listed)
        sidebar.pickers(store)
    chosen = selection.read(store)
    selection.remember(chosen)
    with st.sidebar:
        parts.whole(sidebar.permalink(chosen))
    for line in (*notes, *chosen.warnings, *chosen.problems):
        st.html(f'<div class="iw iw-state" role="alert">{text(line)}</div>')
    page.run()
    _think_ahead(chosen)


def _think_ahead(chosen: selection.Selection) -> None:
    """What is likely to be asked for next, once this page is there and nobody waits for another."""
    if chosen.pair is None:
        return
    swapped = (chosen.pair[1], chosen.pair[0])
    pieces = ahead.of_pair(chosen.data, swapped, chosen.filters, headline.COMPARED)
    ahead.ahead.wish([*pieces, *ahead.of_model(chosen.data, chosen.pair, chosen.filters)])


def _from_hud() -> list[str]:
    """Takes over what a HUD link asks for, so that the address becomes one of ours."""
    query = {key: st.query_params.get_all(key) for key in st.query_params}
    if not hud_links.is_hud_link(query):
        return []
    found, notes = hud_links.translate(query)
    st.query_params.from_dict(found)
    return ["A HUD link: its left side is shown as new, its right side as base.", *notes]


def _navigation(listed: Sequence[st.Page]) -> None:
    """Own links instead of Streamlit's menu, which would forget what the address says."""
    shared = url.parameters()
    for page in listed:
        st.page_link(page, query_params=shared)


if __name__ == "__main__":
    with turns.taken(), sending.together(first=not selection.has_begun()):
        main()
else:
    app = st.App(__file__, lifespan=warm.lifespan)
