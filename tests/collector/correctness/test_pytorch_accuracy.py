"""PyTorch's own accuracy check beside ours, and its tolerances by model, suite, phase, dtype and device."""

import itertools

import pytest
import torch

from collector.correctness import checking
from collector.correctness.pytorch_accuracy import Tolerance, pytorch_verdict, tolerance_for
from collector.correctness.reference import Room
from collector.vocabulary import Cell, Config, Phase, Status
from tests.collector.correctness.test_checking import Does, checked, layer

COUNT = itertools.count()
OFF = {"loss": torch.ones(()), "grad['weight']": torch.ones(4), "output[0]": torch.full((4,), 2.0)}
EAGER = {"loss": torch.ones(()), "grad['weight']": torch.ones(4), "output[0]": torch.ones(4)}


def cell(suite="timm", model="tiny", phase=Phase.INFERENCE, dtype="bfloat16", device="cuda", config=None):
    return Cell(suite, model, phase, dtype, device, 8, config or Config())


@pytest.mark.parametrize(
    ("model", "status", "theirs"),
    [
        (layer(), Status.PASS, "pass"),
        (layer(1.1), Status.FAIL_ACCURACY, "fail_accuracy: output: RMSE"),
        # Its tolerance is absolute: what is small may be anything.
        (Does(lambda _, x: x * 1e-5, lambda _, x: x * 5e-5), Status.FAIL_ACCURACY, "pass"),
        # It looks at values alone.
        (Does(lambda _, x: (x,), lambda _, x: [x]), Status.FAIL_ACCURACY, "pass"),
        # It compiles with fallback_random, and this program draws otherwise without that alone.
        (Does(lambda _, x: x + torch.rand(64, 32)), Status.PASS, "pass"),
        (Does(lambda _, x: x + next(COUNT)), Status.NONDETERMINISTIC, "eager_two_runs_differ"),
    ],
)
def test_both_verdicts_are_kept(model, status, theirs):
    found = checked(model)
    assert found.status is status
    assert found.details["accuracy_pytorch"].startswith(theirs)
    assert found.metrics["accuracy_pytorch"] == (theirs == "pass")


@pytest.mark.parametrize("near", ["cpu", "nowhere"], ids=["as they are", "copied as from a device"])
def test_of_training_runners_compare_no_outputs_and_small_ones_loosely(near, monkeypatch):
    monkeypatch.setattr("collector.correctness.pytorch_accuracy.CPU", near)

    def verdict(suite, model, *outputs):
        return pytorch_verdict(cell(suite, model, Phase.TRAINING, "float32"), *outputs)

    assert verdict("timm", "tiny", EAGER, OFF, EAGER) == "pass"
    assert verdict("torchvision", "tiny", EAGER, OFF, EAGER).startswith("fail_accuracy: output[0]: ")
    losses = [{"loss": torch.tensor(value)} for value in (1.01, 1.06, 1.0)]
    assert verdict("timm", "inception_v3", *losses) == "pass"
    assert verdict("timm", "tiny", *losses).startswith("fail_accuracy: loss: RMSE")


def test_without_a_reference_the_runner_compares_by_cosine_or_not_at_all(monkeypatch):
    found = checked(layer(1.5, dict.fromkeys((torch.float64, torch.float32), RuntimeError())), dtype="bfloat16")
    assert (found.status, found.details["accuracy_pytorch"]) == (Status.FAIL_ACCURACY, "pass")

    def raises_out_of_memory(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(checking, "SMALL_BYTES", 0)
    assert checked(layer(), room=Room(eager_peak=1)).details["accuracy_pytorch"] == "pass"
    monkeypatch.setattr("torch._dynamo.utils.same", raises_out_of_memory)
    for room, reason in ((Room(), "OutOfMemoryError"), (Room(for_cells=1), "GB of device memory")):
        found = checked(layer(), room=room)
        assert found.status is Status.PASS and "accuracy_pytorch" not in found.metrics
        assert reason in found.details["no_accuracy_pytorch"]


FROZEN, THAWED = Config(template="freezing"), Config(template="freezing", freezing=False)


@pytest.mark.parametrize(
    ("which", "tol", "multiplier", "with_tf32"),
    [
        (cell("huggingface", "BertForMaskedLM", dtype="float32"), 1e-3, 2.0, 10 / 1024),
        (cell("huggingface", "BertForMaskedLM", Phase.TRAINING, "amp"), 2e-2, 3.0, 2e-2),
        (cell("timm", "adv_inception_v3", config=FROZEN), 8e-2, 3.0, 8e-2),
        (cell("timm", "adv_inception_v3", config=THAWED), 1e-3, 3.0, 1e-3),
        (cell("user", "mine", dtype="float32", device="cpu"), 1e-3, 2.0, 1e-3),
    ],
)
def test_a_cell_has_the_tolerance_that_pytorch_gives_it(which, tol, multiplier, with_tf32):
    assert tolerance_for(which) == Tolerance(tol, multiplier)
    assert tolerance_for(which, allows_tf32=True).tol == with_tf32
    assert tolerance_for(which, 1e-4).tol == tolerance_for(which, 1e-4, allows_tf32=True).tol == 1e-4, "its own"


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((), 10), ((5, 100), 8), ((501,), 3), ((1000,), 2), ((64, 64, 1, 1), 3), ((64, 64, 3, 3), 2)],
)
def test_few_elements_and_points_get_a_larger_multiplier(shape, expected):
    assert Tolerance(1e-3, 2.0).multiplier_for(shape) == expected
