"""Suites over nights: averages chained over common models, counts, and new levels of both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np
import pandas as pd

from analysis.elements.wording import moment, number
from analysis.stats.averages import Numbers, chained
from analysis.stats.levels import new_levels
from collector.metrics import METRICS, MIN_EFFECT
from db.nights import NightInfo

#: The passing cells in percent of the measured cells, without cells that do not apply.
RATE = "pass_rate"
#: The number of passing cells.
MODELS = "models"
_COUNTED = {RATE: "pass rate", MODELS: "number of passing models"}
#: All figures of a suite, the most informative first.
FIGURES = (
    *("device_speedup", "speedup", "compiled_kernel_ms", "compiled_ms", "compile_cold_s"),
    *("compiled_peak_bytes", "compression", *_COUNTED),
)
_MEANS = ("compile_cold_s",)
#: pandas' names of the periods that a point of a chart can stand for.
_PERIODS = {"day": "D", "week": "W", "month": "M"}
#: Number of newest nights that are shown where the address names no days; older nights need a choice of days.
NIGHTS = 90
#: The smallest relative change of an average that matters, where its metric has none of its own.
_MIN_EFFECT = 0.01
#: Averages below this value count as this value.
_LEAST = 1e-6


@dataclass(frozen=True, slots=True)
class Step:
    """A new level of a suite's average, and the nights around it.

    `line` is the config's name, with the branch where there are several.
    """

    suite: str
    line: str
    before: pd.Series
    after: pd.Series
    level_before: float
    level_after: float


def title(metric: str) -> str:
    """Return the title of a figure."""
    return _COUNTED.get(metric) or METRICS[metric].title


def value(metric: str, found: float) -> str:
    """Return a figure with its unit."""
    return number(metric, found) if metric in METRICS else f"{found:.0f}" + (" %" if metric == RATE else "")


def is_measured(history: pd.DataFrame, metric: str) -> bool:
    """Return whether a history has a figure. Peak memory is measured where its ratio to eager is measured."""
    if metric in _COUNTED:
        return True
    return bool((history[f"n_{'compression' if metric == 'compiled_peak_bytes' else metric}"] > 0).any())


def within(history: pd.DataFrame, first: date, last: date) -> pd.DataFrame:
    """Return the rows of runs that started on these days (UTC), both included."""
    end = pd.Timestamp(last, tz="UTC") + pd.Timedelta(days=1)
    return history[history["started_at"].between(pd.Timestamp(first, tz="UTC"), end, inclusive="left")]


def joined(histories: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Join the histories (`db.queries.series.suite_history`) of some branches, with a row for each run, suite and config.

    Columns `branch` and `line` are added. `line` names a line of a chart: the config, with the branch if there are several.
    """
    parts = [history.assign(branch=branch) for branch, history in histories.items()]
    rows = pd.concat(parts, ignore_index=True) if len(parts) > 1 else parts[0]
    line = rows["config"] + ", " + rows["branch"] if len(parts) > 1 else rows["config"]
    return rows.assign(line=line)


def with_nights(history: pd.DataFrame, nights: Iterable[NightInfo], places: Mapping[str, str]) -> pd.DataFrame:
    """Return the rows with columns that charts need of their runs.

    These are `night`, `run` (by number), `commit_title` and `repo`, and from `places` (`over_commits.labels_of_runs`) the `order`
    and `label` of the run.
    """
    infos = {
        run.run_id: (night.night, run.key, run.commit_title or "", run.repo) for night in nights for run in night.runs
    }
    runs = {name: (*infos[name], order, label) for order, (name, label) in enumerate(places.items())}
    columns = zip(*(runs[run_id] for run_id in history["run_id"]), strict=True)
    names = ("night", "run", "commit_title", "repo", "order", "label")
    return history.assign(**dict(zip(names, columns, strict=True)))


def points(history: pd.DataFrame, period: str) -> pd.DataFrame:
    """Return the rows with a column `point`: the night, or the day, week or month that a branch's newest night stands for.

    `period` is `day`, `week` or `month`, or empty for nights.
    """
    if not period or history.empty:
        return history.assign(point=history["night"])
    days = history["started_at"].dt.tz_convert(None).dt.to_period(_PERIODS[period]).astype(str)
    rows = history.assign(point=days).sort_values("started_at", kind="stable")
    return rows[rows["night"] == rows.groupby(["branch", "point"], sort=False)["night"].transform("last")]


