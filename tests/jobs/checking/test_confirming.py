"""Confirming nights, and `run --again`."""

import json
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from analysis.compare.compare_sides import compare_named
from analysis.reports.facts import build_report
from analysis.rerun import find_again
from collector.bundle import CONFIRM, read_bundle
from collector.settings import Settings
from collector.vocabulary import Config, short_hash
from db.engine import open_store
from db.ingest import ingest_bundle
from db.queries.cells import EVERYTHING
from jobs.checking import confirming
from jobs.checking.confirming import Confirming, find_confirmable
from jobs.cli import app
from jobs.commands.report import draw
from jobs.plan.planning import read_plan
from jobs.pool.gpu_scheduler import DeviceSlot
from jobs.pool.testbeds import Testbed
from jobs.requested_options import ExecutionOptions, RequestedOptions
from tests.analysis.compare.test_cell_verdicts import MODELS, OTHER_TESTBED, make_run
from tests.factories import ENVIRONMENT, cell, failing, header, matrix, new_store, night, write_bundle

EAGER = Config(backend="eager")
VIT = "ViTTinyForImageClassification"
REAL = [cell(VIT, EAGER, dtype="float32", device="cpu", batch_size=size) for size in (1, 2)]


@pytest.fixture(scope="module")
def nights(tmp_path_factory):
    """Nights that are too noisy to tell 2 %, the last of them with a slower, a broken and a missing model."""
    folder = tmp_path_factory.mktemp("noisy")
    store = new_store(folder / "store.db")
    for number in range(12):
        make_run(store, folder, number, sd=0.012)
    make_run(store, folder, 12, sd=0.012, slower={MODELS[4]: {"compiled_ms": 1.4}, MODELS[7]: failing})
    make_run(store, folder, 13, sd=0.012, testbed=OTHER_TESTBED)
    planned = [cell(model) for model in MODELS]
    ingest_bundle(store, write_bundle(folder, header("r14", minutes=840), [], planned=planned))
    store.dispose()
    return str(folder / "store.db")


@cache
def report_of(database, base="r11", new="r12"):
    with open_store(database, write=False).connect() as conn:
        return build_report(conn, base, new, EVERYTHING)


def test_inconclusive_cells_want_what_their_verdict_says(nights):
    report = report_of(nights)
    again, counts = report.again, report.counts
    assert counts["inconclusive"] >= 20
    assert len(again.cells) + again.too_noisy == sum(counts[word] for word in ("inconclusive", "regressed", "broke"))
    runs = {item.cell.model: (item.runs, item.why) for item in again.cells}
    assert (runs[MODELS[4]], runs[MODELS[7]]) == ((1, "regressed"), (1, "broke"))
    told = {item["cell_id"]: item for item in report.to_json()["cells"]}
    for item in again.cells:
        judged = told[item.cell.cell_id]
        if item.why == "inconclusive":
            latency = next(one["metric"] for one in judged["findings"] if one["dimension"] == "latency")
            assert item.runs == max(1, judged["judged"][latency]["more_runs"])
    counts = [item.runs for item in again.cells]
    assert counts == sorted(counts, reverse=True)
    assert again.runs == counts[0] > 1


def test_no_run_settles_another_testbed_or_what_was_never_measured(nights):
    moved = report_of(nights, "r12", "r13")
    assert (moved.again.cells, moved.again.elsewhere) == ((), 23)  # the one that failed was fixed
    assert "23 cells measured on different testbeds" in draw(moved, "markdown", 50)
    with open_store(nights, write=False).connect() as conn:
        again = find_again(compare_named(conn, "r11", "r12"), {})
    assert (again.cells, again.unreadable > 20) == ((), True), "configs of another version"


def test_the_file_is_a_plan_that_says_how_often(nights, tmp_path, any_model):
    path = tmp_path / "again.json"
    done = CliRunner().invoke(app, ["report", "r11", "r12", "--again-plan", str(path), "--db", nights])
    assert done.exit_code == 0
    expected = report_of(nights).again
    assert set(json.loads(path.read_text())) == {"cells", "left_out", "runs"}
    plan = read_plan(path, "cuda")
    assert plan.cells == [item.cell for item in expected.cells]
    assert plan.runs == {item.cell.cell_id: item.runs for item in expected.cells}


@pytest.fixture
def any_model(monkeypatch):
    """Lets a plan have models that the zoo does not."""
    for module in ("plan.planning", "checking.confirming"):
        monkeypatch.setattr(f"jobs.{module}.find", lambda suite, model, own=(): None)


def run(*words):
    return CliRunner().invoke(app, ["run", *map(str, words)])


def test_a_file_is_measured_in_the_runs_that_it_says_as_one_night(tmp_path, measured, any_model):
    plan = {"cells": [item.to_json() for item in REAL], "runs": {REAL[0].cell_id: 2}}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    done = run("--again", tmp_path / "plan.json", "--no-store")
    assert done.exit_code == 0, done.output
    assert measured.devices == ["cpu"]
    assert [plan.cells for plan, _, _ in measured] == [REAL, REAL[:1]]
    assert {names.trigger for _, names, _ in measured} == {"again"}
    (night,) = {names.night for _, names, _ in measured}
    assert night
    assert "all runs of each commit" in done.output


