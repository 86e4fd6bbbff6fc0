"""Whether a compiled program draws random numbers as eager does, if not the same ones.

Inductor has a generator of its own. A second program that draws from eager's can be compared value by value, but it is not
the one that is timed. Of the timed one the distribution is compared: under several seeds each, eager and compiled outputs
give for every random tensor its share of zeros, its mean, its size, and how far it moves from seed to seed.

No distribution is assumed. If both draw alike, all ten values are alike but for chance, and in 1 of 126 cases the five of one
program lie all beyond the five of the other. Where they do, and by a gap that matters, as many seeds again must confirm
it: 1 in 92,000. A model with few random decisions, such as whole layers that are dropped, scatters widely and needs that;
one with many scatters little and is judged sharply by the gap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch

from collector.correctness.norms import chunks, finite, is_float, rms_of, rmse
from collector.correctness.snapshot import Snapshot

#: Seeds of each program before one can be found wrong, and again to confirm it.
SEEDS = 5
#: The gaps that matter: of shares of zeros; of means, over the size; of sizes and of moves, as a factor.
_ZEROS, _MEAN, _SIZE, _MOVE = 0.02, 0.05, 1.05, 1.25
#: What one seed may change from call to call, as a share of what another seed changes: the order of sums.
_STEADY = 0.1

#: Runs a program under a seed.
Run = Callable[[int], Snapshot]


@dataclass(slots=True)
class _Series:
    """What the seeds of one program gave for one tensor."""

    zeros: list[float] = field(default_factory=list)
    mean: list[float] = field(default_factory=list)
    size: list[float] = field(default_factory=list)
    moved: list[float] = field(default_factory=list)


class _Program:
    """One program under more and more seeds; two snapshots are held at a time, and none in between."""

    def __init__(self, run: Run, paths: Iterable[str], first_seed: int) -> None:
        self._run, self._seed = run, first_seed
        self.series = {path: _Series() for path in paths}

    def repeat(self) -> dict[str, float]:
        """Return by how much one seed moves each tensor from call to call."""
        once, again = self._run(self._seed), self._run(self._seed)
        return {path: rmse(again.get(path), once.get(path)) for path in self.series}

    def draw(self) -> None:
        """Take `SEEDS` further seeds, each beside the one before."""
        last = self._run(self._seed)
        for _ in range(SEEDS):
            self._seed += 1
            made = self._run(self._seed)
            for path, series in self.series.items():
                value, before = made.get(path), last.get(path)
                if isinstance(value, torch.Tensor) and isinstance(before, torch.Tensor):
                    size = rms_of(value)
                    series.size.append(size)
                    series.mean.append(_mean(value) / size if size else 0.0)
                    series.zeros.append(float((value == 0).double().mean()))
                    series.moved.append(rmse(value, before))
            last = made


def wrong_draws(eager: Run, compiled: Run, first: Snapshot, paths: Iterable[str], first_seed: int) -> str | None:
    """Say what the compiled program draws otherwise than eager; None where nothing shows.

    `paths` are the tensors of `first` that another seed changes.
    """
    random = [path for path in paths if is_float(first.get(path))]
    if not random:
        return None
    wanted, made = (_Program(run, random, first_seed) for run in (eager, compiled))
    noise = made.repeat()
    for _ in range(2):
        wanted.draw()
        made.draw()
        if not (found := _found(wanted.series, made.series, noise)):
            return None
    return found


def _found(eager: dict[str, _Series], compiled: dict[str, _Series], noise: dict[str, float]) -> str | None:
    for path, wanted in eager.items():
        made = compiled[path]
        if not made.moved or not wanted.moved or min(wanted.moved) == 0:
            continue
        if max(made.moved) == 0:
            return f"{path}: random in eager, and the same under {len(made.moved)} seeds"
        if noise[path] > _STEADY * max(made.moved):
            return f"{path}: one seed gives other values in each call"
        if _apart(wanted.zeros, made.zeros, lambda low, high: high - low > _ZEROS):
            return f"{path}: {_mid(made.zeros):.1%} of the values are zero, in eager {_mid(wanted.zeros):.1%}"
        if _apart(wanted.mean, made.mean, lambda low, high: high - low > _MEAN):
            return f"{path}: the mean of random values is {_mid(made.mean):.2f} of their size, in eager {_mid(wanted.mean):.2f}"
        for name, one, two, factor in (
            ("as large", wanted.size, made.size, _SIZE),
            ("as far from seed to seed", wanted.moved, made.moved, _MOVE),
        ):
            if _apart(one, two, lambda low, high, factor=factor: high > factor * low):  # type: ignore[misc]
                return f"{path}: random values are {_mid(two) / _mid(one):.2f} times {name} as in eager"
    return None


def _apart(one: list[float], two: list[float], matters: Callable[[float, float], bool]) -> bool:
    """Whether all values of one series lie beyond all of the other, by a gap that matters."""
    return matters(max(one), min(two)) or matters(max(two), min(one))


def _mid(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def _mean(value: torch.Tensor) -> float:
    total = math.fsum(float(finite(chunk).sum()) for (chunk,) in chunks(value))
    return float(total / value.numel())
