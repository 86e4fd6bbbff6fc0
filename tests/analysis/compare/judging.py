"""Two sides of a store, compared and judged."""

from __future__ import annotations

from analysis.compare.compare_sides import compare_named
from db.ingest import ingest_bundle
from tests.factories import header, write_bundle


def put_run(store, folder, run_id, measurements, *, codes=(), environment=None, planned=None, **head):
    """Stores a run of these measurements; `head` has minutes, commit and what else its header differs in."""
    bundle = {"codes": codes, "environment": environment, "planned": planned}
    ingest_bundle(store, write_bundle(folder, header(run_id, **head), measurements, **bundle))


def judged(store, base="latest~1", new="latest", configs=None):
    """The comparison, and a row per model with all that a spreadsheet has of it and its verdict."""
    comparison = compare_named(store, base, new, configs=configs)
    return comparison, rows_of(comparison)


def rows_of(comparison):
    """A row per model; texts are None and numbers NaN where they are not known."""
    cells = comparison.cells
    rows = comparison.to_frame().assign(
        verdict=[one.outcome.verdict for one in cells],
        verdict_metric=[one.metric for one in cells],
        throttled=[one.is_throttled for one in cells],
        code=[one.code for one in cells],
        code_changed=[one.code_changed for one in cells],
    )
    texts = [name for name in rows if rows[name].dtype == "str" or rows[name].dtype == object]
    numbers = {name for name in texts if name.endswith(("_change", "_low", "_high", "_more_runs", "_ratio"))}
    for name in texts:
        kept = rows[name].astype(object)
        rows[name] = kept.astype(float) if name in numbers else kept.where(kept.notna(), None)
    return rows.set_index("model", drop=False)


def cell_of(comparison, model):
    """The first compared cell of a model."""
    return next(one for one in comparison.cells if one.cell.model == model)
