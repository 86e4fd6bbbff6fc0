"""How long change points take: a whole history, and one more night, on synthetic series.

python benchmarks/changepoints.py [--series 1500] [--nights 600] [--jobs 2] [--noise 300]

Synthetic: a level of 100, normal noise of 1, a step of -5 to 5 at each of 0 to 4 places, one night in 50 a spike of 20.
Prints seconds of wall time, milliseconds a series, and how often the answer for one more night is that of the whole history.
`--noise N` prints instead how often something is found in N series of synthetic normal noise, independent or with correlated
nights (AR(1)), and how soon a step at the end of 200 nights is.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.signal import lfilter

from analysis.stats.changepoints import detect, extend

_SEED = 1
_LENGTHS, _NEW = (30, 100, 200, 600), (5, 7, 10, 15, 20)


def main() -> None:
    """Prints a line for the whole history, one for one more night, and their agreement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=1500)
    parser.add_argument("--nights", type=int, default=600)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--noise", type=int, default=0, metavar="N", help="alarms in N series instead of times")
    options = parser.parse_args()
    if options.noise:
        print_alarms(options.noise)
        return
    histories = synthetic(options.series, options.nights + 1)
    with ProcessPoolExecutor(options.jobs) as pool:
        list(pool.map(detect, histories[: options.jobs]))  # starts the processes outside the clock
        yesterday = timed(pool, f"history of {options.nights}", detect, [history[:-1] for history in histories])
        today = timed(pool, "one more night", extend, histories, yesterday)
        whole = timed(pool, f"history of {options.nights + 1}", detect, histories)
    same = sum(a == b for a, b in zip(today, whole, strict=True))
    print(f"one more night equals the whole history: {same / len(whole):.2%} of {len(whole)} synthetic series")


def synthetic(count: int, nights: int) -> list[npt.NDArray[np.float64]]:
    """So many series of so many nights, the same at every call."""
    random = np.random.default_rng(_SEED)
    return [_history(random, nights) for _ in range(count)]


def _history(random: np.random.Generator, nights: int) -> npt.NDArray[np.float64]:
    values = 100 + random.standard_normal(nights)
    for start in random.integers(nights, size=random.integers(5)):
        values[start:] += random.uniform(-5, 5)
    return values + 20 * (random.random(nights) < 0.02)


def print_alarms(count: int) -> None:
    """A line a correlation: share of series with a false alarm; a line a step: share that is found, by its nights so far."""
    random = np.random.default_rng(_SEED)
    for correlation in (0.0, 0.3, 0.5, 0.7, 0.9):
        shares = [_alarm_share(count, lambda n=nights, r=correlation: correlated(random, n, r)) for nights in _LENGTHS]  # type: ignore[misc]
        print(
            f"synthetic noise, correlation {correlation:.1f}, {_LENGTHS} nights: alarm in",
            *(f"{one:.3f}" for one in shares),
        )
    for size in (2, 3, 5):
        shares = [_alarm_share(count, lambda n=nights, d=size: _late_step(random, n, d)) for nights in _NEW]  # type: ignore[misc]
        print(f"synthetic step of {size} sd, {_NEW} nights old: found in", *(f"{one:.2f}" for one in shares))


def _alarm_share(count: int, noise: Callable[[], npt.NDArray[np.float64]]) -> float:
    return sum(bool(detect(100 + 2 * noise())) for _ in range(count)) / count


def correlated(random: np.random.Generator, nights: int, correlation: float) -> npt.NDArray[np.float64]:
    """AR(1) noise of variance 1: each night is `correlation` times the night before and something new."""
    white = random.standard_normal(nights + 100)
    waves: npt.NDArray[np.float64] = np.sqrt(1 - correlation**2) * lfilter([1], [1, -correlation], white)[100:]
    return waves


def _late_step(random: np.random.Generator, nights: int, size: float) -> npt.NDArray[np.float64]:
    level: npt.NDArray[np.float64] = np.repeat([0.0, size], [200, nights])
    return level + random.standard_normal(200 + nights)


def timed(pool: ProcessPoolExecutor, name: str, work: Callable[..., list[int]], *series: list[Any]) -> list[list[int]]:
    """The answers for all series, after printing how long they took."""
    begun = time.perf_counter()
    answers = list(pool.map(work, *series, chunksize=25))
    took = time.perf_counter() - begun
    print(f"{name:<16} {len(answers)} synthetic series: {took:6.2f} s, {1000 * took / len(answers):.2f} ms a series")
    return answers


if __name__ == "__main__":
    main()
