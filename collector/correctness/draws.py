"""The check that a compiled program draws random numbers from eager's distributions, if not the same numbers.

Inductor has a generator of its own. A second program that draws from eager's generator can be compared value by value, but it
is not the timed program. For the timed program distributions are compared: for every random tensor, eager and the program
give, under several seeds each, its share of zeros, its mean, its size, and how far it moves from seed to seed.

No distribution is assumed. If both draw alike, their ten values differ by chance only, and in 1 of 126 cases all five values of
one program lie beyond the five of the other. If they do, by a gap that matters, as many further seeds must confirm it: by
chance 1 in 92,000. A model with few random decisions, such as whole layers that are dropped, scatters widely and needs the
further seeds; a model with many scatters little and is judged sharply by the gap.

Two effects look like other distributions but are none. Eager's dropout on CUDA keeps an element whose number is less than 1, and
its numbers reach 1 inclusive, so that it drops one element of 2^25 whatever the probability; Inductor's numbers stay below 1.
Such accidents move a tensor by a small part of its size: these moves are not compared, but the values are (`slight`). And a
gradient of rounding noise alone has another size in each right program: gradients far below the largest are left out, and a
finding counts only if the program that draws as eager does is without it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import torch

from collector.correctness.norms import Asking, asking_rms, asking_rmse, chunks, finite, is_float, settle, sum_of
from collector.correctness.snapshot import GRADIENT, LOSS, Snapshot

#: Seeds of each program before it can be found wrong, and further seeds to confirm it.
SEEDS = 5
#: The gaps that matter: of shares of zeros; of means, over the size; of sizes and of moves, as a factor.
_ZEROS, _MEAN, _SIZE, _MOVE = 0.02, 0.05, 1.05, 1.25
#: The largest change from call to call under one seed (the order of sums), as a share of the change by another seed.
_STEADY = 0.1
#: The move from seed to seed, over the size, up to which it may be an accident. Dropout of one element in a hundred moves a
#: tensor by 0.14 of its size; the accidents of a language model with 4,096 tokens move its logits by 0.03 at most.
_SLIGHT = 0.05
#: A tensor of at least so many elements does not change by less than a twentieth by chance alone.
_MANY = 64
#: The size of a gradient, over the largest gradient's, below which it may be rounding noise alone: half a percent in bfloat16
#: for the gradient of a bias before a softmax.
_NOISE = 1e-2

#: A function that runs a program under a seed.
Run = Callable[[int], Snapshot]


@dataclass(slots=True)
class _Series:
    """The measures of one tensor of one program, with a value for each seed."""

    zeros: list[float] = field(default_factory=list)
    mean: list[float] = field(default_factory=list)
    size: list[float] = field(default_factory=list)
    moved: list[float] = field(default_factory=list)


class _Program:
    """A program that runs under more and more seeds; at most two snapshots are held at a time, and none between draws."""

    def __init__(self, run: Run, paths: Iterable[str], first_seed: int) -> None:
        self._run, self._seed = run, first_seed
        self.series = {path: _Series() for path in paths}

    def repeat(self) -> dict[str, float]:
        """Return how far each tensor (RMSE) moves from call to call under one seed."""
        once, again = self._run(self._seed), self._run(self._seed)
        errors = settle(asking_rmse(again.get(path), once.get(path)) for path in self.series)
        return dict(zip(self.series, errors, strict=True))

    def draw(self) -> None:
        """Run `SEEDS` further seeds, and compare each with the seed before it."""
        last = self._run(self._seed)
        for _ in range(SEEDS):
            self._seed += 1
            made = self._run(self._seed)
            settle(_note(series, made.get(path), last.get(path)) for path, series in self.series.items())
            last = made


def _note(series: _Series, value: object, before: object) -> Asking[None]:
    """Add the measures of a tensor under one seed, with its distance from the value under the seed before."""
    if not isinstance(value, torch.Tensor) or not isinstance(before, torch.Tensor):
        return
    size = yield from asking_rms(value)
    total = sum_of(finite(chunk).sum() for (chunk,) in chunks(value))
    mean, zeros = yield total / value.numel(), (value == 0).double().mean()
    moved = yield from asking_rmse(value, before)
    series.size.append(size)
    series.mean.append(mean / size if size else 0.0)
    series.zeros.append(zeros)
    series.moved.append(moved)


def _count(value: object) -> int:
    return value.numel() if isinstance(value, torch.Tensor) else 0


def slight(first: Snapshot, seed_errors: Mapping[str, float]) -> dict[str, float]:
    """Return the entries of `seed_errors` that are a small part of their tensor, so that its values can still be compared."""
    sizes = settle(asking_rms(first.get(path)) for path in seed_errors)
    pairs = zip(seed_errors.items(), sizes, strict=True)
    found = {path: error for (path, error), size in pairs if error <= _SLIGHT * size}
    # Few elements, the loss above all, may be near each other under two seeds by chance: then they are as random as the rest.
    if any(path not in found and is_float(first.get(path)) for path in seed_errors):
        found = {path: error for path, error in found.items() if _count(first[path]) >= _MANY}
    return found


def wrong_draws(
    eager: Run, compiled: Run, control: Run, first: Snapshot, paths: Iterable[str], first_seed: int
) -> str | None:
    """Return a message on the first tensor that the compiled program draws otherwise than eager; None if there is none.

    `paths` are the tensors of `first` that another seed changes. `control` is the program that draws as eager does; it runs
    only to confirm a finding.
    """
    gradients = [name for name in first if name.startswith(GRADIENT)]
    sizes = dict(zip(gradients, settle(asking_rms(first[name]) for name in gradients), strict=True))
    noise_below = _NOISE * max(sizes.values(), default=0.0)
    random = [path for path in paths if is_float(first.get(path)) and sizes.get(path, math.inf) >= noise_below]
    random.sort(key=lambda path: path == LOSS)  # other outputs show more of the problem than the loss
    if not random:
        return None
    wanted, made = (_Program(run, random, first_seed) for run in (eager, compiled))
    noise = made.repeat()
    found: dict[str, str] = {}
    for _ in range(2):
        wanted.draw()
        made.draw()
        if not (found := _found(wanted.series, made.series, noise)):
            return None
    drawn = _Program(control, found, first_seed)
    for _ in range(2):
        drawn.draw()
    shown = _found({path: wanted.series[path] for path in found}, drawn.series, dict.fromkeys(found, 0.0))
    return next((f"{path}: {problem}" for path, problem in found.items() if path not in shown), None)


def _found(eager: Mapping[str, _Series], compiled: Mapping[str, _Series], noise: Mapping[str, float]) -> dict[str, str]:
    judged = {path: _problem(wanted, compiled[path], noise[path]) for path, wanted in eager.items()}
    return {path: problem for path, problem in judged.items() if problem}


def _problem(wanted: _Series, made: _Series, noise: float) -> str | None:
    if not made.moved or not wanted.moved or min(wanted.moved) == 0:
        return None
    least = _SLIGHT * _mid(wanted.size)
    if max(made.moved) == 0 and min(wanted.moved) > least:
        return f"random in eager, and the same under {len(made.moved)} seeds"
    if noise > max(_STEADY * max(made.moved), least):
        return "one seed gives other values in each call"
    if _apart(wanted.zeros, made.zeros, lambda low, high: high - low > _ZEROS):
        return f"{_mid(made.zeros):.1%} of the values are zero, in eager {_mid(wanted.zeros):.1%}"
    if _apart(wanted.mean, made.mean, lambda low, high: high - low > _MEAN):
        return f"the mean of random values is {_mid(made.mean):.2f} of their size, in eager {_mid(wanted.mean):.2f}"
    if _apart(wanted.size, made.size, lambda low, high: high > _SIZE * low):
        return f"random values are {_mid(made.size) / _mid(wanted.size):.2f} times as large as in eager"
    if _apart(wanted.moved, made.moved, lambda low, high: high > max(_MOVE * low, low + least)):
        share = _mid(made.moved) / _mid(wanted.moved)
        return f"random values are {share:.2f} times as far from seed to seed as in eager"
    return None


def _apart(one: list[float], two: list[float], matters: Callable[[float, float], bool]) -> bool:
    """Return whether all values of one series lie beyond all values of the other, by a gap that matters."""
    return matters(max(one), min(two)) or matters(max(two), min(one))


def _mid(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
