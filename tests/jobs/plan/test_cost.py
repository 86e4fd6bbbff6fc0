"""What a cell costs, from synthetic bundles with round numbers and from the measured ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from collector.usage_errors import BundleError
from jobs.plan.cost import NEWEST, Cost, CostModel, MemoryPlan, Source, learn_from, read_history
from tests.factories import CUDAGRAPHS, DEFAULT, cell, header, passing, write_bundle

HELD = {"measure": 2.0, "tune": 10.0, "device": 3.0}


def took(which, seconds, **details):
    return passing(which, wall_s=seconds, details=details)


def test_a_cell_costs_its_time_less_what_it_waited_and_what_it_held():
    sizes = {"load_model": 3_000_000_000, "eager": 2_000_000_000, "correctness": 9_000_000_000}
    item = took(cell(), 40.0, waited_s=15.0, stood_s=5.0, held_s=HELD, stage_bytes=sizes)
    expected = Cost(25.0, 15.0, Source.MEASURED, 12.0, 3_000_000_000, 2_000_000_000, check_bytes=9_000_000_000)
    assert CostModel.learn([item]).estimate(cell()) == expected


@pytest.mark.parametrize("odd", ["long", True, {"a": 1}])
def test_odd_details_of_a_foreign_bundle_are_passed_over(odd):
    found = CostModel.learn([took(cell(), 40.0, waited_s=odd, held_s=odd, stage_bytes=odd)]).estimate(cell())
    assert found.worker_s == 40.0
    assert found.device_s in (None, 1.0)


def test_what_no_run_has_told_is_as_it_was_when_this_version_was_made():
    shipped = CostModel.learn([took(cell("a"), 90.0, stage_bytes={"load_model": 500, "eager": 800})])
    model = CostModel.learn([took(cell("b"), 10.0), took(cell("a", CUDAGRAPHS), 20.0)], shipped)
    known = model.estimate(cell("a", CUDAGRAPHS))
    assert (known.worker_s, known.load_bytes, known.eager_bytes) == (20.0, 500, 2_000_000_000)
    other = model.estimate(cell("b"))
    assert (other.worker_s, other.load_bytes) == (10.0, None)
    alone = CostModel.learn([took(cell("b"), 10.0)], shipped).estimate(cell("a"))
    assert (alone.worker_s, alone.source, alone.eager_bytes) == (90.0, Source.MEASURED, 800)


def test_a_night_without_history_knows_the_memory_of_its_largest_models():
    model = CostModel.of_history([])
    which = replace(cell("gpt-oss-20b-4layers.decode"), suite="llm", dtype="bfloat16", batch_size=8)
    assert 1e9 < model.estimate(which).load_bytes < 80e9
    assert model.estimate(replace(which, device="cpu")).load_bytes is None


def test_a_folders_history_is_its_newest_bundles(tmp_path):
    for number in range(NEWEST + 2):
        head = header(f"r{number:02}", minutes=-number)  # the later the name, the older
        write_bundle(tmp_path / "deep" / str(number), head, [took(cell(f"m{number}"), 5.0)], closed=number % 2 == 0)
    (tmp_path / "broken.jsonl").write_text("no bundle\n")
    (tmp_path / "half.jsonl.gz.partial").write_bytes(b"\x1f\x8b")
    found = [contents.header.run_id for contents in read_history(tmp_path)]
    assert found == [f"r{number:02}" for number in range(NEWEST)]
    assert learn_from(tmp_path).estimate(cell("m0")).source is Source.MEASURED
    assert learn_from(tmp_path).estimate(cell(f"m{NEWEST}")).source is Source.CONFIG
    assert read_history(tmp_path / "nowhere") == []
    with pytest.raises(BundleError, match="is not a bundle"):
        learn_from(tmp_path / "broken.jsonl")


def test_a_check_is_planned_with_what_it_took_under_its_config_or_else_any():
    plan = MemoryPlan(80e9, lambda *_: None)

    def learn(config, gigabytes):
        sizes = {"stage_bytes": {"correctness": gigabytes * 1e9}}
        plan.learn(passing(cell("large", config, device="cuda"), details=sizes))

    def known():
        return [plan.checks(cell("large", config, device="cuda")) for config in (DEFAULT, CUDAGRAPHS)]

    assert known() == [None, None]
    learn(CUDAGRAPHS, 50)  # with a graph's pool
    assert known() == [pytest.approx(51.256e9)] * 2
    learn(DEFAULT, 40)
    assert known() == [pytest.approx(41.056e9), pytest.approx(51.256e9)]
    learn(DEFAULT, 78)
    assert known()[0] is None, "all of the memory is no promise"
