"""How fast the dashboard is on a full store: 600 synthetic nights of 150 models under 12 configs, 1.08 M measurements.

python -m benchmarks dashboard [--db PATH] [--commits 600] [--models 150] [--configs 12] [--rounds 5]

Without --db a temporary store is filled, which takes minutes. Headless Chromium and the server share this machine's cores.

The clock of an interaction runs inside the page. It starts with the input event and stops at the last change of the page
before Streamlit has ended its script and nothing has moved for 300 ms. The clock of a load stops at the first useful content,
the overview's sentence. "server" is the processor time that the server took, in ms.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.synthetic_nights import Shape, open_filled
from db.queries import cells as queries

#: Goals in ms: the median and the 95th percentile of all interactions, first useful content, the server's own part.
MEDIAN, P95, FIRST, SERVER = 400, 1000, 2000, 300
_ROOT = Path(__file__).parents[1]
_WATCH = """
(() => {
  const watch = window.watch = {began: 0, last: 0, runs: 0};
  const app = () => document.querySelector('[data-testid="stApp"]');
  new MutationObserver(all => {
    watch.last = performance.now();
    if (all.some(one => one.attributeName === 'data-test-script-state')) watch.runs += 1;
  }).observe(document, {subtree: true, childList: true, characterData: true, attributes: true});
  for (const kind of ['pointerdown', 'keydown'])
    addEventListener(kind, () => { watch.began = performance.now(); watch.runs = 0; }, {capture: true});
  watch.settled = () => watch.runs > 0 && app()?.dataset.testScriptState === 'notRunning'
    && !document.querySelector('[data-stale="true"], [data-testid="stSkeleton"]') && performance.now() - watch.last > 300;
})();
"""

Act = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class Names:
    """What is in the store: commits newest first, models as the address spells them, configs."""

    commits: tuple[str, ...]
    models: tuple[str, ...]
    configs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One interaction. `prepare` (a menu is opened, a text is typed) is not timed, `act` is; then `shows` is in the page."""

    kind: str
    act: Act
    shows: str = ""
    prepare: Act | None = None


def steps(names: Names, number: int) -> Iterator[Step]:
    """One round over all pages; `number` picks other nights, models and configs, so that no answer is cached."""
    sha, model = names.commits[-1 - number], names.models[(11 * number + 5) % len(names.models)]
    yield Step("overview: other base", _enter, sha[:10], _type("base", sha))
    yield Step("overview: swap", _click(".st-key-swap button"))
    yield Step("overview: swap", _click(".st-key-swap button"))
    yield _page("Compare")
    yield Step("compare: filter by text", _enter, "that match", _type("q", model.partition("/")[2]))
    yield Step("compare: filter by text", _enter, "", _type("q", ""))
    config = names.configs[number % len(names.configs)]
    yield Step("compare: a config", _enter, "that match", _type("config", config))
    yield Step(
        "compare: two configs", _click('[data-testid="stMain"] button:has-text("two configs of new")'), "Base config"
    )
    yield _page("Model")
    yield Step("model: other model", _enter, model.partition("/")[2], _type("model", model))
    yield Step("model: a config more", _enter, "", _type("config", names.configs[-1 - number % 8]))
    yield _page("Trends")
    figure = ("cold compile", "compression", "compiled latency", "device time")[number % 4]
    yield Step("trends: other figure", _enter, figure, _type("metric", figure))
    yield Step("trends: weeks", _enter, "week", _type("by", "week"))
    yield Step("trends: nights", _enter, "night", _type("by", "night"))
    yield Step("trends: log scale", _click(".st-key-log_widget label"))
    yield from map(_page, ("Regressions", "Runs", "About the numbers", "Overview"))


def _enter(page: Any) -> None:
    page.keyboard.press("Enter")


def _page(title: str) -> Step:
    # The model page's title is the name of a model.
    shows = "" if title == "Model" else title
    return Step(
        f"page: {title}", _click(f'[data-testid="stSidebar"] [data-testid="stPageLink"] a:has-text("{title}")'), shows
    )


def _click(selector: str) -> Act:
    return lambda page: page.locator(selector).first.click()


def _type(key: str, text: str) -> Act:
    """Types into the widget of a key of the address, without the Enter that sends it."""

    def typed(page: Any) -> None:
        box = page.locator(f".st-key-{key}_widget input").first
        box.click()
        box.fill(text)

    return typed


