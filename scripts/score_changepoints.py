"""How well change points agree with what people marked: F1 and covering (TCPD), a line a method.

python scripts/score_changepoints.py LABELLED.json [--cross-validate 50] [--sensitivity]

LABELLED.json holds {series: {"y": [value, ...], "annotations": {person: [index, ...]}}}; a missing value is null.
`--cross-validate N`: N times half of the series chooses among 135 settings around ours and the other half scores the
choice, then the halves change places; parts of one series (`_split1`, `_split2`) stay together. `--sensitivity`: every
parameter 30 % smaller and larger, the others as they are.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
import numpy.typing as npt

from analysis.stats import changepoints, partition, segmentation_scores, spikes, steps

Values = npt.NDArray[np.float64]
Method = Callable[[Values], list[int]]

#: Where a parameter is, and the values that cross-validation may choose from.
_GRID: dict[tuple[ModuleType, str], tuple[float, ...]] = {
    (partition, "STRENGTH"): (1.4, 2.0, 2.6),
    (steps, "CONTRAST"): (1.0, 1.2, 1.4, 1.6, 1.8),
    (steps, "EDGE"): (14, 20, 26),
    (steps, "FALSE_CUTS"): (0.01, 0.05, 0.25),
}
_OTHERS = ((spikes, "WIDTH"), (spikes, "LIMIT"), (changepoints, "SHORTEST"))
_SEED = 1


@dataclass(frozen=True)
class Labelled:
    """One series and what each person marked in it."""

    name: str
    values: Values
    marks: Sequence[Sequence[int]]

    @property
    def base(self) -> str:
        """The series that this one is (a part of)."""
        return self.name.split("_split")[0]


def main() -> None:
    """Prints the table, and what else was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("labelled", type=Path)
    parser.add_argument("--cross-validate", type=int, default=0, metavar="N")
    parser.add_argument("--sensitivity", action="store_true")
    options = parser.parse_args()
    series = read(options.labelled)
    print(f"{len(series)} series of {len({one.base for one in series})} tests, margin {segmentation_scores.MARGIN}")
    for name, method in METHODS.items():
        print_scores(name, scores(series, method))
    if options.sensitivity:
        print_sensitivity(series)
    if options.cross_validate:
        print_cross_validated(series, options.cross_validate)


def read(path: Path) -> list[Labelled]:
    """The labelled series of a file, in its order."""
    stored: Mapping[str, Mapping[str, object]] = json.loads(path.read_text())
    return [
        Labelled(name, np.asarray(one["y"], dtype=np.float64), list(one["annotations"].values()))  # type: ignore[attr-defined]
        for name, one in stored.items()
    ]


def scores(series: Sequence[Labelled], method: Method) -> npt.NDArray[np.float64]:
    """F1 and covering, a row a series."""
    return np.array([_score(one, method(one.values)) for one in series])


def _score(one: Labelled, found: list[int]) -> tuple[float, float]:
    return (
        segmentation_scores.f1(one.marks, found),
        segmentation_scores.covering(one.marks, found, one.values.size),
    )


def print_scores(name: str, rows: npt.NDArray[np.float64]) -> None:
    """A line: the means, and their standard errors over series."""
    mean, error = rows.mean(axis=0), rows.std(axis=0, ddof=1) / np.sqrt(len(rows))
    print(f"{name:<34} F1 {mean[0]:.3f} +- {error[0]:.3f}  cover {mean[1]:.3f} +- {error[1]:.3f}")


def none(values: Values) -> list[int]:
    """No change points at all: what any method has to beat."""
    return []


def partition_only(values: Values, strength: float = 3.0) -> list[int]:
    """Optimal partitioning of the clipped values at 3 x 2 sigma^2 ln n, without judging its cuts."""
    clipped = spikes.clip_spikes(values)
    price = strength / partition.STRENGTH * partition.cut_price(clipped)
    return partition.optimal_partition(clipped, price, changepoints.SHORTEST)


