"""Changes of the first nights: a line with too few points for change points is judged as `compare` judges two sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from analysis.compare.adjustment import CellPairs, PairedCells
from analysis.compare.judged import JudgedMetric
from analysis.compare.repeats import RepeatRows
from analysis.compare.verdicts import READ, judge_pairs
from analysis.history.series import Point, SeriesTable
from analysis.stats.arrays import Numbers
from analysis.stats.changepoints import SHORTEST
from analysis.stats.levels import LevelChange, is_nearer
from collector.metrics import MIN_EFFECT
from db.connecting import Source
from db.queries.cell_names import CellNames
from db.queries.moments import from_epoch
from db.queries.sides import Side
from db.runs import RunInfo


def first_changes(source: Source, names: CellNames, table: SeriesTable) -> dict[str, dict[int, LevelChange]]:
    """`judge_first` of a line with 2 to 9 points, by the noise that the store knows; nothing of any other."""
    if not 2 <= len(table.points) < 2 * SHORTEST:
        return {}
    rows = RepeatRows.behind(source, [_side(table.points)], READ, with_untimed=False)
    return judge_first(rows, names.loc[table.keys, "cell_id"].tolist(), table, MIN_EFFECT)


def judge_first(
    rows: RepeatRows, cell_ids: Sequence[str], table: SeriesTable, min_effects: Mapping[str, float]
) -> dict[str, dict[int, LevelChange]]:
    """By metric and row the likeliest change of each series. `cell_ids` are those of the rows of the table.

    The points before a place are one side, those from it on are the other (`judge_pairs`). The place with the smallest p
    counts, times the number of places (Bonferroni). p is 1 where the change is less than what matters.
    `ratio` is as measured; p is of what the eager runs do not explain. A series whose noise is not known is left out.
    """
    cells = CellPairs.of_ids(cell_ids)
    judged = []
    for at in range(1, len(table.points)):
        pairs = PairedCells(rows, _side(table.points[:at]), _side(table.points[at:]), cells)
        judged.append(judge_pairs(pairs, min_effects).metrics)
    return {
        metric: _likeliest(table.values[metric], least, [metrics[metric] for metrics in judged])
        for metric, least in min_effects.items()
    }


def _likeliest(table: Numbers, least: float, judged: Sequence[JudgedMetric]) -> dict[int, LevelChange]:
    """By row of the table the change at the place with the smallest p; entry i of `judged` is of place i + 1."""
    adjusted, low, high, explained, p = (
        np.array([getattr(of_place, name) for of_place in judged])
        for name in ("adjusted", "low", "high", "explained", "p")
    )
    tried = np.isfinite(p).sum(axis=0)
    changes = {}
    for row in np.flatnonzero(tried).tolist():
        at = int(np.nanargmin(p[:, row]))
        values = table[row]
        measured = np.flatnonzero(np.isfinite(values))
        onset = int(measured[np.searchsorted(measured, at + 1)])
        before, after = (float(np.exp(np.nanmean(np.log(part)))) for part in (values[:onset], values[onset:]))
        ratio, lowest, highest = (
            float((1 + part[at, row]) * (1 + explained[at, row])) for part in (adjusted, low, high)
        )
        # What the eager runs explain may be more than all of the change.
        matters = abs(np.log1p(adjusted[at, row])) >= np.log1p(least) and (ratio > 1) == (adjusted[at, row] > 0)
        changes[row] = LevelChange(
            *(onset, onset, onset, before, after, after, ratio, lowest, highest),
            p=min(float(p[at, row] * tried[row]), 1.0) if matters else 1.0,
            is_over=before != after and is_nearer(float(values[measured[-1]]), before, after),
        )
    return changes


def _side(points: tuple[Point, ...]) -> Side:
    """Their runs as a side of a comparison, without what it does not look at."""
    runs = (
        RunInfo(
            *(run.key, run.run_id, "", run.branch, run.commit, run.repo, run.testbed_id),
            testbed={},
            label="",
            started_at=from_epoch(run.started_at),
            finished_at=None,
        )
        for point in points
        for run in point.runs
    )
    return Side("", "commit", tuple(runs))
