"""Pages under test: the real entrance, run by Streamlit's own test harness on a store of synthetic runs."""

import html
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from tests.dashboard import stores

APP = Path(__file__).parents[2] / "dashboard" / "app.py"

Open = Callable[..., AppTest]


@pytest.fixture(scope="session")
def two_nights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    return stores.fill(folder / "store.db")


@cache
def pages() -> dict:
    """The app's pages. A page can be switched to once the app has run: it runs once for all tests, not once for each."""
    app = AppTest.from_file(str(APP), default_timeout=30).run()
    return app._registered_pages


@pytest.fixture
def open_app(monkeypatch: pytest.MonkeyPatch) -> Open:
    """Opens a page of the app on a store, with an address; it must draw something and raise nothing."""

    def opened(store: Path | str, page: str = "", **query: str | list[str]) -> AppTest:
        monkeypatch.setenv("INDUCTOR_WATCH_DB", str(store))
        app = AppTest.from_file(str(APP), default_timeout=30)
        if page:
            app._registered_pages = pages()
            app.switch_page(f"views/{page}_page.py")
        for key, value in query.items():
            app.query_params[key] = value
        return ran(app)

    return opened


def ran(app: AppTest) -> AppTest:
    """Runs the page; a script that does not even compile raises nothing and draws nothing, so both are looked at."""
    app.run()
    assert not app.exception, [(error.message, error.stack_trace) for error in app.exception]
    assert text_of(app).strip()
    return app


def unfolded(app: AppTest, key: str) -> AppTest:
    """Opens what is drawn only where somebody opens it: a fold or a menu, by its key."""
    app.session_state[key] = True
    return ran(app)


def text_of(app: AppTest) -> str:
    """All HTML, code and captions on the page, the style sheet left out."""
    found = [element.proto for element in app.get("html")]
    parts = [proto.body for proto in found if "<style>" not in proto.body]
    parts += [element.value for kind in (app.title, app.header, app.caption, app.code) for element in kind]
    return "\n".join(parts)


def table_of(app: AppTest, caption: str) -> list[list[str]]:
    """The rows of the one table whose caption begins so, as they are read, a space between the lines of a cell."""
    (table,) = [part for part in text_of(app).split("<table>") if f"<caption>{caption}" in part]
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in table.split("</table>")[0].split("<tr>")[1:]]
    return [[html.unescape(re.sub(r"<[^>]+>", "", cell.replace("<br>", " "))) for cell in row] for row in rows]


def cells_of(app: AppTest) -> pd.DataFrame:
    """The table of the compare page."""
    head, *body = table_of(app, "Cells")
    return pd.DataFrame(body, columns=head)


def buttons(app: AppTest) -> list[str]:
    """What the buttons that save something say."""
    return [button.proto.label for button in app.get("download_button")]


def alts(app: AppTest) -> list[str]:
    """What the charts of the page say to those who hear it."""
    return [chart.proto.alt for chart in app.get("vega_lite_chart")]


def plain(app: AppTest) -> str:
    return re.sub(r"<[^>]+>", "", text_of(app))
