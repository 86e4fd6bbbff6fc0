"""The trends of a published site: the figures of every suite over its nights, as charts."""

from __future__ import annotations

from functools import partial
from typing import Any

import pandas as pd

from analysis.elements.charts import MOST_LINES, Figure, from_to, lines
from analysis.elements.wording import axis_of, count
from analysis.history import suite_levels
from analysis.site.site_data import SiteData
from analysis.site.site_files import digest, file_of
from analysis.site.site_pages import COLORS, SitePages
from collector.metrics import METRICS
from db.queries.cells import cell_names
from db.queries.series import passing_values, suite_history


def trend_sections(data: SiteData, pages: SitePages) -> list[dict[str, Any]]:
    """Write the charts of each setting on the branch of the newest night, and return what the page's template takes."""
    if not data.nights:
        return []
    branch = data.nights[0].run.branch
    history = suite_levels.joined({branch: suite_history(data.conn, branch=branch)})
    history = history[history["run_id"].isin(data.run_ids)]
    if history.empty:
        return []
    history = suite_levels.points(suite_levels.with_nights(history, data.all_nights, data.places), "")
    cells = cell_names(data.conn)
    sections = []
    groups = history.groupby(["phase", "dtype", "device"])
    for setting, rows in sorted(groups, key=lambda group: -int(group[1]["planned"].sum())):
        same = (cells[["phase", "dtype", "device"]] == list(setting)).all(axis=1)
        figures = []
        for metric in suite_levels.FIGURES:
            if not suite_levels.is_measured(rows, metric):
                continue
            trend = _trend(data, rows, cells[same], metric)
            if trend.empty or trend["place"].nunique() < 2:
                continue
            steps = suite_levels.steps(trend, metric)
            for suite, of_suite in trend.groupby("suite"):
                name = file_of("-".join((*map(str, setting), str(suite), metric)))
                known = of_suite[["place", "line", "value", "models", "commit", "chain"]]
                key = digest(int(pd.util.hash_pandas_object(known, index=False).sum()), len(trend), len(steps))
                draw = partial(_figure, trend, of_suite, steps, str(suite), metric)
                figures.append(pages.figure(f"trends/{name}.json", draw, key))
        if figures:
            sections.append({"setting": ", ".join(map(str, setting)), "branch": branch, "figures": figures})
    return sections


def _trend(data: SiteData, rows: pd.DataFrame, cells: pd.DataFrame, metric: str) -> pd.DataFrame:
    if metric not in METRICS:
        return suite_levels.counted(rows, metric)
    return suite_levels.paired(rows, cells, passing_values(data.conn, rows["run"].unique().tolist(), metric), metric)


def _figure(trend: pd.DataFrame, rows: pd.DataFrame, steps: list[suite_levels.Step], suite: str, metric: str) -> Figure:
    """Return the chart of a metric of a suite."""
    labels = list(trend.drop_duplicates("place").sort_values("place")["label"])
    highlighted = [str(name) for name in trend["line"].value_counts().index[:MOST_LINES]]
    rows = rows.assign(date=rows["started_at"], text=[suite_levels.value(metric, number) for number in rows["value"]])
    size, head = axis_of(metric, suite_levels.title(metric), "%" if metric == suite_levels.RATE else "")
    triangles = suite_levels.triangles(steps, suite, highlighted, size)
    chart = lines(
        rows.assign(value=rows["value"] / size),
        suite_levels.facts(rows),
        labels,
        highlighted,
        title=f"{suite}: {head}",
        pick="night",
        colors=COLORS,
        levels=triangles,
    )
    over = f"{suite_levels.title(metric)} of {suite} over {count(rows['place'].nunique(), 'night')}"
    words = f"{over}: {from_to(rows, highlighted)}; {count(len(triangles), 'new level')}"
    return Figure(f"{suite}-{metric}", chart, words)
