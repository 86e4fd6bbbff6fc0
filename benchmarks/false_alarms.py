"""False verdicts and power of the comparison of two nights, on synthetic runs: `python -m benchmarks false_alarms`.

With `--history` it is the history of 2 to 9 nights that is judged, as `changepoints` does (`analysis.history.first`). With
`--ingest` each comparison goes through bundles and a store, with an ad hoc run of one model before the newest night.

Nothing here is measured. Every model has a level, and its compiled and eager latency have in common what the host's pace
does to a process. A disturbed run shares the machine with a neighbour, who slows both, and not equally.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.compare.adjustment import CONTROL, CellPairs, PairedCells
from analysis.compare.common_move import YARDSTICKS
from analysis.compare.compare_sides import compare_named
from analysis.compare.repeats import RepeatRows
from analysis.compare.verdicts import judge_pairs
from analysis.history.first import judge_first
from analysis.history.series import Point, SeriesTable
from analysis.stats.verdicts import LEVEL, Verdict, false_discovery_rates
from collector.bundle import BundleWriter, RunHeader
from collector.metrics import MIN_EFFECT
from collector.vocabulary import Cell, Config, Measurement, Phase, Status
from db.engine import open_store
from db.ingest import ingest_bundle
from db.queries.repeats import Repeats
from db.queries.series import SeriesRun
from db.queries.sides import Side
from db.runs import RunInfo

_METRICS = (*CONTROL, *CONTROL.values(), *YARDSTICKS, "throttled", "leak_bytes_per_call")
_SMALLEST = MIN_EFFECT["compiled_ms"]
_CHANGED = (Verdict.REGRESSED.value, Verdict.IMPROVED.value)


@dataclass(frozen=True, slots=True)
class World:
    """What is simulated. `noise` is the standard deviation of ln of a latency from process to process; `pace` is that of
    what eager and compiled have in common; `disturbed` is the share of runs with a neighbour, who costs 5 to 40 %; `between` is
    the standard deviation of what all runs of a night have in common by the compiled latency alone. `modes` is the share of
    processes whose compiled program is slower by `mode`. `tails` are the degrees of freedom of Student's t that the noise has;
    0 is normal noise. `slow_night` is what the newest night costs eager, and 1.67 times as much compiled."""

    models: int = 10
    nights: int = 14
    runs: int = 1
    noise: float = 0.03
    pace: float = 0.03
    disturbed: float = 0.0
    between: float = 0.0
    modes: float = 0.0
    mode: float = 0.04
    tails: float = 0.0
    slow_night: float = 0.0


def latencies(world: World, random: np.random.Generator) -> npt.NDArray[np.float64]:
    """ln of eager and compiled latency: an array of 2 x runs x models; runs are in order, `world.runs` of a night."""
    shape = (world.nights * world.runs, world.models)
    level, slope = random.normal(0, 1, world.models), random.uniform(0, 1.2, world.models)
    pace = random.normal(0, world.pace, shape)
    drawn = (random.standard_t(world.tails, shape) if world.tails else random.normal(0, 1, shape) for _ in range(2))
    eager, compiled = (world.noise * each + level for each in drawn)
    neighbour = random.uniform(0.05, 0.4, (len(pace), 1)) * (random.random((len(pace), 1)) < world.disturbed)
    felt = [neighbour * random.normal(1, 0.3, shape) for _ in range(2)]
    if world.between:
        compiled += np.repeat(random.normal(0, world.between, (world.nights, world.models)), world.runs, axis=0)
    compiled += np.log1p(world.mode) * (random.random(shape) < world.modes)
    eager[-world.runs :] += world.slow_night
    compiled[-world.runs :] += 1.67 * world.slow_night
    return np.array([eager + pace + felt[0], compiled + slope * pace + felt[1]])


def judged(world: World, values: npt.NDArray[np.float64]) -> pd.DataFrame:
    """What the product says of the newest night against the one before, a row a model."""
    base, new = (_side(world, night) for night in (world.nights - 2, world.nights - 1))
    pairs = PairedCells(_rows(world, values), base, new, CellPairs.of_ids(_names(world)))
    latency = judge_pairs(pairs, {"compiled_ms": _SMALLEST}).metrics["compiled_ms"]
    return pd.DataFrame(
        {"compiled_ms_verdict": latency.verdict, "compiled_ms_low": latency.low, "compiled_ms_high": latency.high}
    )


def judged_in_history(world: World, values: npt.NDArray[np.float64]) -> pd.DataFrame:
    """What the product says of the history of up to nine nights, a row a model; there is no verdict but of a change."""
    of_nights = values[1].reshape(world.nights, world.runs, world.models).mean(axis=1).T
    points = tuple(_point(world, night) for night in range(world.nights))
    metrics = {"compiled_ms": np.exp(of_nights)}
    table = SeriesTable("", "main", "", points, np.arange(world.models), metrics, np.ones(of_nights.shape))
    changes = judge_first(_rows(world, values), _names(world), table, {"compiled_ms": _SMALLEST})["compiled_ms"]
    found = [changes[row] for row in range(world.models)]
    size = np.log([one.ratio for one in found])
    told = false_discovery_rates(np.array([one.p for one in found])) <= LEVEL
    words = np.where(size > 0, Verdict.REGRESSED.value, Verdict.IMPROVED.value)
    verdicts = np.where(told & (np.abs(size) >= np.log1p(_SMALLEST)), words, Verdict.INCONCLUSIVE.value)
    return pd.DataFrame({"compiled_ms_verdict": verdicts, "compiled_ms_low": np.nan, "compiled_ms_high": np.nan})


def judged_in_store(world: World, values: npt.NDArray[np.float64]) -> pd.DataFrame:
    """Return what `compare latest~1 latest` says, a row a model, of bundles that were ingested.

    An ad hoc run of the first model lies before the newest night, and is no base.
    """
    cells = [Cell("synthetic", name, Phase.INFERENCE, "float32", "cpu", 1, Config()) for name in _names(world)]
    runs = values.shape[1]
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(Path(folder) / "store.db", write=True)
        for run in [*range(runs - world.runs), -1, *range(runs - world.runs, runs)]:
            night = run // world.runs if run >= 0 else world.nights - 1
            started = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(
                hours=2 * run if run >= 0 else 2 * (runs - world.runs) - 1
            )
            header = RunHeader(
                run_id=f"run-{run}" if run >= 0 else "tried",
                branch="main",
                commit=f"{night if run >= 0 else 999:040x}",
                testbed={"cpu": "synthetic"},
                started_at=started.isoformat(),
                label="synthetic",
                trigger="nightly" if run >= 0 else "adhoc",
                night=f"night-{night}" if run >= 0 else "",
            )
            chosen = cells if run >= 0 else cells[:1]
            writer = BundleWriter(Path(folder), header, chosen)
            for place, cell in enumerate(chosen):
                eager, compiled = np.exp(values[:, run, place]).tolist()
                metrics = {"eager_ms": eager, "compiled_ms": compiled}
                writer.measurement(Measurement(cell, Status.PASS, started.isoformat(), 1.0, metrics, program_id="one"))
            ingest_bundle(store, writer.close(started.isoformat()))
        comparison = compare_named(store, "latest~1", "latest")
        store.dispose()
    judged = {one.cell.model: one.judged.get("compiled_ms") for one in comparison.cells}
    rows = [judged[name] for name in _names(world)]
    return pd.DataFrame(
        {
            "compiled_ms_verdict": [one.verdict.value if one else None for one in rows],
            "compiled_ms_low": [one.low if one and one.low is not None else np.nan for one in rows],
            "compiled_ms_high": [one.high if one and one.high is not None else np.nan for one in rows],
        }
    )


def _names(world: World) -> list[str]:
    return [f"synthetic {model}" for model in range(world.models)]


def _rows(world: World, values: npt.NDArray[np.float64]) -> RepeatRows:
    count, models = values.shape[1:]
    rows = pd.DataFrame(
        {
            "run": np.repeat(np.arange(count), models),
            "cell": np.tile(np.arange(models), count),
            **{"replicate": 0, "program": 0.0, "passed": 1},
            "started_at": np.arange(float(count * models)),
            **dict.fromkeys(_METRICS, np.nan),
            "eager_ms": np.exp(values[0]).ravel(),
            "compiled_ms": np.exp(values[1]).ravel(),
        }
    )
    commit = np.arange(count) // world.runs
    runs = pd.DataFrame({"run": np.arange(count), "night": commit, "branch": "main", "commit": commit, "testbed": 0})
    same = dict.fromkeys(("phase", "dtype", "device", "batch_size"), "synthetic")
    cells = pd.DataFrame({"cell": np.arange(models), "cell_id": _names(world), "model": np.arange(models), **same})
    return RepeatRows(Repeats(rows, runs, cells))


def _point(world: World, night: int) -> Point:
    keys = range(night * world.runs, (night + 1) * world.runs)
    runs = tuple(SeriesRun(key, "", "", "main", "", str(night), None, 0.0, None) for key in keys)
    return Point(night, str(night), None, 0.0, None, runs)


def _side(world: World, night: int) -> Side:
    run = RunInfo(0, "", "", "main", str(night), "", "", {}, "synthetic", datetime(2026, 1, 1, tzinfo=UTC), None)
    keys = range(night * world.runs, (night + 1) * world.runs)
    return Side("", "commit", tuple(replace(run, key=key) for key in keys))


Judge = Callable[[World, npt.NDArray[np.float64]], pd.DataFrame]


@dataclass(frozen=True, slots=True)
class Rates:
    """`alarms` is the share of A/A comparisons with any false verdict, `outside` that of 95 % intervals without the truth (of a
    history 0: it has none);
    `power` has for each step the share of slowed models that are `regressed`."""

    alarms: float
    outside: float
    power: tuple[float, ...]


def rates(world: World, steps: Sequence[float], times: int, seed: int = 1, judge: Judge = judged) -> Rates:
    """Over `times` synthetic stores. For power every tenth model, one at least, is slower by the step in the newest night."""
    random = np.random.default_rng([seed, world.models, world.nights, world.runs])
    slowed = np.arange(0, world.models, 10)
    alarms, outside, found = [], [], np.zeros((len(steps), times))
    for time in range(times):
        values = latencies(world, random)
        cells = judge(world, values)
        alarms.append(cells["compiled_ms_verdict"].isin(_CHANGED).any())
        outside.append(((cells["compiled_ms_low"] > 0) | (cells["compiled_ms_high"] < 0)).mean())
        for at, step in enumerate(steps):
            slower = values.copy()
            slower[1, -world.runs :, slowed] += np.log1p(step)
            verdicts = judge(world, slower)["compiled_ms_verdict"].iloc[slowed]
            found[at, time] = verdicts.eq(Verdict.REGRESSED.value).mean()
    return Rates(float(np.mean(alarms)), float(np.mean(outside)), tuple(found.mean(axis=1).tolist()))


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=200, help="comparisons a line")
    parser.add_argument("--nights", type=int, default=14)
    parser.add_argument("--runs", type=int, default=1, help="runs a night")
    parser.add_argument("--noise", type=float, nargs="+", default=[0.03, 0.005])
    parser.add_argument("--models", type=int, nargs="+", default=[1, 10, 500])
    parser.add_argument("--between", type=float, default=0.0, help="noise from night to night, beside that of runs")
    parser.add_argument("--modes", type=float, default=0.0, help="share of processes that are 4 %% slower")
    parser.add_argument("--tails", type=float, default=0.0, help="noise is Student's t with so many degrees of freedom")
    parser.add_argument(
        "--slow-night", type=float, default=0.0, help="cost of the newest night, compiled 1.67 times as much"
    )
    parser.add_argument("--quiet", action="store_true", help="no line with disturbed runs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--history", action="store_true", help="judge the history of 2 to 9 nights")
    parser.add_argument("--ingest", action="store_true", help="through bundles, ingest and compare latest~1 latest")
    parser.add_argument("--steps", type=float, nargs="+", default=[0.03, 0.05, 0.10])
    asked = parser.parse_args()
    steps, judge = asked.steps, judged_in_history if asked.history else judged_in_store if asked.ingest else judged
    print(f"synthetic, {asked.nights} nights of {asked.runs} runs: shares of {asked.times} comparisons")
    print("models noise disturbed  false  outside 95 %" + "".join(f"  finds {step:4.0%}" for step in steps))
    for noise in asked.noise:
        for models in asked.models:
            for disturbed in (0.0,) if asked.quiet else (0.0, 0.25):
                structure = {"between": asked.between, "modes": asked.modes, "tails": asked.tails}
                world = World(models, asked.nights, asked.runs, noise, noise, disturbed, **structure)
                world = replace(world, slow_night=asked.slow_night)
                times = asked.times if models < 500 else max(asked.times // 4, 20)
                found = rates(world, steps, times, asked.seed, judge)
                power = "".join(f"  {part:10.2f}" for part in found.power)
                print(
                    f"{models:6} {noise:5.1%} {disturbed:9.0%}  {found.alarms:5.3f}  {found.outside:12.3f}{power}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
