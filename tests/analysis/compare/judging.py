"""Two sides of a store, compared and judged."""

import pandas as pd

from analysis.compare.cell_comparison import JudgedMetric
from analysis.compare.compare_sides import compare_named
from collector.metrics import METRICS
from db.ingest import ingest_bundle
from tests.factories import header, write_bundle

SIDES = ("base", "new")


def put_run(store, folder, run_id, measurements, *, codes=(), environment=None, planned=None, closed=True, **head):
    """Stores a run of these measurements; `head` has minutes, commit and what else its header differs in."""
    bundle = {"codes": codes, "environment": environment, "planned": planned, "closed": closed}
    ingest_bundle(store, write_bundle(folder, header(run_id, **head), measurements, **bundle))


def judged(store, base="latest~1", new="latest", configs=None):
    """The comparison, and a row per model with all that a spreadsheet has of it and its verdict."""
    comparison = compare_named(store, base, new, configs=configs)
    return comparison, rows_of(comparison)


def rows_of(comparison):
    """A row per model; texts are None and numbers NaN where they are not known."""
    cells, parts = comparison.cells, JudgedMetric.__slots__[1:]
    columns = {"model": [one.cell.model for one in cells], "verdict": [one.outcome.verdict for one in cells]}
    columns |= {name: [getattr(one, name) for one in cells] for name in ("code", "code_changed")}
    columns |= {"verdict_metric": [one.metric for one in cells], "throttled": [one.is_throttled for one in cells]}
    for metric in METRICS:
        judged = [one.judged.get(metric) for one in cells]
        columns |= {f"{metric}_{part}": [getattr(one, part, None) for one in judged] for part in parts}
        columns |= {f"{metric}_{side}": [getattr(one, side).values.get(metric) for one in cells] for side in SIDES}
        columns[f"{metric}_ratio"] = [one.ratio(metric) for one in cells]
    # Typed here: pandas takes a second to guess the types of so many columns.
    texts = {"model", "verdict", "verdict_metric", "code", "code_changed", *(f"{name}_verdict" for name in METRICS)}
    typed = {name: pd.Series(of, dtype=object if name in texts else float) for name, of in columns.items()}
    return pd.DataFrame(typed).set_index("model", drop=False)


def cell_of(comparison, model):
    """The first compared cell of a model."""
    return next(one for one in comparison.cells if one.cell.model == model)
