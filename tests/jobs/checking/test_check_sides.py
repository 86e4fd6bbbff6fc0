"""What a check measures by default, what its options make of it, and an option of Inductor as the other side."""

from __future__ import annotations

import pytest

from collector.configs import parse_config
from collector.settings import Settings
from collector.usage_errors import ConfigError
from collector.vocabulary import Phase
from collector.zoo.registry import select
from collector.zoo.spec import ModelSpec
from jobs.census.census_pool import CensusPlace, CensusPool
from jobs.checking.check_sides import DEFAULT_MODELS, CodeCensus, OtherOption, first_models, planned_check
from jobs.requested_options import Selection
from tests.factories import cell


def spelled(plan):
    return {(cell.model, cell.phase.value, cell.config.name) for cell in plan.cells}


def test_a_model_that_cannot_be_measured_here_is_left_out_and_named(monkeypatch):
    monkeypatch.setattr(ModelSpec, "missing", lambda self: ["timm"] if self.suite == "timm" else [])
    plan = planned_check("cuda", Selection(), ())
    assert {cell.suite for cell in plan.cells} >= {"huggingface"}
    assert "timm" not in {cell.suite for cell in plan.cells}
    assert any("needs timm, not installed" in line for line in plan.left_out)


def test_the_first_models_are_those_whose_libraries_are_imported_soonest():
    models = select(patterns=DEFAULT_MODELS)
    assert {model.name for model in first_models(models)} == {"resnet18", "squeezenet1_1"}
    of_transformers = [model for model in models if model.suite == "huggingface"]
    assert first_models(of_transformers) == tuple(of_transformers)
    assert first_models(()) == ()


@pytest.mark.parametrize(
    ("cores", "most", "workers"), [(0, None, 7), (5, None, 5), (5, 2, 2), (0, 9, 7), (99, None, 1)]
)
def test_the_census_leaves_cores_to_measured_cells_and_goes_on_with_few_at_first(tmp_path, cores, most, workers):
    place = CensusPlace("H200", cache=tmp_path, workers=15)
    census = CodeCensus((place, place), Settings())
    census._pools = [CensusPool(place, Settings()) for _ in range(2)]
    census.leave(cores, most)
    assert [pool.workers for pool in census._pools] == [workers] * 2


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
    frozen = OtherOption.parse("+freezing=true").cells([TRITON, GRAPHS])
    names = ("triton+freezing=true", "triton+freezing=true+size_asserts=false")
    assert [one.config for one in frozen.values()] == [parse_config(name) for name in names]


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
