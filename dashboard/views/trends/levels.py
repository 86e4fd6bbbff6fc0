"""Suites over nights: the averages of a night's runs put together, and where they went to a new level."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np
import pandas as pd

from analysis.stats.levels import new_levels
from collector.metrics import METRICS, MIN_EFFECT
from dashboard.components.formats import moment, number
from db.runs import NightInfo

#: In percent of the cells that were asked: those planned, missing ones too, less those that do not apply.
RATE = "pass_rate"
#: What a suite has an average of, the most telling first.
FIGURES = ("device_speedup", "speedup", "compiled_kernel_ms", "compiled_ms", "compile_cold_s", "compression", RATE)
_MEANS = ("compile_cold_s", RATE)
#: How pandas calls what a point of a chart stands for.
_PERIODS = {"day": "D", "week": "W", "month": "M"}
#: Nights that are shown where the address names no time: what is older is a choice of days away.
NIGHTS = 120
#: The smallest relative change of an average that matters, where its metric has none of its own.
_MIN_EFFECT = 0.01
#: Averages below this count as this.
_LEAST = 1e-6


@dataclass(frozen=True, slots=True)
class Step:
    """A new level of a suite's average: the nights around it, and whether the models behind it are others.

    `line` is the config's name, with the branch where there are several.
    """

    suite: str
    line: str
    before: pd.Series
    after: pd.Series
    level_before: float
    level_after: float

    @property
    def other_models(self) -> bool:
        """Whether the average is over another number of models than the night before."""
        return bool(self.before["models"] != self.after["models"])


def title(metric: str) -> str:
    """What a figure is called."""
    return "pass rate" if metric == RATE else METRICS[metric].title


def value(metric: str, found: float) -> str:
    """A figure with its unit."""
    return f"{found:.0f} %" if metric == RATE else number(metric, found)


def with_unit(metric: str) -> str:
    """What a figure is called, with its unit."""
    unit = "%" if metric == RATE else METRICS[metric].unit
    return f"{title(metric)} [{unit}]" if unit else title(metric)


def joined(histories: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """The histories (`db.queries.history.suite_history`) of some branches in one, a row a run, suite and config.

    It has `branch`, `line` (what one line of a chart is of: a config, where there are several branches on one of them), and
    the pass rate as one more figure, in percent, of `n_pass_rate` cells.
    """
    parts = [history.assign(branch=branch) for branch, history in histories.items()]
    rows = pd.concat(parts, ignore_index=True) if len(parts) > 1 else parts[0]
    line = rows["config"] + ", " + rows["branch"] if len(parts) > 1 else rows["config"]
    asked = rows["planned"] - rows["not_applicable"]
    return rows.assign(line=line, pass_rate=100 * rows["pass_rate"], n_pass_rate=asked)


def with_nights(history: pd.DataFrame, nights: Iterable[NightInfo]) -> pd.DataFrame:
    """The rows with `night`, and `commit_title` and `repo` of their commits."""
    runs = {run.run_id: (night.night, run.commit_title or "", run.repo) for night in nights for run in night.runs}
    columns = zip(*(runs[run_id] for run_id in history["run_id"]), strict=True)
    return history.assign(**dict(zip(("night", "commit_title", "repo"), columns, strict=True)))


def by_night(history: pd.DataFrame, metric: str) -> pd.DataFrame:
    """A row a night, suite and line: value and models, with `place`, the night's number in time, and `segment`.

    `history` is what `with_nights` gives. The runs of a night on several GPUs have a part of the models each, so that their
    averages are put together by the number of models behind them.
    """
    rows = history[history[f"n_{metric}"] > 0]
    models = rows[f"n_{metric}"]
    rows = rows.assign(models=models, value=_linear(metric, rows[metric]) * models.astype(float))
    first = dict.fromkeys(("commit", "commit_title", "repo", "config", "branch"), "first")
    sums = {"models": "sum", "value": "sum", "started_at": "max"}
    nights = rows.groupby(["night", "suite", "line"], sort=False).agg(sums | first).reset_index()
    return _placed(nights.assign(value=_of_linear(metric, nights["value"] / nights["models"])), "night")


def by_period(trend: pd.DataFrame, metric: str, period: str) -> pd.DataFrame:
    """The rows of `by_night` put together by `day`, `week` or `month`: the mean of the averages of nights; "" leaves them.

    Of each period those nights count that had as many models as its newest: averages over others are another thing. Every
    other column is the newest night's.
    """
    if not period or trend.empty:
        return trend
    days = trend["started_at"].dt.tz_convert(None)
    rows = trend.assign(period=days.dt.to_period(_PERIODS[period]).astype(str), value=_linear(metric, trend["value"]))
    rows = rows.sort_values("started_at", kind="stable")
    keys = ["period", "suite", "line"]
    rows = rows[rows["models"] == rows.groupby(keys, sort=False)["models"].transform("last")]
    columns = {name: "last" for name in rows if name not in keys} | {"value": "mean"}
    periods = rows.groupby(keys, sort=False).agg(columns).reset_index()
    return _placed(periods.assign(value=_of_linear(metric, periods["value"])), "period")


def _linear(metric: str, values: pd.Series) -> pd.Series:
    """Values whose mean is formed: those of an arithmetic mean, or the logarithms of a geometric one."""
    return values if metric in _MEANS else np.log(values)


def _of_linear(metric: str, values: pd.Series) -> pd.Series:
    return values if metric in _MEANS else np.exp(values)


def _placed(rows: pd.DataFrame, what: str) -> pd.DataFrame:
    """With `place`, the number in time of what the column `what` names, and `segment`, a number for each unbroken line."""
    order = rows.groupby(what)["started_at"].max().sort_values()
    places = {name: place for place, name in enumerate(order.index)}
    rows = rows.assign(place=rows[what].map(places)).sort_values(["place", "suite", "line"], ignore_index=True)
    # Averages over other models are no movement: a line connects nights that have equally many.
    is_other = rows.groupby(["suite", "line"], sort=False)["models"].shift() != rows["models"]
    return rows.assign(segment=is_other.groupby([rows["suite"], rows["line"]], sort=False).cumsum())


def steps(trend: pd.DataFrame, metric: str) -> list[Step]:
    """Where a suite's average on a line of its own went to a new level, the newest first.

    The rule is that of alerts (`analysis.stats.levels.new_levels`), over all lines that are given, without pending ones.
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
    """The day on which the first of the newest `count` nights of a history started."""
    nights = history.groupby("night")["started_at"].max().sort_values()
    first: date = nights.iloc[-count:].iloc[0].date()
    return first


