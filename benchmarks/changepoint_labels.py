"""Score our change points against the marks of several people in real nightly series, by F1 and covering.

    python -m benchmarks changepoint_labels LABELLED.json

LABELLED.json holds {series: {"y": [value, ...], "annotations": {person: [index, ...]}}}. The scores are TCPD's
(`benchmarks.segmentation_scores`). *Unmarked* is the share of the change points without any mark within the
margin. It depends on the number of people, so it is also given for fewer people, drawn at random. Beside ours:

- agreed marks: the medians of groups of marks, by at least 2 or 3 people, that are within the margin of each other
- `ruptures` (optimal partitioning, PELT, with Schwarz's penalty), if it is installed
- cross-validation: the contrast that is best for one random half of the series is scored on the other half
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from analysis.stats import changepoints
from analysis.stats.changepoints import clip_spikes, cut_price, detect
from benchmarks.segmentation_scores import MARGIN, covering, f1

_CONTRASTS = (1.2, 1.4, 1.6, 1.8)
_DRAWS = 20


@dataclass(frozen=True, slots=True)
class Labelled:
    """A series with the marks of each person."""

    values: NDArray[np.float64]
    marks: Sequence[Sequence[int]]


def main() -> None:
    """Print a line for each method, and for each number of people."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("labelled", type=Path)
    stored = json.loads(parser.parse_args().labelled.read_text())
    series = [Labelled(np.asarray(one["y"], dtype=float), list(one["annotations"].values())) for one in stored.values()]
    print(f"{len(series)} series, margin {MARGIN}")
    ours = [detect(one.values) for one in series]
    _print("ours", series, ours)
    figures = cross_validated(series)
    print("{:<28} F1 {:.3f}           cover {:.3f}           unmarked {:.3f}".format("ours, cross-validated", *figures))
    if find_spec("ruptures"):
        _print("ruptures", series, [_ruptures(one.values) for one in series])
    for people in (2, 3):
        _print(f"marked by {people} people or more", series, [agreed(one.marks, people) for one in series])
    random = np.random.default_rng(1)
    most = min(len(one.marks) for one in series)
    for people in range(1, most):
        drawn = [
            [random.permutation(np.array(one.marks, dtype=object))[:people].tolist() for one in series]
            for _ in range(_DRAWS)
        ]
        share = np.mean([unmarked(marks, ours) for marks in drawn])
        print(f"unmarked by {people} of {most} people: {share:.3f}")


def scores(series: Sequence[Labelled], found: Sequence[list[int]]) -> NDArray[np.float64]:
    """Return F1 and covering, a row for each series."""
    return np.array(
        [(f1(one.marks, at), covering(one.marks, at, one.values.size)) for one, at in zip(series, found, strict=True)]
    )


def unmarked(marks: Sequence[Sequence[Sequence[int]]], found: Sequence[list[int]]) -> float:
    """Return the share of the change points of all series that are further than the margin from every mark."""
    missed = [
        all(abs(at - mark) > MARGIN for person in people for mark in person)
        for people, cuts in zip(marks, found, strict=True)
        for at in cuts
    ]
    return float(np.mean(missed)) if missed else 0.0


def agreed(marks: Sequence[Sequence[int]], people: int) -> list[int]:
    """Return the medians of groups of marks by at least `people`; a mark within the margin of the one before joins its group."""
    placed = sorted((mark, person) for person, own in enumerate(marks) for mark in set(own))
    starts = np.flatnonzero(np.diff([mark for mark, _ in placed], prepend=-np.inf) > MARGIN)
    groups = [placed[first:last] for first, last in pairwise([*starts, len(placed)])]
    agreeing = [group for group in groups if len({person for _, person in group}) >= people]
    return [int(np.median([mark for mark, _ in group])) for group in agreeing]


def cross_validated(series: Sequence[Labelled]) -> NDArray[np.float64]:
    """Return the mean F1, covering and unmarked share of one half of the series with the other half's best contrast."""
    settings = []
    for contrast in _CONTRASTS:
        with patch.object(changepoints, "CONTRAST", contrast):
            settings.append([detect(one.values) for one in series])
    each = np.array([scores(series, found) for found in settings])
    random = np.random.default_rng(1)
    found = []
    for _ in range(_DRAWS):
        half, other = np.array_split(random.permutation(len(series)), 2)
        best = int(np.argmax(each[:, half].mean(axis=(1, 2))))
        nobody = unmarked([series[at].marks for at in other], [settings[best][at] for at in other])
        found.append([*each[best, other].mean(axis=0), nobody])
    return np.mean(found, axis=0)


def _ruptures(values: NDArray[np.float64]) -> list[int]:
    import ruptures  # type: ignore[import-not-found]

    clipped = clip_spikes(values[None, :])[0]
    # Our price of a cut is twice Schwarz's penalty.
    found: list[int] = ruptures.Pelt("l2", min_size=5, jump=1).fit(clipped).predict(pen=cut_price(clipped) / 2)
    return found[:-1]


def _print(name: str, series: Sequence[Labelled], found: Sequence[list[int]]) -> None:
    rows = scores(series, found)
    mean, error = rows.mean(axis=0), rows.std(axis=0, ddof=1) / np.sqrt(len(rows))
    nobody = unmarked([one.marks for one in series], found)
    print(
        f"{name:<28} F1 {mean[0]:.3f} +- {error[0]:.3f}  cover {mean[1]:.3f} +- {error[1]:.3f}  unmarked {nobody:.3f}"
    )


if __name__ == "__main__":
    main()
