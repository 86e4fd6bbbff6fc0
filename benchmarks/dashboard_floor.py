"""What Streamlit itself takes on this machine: the dashboard's interactions on an app that reads and computes nothing.

python -m benchmarks.dashboard_floor [--rounds 3] [--cold 1]

The app (`benchmarks/dashboard_floor_app.py`) has the dashboard's side bar with as many options, a page of a few elements and one
with a table of as many rows and columns as Compare's. Browser, clock, rounds in new tabs and the table are those of
`benchmarks/dashboard.py`: what a line says here, no dashboard made with this Streamlit in this shape can be quicker by.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.dashboard_browser import Step, Wanted
from benchmarks.dashboard_rounds import alone, chromium, first_load
from benchmarks.dashboard_server import server
from benchmarks.dashboard_steps import click, press, type_into
from benchmarks.dashboard_table import load_average, print_table

_APP = "benchmarks/dashboard_floor_app.py"
#: What the dashboard's own settings say.
_SETTINGS = {
    "server.headless": "true",
    "server.address": "127.0.0.1",
    "server.fileWatcherType": "none",
    "browser.gatherUsageStats": "false",
    "runner.magicEnabled": "false",
    "runner.postScriptGC": "false",
    "client.toolbarMode": "minimal",
}
_MAIN = '[data-testid="stMain"]'
_TITLE, _SAID = f"{_MAIN} h1", f"{_MAIN} .said"
_FIRST = (Wanted(_TITLE, "Overview"), Wanted(_SAID, "Overview: all"))


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cold", type=int, default=1, help="servers that are started afresh")
    options = parser.parse_args()
    where = chromium()
    print(f"streamlit {version('streamlit')}, load average {load_average()}, before")
    with TemporaryDirectory() as folder:
        asyncio.run(_measure(options, Path(folder) / "server.log", where))
    print(f"load average {load_average()}, after; this benchmark is part of it")


def steps(number: int) -> Iterator[Step]:
    """One round: every page for the first time, then again, and what changes one."""
    yield _page("first look: a few elements", "Model")
    yield _page("first look: a table", "Compare")
    words = "abcdefgh"[: 1 + number % 8]
    yield Step(
        "table: other rows", press("Enter"), (Wanted(_MAIN, f"rows of {words}"),), type_into(".st-key-filter", words)
    )
    yield _page("page: a few elements", "Trends")
    yield _page("page: a table", "Compare")
    yield _page("page: a few elements", "Overview")
    for name in ("one suite", "another suite"):
        yield _suite(name)


def _page(kind: str, title: str) -> Step:
    link = f'[data-testid="stSidebar"] [data-testid="stPageLink"] a:has-text("{title}")'
    return Step(kind, click(link), (Wanted(_TITLE, title),))


def _suite(name: str) -> Step:
    async def opened(page: Any) -> None:
        box = page.locator(".st-key-suite input")
        await box.click()
        await box.fill(name)

    return Step("side bar: a pick", press("Enter"), (Wanted(_SAID, name),), opened)


async def _measure(options: argparse.Namespace, log: Path, where: str) -> None:
    from playwright.async_api import async_playwright

    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=where, args=["--no-sandbox"])
        cold = []
        for _ in range(max(1, options.cold)):
            with _served(log) as running:
                cold.append(await first_load(browser, running, _FIRST))
        with _served(log) as running:
            times, spent, errors = await alone(browser, running, _FIRST, steps, options.rounds)
        print_table({"load: cold": cold, **times}, "nothing but Streamlit", spent)
        print(f"errors: {len(errors)}", *errors[:5], sep="\n  ")
        await browser.close()


def _served(log: Path) -> Any:
    return server("", log, _APP, *(f"--{name}={value}" for name, value in _SETTINGS.items()))


if __name__ == "__main__":
    main()
