"""False verdicts and power of the comparison of two nights, on synthetic runs: `python -m benchmarks false_alarms`.

Nothing here is measured. Every model has a level, and its compiled and eager latency have in common what the host's pace
does to a process. A disturbed run shares the machine with a neighbour, who slows both, and not equally.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt
import pandas as pd

from analysis.compare.paired_values import PairedValues
from analysis.compare.repeated import RepeatRows
from analysis.compare.transitions import Transition
from analysis.compare.verdicts import judge_paired
from analysis.stats.verdicts import Verdict
from db.queries.sides import Side, SideRun

_METRICS = ("eager_ms", "compiled_ms", "eager_kernel_ms", "compiled_kernel_ms", "throttled", "leak_bytes_per_call")
_CHANGED = (Verdict.REGRESSED.value, Verdict.IMPROVED.value)


@dataclass(frozen=True, slots=True)
class World:
    """What is simulated. `noise` is the standard deviation of ln of a latency from process to process; `pace` is that of
    what eager and compiled have in common; `disturbed` is the share of runs with a neighbour, who costs 5 to 40 %."""

    models: int = 10
    nights: int = 14
    runs: int = 1
    noise: float = 0.03
    pace: float = 0.03
    disturbed: float = 0.0


def latencies(world: World, random: np.random.Generator) -> npt.NDArray[np.float64]:
    """ln of eager and compiled latency: an array of 2 x runs x models; runs are in order, `world.runs` of a night."""
    shape = (world.nights * world.runs, world.models)
    level, slope = random.normal(0, 1, world.models), random.uniform(0, 1.2, world.models)
    pace = random.normal(0, world.pace, shape)
    eager, compiled = (random.normal(0, world.noise, shape) + level for _ in range(2))
    neighbour = random.uniform(0.05, 0.4, (len(pace), 1)) * (random.random((len(pace), 1)) < world.disturbed)
    felt = [neighbour * random.normal(1, 0.3, shape) for _ in range(2)]
    return np.array([eager + pace + felt[0], compiled + slope * pace + felt[1]])


def judged(world: World, values: npt.NDArray[np.float64]) -> pd.DataFrame:
    """What the product says of the newest night against the one before, a row a model."""
    count, models = values.shape[1:]
    ids = [f"synthetic {model}" for model in range(models)]
    rows = pd.DataFrame(
        {
            "cell_id": np.tile(ids, count),
            "model": np.tile(np.arange(models), count),
            **dict.fromkeys(("phase", "dtype", "device", "batch_size"), "synthetic"),
            "run": np.repeat(np.arange(count), models),
            "branch": "main",
            "commit": np.repeat(np.arange(count) // world.runs, models),
            **dict.fromkeys(("testbed", "program", "replicate"), 0),
            "status": "pass",
            "started_at": np.arange(float(count * models)),
            **dict.fromkeys(_METRICS, np.nan),
            "eager_ms": np.exp(values[0]).ravel(),
            "compiled_ms": np.exp(values[1]).ravel(),
        }
    )
    cells = pd.DataFrame(
        {
            **{f"cell_id_{side}": ids for side in ("base", "new")},
            **{f"environment_id_{side}": "synthetic" for side in ("base", "new")},
            "transition": Transition.BOTH_PASS.value,
            "testbed_changed": False,
        }
    )
    base, new = (_side(world, night) for night in (world.nights - 2, world.nights - 1))
    return judge_paired(PairedValues(RepeatRows.of(rows), base, new, cells), {"compiled_ms": 0.02}).cells


def _side(world: World, night: int) -> Side:
    run = SideRun(0, "", "", "main", str(night), "", "", {}, "synthetic", datetime(2026, 1, 1, tzinfo=UTC), None)
    keys = range(night * world.runs, (night + 1) * world.runs)
    return Side("", "commit", tuple(replace(run, key=key) for key in keys))


@dataclass(frozen=True, slots=True)
class Rates:
    """`alarms` is the share of A/A comparisons with any false verdict, `outside` that of 95 % intervals without the truth;
    `power` has for each step the share of slowed models that are `regressed`."""

    alarms: float
    outside: float
    power: tuple[float, ...]


def rates(world: World, steps: Sequence[float], times: int, seed: int = 1) -> Rates:
    """Over `times` synthetic stores. For power every tenth model, one at least, is slower by the step in the newest night."""
    random = np.random.default_rng([seed, world.models, world.nights, world.runs])
    slowed = np.arange(0, world.models, 10)
    alarms, outside, found = [], [], np.zeros((len(steps), times))
    for time in range(times):
        values = latencies(world, random)
        cells = judged(world, values)
        alarms.append(cells["compiled_ms_verdict"].isin(_CHANGED).any())
        outside.append(((cells["compiled_ms_low"] > 0) | (cells["compiled_ms_high"] < 0)).mean())
        for at, step in enumerate(steps):
            slower = values.copy()
            slower[1, -world.runs :, slowed] += np.log1p(step)
            verdicts = judged(world, slower)["compiled_ms_verdict"].iloc[slowed]
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
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    steps = (0.03, 0.05, 0.10)
    print(f"synthetic, {asked.nights} nights of {asked.runs} runs: shares of {asked.times} comparisons")
    print("models noise disturbed  false  outside 95 %" + "".join(f"  finds {step:4.0%}" for step in steps))
    for noise in asked.noise:
        for models in asked.models:
            for disturbed in (0.0, 0.25):
                world = World(models, asked.nights, asked.runs, noise, noise, disturbed)
                found = rates(world, steps, asked.times if models < 500 else max(asked.times // 4, 20), asked.seed)
                power = "".join(f"  {part:10.2f}" for part in found.power)
                print(
                    f"{models:6} {noise:5.1%} {disturbed:9.0%}  {found.alarms:5.3f}  {found.outside:12.3f}{power}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
