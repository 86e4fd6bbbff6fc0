"""The dashboard's entrance, for `streamlit run dashboard/app.py`: page config, pickers, navigation, nothing else."""

from __future__ import annotations

import streamlit as st

from dashboard import data, hud_links, selection, sidebar, states, style, url
from dashboard.markup import text
from db.errors import SideError, StoreError

#: Drawn here: an icon by name would be fetched from another host.
_ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="3" fill="#0B61A4"/>'
    '<path d="M2 9h3l2-5 3 8 1.5-3H14" fill="none" stroke="#fff" stroke-width="1.6"/></svg>'
)

PAGES = {
    "overview": st.Page("views/overview.py", title="Overview", icon=":material/grid_view:", default=True),
    "compare": st.Page("views/compare.py", title="Compare", icon=":material/compare_arrows:", url_path="compare"),
    "model": st.Page("views/model.py", title="Model", icon=":material/stethoscope:", url_path="model"),
    "trends": st.Page("views/trends.py", title="Trends", icon=":material/show_chart:", url_path="trends"),
    "regressions": st.Page("views/regressions.py", title="Regressions", icon=":material/flag:", url_path="regressions"),
    "runs": st.Page("views/runs.py", title="Runs", icon=":material/event_available:", url_path="runs"),
    "about": st.Page("views/about.py", title="About the numbers", icon=":material/menu_book:", url_path="about"),
}


def main() -> None:
    """One run of the script: read what is asked for, draw the pickers, hand over to the page."""
    st.set_page_config(page_title="inductor-watch", page_icon=_ICON, layout="wide")
    page = st.navigation(list(PAGES.values()), position="hidden")
    st.html(style.SHEET)
    selection.remember(None)
    try:
        _draw(page)
    except SideError as error:
        states.show("There is no such side", f"{error}. Pick another one at the left.")
    except StoreError as error:
        states.show("The database cannot be shown", f"{error}.", states.FILL if "no database" in str(error) else "")


def _draw(page: st.Page) -> None:
    store = data.opened()
    if not store.nights():
        states.show("No runs yet", "The database is there and holds no runs. Fill it, then reload:", states.FILL)
        return
    notes = _from_hud()
    with st.sidebar:
        _navigation()
        sidebar.pickers(store)
    chosen = selection.read(store)
    selection.remember(chosen)
    with st.sidebar:
        sidebar.permalink(chosen)
    for line in (*notes, *chosen.warnings, *chosen.problems):
        st.html(f'<div class="iw iw-state" role="alert">{text(line)}</div>')
    page.run()


def _from_hud() -> list[str]:
    """Takes over what a HUD link asks for, so that the address becomes one of ours."""
    query = {key: st.query_params.get_all(key) for key in st.query_params}
    if not hud_links.is_hud_link(query):
        return []
    found, notes = hud_links.translate(query)
    st.query_params.from_dict(found)
    return ["A HUD link: its left side is shown as new, its right side as base.", *notes]


def _navigation() -> None:
    """Own links instead of Streamlit's menu, which would forget what the address says."""
    for page in PAGES.values():
        st.page_link(page, query_params=url.parameters())


main()
