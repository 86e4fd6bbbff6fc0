import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from collector.zoo.builders import conditioning  # noqa: E402


def test_dead_gains_are_drawn_anew_and_the_rest_is_left_alone():
    model = nn.ModuleDict({"branch": nn.BatchNorm2d(64), "layer": nn.Linear(4, 4), "other": nn.Linear(4, 4)})
    nn.init.zeros_(model["branch"].weight)
    nn.init.constant_(model["other"].weight, 1e-6)
    kept = model["layer"].weight.clone()
    conditioning.wake_dead_gains(model)
    assert 0.1 < model["branch"].weight.std() < 0.3
    assert model["other"].weight.abs().max() > 1e-3
    assert torch.equal(model["layer"].weight, kept)
    assert not model["branch"].bias.any()


def test_calibrated_batch_norms_normalise_in_eval_mode():
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


def test_only_what_drops_something_is_silenced():
    class Depth(nn.Module):
        def __init__(self, drop_prob):
            super().__init__()
            self.drop_prob = drop_prob

    model = nn.ModuleList([nn.Dropout(0.5), nn.Dropout2d(0.0), nn.PReLU(), Depth(0.1), Depth(None)])
    conditioning.silence_modules(model)
    assert (model[0].p, model[1].p, model[3].drop_prob, model[4].drop_prob) == (1e-30, 0.0, 1e-30, None)


def test_no_element_is_dropped_in_any_dtype():
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        ones = torch.ones(100_000, dtype=dtype)
        assert torch.equal(nn.functional.dropout(ones, conditioning.PROBABILITY), ones)
