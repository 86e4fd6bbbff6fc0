"""What a check measures by default, and what the options make of it."""

from __future__ import annotations

from collections import Counter

import pytest

from collector.vocabulary import Phase
from collector.zoo.spec import ModelSpec
from jobs.checking import check_sides as default
from jobs.checking.check_sides import planned_check
from jobs.requested_options import Selection


def spelled(plan):
    return {(cell.model, cell.phase.value, cell.config.name) for cell in plan.cells}


def test_the_default_of_a_gpu_is_twelve_models_under_three_configs(monkeypatch):
    monkeypatch.setattr(ModelSpec, "missing", lambda self: [])
    cells = planned_check("cuda", Selection(), ()).cells
    assert len({cell.model for cell in cells}) == 12
    forms = Counter((cell.phase.value, cell.config.name) for cell in cells)
    assert forms.keys() == {("inference", "triton"), ("inference", "cudagraphs"), ("training", "triton")}
    names = {name.partition("/")[2] for name in default._MODELS}
    assert {cell.model for cell in cells} == names
    asked = planned_check("cuda", Selection(), ("max_autotune",)).cells
    assert {(cell.model, cell.config.name) for cell in asked} == {(name, "max_autotune") for name in names}


def test_a_model_that_cannot_be_measured_here_is_left_out_and_named(monkeypatch):
    monkeypatch.setattr(ModelSpec, "missing", lambda self: ["timm"] if self.suite == "timm" else [])
    plan = planned_check("cuda", Selection(), ())
    models = {f"{cell.suite}/{cell.model}" for cell in plan.cells}
    assert models == {name for name in default._MODELS if not name.startswith("timm")}
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


def test_the_default_of_a_cpu_is_small():
    plan = planned_check("cpu", Selection(), ())
    assert 3 <= len(plan.cells) <= 15
    assert [cell.phase for cell in plan.cells].count(Phase.TRAINING) == 1
