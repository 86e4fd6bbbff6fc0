"""A real Streamlit server on a free loopback port, and a headless Chromium that looks at it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.collector.processes import wait_until
from tests.command_line import ROOT, free_port, is_healthy
from tests.dashboard import stores

#: Streamlit's own word that the script has ended and the page is connected.
READY = '[data-testid="stApp"][data-test-script-state="notRunning"][data-test-connection-state="CONNECTED"]'
_START_S = 30
#: The variable that names a folder to keep pictures in.
SCREENSHOTS = "INDUCTOR_WATCH_SCREENSHOTS"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The dashboard as a person starts it, on a store of three synthetic nights; its address."""
    folder = tmp_path_factory.mktemp("browser")
    with serving(stores.fill(folder / "store.db", runs=3), folder) as address:
        yield address


@pytest.fixture(scope="session")
def real_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of the bundles that came with the checkout: releases of torch on a CPU."""
    bundles = sorted((ROOT / "data" / "releases").glob("*.jsonl*"))
    return stores.store(tmp_path_factory.mktemp("real") / "store.db", bundles)


@pytest.fixture(scope="session")
def real_server(real_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(real_store, tmp_path_factory.mktemp("real-browser")) as address:
        yield address


@contextmanager
def serving(store: Path, folder: Path) -> Iterator[str]:
    """A Streamlit server on a store, with its log in `folder`."""
    port, log = free_port(), folder / "server.log"
    command = [sys.executable, "-m", "streamlit", "run", "dashboard/app.py", "--server.port", str(port)]

    def answers() -> bool:
        assert process.poll() is None, f"streamlit did not start:\n{log.read_text()}"
        return is_healthy(port)

    with log.open("w") as stream:
        process = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, "INDUCTOR_WATCH_DB": str(store)}, stdout=stream, stderr=stream
        )
    try:
        wait_until(answers, _START_S)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture(scope="module")
def chromium():
    """A headless browser; skips where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install -e .[dev]")
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        pytest.skip("no chromium on this machine: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(chromium, server):
    """A page of its own context that fails the test if it asks another host for anything or a script breaks."""
    with watched(chromium, base_url=server) as opened:
        yield opened


def context_of(browser, **options):
    """A context with these options, the same one for all who ask: a new one would fetch and compile every script again."""
    kept = browser.__dict__.setdefault("kept_contexts", {})
    key = repr(sorted(options.items()))
    if key not in kept:
        kept[key] = browser.new_context(**options)
    return kept[key]


@contextmanager
def watched(chromium, **context):
    """A page of a browser that remembers nothing; at the end nothing but the dashboard may have been asked for anything."""
    found = context_of(chromium, **{"viewport": {"width": 1300, "height": 900}, **context})
    opened = found.new_page()
    strangers: list[str] = []
    opened.on("request", lambda request: None if _is_ours(request.url) else strangers.append(request.url))
    opened.on("pageerror", lambda error: strangers.append(str(error)))
    yield opened
    if opened.url.startswith("http"):
        opened.evaluate("localStorage.clear(), sessionStorage.clear()")
    opened.close()
    found.clear_cookies()
    found.clear_permissions()
    assert strangers == []


def keep(page, name: str) -> None:
    """A picture of the page for people to look at, where `INDUCTOR_WATCH_SCREENSHOTS` names a folder for them."""
    if folder := os.environ.get(SCREENSHOTS):
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(folder) / f"{name}.png")


#: Colours and widths in which a page is looked at.
LOOKS = (
    ("light", 1400),
    pytest.param("dark", 1400, marks=pytest.mark.slow),
    pytest.param("light", 390, marks=pytest.mark.slow),
)


def violations(page) -> list[tuple[str, str, list[str]]]:
    """What axe finds now: rule, what it demands, and the first elements."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe: pip install -e .[dev]")
    found = axe.Axe().run(page).response["violations"]
    return [(item["id"], item["help"], [node["html"][:160] for node in item["nodes"][:3]]) for item in found]


def settled(page) -> None:
    """Waits until the script has ended and a heading is there."""
    page.wait_for_timeout(150)
    page.wait_for_selector(READY)
    page.wait_for_selector("h1")


def _is_ours(address: str) -> bool:
    return address.startswith(("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:"))