def sliding_t(values: Values, window: int = 12, limit: float = 5.0, min_effect: float = 0.01) -> list[int]:
    """Where Student's t of 12 values on each side is largest among 24 neighbours, above 5, and the means differ by 1 %."""
    if values.size < 2 * window:
        return []
    parts = np.lib.stride_tricks.sliding_window_view(values, window)
    mean, variance = parts.mean(axis=1), parts.var(axis=1, ddof=1)
    change = mean[window:] - mean[:-window]
    t = np.abs(change) / np.sqrt(np.maximum((variance[window:] + variance[:-window]) / window, 1e-300))
    large = (t > limit) & (np.abs(change) >= min_effect * np.abs(mean[:-window]))
    return [int(at) + window for at in np.flatnonzero(large) if t[at] == t[max(at - window, 0) : at + window + 1].max()]


METHODS: dict[str, Method] = {
    "ours": changepoints.detect,
    "none": none,
    "sliding t > 5 and 1 %": sliding_t,
    "optimal partitioning only": partition_only,
}


@contextmanager
def setting(values: Mapping[tuple[ModuleType, str], float]) -> Iterator[None]:
    """Within it parameters have other values: for what-if questions only."""
    before = {(module, name): getattr(module, name) for module, name in values}
    try:
        for (module, name), value in values.items():
            setattr(module, name, value)
        yield
    finally:
        for (module, name), value in before.items():
            setattr(module, name, value)


def print_sensitivity(series: Sequence[Labelled]) -> None:
    """A line a parameter and direction: the scores with it 30 % smaller and larger."""
    for module, name in (*_GRID, *_OTHERS):
        ours = getattr(module, name)
        for factor in (0.7, 1.3):
            with setting({(module, name): _like(ours, ours * factor)}):
                print_scores(f"{name} {ours:g} -> {getattr(module, name):g}", scores(series, changepoints.detect))


def _like(ours: float, value: float) -> float:
    """A whole number where ours is one, and an odd one for the width of a window."""
    if not isinstance(ours, int):
        return value
    return 2 * round((value - 1) / 2) + 1 if ours == spikes.WIDTH else round(value)


def print_cross_validated(series: Sequence[Labelled], repeats: int) -> None:
    """The mean scores of halves that did not choose, next to those of ours on the same halves."""
    tried = np.array([_scores_with(series, choice) for choice in itertools.product(*_GRID.values())])
    ours = scores(series, changepoints.detect)
    halves = list(_halves(series, repeats))
    chosen = [tried[tried[:, one].mean(axis=1).sum(axis=1).argmax()][other].mean(axis=0) for one, other in halves]
    fixed = [ours[other].mean(axis=0) for _, other in halves]
    for name, rows in ((f"chosen among {len(tried)} on the other half", chosen), ("ours on the same halves", fixed)):
        mean, spread = np.mean(rows, axis=0), np.std(rows, axis=0)
        print(f"{name:<34} F1 {mean[0]:.3f} (sd {spread[0]:.3f})  cover {mean[1]:.3f} (sd {spread[1]:.3f})")


def _scores_with(series: Sequence[Labelled], choice: tuple[float, ...]) -> npt.NDArray[np.float64]:
    with setting(dict(zip(_GRID, choice, strict=True))):
        return scores(series, changepoints.detect)


def _halves(series: Sequence[Labelled], repeats: int) -> Iterator[tuple[list[int], list[int]]]:
    groups: dict[str, list[int]] = defaultdict(list)
    for at, one in enumerate(series):
        groups[one.base].append(at)
    bases, random = sorted(groups), np.random.default_rng(_SEED)
    for _ in range(repeats):
        order = [bases[at] for at in random.permutation(len(bases))]
        parts = [order[::2], order[1::2]]
        first, second = ([at for base in part for at in groups[base]] for part in parts)
        yield first, second
        yield second, first


if __name__ == "__main__":
    main()
