"""The table of the zoo: the newest outcome counts, failures are named with their configs, what nobody measured says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from collector.vocabulary import Status
from scripts.zoo_table import newest, of_config, passed, reasons
from tests.factories import cell, failing, header, passing, write_bundle

ROOT = Path(__file__).resolve().parents[2]


def test_the_newest_outcome_of_a_config_counts():
    old, new = failing(cell("m"), status=Status.FAIL_TO_COMPILE), passing(cell("m"))
    old.started_at, new.started_at = "2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00"
    ((_, by_config),) = newest([new, old]).items()
    assert (passed(by_config), reasons([by_config])) == ("1 of 1", [])
    assert passed({}) == "not measured"


def test_what_is_not_there_is_no_outcome():
    assert newest([failing(cell("m"), status=Status.UNAVAILABLE)]) == {}


def test_a_failure_is_named_once_with_its_configs_and_breaks_no_table():
    item = failing(cell("m"), status=Status.FAIL_TO_COMPILE)
    item.failure.message = "a | b `c`\nmore"
    ((_, by_config),) = newest([item]).items()
    (reason,) = reasons([by_config])
    assert reason.startswith("fail_to_compile `a / b 'c'`: ")
    assert item.cell.config.name in reason


def test_a_config_has_its_failures_by_status_and_a_place_where_nobody_measured_it_none():
    found = newest([passing(cell("a")), failing(cell("b"), status=Status.FAIL_TO_COMPILE)])
    ((_, place), *_) = found
    name = cell("a").config.name
    assert of_config(found, place, name) == "1 of 2, 1 fail_to_compile"
    assert of_config(found, "elsewhere", name) == "not measured"


def test_models_that_nobody_measured_say_so(tmp_path):
    write_bundle(tmp_path, header("r1"), [passing(cell("m"))])
    (bundle,) = tmp_path.glob("*.gz")
    made = subprocess.run(
        [sys.executable, "scripts/zoo_table.py", str(bundle)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    first, by_config, by_model = made.stdout.split("\n\n")
    assert first == "1 pass"
    assert by_config.splitlines()[2:] == [f"| {cell('m').config.name} | 1 of 1 |"]
    head, _, *rows = by_model.splitlines()
    assert head.startswith("| model | inference, ")
    assert len(rows) > 60
    assert all("| not measured |" in row for row in rows)
