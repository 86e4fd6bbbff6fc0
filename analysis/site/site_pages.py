"""The pages of a published site, drawn by templates; links between pages are relative.

A page of a model has the newest pair of nights with it, its history and its earlier changes; the page of trends the figures of
every suite over its nights, as charts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any
from unicodedata import category

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from analysis.compare.cell_comparison import CellComparison
from analysis.elements import addresses
from analysis.elements.addresses import address
from analysis.elements.charts import MOST_LINES, Colors, Figure, from_to, lines
from analysis.elements.listings import pair_lines
from analysis.elements.wording import Link, axis_of, count, moment
from analysis.history import suite_levels
from analysis.history.over_commits import DRAWN, MODEL_METRICS, runs_of
from analysis.present import called
from analysis.site.cell_details import CellDetails, details_of
from analysis.site.site_data import Pair, SiteData, SiteFiles, digest, file_of, rounded
from collector.metrics import METRICS
from db.queries.cells import CellName, cell_names
from db.queries.series import model_history, passing_values, suite_history

#: Charts take their colours from the page's style sheet, for light and dark.
COLORS = Colors(tuple(f"var(--line-{number})" for number in range(1, 7)), "var(--base)", "var(--new)", "var(--bad)")
#: The entries of the navigation: the folder of a page, and its title.
PAGES = {
    "": "Overview",
    "compare": "Compare",
    "model": "Models",
    "trends": "Trends",
    "commit": "Commits",
    "regressions": "Regressions",
}
_TEMPLATES = Path(__file__).parent / "templates"

Query = Mapping[str, Iterable[str]]


class SitePages:
    """The pages of a site: draws them into its files, and has their addresses."""

    def __init__(self, files: SiteFiles, cells: Iterable[CellName]) -> None:
        """Make the addresses of the pages of models. `cells` are all cells of the site."""
        self.files, self.cells = files, tuple(cells)
        self.models: dict[str, str] = {}
        self._cell_ids: dict[tuple[str, str, str], str] = {}
        self.commits: dict[str, str] = {}
        self.records: dict[str, str] = {}
        for cell in self.cells:
            name = f"{cell.suite}/{cell.model}"
            self.models[name] = f"model/{file_of(cell.suite)}/{file_of(cell.model)}/"
            setting = ",".join(map(str, cell.axes[2:]))
            for config in (cell.config, cell.config_id):
                self._cell_ids[name, setting, config] = cell.cell_id

    def put(self, name: str, template: str, *, title: str, page: str, key: str = "", **values: Any) -> None:
        """Draw a page from a template. `page` is its place in the navigation."""
        root = "../" * name.count("/") or "./"
        text = _environment().get_template(template)
        drawn = text.render(root=root, title=title, page=page, pages=PAGES, moment=moment, count=count, **values)
        self.files.put(name, drawn, key)

    def link(self, name: str, pair: tuple[str, str] | None = None) -> Link:
        """Return a function that makes addresses for the page of a file; `pair` are the nights that the addresses name."""
        root = "../" * name.count("/") or "./"
        shared = dict(zip(("base", "new"), pair, strict=True)) if pair else {}

        def make(page: str, **changes: Any) -> str:
            found = {key: _as_list(value) for key, value in (shared | changes).items()}
            query = {key: value for key, value in found.items() if any(value)}
            return root + self._address(page, query)

        return make

    def _address(self, page: str, query: dict[str, list[str]]) -> str:
        if page == "model" and (where := self.models.get(next(iter(query.get("model", ())), ""))):
            named = (query["model"][0], *(next(iter(query.get(key, ())), "") for key in ("setting", "config")))
            cell_id = self._cell_ids.get((named[0], named[1], named[2]), "")
            sides: Query = {key: query[key] for key in ("base", "new") if key in query}
            return address(where, sides) + (f"#c-{cell_id}" if cell_id else "")
        if page == "commit" and (where := self.commits.get(next(iter(query.get("new", ())), "").rpartition("@")[2])):
            return where
        if page == "regressions" and (where := self.records.get(next(iter(query.get("record", ())), ""))):
            return where
        return address(f"{page}/" if page else "", query)

    def figure(self, name: str, draw: Callable[[], Figure], key: str = "") -> dict[str, str]:
        """Write the specification of a chart beside a page, and return the values that the page's template needs.

        A chart that was made by this key is not drawn again: drawing takes longer than all else.
        """
        if not (key and self.files.is_current(name, key)):
            figure = draw()
            self.files.put_json(name, {**_shortened(figure.chart.to_dict()), "description": figure.alt}, key)
        return {"file": name.rpartition("/")[2], "words": self.files.read_json(name)["description"]}


@cache
def _environment() -> Environment:
    env = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        finalize=_clean,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters.update(called=called, sha=lambda sha: sha[: addresses.SHOWN], diff=_diff)
    env.globals.update(outside=addresses)
    return env


def _clean(value: Any) -> Any:
    """Replace control characters of a text by U+FFFD; lines, tabs and spaces stay."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return "".join(
        char if char.isprintable() or char in "\n\t" or category(char) == "Zs" else "\N{REPLACEMENT CHARACTER}"
        for char in value
    )