def counted(history: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return a row for each point, suite and line, with `RATE` or `MODELS` as `value`, and `models`, the attempted cells.

    `history` is a result of `points`.
    """
    sums = history.groupby(["point", "branch", "suite", "config", "line"], sort=False)
    rows = sums[["passed", "attempted"]].sum().reset_index()
    attempted = rows["attempted"]
    value = 100 * rows["passed"] / attempted if metric == RATE else rows["passed"].astype(float)
    return _placed(rows.assign(value=value, models=attempted, chain=0)[attempted > 0], history)


def paired(history: pd.DataFrame, cells: pd.DataFrame, values: Numbers, metric: str) -> pd.DataFrame:
    """Return a row for each point, suite and line with a metric's average, `chained` over models that neighbouring points share.

    `history` is a result of `points`. `values` has run and cell, by number, and value; `cells` names cells by number.
    """
    parts = []
    for branch, of_branch in history.groupby("branch", sort=False):
        lines = of_branch.drop_duplicates("config").set_index("config")["line"]
        runs = of_branch.drop_duplicates("run").sort_values("order").set_index("run")["point"]
        table = _table(values, runs, cells.index)
        for _, rows in cells.reset_index(drop=True).groupby(["suite", "config"], sort=False):
            suite, config = rows[["suite", "config"]].iloc[0]
            of_line = table[rows.index]
            models = np.isfinite(of_line).sum(axis=0)
            if not models.any():
                continue
            level, chain = chained(of_line[:, models > 0], is_mean=metric in _MEANS)
            names = {"suite": suite, "config": config, "line": lines[config], "branch": branch}
            shown = {"value": level, "models": models[models > 0], "chain": chain}
            parts.append(pd.DataFrame({"point": runs.unique()[models > 0], **shown, **names}))
    return _placed(pd.concat(parts), history) if parts else history.iloc[:0]


def _table(values: Numbers, runs: pd.Series, cells: pd.Index) -> Numbers:
    """Return the values as a table with a row for each cell and a column for each point."""
    run, cell = (pd.Index(kind).get_indexer(values[:, at]) for kind, at in ((runs.index, 0), (cells, 1)))
    known = (run >= 0) & (cell >= 0)
    column, names = pd.factorize(runs)
    table = np.full((len(cells), len(names)), np.nan)
    table[cell[known], column[run[known]]] = values[known, 2]
    return table


def _placed(rows: pd.DataFrame, history: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with the facts on each point, and `place`, its number in the order of commits."""
    known = ["point", "branch", "night", "commit", "commit_title", "repo", "started_at", "label", "order"]
    newest = history.sort_values("order", kind="stable")[known].drop_duplicates(["point", "branch"], keep="last")
    rows = rows.merge(newest, on=["point", "branch"])
    places = rows.groupby("point")["order"].max().rank(method="first").astype(int) - 1
    return rows.assign(place=rows["point"].map(places)).sort_values(["place", "suite", "line"], ignore_index=True)


def steps(trend: pd.DataFrame, metric: str) -> list[Step]:
    """Return the new levels of the averages, each suite and line on its own, the newest first.

    Alerts use the same rule (`analysis.stats.levels.new_levels`). It is applied to all given lines; pending levels are left out.
    """
    lines = list(trend.groupby(["suite", "line"], sort=False))
    # 0 % has no logarithm.
    series = [np.maximum(rows["value"].to_numpy(dtype=float), _LEAST)[None, :] for _, rows in lines]
    found = []
    for level in new_levels(series, MIN_EFFECT.get(metric, _MIN_EFFECT)):
        if not level.is_pending:
            (suite, line), rows = lines[level.table]
            nights = rows.iloc[level.change.at - 1], rows.iloc[level.change.at]
            found.append(Step(str(suite), str(line), *nights, level.change.before, level.change.after))
    return sorted(found, key=lambda step: (-int(step.after["place"]), step.suite, step.line))


def newest(history: pd.DataFrame, count: int = NIGHTS) -> date:
    """Return the day on which the first of the newest `count` nights of a history started."""
    nights = history.groupby("night")["started_at"].max().sort_values()
    first: date = nights.iloc[-count:].iloc[0].date()
    return first


def facts(rows: pd.DataFrame) -> pd.DataFrame:
    """Return for each place its start, its number of models, its commits (with their titles or branches) and its nights."""
    several = rows["branch"].nunique() > 1
    of_branch = rows.drop_duplicates(["place", "branch"]).sort_values("place", kind="stable")
    behind = " (" + of_branch["branch"] + ")" if several else " " + of_branch["commit_title"]
    shas = (of_branch["commit"].astype(str).str[:10] + behind).str.rstrip()
    named = of_branch.assign(commit=shas).groupby("place")[["commit", "night"]].agg(", ".join)
    models = rows.groupby("place")["models"].agg(["min", "max"]).astype(int)
    counts = [str(low) if low == high else f"{low} to {high}" for low, high in models.itertuples(index=False)]
    started = rows.drop_duplicates("place").set_index("place")["started_at"].map(moment)
    return named.join(started.rename("started (UTC)")).assign(models=pd.Series(counts, index=models.index))


def triangles(found: Sequence[Step], suite: str, lines: Sequence[str], size: float) -> pd.DataFrame:
    """Return the points of a suite at which one of `lines` goes to a new level, with values in units of `size`."""
    rows = [
        step.after[["place", "value", "line", "started_at"]]
        for step in found
        if step.suite == suite and step.line in lines
    ]
    named = pd.DataFrame(rows, columns=["place", "value", "line", "started_at"]).rename(columns={"started_at": "date"})
    return named.assign(value=named["value"] / size)
