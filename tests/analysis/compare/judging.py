"""Two sides of a store, compared and judged."""

from __future__ import annotations

from analysis.compare.verdicts import compare_and_judge
from db.ingest import ingest_bundle
from tests.factories import header, write_bundle


def put_run(store, folder, run_id, measurements, *, codes=(), environment=None, planned=None, **head):
    """Stores a run of these measurements; `head` has minutes, commit and what else its header differs in."""
    bundle = {"codes": codes, "environment": environment, "planned": planned}
    ingest_bundle(store, write_bundle(folder, header(run_id, **head), measurements, **bundle))


def judged(store, base="latest~1", new="latest", configs=None):
    """The comparison, its judgement, and a row per model with both."""
    comparison, judgement = compare_and_judge(store, base, new, configs=configs)
    return comparison, judgement, comparison.cells.join(judgement.cells).set_index("model", drop=False)
