"""The image models that this project builds itself."""

import pytest

from collector.vocabulary import Phase
from collector.zoo.builders import image_models
from tests.collector.zoo.conftest import run

torch = pytest.importorskip("torch")


CELLS = sum((192 // stride) * (256 // stride) for stride in (32, 16, 8))


@pytest.fixture(scope="module")
def built(build):
    return build("torchbench/yolov3")


def test_in_eval_mode_it_finds_boxes_on_three_scales(built):
    layers = [m for m in built.model.modules() if isinstance(m, image_models._Detection)]
    before = [layer.ng for layer in layers]
    boxes, raw = run(built)
    assert boxes.shape == (1, 3 * CELLS, 85)
    assert [tuple(scores.shape) for scores in raw] == [(1, 3, 6, 8, 85), (1, 3, 12, 16, 85), (1, 3, 24, 32, 85)]
    assert boxes.isfinite().all()
    assert (boxes[..., 4:] >= 0).all()
    assert (boxes[..., 4:] <= 1).all()
    assert [layer.ng.tolist() for layer in layers] == [[8, 6], [16, 12], [32, 24]]
    assert all(layer.ng.device.type == "cpu" for layer in layers)
    assert all(layer.ng is not old for layer, old in zip(layers, before, strict=True))


def test_training_gives_finite_gradients_and_a_loss_that_ranks_scores(build):
    trained = build("torchbench/yolov3", Phase.TRAINING)
    boxes, raw = output = trained.model(*trained.args)
    targets = trained.targets
    assert boxes is None
    assert [scores.shape for scores in raw] == [target.shape for target in targets]
    trained.loss(output, targets).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in trained.model.parameters())
    good = tuple(torch.cat([t[..., :2].logit(1e-3), t[..., 2:4], 20 * t[..., 4:] - 10], dim=-1) for t in targets)
    assert image_models.loss((None, good), targets) < 0.1 * image_models.loss((None, tuple(-t for t in good)), targets)
    doubled = image_models.loss((None, tuple(t.double() for t in good)), tuple(t.double() for t in targets))
    assert doubled.dtype is torch.float64
