"""Count false verdicts and power of comparing two nights, on synthetic runs: `python -m benchmarks false_alarms`.

With `--confirm new` or `--confirm both` cells of the newest night, or of both nights, are measured again as `nightly` does, on
the machine of the newest night. With `--history` the history of 2 to 9 nights is judged, as `changepoints` does
(`analysis.history.timelines`). With `--ingest` each comparison goes through bundles and a store, with an ad hoc run of one model
before the newest night. With `--in-turn` the runs of two nights take turns as in `check`: base, new, new, base.

Nothing here is measured. Every model has a level, and the host's pace moves the compiled and the eager latency of a process
together. A disturbed run shares the machine with a neighbour, which slows both latencies, but not equally.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.compare.adjustment import CONTROL, YARDSTICKS, CellPairs, PairedCells
from analysis.compare.cell_verdicts import judge_pairs
from analysis.compare.compare_sides import compare_named
from analysis.compare.comparison import MOST_CONFIRMATIONS, is_due
from analysis.compare.noise import RepeatRows
from analysis.history.branch_series import Point, SeriesTable
from analysis.history.timelines import judge_first
from analysis.stats.averages import Labels, Numbers
from analysis.stats.verdicts import LEVEL, Verdict, false_discovery_rates
from collector.bundle import CHECK, CONFIRM, BundleWriter, RunHeader
from collector.metrics import MIN_EFFECT
from collector.vocabulary import Cell, Config, Measurement, Phase, Status
from db.engine import open_store
from db.ingest import ingest_bundle
from db.nights import RunInfo
from db.queries.series import Repeats, SeriesRun
from db.queries.sides import Side

_METRICS = (*CONTROL, *CONTROL.values(), *YARDSTICKS, "throttled", "leak_bytes_per_call")
_SMALLEST = MIN_EFFECT["compiled_ms"]
_CHANGED = (Verdict.REGRESSED.value, Verdict.IMPROVED.value)


#: A function that judges the nights of a world; it returns a row for each model.
Judge = Callable[["World", "Nights"], pd.DataFrame]


@dataclass(frozen=True, slots=True)
class World:
    """The parameters of a simulation. Standard deviations are of ln of a latency.

    `noise` is the standard deviation from process to process; `pace` is the standard deviation of the part that eager and
    compiled share; `between` is the standard deviation of the compiled latency's part that all runs of a night share.
    `disturbed` is the share of runs with a neighbour, which costs 5 to 40 %. `modes` is the share of processes whose compiled
    program is slower by `mode`. `tails` are the degrees of freedom of Student's t for the noise; 0 is normal noise.
    `slow_night` is the cost of the newest night for eager; compiled has 1.67 times as much. `slow` is the share of
    processes that take twice as long, eager and compiled; as likely as not a process is in the state of the one before.
    `in_turn`: the runs of the nights, of which there are two, take turns.
    """

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
    slow: float = 0.0
    in_turn: bool = False


@dataclass(frozen=True, slots=True)
class Nights:
    """The synthetic runs of a world: ln of eager and compiled latency, an array of 2 x runs x models, NaN if not measured.

    `night` has the night of each run, a number from 0. `level`, `slope` and `tonight` have an entry for each model: its latency,
    the factor by which the host's pace moves its compiled latency, and the part that all runs of the newest night share.
    """

    values: Numbers
    night: Labels
    level: Numbers
    slope: Numbers
    tonight: Numbers

    def again(self, world: World, night: int, due: Numbers, slower: Numbers, random: np.random.Generator) -> Nights:
        """Return these runs and one more, of the code of `night`, that the machine makes in the newest night.

        `due` says which models the run has, and `slower` is the cost of the newest code for each model.
        """
        drawn = _drawn(world, self.level, self.slope, 1, random) + world.slow_night * np.array([1, 1.67])[:, None, None]
        drawn[1] += self.tonight + (slower if night == world.nights - 1 else 0.0)
        place = int(np.searchsorted(self.night, night, side="right"))
        values = np.insert(self.values, place, np.where(due, drawn[:, 0], np.nan), axis=1)
        return replace(self, values=values, night=np.insert(self.night, place, night))


def _drawn(world: World, level: Numbers, slope: Numbers, runs: int, random: np.random.Generator) -> Numbers:
    """Draw `runs` runs of one code in usual nights, in the form of `Nights.values`."""
    shape = (runs, world.models)
    pace = random.normal(0, world.pace, shape)
    drawn = (random.standard_t(world.tails, shape) if world.tails else random.normal(0, 1, shape) for _ in range(2))
    eager, compiled = (world.noise * each + level for each in drawn)
    neighbour = random.uniform(0.05, 0.4, (runs, 1)) * (random.random((runs, 1)) < world.disturbed)
    felt = [neighbour * random.normal(1, 0.3, shape) for _ in range(2)]
    compiled += np.log1p(world.mode) * (random.random(shape) < world.modes)
    if world.slow:
        begins = np.where(random.random(shape) < 0.5, np.arange(runs)[:, None], 0)
        is_slow = np.take_along_axis(random.random(shape) < world.slow, np.maximum.accumulate(begins), 0)
        felt = [of_host + np.log(2) * is_slow * random.normal(1, 0.05, shape) for of_host in felt]
    return np.array([eager + pace + felt[0], compiled + slope * pace + felt[1]])


def draw_nights(world: World, random: np.random.Generator) -> Nights:
    """Draw the runs of all nights in order, `world.runs` for each night."""
    level, slope = random.normal(0, 1, world.models), random.uniform(0, 1.2, world.models)
    values = _drawn(world, level, slope, world.nights * world.runs, random)
    common = random.normal(0, world.between, (world.nights, world.models))
    values[1] += np.repeat(common, world.runs, axis=0)
    values[:, -world.runs :] += world.slow_night * np.array([1, 1.67])[:, None, None]
    night = np.repeat(np.arange(world.nights), world.runs)
    night = np.resize([0, 1, 1, 0], len(night)) if world.in_turn else night
    return Nights(values, night, level, slope, common[-1])


def judged(world: World, nights: Nights) -> pd.DataFrame:
    """Judge the newest night against the night before it, as the product does; return a row for each model."""
    base, new = (_side(world, nights, night) for night in (world.nights - 2, world.nights - 1))
    pairs = PairedCells(_rows(world, nights), base, new, CellPairs.of_ids(_names(world)))
    latency = judge_pairs(pairs, {"compiled_ms": _SMALLEST}).metrics["compiled_ms"]
    return pd.DataFrame(
        {
            "compiled_ms_verdict": latency.verdict,
            "compiled_ms_low": latency.low,
            "compiled_ms_high": latency.high,
            "more_runs": latency.more_runs,
        }
    )


def confirmed(
    world: World, nights: Nights, slower: Numbers, both: bool, judge: Judge, random: np.random.Generator
) -> tuple[pd.DataFrame, float]:
    """Judge after measuring due cells of the new side, or of both, again; return the rows and the further runs a model."""
    measured = 0.0
    cells = judge(world, nights)
    due = np.ones(world.models, dtype=bool)
    for _ in range(MOST_CONFIRMATIONS):
        due &= [is_due(word, more) for word, more in zip(cells["compiled_ms_verdict"], cells["more_runs"], strict=True)]
        if not due.any():
            break
        for night in (world.nights - 2, world.nights - 1) if both else (world.nights - 1,):
            nights = nights.again(world, night, due, slower, random)
            measured += float(due.mean())
        cells = judge(world, nights)
    return cells, measured


def judged_in_history(world: World, nights: Nights) -> pd.DataFrame:
    """Judge the history of up to nine nights as the product does; return a row for each model, without verdicts of no change."""
    of_nights = nights.values[1].reshape(world.nights, world.runs, world.models).mean(axis=1).T
    points = tuple(_point(world, night) for night in range(world.nights))
    metrics = {"compiled_ms": np.exp(of_nights)}
    table = SeriesTable("", "main", "", points, np.arange(world.models), metrics, np.ones(of_nights.shape))
    changes = judge_first(_rows(world, nights), _names(world), table, {"compiled_ms": _SMALLEST})["compiled_ms"]
    found = [changes[row] for row in range(world.models)]
    size = np.log([one.ratio for one in found])
    told = false_discovery_rates(np.array([one.p for one in found])) <= LEVEL
    words = np.where(size > 0, Verdict.REGRESSED.value, Verdict.IMPROVED.value)
    verdicts = np.where(told & (np.abs(size) >= np.log1p(_SMALLEST)), words, Verdict.INCONCLUSIVE.value)
    return pd.DataFrame({"compiled_ms_verdict": verdicts, "compiled_ms_low": np.nan, "compiled_ms_high": np.nan})


def judged_in_store(world: World, nights: Nights) -> pd.DataFrame:
    """Judge ingested bundles by `compare latest~1 latest`; return a row for each model.

    An ad hoc run of the first model lies before the newest night, and must not become the base.
    """
    cells = [Cell("synthetic", name, Phase.INFERENCE, "float32", "cpu", 1, Config()) for name in _names(world)]
    first_of = {night: int(np.flatnonzero(nights.night == night)[0]) for night in range(world.nights)}
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(Path(folder) / "store.db", write=True)
        for run, night in [*enumerate(nights.night.tolist()), (-1, world.nights - 1)]:
            # A run that confirms belongs to its own night, and is measured in the newest one.
            number = run - first_of[night]
            is_again = run >= 0 and number >= world.runs
            measured = world.nights - 1 if is_again else night
            started = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=measured, minutes=10 * number, seconds=night)
            started = started if run >= 0 else datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=night, hours=-1)
            header = RunHeader(
                run_id=f"run-{run}" if run >= 0 else "tried",
                branch="main",
                commit=f"{night if run >= 0 else 999:040x}",
                testbed={"cpu": "synthetic"},
                started_at=started.isoformat(),
                label="synthetic",
                trigger=CONFIRM if is_again else "nightly" if run >= 0 else "adhoc",
                night=f"night-{night}" if run >= 0 else "",
            )
            places = np.flatnonzero(np.isfinite(nights.values[1, run])).tolist() if run >= 0 else [0]
            writer = BundleWriter(Path(folder), header, [cells[place] for place in places])
            for place in places:
                eager, compiled = np.exp(nights.values[:, run, place]).tolist()
                metrics = {"eager_ms": eager, "compiled_ms": compiled}
                writer.measurement(
                    Measurement(cells[place], Status.PASS, started.isoformat(), 1.0, metrics, program_id="one")
                )
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
            "more_runs": [one.more_runs if one and one.more_runs is not None else np.nan for one in rows],
        }
    )


def _names(world: World) -> list[str]:
    return [f"synthetic {model}" for model in range(world.models)]


def _rows(world: World, nights: Nights) -> RepeatRows:
    count, models = nights.values.shape[1:]
    rows = pd.DataFrame(
        {
            "run": np.repeat(np.arange(count), models),
            "cell": np.tile(np.arange(models), count),
            **{"replicate": 0, "program": 0.0, "passed": 1},
            "started_at": np.arange(float(count * models)),
            **dict.fromkeys(_METRICS, np.nan),
            "eager_ms": np.exp(nights.values[0]).ravel(),
            "compiled_ms": np.exp(nights.values[1]).ravel(),
        }
    )
    rows = rows[rows["compiled_ms"].notna()]
    runs = pd.DataFrame({"run": np.arange(count), "night": nights.night, "branch": "main"})
    runs = runs.assign(commit=nights.night, testbed=0)
    same = dict.fromkeys(("phase", "dtype", "device", "batch_size"), "synthetic")
    cells = pd.DataFrame({"cell": np.arange(models), "cell_id": _names(world), "model": np.arange(models), **same})
    return RepeatRows(Repeats(rows, runs, cells))


def _point(world: World, night: int) -> Point:
    keys = range(night * world.runs, (night + 1) * world.runs)
    runs = tuple(SeriesRun(key, "", "", "main", "", str(night), None, 0.0, None) for key in keys)
    return Point(night, str(night), None, 0.0, None, runs)


def _side(world: World, nights: Nights, night: int) -> Side:
    run = RunInfo(0, "", "", "main", str(night), "", "", {}, "synthetic", datetime(2026, 1, 1, tzinfo=UTC), None)
    keys = np.flatnonzero(nights.night == night).tolist()
    own = [replace(run, key=key, trigger=CHECK if world.in_turn else run.trigger) for key in keys[: world.runs]]
    return Side("", "commit", (*own, *(replace(run, key=key, trigger=CONFIRM) for key in keys[world.runs :])))


@dataclass(frozen=True, slots=True)
class Rates:
    """The rates of false verdicts and of found changes.

    `alarms` is the share of A/A comparisons with any false verdict, `outside` the share of 95 % intervals without the truth (0
    for a history, which has no intervals). `power` has for each step the share of slowed models that are `regressed`. `again` is
    the number of further runs of a model in A/A comparisons over the runs of a night.
    """

    alarms: float
    outside: float
    power: tuple[float, ...]
    again: float = 0.0


def rates(
    world: World, steps: Sequence[float], times: int, seed: int = 1, judge: Judge = judged, confirm: str = "no"
) -> Rates:
    """Estimate the rates over `times` draws of nights.

    For power every tenth model, at least one, is slower by the step in the newest night. `confirm` is `no`, or the side that is
    measured again: `new` or `both`.
    """
    random = np.random.default_rng([seed, world.models, world.nights, world.runs])
    slowed = np.arange(0, world.models, 10)
    alarms, outside, again, found = [], [], [], np.zeros((len(steps), times))

    def said(nights: Nights, slower: Numbers) -> tuple[pd.DataFrame, float]:
        if confirm == "no":
            return judge(world, nights), 0.0
        return confirmed(world, nights, slower, confirm == "both", judge, random)

    for time in range(times):
        nights = draw_nights(world, random)
        cells, measured = said(nights, np.zeros(world.models))
        alarms.append(cells["compiled_ms_verdict"].isin(_CHANGED).any())
        outside.append(((cells["compiled_ms_low"] > 0) | (cells["compiled_ms_high"] < 0)).mean())
        again.append(measured / world.runs)
        for at, step in enumerate(steps):
            slower = np.zeros(world.models)
            slower[slowed] = np.log1p(step)
            values = nights.values.copy()
            values[1, nights.night == world.nights - 1] += slower
            verdicts = said(replace(nights, values=values), slower)[0]["compiled_ms_verdict"].iloc[slowed]
            found[at, time] = verdicts.eq(Verdict.REGRESSED.value).mean()
    means = (float(np.mean(part)) for part in (alarms, outside, again))
    alarmed, missed, repeated = means
    return Rates(alarmed, missed, tuple(found.mean(axis=1).tolist()), repeated)


def main() -> None:
    """Print the table."""
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
    parser.add_argument("--slow", type=float, default=0.0, help="share of processes that take twice as long")
    parser.add_argument("--in-turn", action="store_true", help="base, new, new, base, as check; needs --nights 2")
    parser.add_argument("--confirm", choices=["no", "new", "both"], default="no", help="measure again, as nightly does")
    parser.add_argument("--quiet", action="store_true", help="no line with disturbed runs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--history", action="store_true", help="judge the history of 2 to 9 nights")
    parser.add_argument("--ingest", action="store_true", help="through bundles, ingest and compare latest~1 latest")
    parser.add_argument("--steps", type=float, nargs="+", default=[0.03, 0.05, 0.10])
    asked = parser.parse_args()
    steps, judge = asked.steps, judged_in_history if asked.history else judged_in_store if asked.ingest else judged
    print(f"synthetic, {asked.nights} nights of {asked.runs} runs: shares of {asked.times} comparisons")
    print("models noise disturbed  false  outside 95 %  again" + "".join(f"  finds {step:4.0%}" for step in steps))
    for noise in asked.noise:
        for models in asked.models:
            for disturbed in (0.0,) if asked.quiet else (0.0, 0.25):
                structure = {"between": asked.between, "modes": asked.modes, "tails": asked.tails}
                world = World(models, asked.nights, asked.runs, noise, noise, disturbed, **structure)
                world = replace(world, slow_night=asked.slow_night, slow=asked.slow, in_turn=asked.in_turn)
                times = asked.times if models < 500 else max(asked.times // 4, 20)
                found = rates(world, steps, times, asked.seed, judge, asked.confirm)
                power = "".join(f"  {part:10.2f}" for part in found.power)
                shares = f"{found.alarms:5.3f}  {found.outside:12.3f}  {found.again:5.2f}{power}"
                print(f"{models:6} {noise:5.1%} {disturbed:9.0%}  {shares}", flush=True)


if __name__ == "__main__":
    main()
