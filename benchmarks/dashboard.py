"""How fast the dashboard is on a full store: 600 synthetic nights of 150 models under 12 configs, 1.08 M measurements.

python -m benchmarks.dashboard [--db PATH] [--commits 600] [--models 150] [--configs 12] [--rounds 8] [--people 8]

Without --db a SQLite file in a temporary folder is filled, which takes a minute; a synthetic store that is there already is
taken as it is. `streamlit run dashboard/app.py` serves it, and headless Chromium looks at it; both share this machine's cores.
What is timed, and when it counts as done, `benchmarks/dashboard_browser.py` says. The lines of the table:

- cold: a server that was started this moment, and a browser with an empty cache; the clock starts when the server answers its
  health check, and how long that took is printed apart
- warm: the same page in a new tab of a browser that has been there
- a line a kind of interaction: of `--rounds` rounds over all pages by one person, each with other nights, models and configs,
  so that no answer has been computed before
- together: `--people` browsers at once, each with a script of its own; errors are counted

Other load makes it slower: the load average at the beginning and the end is printed. For one person the median of the processor
time of server and browser is, too, which other load moves less.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
from collections import defaultdict
from contextlib import ExitStack
from functools import partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import select

from benchmarks.dashboard_browser import Wanted, Watched, watched
from benchmarks.dashboard_rounds import alone, chromium, first_load, take
from benchmarks.dashboard_server import Server, server
from benchmarks.dashboard_steps import Names, rounds, script
from benchmarks.dashboard_table import Times, load_average, print_table
from benchmarks.synthetic_nights import WORD, Shape
from benchmarks.synthetic_store import fill
from db.engine import open_store
from db.queries import cells as queries
from db.schema import Run

#: MB of the server, at most.
MEMORY = 600
_OVERVIEW = (Wanted(".iw-verdict", "on both sides"), Wanted('[data-testid="stMain"] h1', "Overview"))
_SPEAKING = ("streamlit", "altair", "pandas", "numpy", "sqlalchemy", "playwright")


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--db", metavar="PATH", help="filled where it holds nothing")
    parser.add_argument("--commits", type=int, default=Shape().commits)
    parser.add_argument("--models", type=int, default=Shape().models)
    parser.add_argument("--configs", type=int, default=Shape().configs)
    parser.add_argument("--rounds", type=int, default=8, help="of one person over all pages")
    parser.add_argument("--people", type=int, default=8, help="at once; 0 for none")
    parser.add_argument("--cold", type=int, default=3, help="servers that are started afresh")
    options = parser.parse_args()
    browser = chromium()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        place = options.db or str(folder / "synthetic.db")
        names = names_of(place, Shape(options.commits, options.models, options.configs))
        print(f"load average {load_average()} on {os.cpu_count()} cores, before")
        asyncio.run(_measure(place, names, options, folder / "server.log", browser))
        print(f"load average {load_average()}, after; this benchmark is part of it")


def names_of(place: str, shape: Shape) -> Names:
    """What is in the store, which is filled first where it is empty. A store with other runs is refused."""
    writer = open_store(place, write=True)
    with writer.connect() as conn:
        labels = set(conn.execute(select(Run.label).distinct()).scalars())
    if labels - {WORD}:
        sys.exit("this store holds runs that are not synthetic: name another place with --db")
    if not labels:
        fill(writer, shape)
    nights, axes = queries.list_nights(writer), queries.axes(writer)
    measured = sum(run.measured for night in nights for run in night.runs)
    writer.dispose()
    print(f"SYNTHETIC data: {len(nights):,} nights, {measured:,} measurements, {len(axes.configs)} configs")
    return Names(
        nights=tuple(night.night for night in nights),
        commits=tuple(night.runs[0].commit for night in nights),
        models=tuple(f"{model.suite}/{model.name}" for model in axes.models),
        configs=tuple(sorted({config.name for config in axes.configs})),
        suites=axes.suites,
    )


async def _measure(place: str, names: Names, options: argparse.Namespace, log: Path, where: str) -> None:
    from playwright.async_api import async_playwright

    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=where, args=["--no-sandbox"])
        told = ", ".join([f"{name} {version(name)}" for name in _SPEAKING] + [f"chromium {browser.version}"])
        print(f"python {platform.python_version()}, {told}\n")
        cold, started = [], []
        for _ in range(max(1, options.cold)):
            with server(place, log) as running:
                started.append(running.started_s * 1000)
                cold.append(await first_load(browser, running, _OVERVIEW))
        with server(place, log) as running:
            await first_load(browser, running, _OVERVIEW)
            times, spent, errors = await alone(browser, running, _OVERVIEW, partial(rounds, names), options.rounds)
            peak_mb = running.peak_mb()
            print_table({"server: start until it answers": started, "load: cold": cold, **times}, spent=spent)
            if options.people:
                crowd, more = await _together(browser, running, names, options.people)
                print_table(crowd, f"{options.people} people at once")
                errors += more
            print(
                f"\nserver memory at its peak: {peak_mb:.0f} MB alone, {running.peak_mb():.0f} MB in the end (goal {MEMORY})"
            )
        print(f"errors: {len(errors)}")
        for error in errors[:10]:
            print(f"  {error[:300]}")
        await browser.close()


async def _together(browser: Any, running: Server, names: Names, count: int) -> tuple[Times, list[str]]:
    found: Times = defaultdict(list)
    people = [await watched(browser) for _ in range(count)]

    async def one(number: int, page: Watched) -> None:
        try:
            found["load"].append(await page.load(running.address, *_OVERVIEW))
        except Exception as error:
            page.errors.append(f"load: {str(error).splitlines()[0]}")
            return
        for step in script(names, number):
            await take(page, step, found)

    await asyncio.gather(*(one(number, page) for number, page in enumerate(people)))
    return found, [error for page in people for error in page.errors]


if __name__ == "__main__":
    main()
