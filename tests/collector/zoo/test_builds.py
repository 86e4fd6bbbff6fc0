"""Models as they are built, also those of this project: deterministic, complete, finite in both phases."""

import pytest
import torch
from torch import nn

from collector.vocabulary import Config, Phase
from collector.zoo.builders import conditioning, image_models, speech_transformer
from collector.zoo.catalog.newer_suites import MODERN_MODELS
from collector.zoo.registry import all_models
from tests.collector.zoo.conftest import measured, run, tensors

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
    assert all(t.isfinite().all() for t in tensors(run(build(str(spec)))) if t.is_floating_point())
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


SCALES = [(6, 8), (12, 16), (24, 32)]


def test_yolo_ranks_scores_and_finds_boxes_on_three_scales(build):
    built = build("torchbench/yolov3", Phase.TRAINING, batch_size=1)
    boxes, raw = output = built.model(*built.args)
    targets = built.targets
    assert boxes is None
    assert [scores.shape for scores in raw] == [target.shape for target in targets]
    built.loss(output, targets).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in built.model.parameters())
    good = tuple(torch.cat([t[..., :2].logit(1e-3), t[..., 2:4], 20 * t[..., 4:] - 10], dim=-1) for t in targets)
    assert image_models.loss((None, good), targets) < 0.1 * image_models.loss((None, tuple(-t for t in good)), targets)
    doubled = image_models.loss((None, tuple(t.double() for t in good)), tuple(t.double() for t in targets))
    assert doubled.dtype is torch.float64
    built.model.eval()
    boxes, raw = run(built)
    assert boxes.shape == (1, 3 * sum(rows * columns for rows, columns in SCALES), 85)
    assert [tuple(scores.shape) for scores in raw] == [(1, 3, *scale, 85) for scale in SCALES]
    assert boxes.isfinite().all() and 0 <= boxes[..., 4:].min() <= boxes[..., 4:].max() <= 1
    sizes = [layer.ng for layer in built.model.modules() if isinstance(layer, image_models._Detection)]
    assert [size.tolist() for size in sizes] == [[columns, rows] for rows, columns in SCALES]


def test_speech_is_heard_without_its_padding_and_without_later_characters(build):
    built = build("torchbench/speech_transformer", Phase.TRAINING, batch_size=2)
    made = built.model(*built.args)
    built.loss(made, built.targets).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in built.model.parameters())
    frames, lengths, targets = built.args
    length = int(lengths[1])
    assert length < frames.size(1)
    alone = (frames[1:, :length], lengths[1:], targets[1:, targets[1] != speech_transformer.IGNORED])
    with torch.no_grad():
        single = built.model(*alone)[0]
    before, together = made[0].detach(), made[0][1:].detach()
    torch.testing.assert_close(together[:, : single.size(1)], single, atol=1e-4, rtol=1e-4)
    other = targets.clone()
    other[0, -1] = 7 if int(targets[0, -1]) != 7 else 8
    with torch.no_grad():
        after = built.model(frames, lengths, other)[0]
    torch.testing.assert_close(before[:, :-1], after[:, :-1])
    assert not torch.allclose(before[0, -1], after[0, -1])


def test_gains_and_norms_and_dropout_are_made_ready():
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
    model = nn.ModuleList([nn.Dropout(0.5), nn.Dropout2d(0.0), nn.PReLU(), nn.Identity()])
    model[3].drop_prob = 0.1
    conditioning.silence_modules(model)
    assert (model[0].p, model[1].p, model[3].drop_prob) == (1e-30, 0.0, 1e-30)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        ones = torch.ones(100_000, dtype=dtype)
        assert torch.equal(nn.functional.dropout(ones, conditioning.PROBABILITY), ones)
