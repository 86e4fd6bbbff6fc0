"""Runs as points of series, and what many cells were in them; on both databases."""

from dataclasses import replace

import numpy as np
from sqlalchemy import update

from collector.vocabulary import Status
from db.ingest import ingest_bundle
from db.nights import list_runs
from db.queries.cells import cell_names
from db.queries.series import runs_in_order, series_runs, series_values
from db.schema import Commit
from tests.factories import cell, failing, header, night, passing, write_bundle

SHAS = [f"{number:040x}" for number in range(6)]


def test_runs_are_in_the_order_of_the_repository_unplaced_ones_last(store, tmp_path):
    for number, sha in enumerate([3, 1, 2, 4, 0]):
        ingest_bundle(store, night(tmp_path, f"r{number}", minutes=number, commit=SHAS[sha], cells=[cell()]))
    with store.begin() as conn:
        for sha, position in ((SHAS[3], 30), (SHAS[1], 10), (SHAS[4], 40), (SHAS[0], 0)):
            conn.execute(update(Commit).where(Commit.sha == sha).values(position=position))
    # r2 (not placed) started when place 30 had been measured; r3 is of place 40.
    assert [run.run_id for run in series_runs(store)] == ["r4", "r1", "r0", "r2", "r3"]
    ingest_bundle(store, night(tmp_path, "aside", minutes=9, commit=SHAS[5], cells=[cell()], branch="feature"))
    assert [run.run_id for run in series_runs(store, branch="feature")] == ["aside"]
    assert len(series_runs(store)) == 6
    ingest_bundle(store, night(tmp_path, "early", minutes=-1, commit=SHAS[5], cells=[cell()], branch="feature"))
    assert runs_in_order(store) == ["early", "r4", "r1", "r0", "r2", "r3", "aside"]


def test_only_runs_of_a_released_build_have_a_release(store, tmp_path):
    builds = [("2.12.1+cu130", 0), ("2.11.0", 1), ("2.13.0.dev20260401+cu130", 2), ("2.11.0", 5)]
    for number, (torch, sha) in enumerate(builds):
        measured = [replace(passing(cell()), environment_id=f"e{number}")]
        facts = {"torch": torch, "torch_git": SHAS[number]}  # the last one is built of another commit
        head = header(f"r{number}", minutes=number, commit=SHAS[sha])
        ingest_bundle(store, write_bundle(tmp_path, head, measured, environment=facts))
    assert {run.run_id: run.release for run in list_runs(store) if run.release} == {"r0": "2.12.1", "r1": "2.11.0"}


def test_what_could_not_be_judged_neither_passed_nor_failed(store, tmp_path):
    made = [passing(cell("bert"), metrics={"compiled_ms": 5.0}), failing(cell("gpt2"))]
    made.append(failing(cell("vit"), Status.UNAVAILABLE))
    ingest_bundle(store, write_bundle(tmp_path, header("r0"), made, planned=[*(one.cell for one in made), cell("new")]))
    (run,) = series_runs(store)
    rows = np.concatenate(list(series_values(store, [run.key], ("compiled_ms",))))
    models = cell_names(store).loc[rows[:, 1].astype(int), "model"]
    found = dict(zip(models, np.where(np.isnan(rows), None, rows)[:, 2:].tolist(), strict=True))
    assert found == {"bert": [1.0, 5.0], "gpt2": [0.0, None], "vit": [None, None]}


def test_released_builds_come_by_the_dates_of_their_bundles(store, tmp_path):
    def put(name, minutes, number, date):
        told = {"commit": SHAS[number], "commit_date": date, "branch": "releases"}
        ingest_bundle(store, night(tmp_path, name, minutes=minutes, cells=[cell()], **told))

    days = {3: "2025-10-15", 1: "2025-08-06", 2: "2026-01-21"}  # measured in this order
    for minutes, (number, day) in enumerate(days.items()):
        for run in (1, 2):
            put(f"b{number}-{run}", 2 * minutes + run, number, f"{day}T12:00:00+00:00")
    assert [run.run_id for run in series_runs(store)] == ["b1-1", "b1-2", "b3-1", "b3-2", "b2-1", "b2-2"]
    put("b4", 1.5, 4, None)
    assert [run.run_id for run in series_runs(store)] == ["b3-1", "b4", "b3-2", "b1-1", "b1-2", "b2-1", "b2-2"]