def test_sides_are_measured_again_exactly_where_the_report_says(nights, measured, any_model):
    again = report_of(nights).again
    done = run("--again", "r11", "r12", "--db", nights, "--most-runs", "3")
    assert done.exit_code == 0, done.output
    assert measured.devices == ["cuda"]
    assert len(measured) == min(3, again.runs)
    for number, (plan, _, _) in enumerate(measured):
        assert set(plan.cells) == {item.cell for item in again.cells if item.runs > number}
    assert "report main@" in done.output


def test_nothing_to_measure_again_is_exit_code_3_with_the_reason(nights, measured, any_model, tmp_path):
    done = run("--again", "r13", "r14", "--db", nights)
    assert (done.exit_code, "24 missing" in done.output) == (3, True)
    empty = tmp_path / "plan.json"
    empty.write_text('{"cells": []}')
    assert run("--again", empty).exit_code == 3
    assert measured == []


TORCH = "f" * 40
CELLS = matrix(["bert", "gpt2"])


def asked(torch=TORCH, **execution):
    return RequestedOptions(Settings(), ExecutionOptions(**execution)).to_json() | {"torch_git": torch}


def make(tmp_path, run_id, **changes):
    return night(tmp_path, run_id, cells=CELLS, **changes)


def confirmation(tmp_path):
    environment = {"device": "cpu", "torch_git": TORCH}
    testbed = Testbed(DeviceSlot([[0]]), environment, ExecutionOptions(workers=1))
    run = read_bundle(make(tmp_path, "new", minutes=60, asked=asked()))
    overlays = [tmp_path / "overlays"]
    return Confirming([run], [testbed], Settings(), tmp_path, str(tmp_path / "store.db"), overlays, 1e9)


def base_of(confirming_it):
    run = SimpleNamespace(run_id="base", trigger="nightly")
    return confirming_it._base_testbeds(SimpleNamespace(runs=(run,)))


@pytest.mark.parametrize(
    ("how", "environment", "words"),
    [
        (asked(), ENVIRONMENT, "both sides"),
        (asked("e" * 40), ENVIRONMENT, "new side only: base is another torch"),
        (None, ENVIRONMENT, "new side only: base is another torch"),
        (asked(overlay="/"), ENVIRONMENT, "new side only: the files of base are gone from --overlays"),
        (asked(), {}, "new side only: base ran in another environment"),
    ],
)
def test_base_is_measured_where_its_torch_is_at_hand(tmp_path, monkeypatch, how, environment, words):
    monkeypatch.setattr(confirming, "environment_id", lambda _: short_hash(environment))
    of_night = confirmation(tmp_path)
    assert base_of(of_night) == ((), "new side only: the bundle of base is not here")
    make(tmp_path, "base", asked=how)
    found, said = base_of(of_night)
    assert (said, bool(found)) == (words, words == "both sides")


@pytest.mark.parametrize("is_there", [True, False])
def test_base_of_another_source_is_measured_from_an_overlay_that_is_ours(tmp_path, monkeypatch, is_there):
    overlay = tmp_path / "overlays" / "one"
    if is_there:
        overlay.mkdir(parents=True)
    make(tmp_path, "base", asked=asked(overlay=str(overlay), source="3 files"))
    started = []

    def find(device, execution, **options):
        started.append((execution.overlay, execution.source, options["plans"]))
        return [Testbed(DeviceSlot([[0]]), {"device": device}, execution)]

    monkeypatch.setattr(confirming, "environment_id", lambda _: short_hash(ENVIRONMENT))
    monkeypatch.setattr(confirming, "find_testbeds", find)
    found, _ = base_of(confirmation(tmp_path))
    assert [one.execution.overlay for one in found] == [str(overlay)] * is_there
    assert started == [(str(overlay), "3 files", False)] * is_there


def test_resume_confirms_the_night_that_asked_for_it_and_no_other(tmp_path):
    wanted = asked(confirm=True)
    make(tmp_path, "older", asked=wanted)
    make(tmp_path, "night", minutes=60, asked=wanted)
    make(tmp_path, "again", minutes=90, asked=wanted, night="night", trigger=CONFIRM)

    def names(name=None, resumed=()):
        return [run.contents.header.run_id for run in find_confirmable(tmp_path, name, resumed)]

    (of_night,) = find_confirmable(tmp_path, "night", ())
    assert (names(), names("older"), names("again")) == (["night"], ["older"], ["night"])
    assert names(resumed=[replace(of_night, path=tmp_path / "again.jsonl.gz")]) == ["night"]
    cut_short = replace(of_night, path=tmp_path / "older.jsonl")
    assert names(resumed=[cut_short]) == ["older"], "it is compressed when it has ended"