@contextmanager
def served(store: str) -> Iterator[tuple[str, int]]:
    """The address and process id of a dashboard on a store, until the block ends."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    command = [sys.executable, "-m", "streamlit", "run", "dashboard/app.py", "--server.port", port]
    settings = {**os.environ, "INDUCTOR_WATCH_DB": store}
    process = subprocess.Popen(command, cwd=_ROOT, env=settings, stdout=subprocess.DEVNULL)
    try:
        for _ in range(1200):
            with suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=1).close()
                break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}", process.pid
    finally:
        process.terminate()
        process.wait(10)


def _spent_ms(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return 1000 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def load(browser: Any, address: str) -> tuple[Any, float]:
    """A new tab with an empty cache, and the ms until the first useful content."""
    page = browser.new_context(viewport={"width": 1400, "height": 950}).new_page()
    page.add_init_script(_WATCH)
    page.goto(address, wait_until="commit")
    page.wait_for_function(
        "document.querySelector('.iw-verdict')?.textContent.includes('on both sides')", timeout=60_000
    )
    shown = float(page.evaluate("performance.now()"))
    page.wait_for_function("window.watch.settled()", timeout=60_000)
    return page, shown


def take(page: Any, step: Step) -> float:
    """The ms from the input event of a step to the last change of the page. Raises `RuntimeError` where it went wrong."""
    if step.prepare is not None:
        step.prepare(page)
    step.act(page)
    page.wait_for_function("window.watch.settled()", timeout=60_000)
    text = page.get_by_test_id("stMain").inner_text()
    if step.shows not in text or page.get_by_test_id("stException").count():
        raise RuntimeError(f"{step.kind}: the page does not show {step.shows!r}:\n{text[:500]}")
    return float(page.evaluate("window.watch.last - window.watch.began"))


def names_of(place: str, shape: Shape) -> Names:
    """What is in the store, which is filled first where it is empty. A store with other runs is refused."""
    writer = open_filled(place, shape)
    nights, axes = queries.list_nights(writer), queries.axes(writer)
    writer.dispose()
    measured = sum(run.measured for night in nights for run in night.runs)
    print(f"SYNTHETIC data: {len(nights):,} nights, {measured:,} measurements, {len(axes.configs)} configs")
    return Names(
        tuple(night.runs[0].commit for night in nights),
        tuple(f"{model.suite}/{model.name}" for model in axes.models),
        tuple(sorted({config.name for config in axes.configs})),
    )


def _line(kind: str, times: list[float], server: list[float], goal: str = "") -> None:
    p95 = sorted(times)[math.ceil(0.95 * len(times)) - 1]
    spent = f"{statistics.median(server):>8.0f}" if server else ""
    print(
        f"{kind:32}{len(times):>6}{statistics.median(times):>8.0f}{p95:>8.0f}{max(times):>8.0f}{spent}  {goal}".rstrip()
    )


def main() -> None:
    """Prints a line for each kind of interaction, and one for all."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--db", metavar="PATH", help="filled where it holds nothing")
    for name in ("commits", "models", "configs"):
        parser.add_argument(f"--{name}", type=int, default=getattr(Shape(), name))
    parser.add_argument("--rounds", type=int, default=5, help="over all pages")
    options = parser.parse_args()
    times: dict[str, list[float]] = defaultdict(list)
    spent: dict[str, list[float]] = defaultdict(list)
    with TemporaryDirectory() as folder, sync_playwright() as driver:
        place = options.db or str(Path(folder) / "synthetic.db")
        names = names_of(place, Shape(options.commits, options.models, options.configs))
        path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        with served(place) as (address, process):
            first = load(browser, address)[1]
            loads = [load(browser, address)[1] for _ in range(options.rounds)]
            page, _ = load(browser, address)
            for number in range(options.rounds):
                for step in steps(names, number):
                    before = _spent_ms(process)
                    times[step.kind].append(take(page, step))
                    spent[step.kind].append(_spent_ms(process) - before)
        browser.close()
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    print(f"{'ms':32}{'count':>6}{'median':>8}{'p95':>8}{'worst':>8}{'server':>8}  goal")
    _line("first content: server just started", [first], [])
    _line("first content", loads, [], f"{FIRST}")
    for kind, found in times.items():
        _line(kind, found, spent[kind])
    every = ([ms for found in of.values() for ms in found] for of in (times, spent))
    _line("all interactions", *every, goal=f"median {MEDIAN}, p95 {P95}, server {SERVER}")


if __name__ == "__main__":
    main()
