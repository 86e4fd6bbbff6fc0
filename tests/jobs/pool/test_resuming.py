"""Which run is taken up, what is left of it, and where it may be taken up."""

from __future__ import annotations

import gzip
from dataclasses import replace

import pytest

from collector.bundle import BundleWriter
from collector.settings import Settings
from collector.usage_errors import ConfigError
from collector.vocabulary import NOT_APPLICABLE, Config, Status
from jobs.pool.resuming import check_testbed, find_night
from jobs.requested_options import ExecutionOptions, RequestedOptions
from tests.factories import at, cell, failing, header, passing, write_bundle

#: Back-ends of which none is a duplicate, so that no torch is asked.
CELLS = [cell(f"m{number}", Config(backend="eager")) for number in range(3)]
ENVIRONMENT = {"torch_git": "f" * 40, "device": "cpu", "cpu": "A CPU", "cores": 2, "node": "here", "python": "3.11"}
TESTBED = {"device": "cpu", "cpu": "A CPU", "cores": 2, "node": "here", **Settings().testbed()}
REQUESTED = RequestedOptions(Settings(rounds=7, timeout_s=11.0), ExecutionOptions(3, 60.0))
ASKED = REQUESTED.to_json() | {"torch_git": "f" * 40}


def bundle(folder, run_id="r1", *, measured=CELLS, minutes=0, closed=True, make=passing, **changes):
    head = header(run_id, minutes=minutes, **{"asked": ASKED, "testbed": TESTBED, **changes})
    return write_bundle(folder, head, [make(which) for which in measured], planned=CELLS, closed=closed)


def find_run(folder, name, retry_failed=False):
    found = find_night(folder, name, retry_failed)
    assert len(found) < 2
    return found[0] if found else None


def left(found):
    return found.work(found.contents).cells


@pytest.mark.parametrize(("measured", "closed"), [(1, False), (2, True), (3, False), (3, True)])
def test_what_was_measured_is_not_measured_again(measured, closed, tmp_path):
    path = bundle(tmp_path, measured=CELLS[:measured], closed=closed)
    for name in ("r1", str(path), None):
        found = find_run(tmp_path, name)
        assert (found is None) is (measured == len(CELLS) and closed)
        assert found is None or left(found) == CELLS[measured:]


def test_a_disturbed_cell_whose_second_measurement_is_missing_is_left(tmp_path):
    details = {CELLS[1]: {"disturbed": "the device was not idle"}}
    bundle(tmp_path, make=lambda which: passing(which, details=details.get(which, {})))
    assert left(find_run(tmp_path, "r1")) == [CELLS[1]]
    details[CELLS[1]]["repeated"] = "the first measurement was disturbed"
    bundle(tmp_path / "repeated", make=lambda which: passing(which, details=details.get(which, {})))
    assert find_run(tmp_path / "repeated", "r1") is None


def test_a_run_killed_between_packing_and_removing_is_unfinished(tmp_path):
    path = bundle(tmp_path)
    (tmp_path / "r1.jsonl").write_bytes(gzip.decompress(path.read_bytes()))
    for name in ("r1", None):
        found = find_run(tmp_path, name)
        assert (found.is_done, left(found), found.contents.finished_at) == (False, [], at(600))
    writer, _ = BundleWriter.reopen(found.path, at(700))
    writer.close(at(701))
    assert [item.name for item in tmp_path.iterdir()] == ["r1.jsonl.gz"]
    assert find_run(tmp_path, "r1") is None


#: Outcomes that another attempt does not change.
SETTLED = [Status.PASS, Status.CONFIG_ERROR, *sorted(NOT_APPLICABLE)]


@pytest.mark.parametrize("status", [*SETTLED, Status.TIMEOUT, Status.CRASHED])
def test_a_cell_is_measured_again_where_another_outcome_is_possible(status, tmp_path):
    bundle(tmp_path, make=lambda which: failing(which, status) if which == CELLS[1] else passing(which))
    found = find_run(tmp_path, "r1", retry_failed=True)
    assert (left(found) if found else None) == (None if status in SETTLED else [CELLS[1]])
    assert find_run(tmp_path, "r1") is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"torch_git": "e" * 40}, ["f" * 12, "e" * 12]),
        ({"node": "there", "gpu": "H200"}, ["node here there and there here", "gpu None there and H200 here"]),
    ],
)
def test_another_torch_or_testbed_is_refused_with_both_named(changes, said, tmp_path):
    bundle(tmp_path, closed=False, commit="c" * 40)  # the commit's name says nothing of the torch
    found = find_run(tmp_path, "r1")
    check_testbed(found, ENVIRONMENT)
    with pytest.raises(ConfigError) as caught:
        check_testbed(found, {**ENVIRONMENT, **changes})
    assert [words for words in (*said, "\n") if words in str(caught.value)] == said


@pytest.mark.parametrize(
    "asked", [None, {"settings": {"rounds": 5, "of": "tomorrow"}, "execution": {}}, {"settings": []}]
)
def test_a_run_goes_on_as_it_was_asked_for_but_for_its_budget(asked, tmp_path):
    bundle(tmp_path, closed=False)
    resumed = replace(find_run(tmp_path, "r1"), budget_s=5.0)
    assert resumed.requested == RequestedOptions(REQUESTED.settings, ExecutionOptions(3, 5.0))
    bundle(tmp_path / "odd", closed=False, asked=asked)
    with pytest.raises(ConfigError, match="nightly"):
        _ = find_run(tmp_path / "odd", "r1").requested


def test_all_unfinished_runs_of_the_newest_night_go_on_together(tmp_path):
    early = {"asked": {**ASKED, "night": "first"}}  # the first bundles of several GPUs said it elsewhere
    late = {"night": "second", "minutes": 60}
    for night, runs in ((early, {"a": 1, "b": 0}), (late, {"f": 1, "e": 3, "d": 0})):
        for run_id, measured in runs.items():
            bundle(tmp_path, run_id, measured=CELLS[:measured], closed=measured == len(CELLS), **night)
    bundle(tmp_path, "older-and-alone", measured=[], minutes=30)
    (tmp_path / "notes.jsonl").write_text("not a bundle\n")
    (tmp_path / "cut.jsonl").write_bytes(b'{"record":"ru')

    def found(name=None):
        return [run.contents.header.run_id for run in find_night(tmp_path, name)]

    assert (found(), found("f"), found("e")) == (["d", "f"], ["f"], [])
    for run_id in "df":
        (tmp_path / f"{run_id}.jsonl").unlink()
    assert found() == ["older-and-alone"]
    (tmp_path / "older-and-alone.jsonl.gz").unlink()
    assert found() == ["a", "b"]