def _diff(text: str) -> Markup:
    """Return a unified diff with its lines marked as added, removed or heads."""
    looks = {"+": "came", "-": "went", "@": "soft"}
    lines = (
        Markup('<span class="{}">{}</span>').format(look, line) if (look := looks.get(line[:1])) else escape(line)
        for line in map(str, map(_clean, text.splitlines()))
    )
    return Markup("\n").join(lines)


def _shortened(value: Any) -> Any:
    """Return a specification with its numbers rounded to the digits that are published."""
    if isinstance(value, dict):
        return {key: _shortened(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_shortened(item) for item in value]
    return rounded(value) if isinstance(value, float) else value


def _as_list(value: str | Sequence[str] | None) -> list[str]:
    return [value] if isinstance(value, str) else list(value or ())


def code_version() -> str:
    """Return a hash of all sources of the pages: the code of this package, templates, style sheets and scripts."""
    root = Path(__file__).parents[1]
    kinds = {".py", ".j2", ".css", ".js"}
    return digest(*(path.read_text(encoding="utf-8") for path in sorted(root.rglob("*")) if path.suffix in kinds))


def as_script(value: Any) -> str:
    """Return a value as JSON that is safe inside a page."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


#: Most charts of a model's setting, besides the chart of statuses; a chart takes longer to make than all else of a page.
_CHARTS = 2
#: The columns that these charts are drawn from.
_HASHED = ["place", "run_id", "config", "status", "commit", *DRAWN]

#: The content of each pair's file, by pair.
Verdicts = Mapping[Pair, Any]


def write_models(data: SiteData, pages: SitePages, verdicts: Verdicts) -> None:
    """Write a page for each model, and the list of models. `verdicts` has the content of the pairs' files."""
    newest: dict[str, Pair] = {}
    earlier: dict[str, list[tuple[Pair, str, Any]]] = {}
    names = {cell.cell_id: f"{cell.suite}/{cell.model}" for cell in pages.cells}
    for pair in data.neighbours:
        for cell_id, cell in verdicts[pair]["cells"].items():
            newest.setdefault(names[cell_id], pair)
            if "p" in cell:
                earlier.setdefault(names[cell_id], []).append((pair, cell_id, cell))
    rows = []
    # Pages of one pair are written one after the other, so that its comparison is made once.
    for name in sorted(pages.models, key=lambda name: (newest.get(name, ("", "")), name)):
        found = _write_model(data, pages, name, newest.get(name), earlier.get(name, []))
        rows.append({"name": name, "address": pages.models[name].removeprefix("model/"), "cells": found})
    rows.sort(key=lambda row: str(row["name"]))
    pages.put("model/index.html", "models.html.j2", title="Models", page="model", rows=rows)


def _write_model(
    data: SiteData, pages: SitePages, name: str, pair: Pair | None, earlier: list[tuple[Pair, str, Any]]
) -> list[CellComparison]:
    """Write the page of a model, and return its compared cells in their newest pair, which the page shows."""
    suite, _, model = name.partition("/")
    where = pages.models[name]
    comparison = data.comparison(pair) if pair else None
    compared = (
        [one for one in comparison.cells if (one.cell.suite, one.cell.model) == (suite, model)] if comparison else []
    )
    details: list[CellDetails] = [details_of(data.conn, comparison, one) for one in compared] if comparison else []
    link = pages.link(f"{where}index.html", pair)
    own = {cell.cell_id: cell for cell in pages.cells if f"{cell.suite}/{cell.model}" == name}
    pages.put(
        f"{where}index.html",
        "model.html.j2",
        title=model,
        page="model",
        suite=suite,
        pair=pair,
        files=data.file_of_pair(pair) if pair else "",
        sides=pair_lines(comparison, link) if comparison else [],
        details=details,
        histories=_histories(data, pages, suite, model, where, pair),
        earlier=[
            _earlier(data, pages, f"{where}index.html", own[cell_id], of_pair, found)
            for of_pair, cell_id, found in earlier
            if of_pair != pair
        ],
        ids=as_script(list(own)),
    )
    return compared


def _earlier(data: SiteData, pages: SitePages, name: str, cell: CellName, pair: Pair, verdict: Any) -> dict[str, Any]:
    night = data.by_name[pair[1]]
    words = verdict.get("s") or [[verdict["o"], ""]]
    return {
        "when": moment(night.info.started_at),
        "title": night.run.commit_title or night.run.commit[: addresses.SHOWN],
        "to_commit": pages.link(name)("commit", new=f"{night.run.branch}@{night.run.commit}"),
        "to_change": "../" * name.count("/") + data.change_file(pair, cell.cell_id),
        "cell": f"{cell.phase} {cell.dtype} {cell.config}",
        "words": words,
    }


def _histories(
    data: SiteData, pages: SitePages, suite: str, model: str, where: str, pair: Pair | None
) -> list[dict[str, Any]]:
    """Write the charts of each setting of a model, over published runs on the testbeds of its newest night, and return them."""
    history = model_history(data.conn, suite, model, metrics=MODEL_METRICS)
    rows = history[history["run_id"].isin(data.run_ids)]
    own = data.by_name[pair[1]].info.runs if pair else ()
    testbeds = rows[rows["run_id"].isin([run.run_id for run in own])]["testbed_id"].unique()
    rows = rows[rows["testbed_id"].isin(testbeds)] if len(testbeds) else rows
    marks = (
        {side: data.by_name[night].side.run_ids for side, night in zip(("base", "new"), pair, strict=True)}
        if pair
        else {}
    )
    found = []
    for number, (setting, of_setting) in enumerate(rows.groupby(["phase", "dtype", "device", "batch_size"])):
        here = of_setting.drop_duplicates(["run_id", "config"], keep="last")
        if here["run_id"].nunique() < 2:
            continue
        configs = sorted(here["config"].unique())[:MOST_LINES]
        drawn = [name for name in DRAWN if here[name].notna().any()][:_CHARTS]
        runs = runs_of(data.places, here, configs, marks, COLORS)
        key = digest(
            int(pd.util.hash_pandas_object(runs.rows[_HASHED], index=False).sum()), configs, runs.labels, runs.sides
        )
        figures: dict[str, Callable[[], Figure]] = {name: partial(runs.metric, name) for name in drawn}
        if (here["status"] != "pass").any():
            figures = {"status": runs.statuses, **figures}
        shown = [pages.figure(f"{where}{number}-{name}.json", draw, key) for name, draw in figures.items()]
        runs_shown = count(here["run_id"].nunique(), "run")
        found.append({"setting": ", ".join(map(str, setting[:3])), "figures": shown, "runs": runs_shown})
    return found


def trend_sections(data: SiteData, pages: SitePages) -> list[dict[str, Any]]:
    """Write the charts of each setting on the branch of the newest night, and return the values for the page's template."""
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
    """Return the chart of a suite's metric."""
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
