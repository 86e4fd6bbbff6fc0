"""The account of a night, from a bundle of a repeated, a failing and a copied line."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from click.testing import CliRunner

from benchmarks import night_account
from collector.vocabulary import Config, Status
from jobs.plan.cost import shipped_costs
from jobs.plan.spared_cells import SAME_PROGRAM
from tests.factories import CUDAGRAPHS, cell, failing, header, passing, write_bundle


def test_the_account_of_a_night(tmp_path):
    of_run = header("r1")
    begin = datetime.fromisoformat(of_run.started_at)

    def measured(which, after_s, wall_s, **details):
        started = (begin + timedelta(seconds=after_s)).isoformat()
        return passing(which, started_at=started, wall_s=wall_s, details=details)

    lines = [
        measured(cell("a"), 0, 60.0, stage_s={"compile": 50.0}, held_s={"tune": 9.0, "device": 20.0}, waited_s=7.0),
        measured(cell("a", CUDAGRAPHS), 0, 60.0, **{SAME_PROGRAM: "another"}),
        measured(cell("a"), 120, 40.0, stage_s={"timing": 10.0}, repeated="it was disturbed", stopped_s=2.0),
        failing(cell("b"), Status.FAIL_TO_RUN, started_at=begin.isoformat(), wall_s=0.0),
    ]
    bundles = [str(write_bundle(tmp_path, of_run, lines))]
    tuned_alike = measured(
        cell("a", Config(template="freezing")), 0, 0.1, shared_tuning={"kernels_found": 3, "kernels_tuned": 1}
    )
    bundles.append(str(write_bundle(tmp_path, header("r2"), [tuned_alike])))
    told = CliRunner().invoke(night_account.main, [*bundles, "--workers", "1"], catch_exceptions=False).output
    assert "4 lines: 3 pass, 1 fail_to_run" in told
    assert "| | cudagraphs | default | freezing |" in told
    assert "| huggingface/a, inference | + | + | + |" in told
    assert "| huggingface/b, inference |  | run |  |" in told
    assert "3 processes, 100 s of workers: compile 50%, timing 10%" in told
    assert "7 s waiting for the GPU, 2 s of that standing still" in told
    assert "alone for 9 s: tune 9" in told
    assert "stood still longest: a default 2 of 40 s, a freezing 0 of 0 s" in told
    assert "1 disturbed measurements were repeated, in 40 s" in told
    assert (
        "found the choices of 3 kernels and made those of 1 (0 another one), by which config was first: default 1"
        in told
    )
    assert "| 120 | 4 | 0.5 |\n| 240 | 4 | 0.3 |" in told
    shipped = {"suite": "modern", "device": "cuda", "dtype": "bfloat16", "batch_size": 4}
    known = replace(cell("unet", Config(template="tma")), **shipped)
    half_s = shipped_costs().estimate(known).worker_s / 2
    [tuned] = night_account.against_first_costs([passing(known, wall_s=half_s + 31.69, details={"waited_s": 31.69})])
    assert tuned == f"1 programs that tune: {half_s:.0f} s of a worker, 0.50 of the first costs"
