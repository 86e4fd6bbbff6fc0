"""What a check measures by default, and what the options make of it."""

from __future__ import annotations

import pytest

from collector.vocabulary import Phase
from collector.zoo.spec import ModelSpec
from jobs.checking import check_sides as default
from jobs.checking.check_sides import planned_check
from jobs.requested_options import Selection


def spelled(plan):
    return {(cell.model, cell.phase.value, cell.config.name) for cell in plan.cells}


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
