"""Whose torch a confirmation has at hand, and for how long it measures."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from collector.bundle import CONFIRM, read_bundle
from collector.settings import Settings
from collector.vocabulary import short_hash
from jobs.checking import confirming
from jobs.checking.confirming import Confirming, find_confirmable
from jobs.pool.gpu_scheduler import DeviceSlot
from jobs.pool.testbeds import Testbed
from jobs.requested_options import ExecutionOptions, RequestedOptions
from tests.factories import ENVIRONMENT, matrix, night, passing

TORCH = "f" * 40
CELLS = matrix(["bert", "gpt2"])


def asked(torch=TORCH, **execution):
    return RequestedOptions(Settings(), ExecutionOptions(**execution)).to_json() | {"torch_git": torch}


def make(tmp_path, run_id, **changes):
    return night(tmp_path, run_id, cells=CELLS, **changes)


def confirmation(tmp_path, workers=1, **execution):
    execution = ExecutionOptions(workers=workers, **execution)
    testbed = Testbed(DeviceSlot([[0]]), {"device": "cpu", "torch_git": TORCH}, execution)
    run = read_bundle(make(tmp_path, "new", minutes=60, asked=asked()))
    overlays = [tmp_path / "overlays"]
    return Confirming([run], [testbed], Settings(), tmp_path, str(tmp_path / "store.db"), overlays, 1e9)


@pytest.fixture(autouse=True)
def same_environment(monkeypatch):
    monkeypatch.setattr(confirming, "environment_id", lambda _: short_hash(ENVIRONMENT))


def base_of(confirming_it, run_id="base"):
    run = SimpleNamespace(run_id=run_id, trigger="nightly")
    return confirming_it._base_testbeds(SimpleNamespace(runs=(run,)))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"asked": asked()}, "both sides"),
        ({"asked": asked("e" * 40)}, "new side only: base is another torch"),
        ({"asked": None}, "new side only: base is another torch"),
        ({"asked": asked(overlay="/elsewhere/one")}, "new side only: the files of base are gone from --overlays"),
    ],
)
def test_base_is_measured_where_its_torch_is_at_hand(tmp_path, changes, words):
    make(tmp_path, "base", **changes)
    found, said = base_of(confirmation(tmp_path))
    assert (said, bool(found)) == (words, words == "both sides")


def test_base_is_not_measured_in_another_environment(tmp_path, monkeypatch):
    make(tmp_path, "base", asked=asked())
    monkeypatch.setattr(confirming, "environment_id", lambda _: "another")
    assert base_of(confirmation(tmp_path)) == ((), "new side only: base ran in another environment")


def test_without_the_bundle_of_base_new_is_measured_alone(tmp_path):
    assert base_of(confirmation(tmp_path)) == ((), "new side only: the bundle of base is not here")


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

    monkeypatch.setattr(confirming, "find_testbeds", find)
    found, _ = base_of(confirmation(tmp_path))
    assert [one.execution.overlay for one in found] == [str(overlay)] * is_there
    assert started == [(str(overlay), "3 files", False)] * is_there


def test_a_night_is_as_long_as_its_cells_took_its_workers(tmp_path):
    of_one, of_three = (confirmation(tmp_path / str(workers), workers)._night_s() for workers in (1, 3))
    assert of_one == pytest.approx(sum(passing(which).wall_s for which in CELLS))
    assert of_three == pytest.approx(of_one / 3)


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
    make(tmp_path, "plain", minutes=120, asked=asked())
    assert names() == []
