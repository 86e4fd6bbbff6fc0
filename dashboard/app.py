"""The dashboard's entry point, for `streamlit run dashboard/app.py`: page config, pickers and navigation."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from analysis.elements import addresses
from dashboard import data, url, widgets
from dashboard.widgets import alert
from db.queries.cells import EVERYTHING
from db.store_errors import SideError, StoreError

#: Inline, since an icon by name would be fetched from another host.
_ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="3" fill="#0B61A4"/>'
    '<path d="M2 9h3l2-5 3 8 1.5-3H14" fill="none" stroke="#fff" stroke-width="1.6"/></svg>'
)


def pages() -> list[st.Page]:
    """Return the pages, in the order of the navigation. Their folder is not called `pages`, a name that Streamlit reserves."""
    return [
        st.Page("views/overview_page.py", title="Overview", icon=":material/grid_view:", default=True),
        st.Page("views/compare_page.py", title="Compare", icon=":material/compare_arrows:", url_path="compare"),
        st.Page("views/model_page.py", title="Model", icon=":material/stethoscope:", url_path="model"),
        st.Page("views/commit_page.py", title="Commit", icon=":material/commit:", url_path="commit"),
        st.Page("views/census_page.py", title="Census", icon=":material/fact_check:", url_path="census"),
        st.Page("views/trends_page.py", title="Trends", icon=":material/show_chart:", url_path="trends"),
        st.Page("views/regressions_page.py", title="Regressions", icon=":material/flag:", url_path="regressions"),
        st.Page("views/runs_page.py", title="Runs", icon=":material/event_available:", url_path="runs"),
        st.Page("views/about_page.py", title="About the numbers", icon=":material/menu_book:", url_path="about"),
    ]


def main() -> None:
    """Run the script once: read the address, draw the pickers and the page."""
    st.set_page_config(page_title="inductor-watch", page_icon=_ICON, layout="wide")
    listed = pages()
    page = st.navigation(listed, position="hidden")
    st.html(widgets.SHEET)
    url.remember(None)
    try:
        _draw(page, listed)
    except SideError as error:
        widgets.show_nothing("There is no such side", f"{error}. Pick another one at the left.")
    except StoreError as error:
        fill = widgets.FILL if "no database" in str(error) else ""
        widgets.show_nothing("The database cannot be shown", f"{error}.", fill)


def _draw_without_nights(page: st.Page, listed: Sequence[st.Page], store: data.Data) -> None:
    """Draw the census, which needs no night; any other page says where to find it, or that there is nothing."""
    if not store.code_changes(EVERYTHING):
        widgets.show_nothing(
            "No runs yet", "The database is there and holds no runs. Fill it, then reload:", widgets.FILL
        )
    elif page.url_path == "census":
        page.run()
    else:
        widgets.show_nothing("No nights yet", "The database holds generated code alone, without any measurement.")
        st.page_link(next(one for one in listed if one.url_path == "census"))


def _draw(page: st.Page, listed: Sequence[st.Page]) -> None:
    store = data.opened()
    if not store.nights():
        _draw_without_nights(page, listed, store)
        return
    addresses.LOCAL.set(store.local_commits())
    notes = _from_hud()
    with st.sidebar:
        # Links with the shared part of the address, which Streamlit's own menu would drop.
        for one in listed:
            st.page_link(one, query_params=url.parameters())
        widgets.pickers(store)
    chosen = url.read_selection(store)
    url.remember(chosen)
    alert(*notes, *chosen.warnings)
    page.run()


def _from_hud() -> list[str]:
    """Translate the query of a HUD link, so that the address becomes one of ours, and return notes on the translation."""
    query = {key: st.query_params.get_all(key) for key in st.query_params}
    if not addresses.is_hud_link(query):
        return []
    translated, notes = addresses.translate(query)
    st.query_params.from_dict(translated)
    return ["A HUD link: its left side is shown as new, its right side as base.", *notes]


main()
