"""Time the judging of a history, the whole of it and one more night, on a synthetic store.

python -m benchmarks history [--cells 1500] [--nights 600] [--db FILE] [--noise 1500]

A new store is filled (`synthetic_nights`: levels with noise, steps at some commits, failures and gaps), unless an earlier call
left one at `--db`. The output has the seconds of wall time of one process and the seconds for which it had a core (fewer on a
busy host), its peak memory, the number of steps in the synthetic data that were found, and the number of blame ranges that
contain a step.

`--noise N` prints instead how many of N series of 200 nights of synthetic noise of 2 % have a change point, and how many are
reported after control of false discoveries and with a smallest effect of 2 %, for independent and correlated nights (AR(1)).
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from scipy.signal import lfilter
from sqlalchemy import Engine

from analysis.history.alerts import survey
from analysis.history.branch_series import Certainty, read_series
from analysis.history.timelines import INCREMENT, History
from analysis.stats.changepoints import detect_rows
from analysis.stats.levels import level_changes
from analysis.stats.verdicts import LEVEL, false_discovery_rates
from benchmarks.synthetic_nights import CONFIGS, Shape, World, open_filled
from collector.metrics import MIN_EFFECT
from db.engine import open_store
from jobs.regressions.recording import record_alerts

T = TypeVar("T")


def main() -> None:
    """Print a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=1500)
    parser.add_argument("--nights", type=int, default=600)
    parser.add_argument("--db", type=Path, help="Where the store is, or is to be kept.")
    parser.add_argument("--noise", type=int, default=0, metavar="N", help="alarms in N series instead of times")
    options = parser.parse_args()
    if options.noise:
        print_alarms(options.noise)
        return
    shape = Shape(commits=options.nights, models=options.cells // len(CONFIGS), sampled=0)
    with TemporaryDirectory() as folder:
        place = options.db or Path(folder) / "synthetic.db"
        open_filled(place, shape).dispose()
        measure(place, World(shape))


def measure(place: Path, world: World) -> None:
    """Measure and print each figure on a connection of its own, as a command has it."""
    _timed("one more night: reading", place, lambda store: read_series(store, tuple(MIN_EFFECT), window=INCREMENT))
    newest = _timed("one more night: alerts", place, lambda store: survey(store, window=INCREMENT))
    _timed("whole history: reading", place, lambda store: read_series(store, tuple(MIN_EFFECT)))
    found = _timed("whole history: alerts", place, survey)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    record = _timed("records: new", place, lambda store: record_alerts(store, found.alerts, author="synthetic"))
    _timed("records: the same again", place, lambda store: record_alerts(store, found.alerts, author="synthetic"))
    series = sum(found.history.series.values())
    print(f"{series} synthetic series (cell x metric) of {world.shape.commits} nights, peak {peak:.0f} MiB")
    _agree(newest.history, found.history, world.shape.commits)
    _score(found.history, world)
    cells = sum(len(alert.cells) for alert in found.alerts)
    print(
        f"{len(found.alerts)} alerts of {len(found.history.changes)} changes, {cells} cells; {len(record.opened)} records"
    )


def correlated(random: np.random.Generator, nights: int, correlation: float) -> npt.NDArray[np.float64]:
    """Draw AR(1) noise of variance 1: each night is `correlation` times the night before plus new noise."""
    white = random.standard_normal(nights + 100)
    waves: npt.NDArray[np.float64] = np.sqrt(1 - correlation**2) * lfilter([1], [1, -correlation], white)[100:]
    return waves


def print_alarms(count: int) -> None:
    """Print for each correlation the number of series with a change point, and of series with a reported one."""
    random = np.random.default_rng(1)
    for correlation in (0.0, 0.3, 0.5, 0.7):
        values = np.exp(0.02 * np.array([correlated(random, 200, correlation) for _ in range(count)]))
        cuts = detect_rows(values, min_effect=0.02)
        found = [(row, one) for row, of_row in enumerate(cuts) if of_row for one in level_changes(values[row], of_row)]
        p = np.array([one.p for _, one in found] + [1.0] * sum(not of_row for of_row in cuts))
        rates = false_discovery_rates(p)
        told = {
            row
            for (row, one), q in zip(found, rates, strict=False)
            if q <= LEVEL and abs(np.log(one.ratio)) >= np.log(1.02)
        }
        print(
            f"synthetic noise, correlation {correlation:.1f}: {sum(map(bool, cuts))} of {count} series cut, {len(told)} told"
        )


def _timed(name: str, place: Path, work: Callable[[Engine], T]) -> T:
    engine = open_store(place, write=name.startswith("records"))
    begun, busy = time.perf_counter(), time.process_time()
    found = work(engine)
    print(f"{name:<24} {time.perf_counter() - begun:6.2f} s, of which {time.process_time() - busy:5.2f} s on a core")
    engine.dispose()
    return found


def _agree(newest: History, whole: History, nights: int) -> None:
    """Print how many changes of the newest 60 nights the window finds, how many the whole history finds, and how many both."""
    sides = [
        {
            (one.cell_id, one.metric, one.span.onset.commit)
            for one in history.changes
            if one.span.onset.index >= nights - 60
        }
        for history in (newest, whole)
    ]
    print(
        f"newest 60 nights: {len(sides[0])} changes by the window, {len(sides[1])} by the whole, {len(sides[0] & sides[1])} alike"
    )


def _score(history: History, world: World) -> None:
    """Print how many steps of compiled time are found, of the large ones in the data at least 10 nights from both ends.

    Print also how many blame ranges contain a step.
    """
    number = {cell.cell_id: at for at, cell in enumerate(world.cells)}
    nights = world.shape.commits
    large = np.abs(np.log(world.step)) >= np.log1p(MIN_EFFECT["compiled_kernel_ms"])
    real = set(np.flatnonzero(large & (world.step_at >= 10) & (world.step_at <= nights - 10)).tolist())
    for metric in ("compiled_ms", "compiled_kernel_ms", "compile_cold_s", "compiled_peak_bytes"):
        told = [
            (number[one.cell_id], one)
            for one in history.changes
            if one.metric == metric and one.certainty is Certainty.ESTABLISHED
        ]
        is_time = metric.startswith("compiled_") and metric.endswith("ms")
        inside = sum(
            one.possible.base.index < world.step_at[at] <= one.possible.onset.index
            for at, one in told
            if world.step[at] != 1 and is_time
        )
        true = len({at for at, _ in told} & real) if is_time else 0
        there = len(real) if is_time else 0
        print(f"{metric}: {true} of {there} synthetic steps found; {inside} of {len(told)} ranges hold a step")


if __name__ == "__main__":
    main()
