"""Suites over nights: the averages of a night's runs put together, and where they went to a new level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np
import pandas as pd

from analysis.stats.levels import new_levels
from collector.metrics import METRICS, MIN_EFFECT
from dashboard.components.formats import count, moment, number
from dashboard.views.trends.periods import averaged

#: In percent of the cells that were asked: those planned, missing ones too, less those that do not apply.
RATE = "pass_rate"
#: What a suite has an average of, the most telling first.
FIGURES = ("device_speedup", "speedup", "compiled_kernel_ms", "compiled_ms", "compile_cold_s", "compression", RATE)
_MEANS = ("compile_cold_s", RATE)
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


def with_pass_rate(history: pd.DataFrame) -> pd.DataFrame:
    """The rows of `db.queries.history.suite_history` with the pass rate as one more figure, in percent, of
    `n_pass_rate` cells."""
    asked = history["planned"] - history["not_applicable"]
    return history.assign(pass_rate=100 * history["pass_rate"], n_pass_rate=asked)


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
    """The histories of some branches in one, with `branch`, and `line`: what one line of a chart is of.

    That is a config, or where there are several branches a config on a branch: each is a series of its own.
    """
    if len(histories) == 1:
        ((branch, history),) = histories.items()
        return history.assign(branch=branch, line=history["config"])
    parts = [
        history.assign(branch=branch, line=history["config"] + f", {branch}") for branch, history in histories.items()
    ]
    return pd.concat(parts, ignore_index=True)


def by_night(history: pd.DataFrame, metric: str, night_of: Mapping[str, str]) -> pd.DataFrame:
    """A row a night, suite and line: value and models, with `place`, the night's number in time, and `segment`.

    `history` is what `joined` gives, a row a run; the runs of a night on several GPUs have a part of the
    models each, so that their averages are put together by the number of models behind them.
    """
    rows = history[history[f"n_{metric}"] > 0].assign(night=history["run_id"].map(night_of))
    weight = rows[f"n_{metric}"].astype(float)
    each = rows[metric] if metric in _MEANS else np.log(rows[metric])
    rows = rows.assign(weighted=each * weight, models=rows[f"n_{metric}"])
    keys = ["night", "suite", "line"]
    found = rows.groupby(keys, sort=False).agg(
        weighted=("weighted", "sum"),
        models=("models", "sum"),
        started_at=("started_at", "max"),
        commit=("commit", "first"),
        config=("config", "first"),
        branch=("branch", "first"),
    )
    mean = found["weighted"] / found["models"]
    found = found.assign(value=mean if metric in _MEANS else np.exp(mean)).drop(columns="weighted").reset_index()
    return _placed(found, "night")


def by_period(trend: pd.DataFrame, metric: str, period: str) -> pd.DataFrame:
    """The rows of `by_night`, put together by `day`, `week` or `month`: a row a period, suite and line; "" leaves them."""
    if not period or trend.empty:
        return trend
    return _placed(averaged(trend, period, is_mean=metric in _MEANS), "period")


def _placed(found: pd.DataFrame, what: str) -> pd.DataFrame:
    """With `place`, the number in time of what the column `what` names, and `segment`, a number for each unbroken line."""
    order = found.groupby(what)["started_at"].max().sort_values()
    places = {name: place for place, name in enumerate(order.index)}
    found = found.assign(place=found[what].map(places)).sort_values(["place", "suite", "line"], ignore_index=True)
    # Averages over other models are no movement: a line connects nights that have equally many.
    is_other = found.groupby(["suite", "line"], sort=False)["models"].shift() != found["models"]
    return found.assign(segment=is_other.groupby([found["suite"], found["line"]], sort=False).cumsum())


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


def newest(history: pd.DataFrame, night_of: Mapping[str, str], count: int = NIGHTS) -> date:
    """The day on which the first of the newest `count` nights of a history started."""
    nights = history.assign(night=history["run_id"].map(night_of)).groupby("night")["started_at"].max().sort_values()
    found: date = nights.iloc[-count:].iloc[0].date()
    return found


def texts(trend: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The trend as `dashboard.components.charts.lines` draws it."""
    return trend.assign(date=trend["started_at"], text=[value(metric, number) for number in trend["value"]])


def facts(rows: pd.DataFrame, titles: Mapping[str, str]) -> pd.DataFrame:
    """By place when it was, of how many models, of which commits (with their titles) and which nights."""
    several = rows["branch"].nunique() > 1
    of_branch = rows.drop_duplicates(["place", "branch"]).sort_values("place", kind="stable")
    shas = [
        f"{sha[:10]} ({branch})" if several else f"{sha[:10]} {titles.get(sha, '')}".rstrip()
        for sha, branch in zip(of_branch["commit"].astype(str), of_branch["branch"], strict=True)
    ]
    named = of_branch.assign(commit=shas).groupby("place")[["commit", "night"]].agg(", ".join)
    models = rows.groupby("place")["models"].agg(["min", "max"]).astype(int)
    first = rows.drop_duplicates("place").set_index("place")
    counts = [str(low) if low == high else f"{low} to {high}" for low, high in models.itertuples(index=False)]
    when = pd.Series([moment(at) for at in first["started_at"]], index=first.index, name="started (UTC)")
    return named.join(when).assign(models=pd.Series(counts, index=models.index))


def triangles(found: Sequence[Step], suite: str, lines: Sequence[str]) -> pd.DataFrame:
    """The places of a suite at which a line goes to a new level."""
    rows = [
        step.after[["place", "value", "line", "started_at"]]
        for step in found
        if step.suite == suite and step.line in lines
    ]
    return pd.DataFrame(rows).rename(columns={"started_at": "date"})


def in_words(
    trend: pd.DataFrame,
    suite: str,
    metric: str,
    highlighted: Sequence[str],
    found: Sequence[Step],
    period: str = "night",
) -> str:
    """The chart in words: where each highlighted line began and is now, and how many new levels there were."""
    parts = []
    rows = trend[trend["suite"] == suite]
    ends = {name: (values.iloc[0], values.iloc[-1]) for name, values in rows.groupby("line", sort=False)["value"]}
    for line in highlighted:
        if line in ends:
            parts.append(f"{line} from {value(metric, ends[line][0])} to {value(metric, ends[line][1])}")
    levels = sum(step.suite == suite and step.line in highlighted for step in found)
    nights = count(rows["place"].nunique(), period)
    return f"{title(metric)} of {suite} over {nights}: {'; '.join(parts)}; {count(levels, 'new level')}"
