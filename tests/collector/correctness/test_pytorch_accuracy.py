"""PyTorch's own accuracy check beside ours: where they agree, where only one fails, and where there is none."""

import itertools

import pytest
import torch

from collector.correctness import checking
from collector.correctness.pytorch_accuracy import pytorch_verdict
from collector.correctness.reference import Room
from collector.vocabulary import Cell, Config, Phase, Status
from tests.collector.correctness.test_checking import Does, checked, without

COUNT = itertools.count()
OFF = {"loss": torch.ones(()), "grad['weight']": torch.ones(4), "output[0]": torch.full((4,), 2.0)}
EAGER = {"loss": torch.ones(()), "grad['weight']": torch.ones(4), "output[0]": torch.ones(4)}


def cell(suite="timm", phase=Phase.TRAINING, model="tiny"):
    return Cell(suite, model, phase, "float32", "cuda", 8, Config())


@pytest.mark.parametrize(
    ("model", "status", "theirs"),
    [
        (without(), Status.PASS, "pass"),
        (without(factor=1.1), Status.FAIL_ACCURACY, "fail_accuracy: output: RMSE"),
        # Its tolerance is absolute: what is small may be anything.
        (Does(lambda x: x * 1e-5, lambda x: x * 5e-5), Status.FAIL_ACCURACY, "pass"),
        # It looks at values alone.
        (Does(lambda x: (x,), lambda x: [x]), Status.FAIL_ACCURACY, "pass"),
        # It compiles with fallback_random, and this program draws otherwise without that alone.
        (Does(lambda x: x + torch.rand(64, 32)), Status.PASS, "pass"),
        (Does(lambda x: x + next(COUNT)), Status.NONDETERMINISTIC, "eager_two_runs_differ"),
    ],
)
def test_both_verdicts_are_kept(model, status, theirs):
    found = checked(model)
    assert found.status is status
    assert found.details["accuracy_pytorch"].startswith(theirs)
    assert found.metrics["accuracy_pytorch"] == (theirs == "pass")


@pytest.mark.parametrize(("suite", "theirs"), [("timm", "pass"), ("torchvision", "fail_accuracy: output[0]: ")])
def test_of_training_most_runners_compare_no_outputs(suite, theirs):
    assert pytorch_verdict(cell(suite), EAGER, OFF, EAGER).startswith(theirs)


@pytest.mark.parametrize(("model", "theirs"), [("inception_v3", "pass"), ("tiny", "fail_accuracy: loss: RMSE")])
def test_the_runners_multiplier_for_small_tensors_is_taken(model, theirs):
    eager, made, exact = ({"loss": torch.tensor(value)} for value in (1.01, 1.06, 1.0))
    assert pytorch_verdict(cell(model=model), eager, made, exact).startswith(theirs)


def test_without_a_reference_the_runner_compares_by_cosine():
    found = checked(without(torch.float64, torch.float32, factor=1.5), dtype="bfloat16")
    assert (found.status, found.details["accuracy_pytorch"]) == (Status.FAIL_ACCURACY, "pass")


def test_a_verdict_that_cannot_be_had_is_absent_and_fails_nothing(monkeypatch):
    monkeypatch.setattr("torch._dynamo.utils.same", raises_out_of_memory)
    found = checked(without())
    assert found.status is Status.PASS and "accuracy_pytorch" not in found.metrics
    assert "OutOfMemoryError" in found.details["no_accuracy_pytorch"]


def raises_out_of_memory(*_, **__):
    raise torch.OutOfMemoryError("CUDA out of memory")


def test_a_large_tensor_asks_for_the_memory_of_its_comparison(monkeypatch):
    monkeypatch.setattr(checking, "SMALL_BYTES", 0)
    assert checked(without(), room=Room(eager_peak=1)).details["accuracy_pytorch"] == "pass"
    found = checked(without(), room=Room(for_cells=1))
    assert found.status is Status.PASS and "GB of device memory" in found.details["no_accuracy_pytorch"]