def facts(rows: pd.DataFrame) -> pd.DataFrame:
    """By place when it was, of how many models, of which commits (with their titles) and which nights."""
    several = rows["branch"].nunique() > 1
    of_branch = rows.drop_duplicates(["place", "branch"]).sort_values("place", kind="stable")
    behind = " (" + of_branch["branch"] + ")" if several else " " + of_branch["commit_title"]
    shas = (of_branch["commit"].astype(str).str[:10] + behind).str.rstrip()
    named = of_branch.assign(commit=shas).groupby("place")[["commit", "night"]].agg(", ".join)
    models = rows.groupby("place")["models"].agg(["min", "max"]).astype(int)
    counts = [str(low) if low == high else f"{low} to {high}" for low, high in models.itertuples(index=False)]
    started = rows.drop_duplicates("place").set_index("place")["started_at"].map(moment)
    return named.join(started.rename("started (UTC)")).assign(models=pd.Series(counts, index=models.index))


def triangles(found: Sequence[Step], suite: str, lines: Sequence[str]) -> pd.DataFrame:
    """The places of a suite at which a line goes to a new level."""
    rows = [
        step.after[["place", "value", "line", "started_at"]]
        for step in found
        if step.suite == suite and step.line in lines
    ]
    return pd.DataFrame(rows).rename(columns={"started_at": "date"})
