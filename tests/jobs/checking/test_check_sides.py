"""What a check measures by default, and what the options make of it."""

from __future__ import annotations

from typing import ClassVar

import pytest

from collector.process.outcome import Outcome
from collector.settings import Settings
from collector.vocabulary import Measurement, Phase, Status
from collector.zoo.spec import ModelSpec
from jobs.census.census_pool import CensusPlace, CensusPool
from jobs.checking import check_sides as default
from jobs.checking.check_sides import CodeCensus, likely_models, planned_check
from jobs.requested_options import Selection
from tests.factories import cell


def test_the_models_of_a_check_are_known_before_torch_is(monkeypatch):
    assert likely_models(Selection(device="cpu")) == ()
    monkeypatch.setattr(default, "list_gpus", lambda: ["a GPU"])
    assert {str(spec) for spec in likely_models(Selection())} == set(default._MODELS)
    assert [spec.name for spec in likely_models(Selection(models=("ViTTiny*",)))] == ["ViTTinyForImageClassification"]
    assert {spec.suite for spec in likely_models(Selection(suites=("timm",)))} == {"timm"}
    assert likely_models(Selection(models=("nothing",))) == ()
    assert likely_models(Selection(everything=True)) == ()


def spelled(plan):
    return {(cell.model, cell.phase.value, cell.config.name) for cell in plan.cells}


def test_a_model_that_cannot_be_measured_here_is_left_out_and_named(monkeypatch):
    monkeypatch.setattr(ModelSpec, "missing", lambda self: ["timm"] if self.suite == "timm" else [])
    plan = planned_check("cuda", Selection(), ())
    assert {cell.suite for cell in plan.cells} >= {"huggingface"}
    assert "timm" not in {cell.suite for cell in plan.cells}
    assert any("needs timm, not installed" in line for line in plan.left_out)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_options_narrow_it_and_all_is_the_night(device):
    chosen = Selection(models=("ViTTiny*",))
    model = "ViTTinyForImageClassification"
    inference = {"cpu": ("triton", "freezing"), "cuda": ("triton", "cudagraphs")}[device]
    expected = {(model, "inference", name) for name in inference} | {(model, "training", "triton")}
    assert spelled(planned_check(device, chosen, ())) == expected
    training = Selection(models=("ViTTiny*",), phases=(Phase.TRAINING.value,))
    assert spelled(planned_check(device, training, ())) == {(model, "training", "triton")}
    assert spelled(planned_check(device, chosen, ("aten",))) == {(model, "inference", "aten")}
    assert len(planned_check(device, Selection(everything=True), ()).cells) > 10


class PlayedPool:
    """Plays the part of `CachedPool`: a cell has the code `code` of its place, and takes a turn of `gate` to come."""

    keeps = True
    made: ClassVar[list[PlayedPool]] = []

    def __init__(self, place, settings, started=None):
        self.place, self.workers, self.calls, self.started = place, place.workers, [], started
        PlayedPool.made.append(self)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.calls.append("closed")

    def find(self, cells, answers):
        return iter(())

    def generate(self, cells, answers):
        for one in cells:
            yield Outcome(Measurement(one, Status.NOT_CHECKED, "", 0.0, details=KNOWN, code_id=self.place.source))

    def give_way(self):
        self.calls.append("give way")

    def stand(self):
        self.calls.append("stand")

    def go_on(self):
        self.calls.append("go on")


KNOWN = {"census": {"known": True}}


@pytest.fixture
def census(monkeypatch, tmp_path):
    monkeypatch.setattr(default, "CachedPool", PlayedPool)
    monkeypatch.setattr(PlayedPool, "made", [])
    places = [CensusPlace("H100", source=word, cache=tmp_path, workers=14, cores=range(14)) for word in ("a", "b")]
    return CodeCensus(tuple(places), Settings())


def test_a_process_that_started_before_is_taken_where_its_side_is_asked(census):
    started = [CensusPool(place, Settings()) for place in census._places]
    beside = CodeCensus(census._places, Settings(rounds=2), started=started)
    PlayedPool.made.clear()
    assert [answer.cell.model for answer in beside.ask([cell("one")]) if answer] == ["one"]
    assert [pool.started for pool in PlayedPool.made if pool.workers == 7] == started


def test_the_census_leaves_its_cores_to_what_is_measured(census):
    found = census.ask([cell("one"), cell("two")])
    while (first := next(found)) is None:
        pass
    assert (first.cell.model, first.is_same) == ("one", False)
    pools = [pool for pool in PlayedPool.made if pool.workers == 7]
    assert len(pools) == 2, "each side has half of the cores"
    census.leave(8)
    assert [pool.workers for pool in pools] == [3, 3]
    census.leave(20)
    assert [pool.workers for pool in pools] == [1, 1], "it never ends for others"
    for _ in range(2):
        census.stand()
    for _ in range(2):
        census.go_on()
    assert [pool.calls for pool in pools] == [["give way", "stand", "go on"]] * 2
    assert [answer.cell.model for answer in found if answer] == ["two"]
    assert pools[0].calls[-1] == "closed"


def test_what_is_answered_soonest_is_asked_for_first(census):
    training = cell("trained", phase=Phase.TRAINING)
    cells = [cell("bert"), training, cell("resnet18", suite="torchvision"), cell("beit", suite="timm")]
    answers = [answer.cell.model for answer in census.ask(cells) if answer]
    assert answers == ["resnet18", "beit", "bert", "trained"]
