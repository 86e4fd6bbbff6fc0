"""What a check measures by default, what its options make of it, and an option of Inductor as the other side."""

from __future__ import annotations

from typing import ClassVar

import pytest

from collector.configs import parse_config
from collector.process.outcome import Outcome
from collector.settings import Settings
from collector.usage_errors import ConfigError
from collector.vocabulary import Measurement, Phase, Status
from collector.zoo.spec import ModelSpec
from jobs.census.census_pool import CensusPlace
from jobs.checking import check_sides as default
from jobs.checking.check_sides import CodeCensus, OtherOption, planned_check
from jobs.requested_options import Selection
from tests.factories import cell

KNOWN = {"census": {"known": True}}


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


TRITON, GRAPHS = (cell("bert", parse_config(text), device="cpu") for text in ("triton", "triton+size_asserts=false"))


def test_new_has_each_config_of_base_with_the_option():
    other = OtherOption.parse("+combo_kernels=true")
    names = {one.config.name for one in other.cells([TRITON, GRAPHS]).values()}
    assert names == {"triton+combo_kernels=true", "triton+combo_kernels=true+size_asserts=false"}
    frozen = OtherOption.parse("+freezing=true").cells([TRITON])
    assert [one.config for one in frozen.values()] == [parse_config("triton+freezing=true")]


@pytest.mark.parametrize(
    ("text", "acts"),
    [
        ("+combo_kernels=true", False),
        ("+triton.cudagraphs=true", True),
        ("+combo_kernels=true+coordinate_descent_tuning=true", True),
    ],
)
def test_an_option_that_may_leave_no_trace_in_the_code_acts(text, acts):
    assert bool(OtherOption.parse(text).acting) is acts


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("combo_kernels=true", r"write options as \+NAME=VALUE"),
        ("+dynamic=false", "name options of Inductor alone"),
        ("+combo_kernelz=true", "combo_kernel"),
        ("+size_asserts=false", "base has these options already"),
    ],
)
def test_what_torch_does_not_know_or_base_has_is_refused(text, said):
    with pytest.raises(ConfigError, match=said):
        OtherOption.parse(text).cells([TRITON, GRAPHS])


@pytest.fixture
def census(monkeypatch, tmp_path):
    monkeypatch.setattr(default, "CachedPool", PlayedPool)
    monkeypatch.setattr(PlayedPool, "made", [])
    places = [CensusPlace("H100", source=word, cache=tmp_path, workers=14, cores=range(14)) for word in ("a", "b")]
    return CodeCensus(tuple(places), Settings())


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
