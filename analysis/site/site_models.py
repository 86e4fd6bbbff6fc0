"""The pages of models: the newest pair of nights that has one, its history, and its earlier changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pandas as pd

from analysis.compare.cell_comparison import CellComparison
from analysis.elements import outside_links
from analysis.elements.charts import MOST_LINES, Figure
from analysis.elements.side_words import pair_lines
from analysis.elements.wording import count, moment
from analysis.history.model_runs import DRAWN, MODEL_METRICS, runs_of
from analysis.site.cell_details import CellDetails, details_of
from analysis.site.site_data import Pair, SiteData
from analysis.site.site_files import digest
from analysis.site.site_pages import COLORS, SitePages, as_script
from db.queries.cells import CellName
from db.queries.series import model_history

#: Charts of a model's setting, besides that of failures; a chart takes longer to make than all else of a page.
_CHARTS = 2
#: What these charts are drawn from.
_HASHED = ["place", "run_id", "config", "status", "commit", *DRAWN]

#: By pair what its file holds.
Verdicts = Mapping[Pair, Any]


def write_models(data: SiteData, pages: SitePages, verdicts: Verdicts) -> None:
    """Write a page for each model, and the list of them. `verdicts` has what the files of pairs hold."""
    newest: dict[str, Pair] = {}
    earlier: dict[str, list[tuple[Pair, str, Any]]] = {}
    names = {cell.cell_id: f"{cell.suite}/{cell.model}" for cell in pages.cells}
    for pair in data.neighbours:
        for cell_id, cell in verdicts[pair]["cells"].items():
            newest.setdefault(names[cell_id], pair)
            if "p" in cell:
                earlier.setdefault(names[cell_id], []).append((pair, cell_id, cell))
    rows = []
    # The pages of one pair in a row: a comparison is then made once.
    for name in sorted(pages.models, key=lambda name: (newest.get(name, ("", "")), name)):
        found = _write_model(data, pages, name, newest.get(name), earlier.get(name, []))
        rows.append({"name": name, "address": pages.models[name].removeprefix("model/"), "cells": found})
    rows.sort(key=lambda row: str(row["name"]))
    pages.put("model/index.html", "models.html.j2", title="Models", page="model", rows=rows)


def _write_model(
    data: SiteData, pages: SitePages, name: str, pair: Pair | None, earlier: list[tuple[Pair, str, Any]]
) -> list[CellComparison]:
    """Write the page of a model, with what became of its cells in their newest pair; return these."""
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
        "title": night.run.commit_title or night.run.commit[: outside_links.SHOWN],
        "to_commit": pages.link(name)("commit", new=f"{night.run.branch}@{night.run.commit}"),
        "to_change": "../" * name.count("/") + data.change_file(pair, cell.cell_id),
        "cell": f"{cell.phase} {cell.dtype} {cell.config}",
        "words": words,
    }


def _histories(
    data: SiteData, pages: SitePages, suite: str, model: str, where: str, pair: Pair | None
) -> list[dict[str, Any]]:
    """Return the charts of each setting of a model, over the published runs of the testbeds of its newest night."""
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
