"""What Streamlit itself takes on this machine: the dashboard's interactions on an app that reads and computes nothing.

python -m benchmarks.dashboard_floor [--rounds 3] [--cold 1]

The app (`benchmarks/dashboard_floor_app.py`) has the dashboard's side bar with as many options, a page of a few elements and one
with a table of as many rows and columns as Compare's. Browser, clock, rounds in new tabs and the table are those of
`benchmarks/dashboard.py`: what a line says here, no dashboard made with this Streamlit in this shape can be quicker by.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.dashboard_browser import Step, Wanted, tab, watched
from benchmarks.dashboard_server import Server, browsers_ms, server
from benchmarks.dashboard_steps import click, press, type_into
from benchmarks.dashboard_table import Times, load_average, print_table, take

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
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        sys.exit("no chromium on this machine: apt-get install chromium")
    print(f"streamlit {version('streamlit')}, load average {load_average()}, before")
    with TemporaryDirectory() as folder:
        asyncio.run(_measure(options, Path(folder) / "server.log", chromium))
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


async def _measure(options: argparse.Namespace, log: Path, chromium: str) -> None:
    from playwright.async_api import async_playwright

    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        cold = []
        for _ in range(max(1, options.cold)):
            with _served(log) as running:
                page = await watched(browser)
                cold.append(await page.load(running.address, *_FIRST))
                await page.page.context.close()
        with _served(log) as running:
            times, spent, errors = await _rounds(browser, running, options.rounds)
        print_table({"load: cold": cold, **times}, "nothing but Streamlit", spent)
        print(f"errors: {len(errors)}", *errors[:5], sep="\n  ")
        await browser.close()


async def _rounds(browser: Any, running: Server, count: int) -> tuple[Times, Times, list[str]]:
    found: Times = defaultdict(list)
    spent: Times = defaultdict(list)
    first = await watched(browser)
    await first.load(running.address, *_FIRST)
    errors = first.errors
    for number in range(count):
        page = await tab(first.page.context)
        found["load: warm"].append(await page.load(running.address, *_FIRST))
        for step in steps(number):
            before = running.spent_ms(), browsers_ms()
            await take(page, step, found)
            spent[f"server {step.kind}"].append(running.spent_ms() - before[0])
            spent[f"browser {step.kind}"].append(browsers_ms() - before[1])
        errors += page.errors
        await page.page.close()
    return found, spent, errors


def _served(log: Path) -> Any:
    return server("", log, _APP, *(f"--{name}={value}" for name, value in _SETTINGS.items()))


if __name__ == "__main__":
    main()
