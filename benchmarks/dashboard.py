"""Time the dashboard on a full store: 600 synthetic nights of 150 models under 12 configs, 1.08 M measurements.

python -m benchmarks dashboard [--db PATH] [--commits 600] [--models 150] [--configs 12] [--rounds 5]

Without --db a temporary store is filled, which takes minutes. Headless Chromium and the server share this machine's cores.

The clock of an interaction runs inside the page. It starts with the input event and stops at the last change of the page; the
interaction is over when Streamlit has ended its script and nothing has changed for 300 ms. The clock of a load stops at the first
useful content, the overview's sentence. "server" is the processor time that the server took, in ms.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from benchmarks.synthetic_nights import Shape, open_filled
from db.nights import list_nights
from db.queries.cells import axes

_GOALS = (
    "goals: half of all interactions within 400 ms, 95 % within 1000 ms, first content within 2000 ms, server 300 ms"
)
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
  // A page that takes a few ms may begin and end within one change of the page: then no run is seen.
  watch.settled = () => watch.last > watch.began && app()?.dataset.testScriptState === 'notRunning'
    && !document.querySelector('[data-stale="true"], [data-testid="stSkeleton"]')
    && performance.now() - watch.last > (watch.runs > 0 ? 300 : 3000);
})();
"""

Act = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class Names:
    """The names in the store: commits with the newest first, models as the address spells them, configs."""

    commits: tuple[str, ...]
    models: tuple[str, ...]
    configs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """An interaction. `act` is timed, `prepare` (opening a menu, typing a text) is not; afterwards the page contains `shows`."""

    kind: str
    act: Act
    shows: str = ""
    prepare: Act | None = None


def steps(names: Names, number: int) -> Iterator[Step]:
    """Yield the steps of one round over all pages; each `number` has other nights, models and configs, so that none is cached."""
    sha, model = names.commits[-1 - number], names.models[(11 * number + 5) % len(names.models)]
    yield _typed("overview: other base", "base", sha, sha[:10])
    yield Step("overview: swap", _click(".st-key-swap button"))
    yield Step("overview: swap", _click(".st-key-swap button"))
    yield _page("Compare")
    yield _typed("compare: filter by text", "q", model.partition("/")[2], "that match")
    yield _typed("compare: filter by text", "q", "")
    yield _typed("compare: a config", "config", names.configs[number % len(names.configs)], "that match")
    two_configs = '[data-testid="stMain"] button:has-text("two configs")'
    yield Step("compare: two configs", _click(two_configs), "Base config")
    yield _page("Model")
    yield _typed("model: other model", "model", model, model.partition("/")[2])
    yield _typed("model: a config more", "config", names.configs[-1 - number % len(names.configs)])
    yield _page("Trends")
    figure = ("cold compile", "compression", "compiled latency", "device time")[number % 4]
    yield _typed("trends: another figure", "metric", figure, figure)
    yield Step("trends: one figure", _click(".st-key-metric_widget [data-tag] button:visible"), figure)
    yield _typed("trends: weeks", "by", "week", "week")
    yield _typed("trends: nights", "by", "night", "night")
    yield Step("trends: log scale", _click(".st-key-log_widget label"))
    yield from map(_page, ("Regressions", "Runs", "About the numbers", "Overview"))


def _page(title: str) -> Step:
    link = f'[data-testid="stSidebar"] [data-testid="stPageLink"] a:has-text("{title}")'
    # The model page's title is the name of a model.
    return Step(f"page: {title}", _click(link), "" if title == "Model" else title)


def _click(selector: str) -> Act:
    return lambda page: page.locator(selector).first.click()


def _typed(kind: str, key: str, text: str, shows: str = "") -> Step:
    """Return a step that types a text into the widget of a key of the address, and sends it by Enter."""

    def prepare(page: Any) -> None:
        box = page.locator(f".st-key-{key}_widget input").first
        box.click()
        box.fill(text)
        page.wait_for_timeout(200)  # the list of options follows the text

    return Step(kind, lambda page: page.keyboard.press("Enter"), shows, prepare)


