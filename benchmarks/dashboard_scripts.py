"""How much processor time the server spends on a page, without a browser: a figure that other load moves less than wall time.

python -m benchmarks.dashboard_scripts --db PATH [--runs 5]

`PATH` is a store that `benchmarks/dashboard.py` has filled. Pages are run by Streamlit's own test harness in this process, first
when nothing is known and then as often as asked for; of the latter the median. The last lines are of the noise and the verdicts
of pairs of nights that nobody has looked at, the first of which reads all runs behind it. The very last one is a collection of
garbage with what was kept meanwhile, which Streamlit would make after each run of a script (`postScriptGC`, which is off).
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from db.engine import VARIABLE, open_store

_MS = 1000
_APP = Path(__file__).parents[1] / "dashboard" / "app.py"
_PAGES = ("overview", "compare", "model", "trends", "regressions", "runs", "about")


def main() -> None:
    """Prints a line a page and a pair."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--db", required=True)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    print(f"load average {', '.join(f'{value:.1f}' for value in os.getloadavg())} on {os.cpu_count()} cores")
    print(f"{'processor time in ms':34}{'first':>8}{'median':>8}")
    _pages(options.db, max(1, options.runs))
    _pairs(options.db)
    print(f"{'a collection of garbage':34}{_spent(gc.collect):>8.0f}")


def _pages(place: str, runs: int) -> None:
    from streamlit.testing.v1 import AppTest

    os.environ[VARIABLE] = place
    app = AppTest.from_file(str(_APP), default_timeout=300)
    for page in _PAGES:
        if page != _PAGES[0]:
            app.switch_page(f"pages/{page}/page.py")
        first, *others = [_spent(app.run) for _ in range(1 + runs)]
        if app.exception:
            raise SystemExit(f"{page}: {app.exception[0].message}")
        print(f"{'page: ' + page:34}{first:>8.0f}{statistics.median(others):>8.0f}")


def _pairs(place: str) -> None:
    from analysis.compare.verdicts import judge_sides
    from db.queries.cells import resolve_side

    engine = open_store(place, write=False)
    new = resolve_side(engine, "latest")
    for back in (1, 2, 3, 40):
        base = resolve_side(engine, f"latest~{back}")
        spent = _spent(lambda base=base: judge_sides(engine, base, new))  # type: ignore[misc]
        print(f"{f'judge_sides: latest~{back}, latest':34}{spent:>8.0f}")
    engine.dispose()


def _spent(what: Callable[[], object]) -> float:
    began = time.process_time()
    what()
    return (time.process_time() - began) * _MS


if __name__ == "__main__":
    main()
