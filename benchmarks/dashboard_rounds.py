"""Rounds of steps by one person, as every benchmark of a page takes them: with their times, processor times and errors."""

from __future__ import annotations

import shutil
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from benchmarks.dashboard_browser import Step, Wanted, Watched, tab, watched
from benchmarks.dashboard_server import Server, browsers_ms
from benchmarks.dashboard_table import Times


def chromium() -> str:
    """Where the browser is. Ends the benchmark with a line where there is none."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    return found or sys.exit("no chromium on this machine: apt-get install chromium")


async def first_load(browser: Any, running: Server, wanted: Sequence[Wanted]) -> float:
    """ms of a load by a person whose browser has nothing of it."""
    page = await watched(browser)
    found = await page.load(running.address, *wanted)
    await page.page.context.close()
    return found


async def take(page: Watched, step: Step, found: Times) -> None:
    """Takes a step and notes its time by its kind; what goes wrong is one of the page's errors."""
    try:
        found[step.kind].append(await page.does(step))
    except Exception as error:
        page.errors.append(f"{step.kind}: {str(error).splitlines()[0]}")
        # At once, since a step that is never done takes its time.
        print(f"not done: {page.errors[-1][:200]}", file=sys.stderr)


async def alone(
    browser: Any, running: Server, wanted: Sequence[Wanted], steps: Callable[[int], Iterable[Step]], count: int
) -> tuple[Times, Times, list[str]]:
    """Rounds of one person, each in a new tab of the same browser, whose opening is the warm load.

    The times of each kind of step, the processor time of server and browser by who and kind, and the errors.
    """
    found: Times = defaultdict(list)
    spent: Times = defaultdict(list)
    first = await watched(browser)
    await first.load(running.address, *wanted)
    errors = first.errors
    for number in range(count):
        page = await tab(first.page.context)
        found["load: warm"].append(await page.load(running.address, *wanted))
        for step in steps(number):
            before = running.spent_ms(), browsers_ms()
            await take(page, step, found)
            spent[f"server {step.kind}"].append(running.spent_ms() - before[0])
            spent[f"browser {step.kind}"].append(browsers_ms() - before[1])
        errors += page.errors
        await page.page.close()
    return found, spent, errors
