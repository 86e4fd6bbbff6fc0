"""The shared words survive JSON unchanged, their ids depend on what they say alone, and a page explains the metrics."""

import json
from dataclasses import replace

import pytest
from hypothesis import given

from collector.vocabulary import INPUT_BATCH, OWN_BATCH, Config, Measurement, batch_words
from scripts.metrics_page import with_tables
from tests.collector.processes import ROOT
from tests.collector.words import configs
from tests.factories import cell, failing, passing


@given(configs)
def test_a_measurement_and_its_failure_survive_json(config):
    texts = {"log_tail": "\x00\ud800\u2028", "code_id": "c", "program_id": None}
    found = replace(failing(cell(config=config)), replicate=3, details={"a": [1, "b"]}, **texts)
    for measurement in (found, passing(found.cell)):
        assert Measurement.from_json(json.loads(json.dumps(measurement.to_json(), allow_nan=False))) == measurement


def test_what_was_not_measured_is_absent_and_the_measured_batch_named():
    bare = passing(cell(), metrics={"graph_breaks": 0.0}, samples={})
    written = bare.to_json()
    assert written["metrics"] == {"graph_breaks": 0.0}
    assert "samples" not in written
    assert "failure" not in written
    del written["replicate"]  # of old bundles
    assert Measurement.from_json(written) == bare
    own = cell("m:f", suite="user", dtype="float32", device="cpu", batch_size=OWN_BATCH)
    found = passing(own)
    assert str(own) == found.cell_name == "user/m:f inference float32 cpu bs-own default"
    found.details[INPUT_BATCH] = 64
    assert " bs64 " in found.cell_name
    assert (own.batch_size, batch_words(own.batch_size), batch_words(64)) == (OWN_BATCH, "own batch", "batch 64")


def test_a_record_that_says_something_else_is_refused():
    with pytest.raises(ValueError, match="weather"):
        Config.from_json({"template": "triton", "weather": "fine"})
    for error, change in [(ValueError, {"status": "fine"}), (TypeError, {"wall_s": None})]:
        with pytest.raises(error):
            Measurement.from_json(passing(cell()).to_json() | change)


PAGE = (ROOT / "docs/metrics.md").read_text()


def test_the_page_is_made_of_the_table_of_metrics():
    """`python -m scripts.metrics_page` writes it."""
    assert with_tables(PAGE) == PAGE