@contextmanager
def served(store: str) -> Iterator[tuple[str, int]]:
    """Run a dashboard on a store in this context; yield its address and process id."""
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
    """Open the address in a new tab with an empty cache; return the tab and the ms until the first useful content."""
    page = browser.new_context(viewport={"width": 1400, "height": 950}).new_page()
    page.add_init_script(_WATCH)
    page.goto(address, wait_until="commit")
    sentence = "document.querySelector('.st-key-at-once p, .iw-verdict')?.textContent.includes('.')"
    page.wait_for_function(sentence, timeout=60_000)
    shown = float(page.evaluate("performance.now()"))
    page.wait_for_function("window.watch.settled()", timeout=60_000)
    return page, shown


def take(page: Any, step: Step) -> float:
    """Take a step; return the ms from its input event to the last change of the page. Raises `RuntimeError` if it fails."""
    if step.prepare is not None:
        step.prepare(page)
    step.act(page)
    page.wait_for_function("window.watch.settled()", timeout=60_000)
    text = page.get_by_test_id("stMain").inner_text()
    if step.shows not in text or page.get_by_test_id("stException").count():
        raise RuntimeError(f"{step.kind}: the page does not show {step.shows!r}:\n{text[:500]}")
    return float(page.evaluate("window.watch.last - window.watch.began"))


def names_of(place: str, shape: Shape) -> Names:
    """Return the names in the store; fill an empty store first, and refuse a store with other runs."""
    engine = open_filled(place, shape)
    nights, found = list_nights(engine), axes(engine)
    engine.dispose()
    measured = sum(run.measured for night in nights for run in night.runs)
    print(f"SYNTHETIC data: {len(nights):,} nights, {measured:,} measurements, {len(found.configs)} configs")
    models = tuple(f"{model.suite}/{model.name}" for model in found.models)
    configs = tuple(sorted({config.name for config in found.configs}))
    return Names(tuple(night.runs[0].commit for night in nights), models, configs)


def measured(place: str, names: Names, rounds: int) -> pd.DataFrame:
    """Take all steps `rounds` times; return a row for each: its kind, its time and the server's processor time, in ms."""
    from playwright.sync_api import sync_playwright

    found = []
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with sync_playwright() as driver, served(place) as (address, process):
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for number in range(rounds + 1):
            page, shown = load(browser, address)
            found.append(("first content" if number else "first content of a server", shown, None))
        for number in range(rounds):
            for step in steps(names, number):
                before = _spent_ms(process)
                found.append((step.kind, take(page, step), _spent_ms(process) - before))
        browser.close()
    return pd.DataFrame(found, columns=["kind", "ms", "server"])


def main() -> None:
    """Print a line for each kind of interaction, and one for all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--db", metavar="PATH", help="filled where it holds nothing")
    for name in ("commits", "models", "configs"):
        parser.add_argument(f"--{name}", type=int, default=getattr(Shape(), name))
    parser.add_argument("--rounds", type=int, default=5, help="over all pages")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        place = options.db or str(Path(folder) / "synthetic.db")
        names = names_of(place, Shape(options.commits, options.models, options.configs))
        found = measured(place, names, options.rounds)
    every = found.dropna().assign(kind="all interactions")
    by_kind = pd.concat([found, every]).groupby("kind", sort=False)
    times = by_kind["ms"].agg(["count", "median", lambda ms: ms.quantile(0.95, interpolation="higher"), "max"])
    table = times.set_axis(["count", "median", "p95", "worst"], axis=1).assign(server=by_kind["server"].median())
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; in ms\n")
    print(table.to_string(float_format="{:.0f}".format, na_rep="", index_names=False))
    print(f"\n{_GOALS}")


if __name__ == "__main__":
    main()
