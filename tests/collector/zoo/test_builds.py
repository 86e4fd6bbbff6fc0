"""Models as they are built, also those of this project: deterministic, complete, finite in both phases."""

import pytest
import torch
from torch import nn

from collector.vocabulary import Config, Phase
from collector.zoo.builders import conditioning
from collector.zoo.catalog.newer_suites import MODERN_MODELS
from collector.zoo.registry import all_models
from tests.collector.zoo.conftest import measured, tensors

CHEAP = ("huggingface/ElectraForCausalLM", "huggingface/MobileNetV2ForImageClassification")
#: Built and run in no time, and every parameter of theirs is trained.
MODERN = [spec for spec in MODERN_MODELS if not spec.missing()]
SLOW = [spec for spec in all_models() if spec.supports(Phase.INFERENCE, "cpu") and spec not in MODERN]


def values(built):
    named = [*built.model.state_dict().items(), *built.kwargs.items()]
    return [tensor for _, tensor in named] + tensors((built.args, built.targets))


@pytest.mark.parametrize("path", CHEAP)
def test_one_seed_gives_one_model_whose_training_step_drops_nothing(build, path):
    built, again = (build(path, Phase.TRAINING, batch_size=2) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(values(built), values(again), strict=True))
    assert {p.dtype for p in built.model.parameters()} == {torch.float32}
    assert {t.device.type for t in values(built)} == {"cpu"}
    # Batch norms normalise by the batch in this mode, so that only dropout could make the two differ.
    losses = [built.loss(built.model(*built.args, **built.kwargs), built.targets) for _ in range(2)]
    assert losses[0].shape == ()
    assert torch.equal(*losses)
    losses[0].backward()
    for name, parameter in built.model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("spec", [*MODERN, *(pytest.param(spec, marks=pytest.mark.slow) for spec in SLOW)], ids=str)
def test_every_model_runs_in_eager_mode_on_a_cpu_and_trains_if_it_can(build, spec):
    built = build(str(spec))
    with torch.no_grad():
        made = built.model(*built.args, **built.kwargs)
    assert all(t.isfinite().all() for t in tensors(made) if t.is_floating_point())
    if not spec.supports(Phase.TRAINING, "cpu"):
        return
    built = build(str(spec), Phase.TRAINING)
    built.loss(built.model(*built.args, **built.kwargs), built.targets).backward()
    gradients = {name: parameter.grad for name, parameter in built.model.named_parameters()}
    reached = [gradient for gradient in gradients.values() if gradient is not None]
    assert reached and all(gradient.isfinite().all() for gradient in reached)
    assert spec not in MODERN or len(reached) == len(gradients), gradients.keys()


@pytest.mark.slow
@pytest.mark.parametrize("spec", MODERN, ids=str)
def test_every_modern_model_compiles_on_a_cpu_and_is_compared(spec):
    found = measured(spec, Config(template="triton"))
    # The optimiser's step: its result, and four tensors of state for each of 28 parameters.
    assert found.details["tensors_compared"] == (1 + 4 * 28 if spec.name == "adamw_step" else 1)


def test_gains_and_norms_are_made_ready():
    model = nn.ModuleDict({"branch": nn.BatchNorm2d(64), "layer": nn.Linear(4, 4), "other": nn.Linear(4, 4)})
    nn.init.zeros_(model["branch"].weight)
    nn.init.constant_(model["other"].weight, 1e-6)
    kept = model["layer"].weight.clone()
    conditioning.wake_dead_gains(model)
    assert 0.1 < model["branch"].weight.std() < 0.3
    assert model["other"].weight.abs().max() > 1e-3
    assert torch.equal(model["layer"].weight, kept)
    assert not model["branch"].bias.any()
    torch.manual_seed(0)
    deep = nn.Sequential(
        *(nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()) for _ in range(9))
    )
    images = torch.randn(4, 8, 16, 16)
    dead = deep.eval()(images).std()
    conditioning.calibrate_batch_norms(deep, lambda: deep(images))
    assert not any(module.training for module in deep.modules())
    assert deep[0][1].momentum == 0.1
    assert deep(images).std() > 0.3 > 3 * dead
