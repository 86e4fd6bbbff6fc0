"""Everything a store answers, as one comparable value: two stores with the same runs must not differ in it."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine

from analysis.compare.compare_sides import summarise
from tests.db import reads as queries


def answers(engine: Engine) -> dict[str, Any]:
    runs = queries.list_runs(engine)
    found: dict[str, Any] = {
        "runs": runs,
        "nights": queries.list_nights(engine),
        "branches": queries.branches(engine),
        "axes": queries.axes(engine),
        "history": queries.suite_history(engine).to_json(date_format="iso"),
    }
    for model in queries.axes(engine).models:
        history = queries.model_history(engine, model.suite, model.name)
        found[f"history of {model}"] = history.to_json(date_format="iso")
    for run in runs:
        summary = summarise(engine, queries.resolve_side(engine, run.run_id))
        found[f"run {run.run_id}"] = summary.side.to_json(), summary.suites, summary.notes, summary.cells
        for cell_id in (state.cell_id for state in summary.cells):
            found[f"{run.run_id} {cell_id}"] = (
                queries.measurement(engine, run.run_id, cell_id),
                {name: list(values) for name, values in queries.samples(engine, run.run_id, cell_id).items()},
            )
    return found
