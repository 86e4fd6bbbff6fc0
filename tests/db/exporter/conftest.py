"""A store with everything that a run can have, for exports to give back."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Engine

from collector.vocabulary import Config, Phase, Status
from db.ingest import ingest_bundle
from tests.factories import COMMIT_B, CUDAGRAPHS, cell, failing, header, matrix, night, passing, write_bundle


@pytest.fixture(scope="module")
def bundles(shared: Engine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the bundles that `full` was made from: another one for each database."""
    return tmp_path_factory.mktemp("bundles")


@pytest.fixture(scope="module")
def full(shared: Engine, bundles: Path) -> Engine:
    """Two nights: one plain, and one with failures, a missing cell, replicates, odd names, two GPUs; one run is open."""
    ingest_bundle(shared, night(bundles, "plain"))
    odd = cell("<b>=naïve \N{ROCKET}\n", Config(template="cudagraphs", overrides={"a.b": "x+y", "c": 1.5, "d": None}))
    lines = [
        failing(cell("t5"), Status.TIMEOUT),
        failing(cell("gpt2"), Status.NONDETERMINISTIC, log_tail="two\nlines"),
        passing(cell("bert"), seed=1),
        passing(cell("bert"), seed=2, minutes=3, replicate=1),
        passing(odd, details={"other_metrics": {"brand_new": 2.5}, "nested": {"a": [1, None, "x"]}}),
        passing(cell("bert", CUDAGRAPHS, phase=Phase.TRAINING, dtype="amp", batch_size=1), rounds=1),
        passing(cell("no-samples"), samples={}, program_id=None, environment_id=None),
    ]
    head = header("g0", minutes=60, night="n", commit=COMMIT_B, ci_url="https://example.org/1", attempt=2)
    ingest_bundle(shared, write_bundle(bundles, head, lines, planned=[*(item.cell for item in lines), cell("missing")]))
    second = header("g1", minutes=61, night="n", commit=COMMIT_B, branch_start="a0" * 20, commit_title=None)
    ingest_bundle(shared, write_bundle(bundles, second, [passing(item) for item in matrix(["opt"])], closed=False))
    return shared
