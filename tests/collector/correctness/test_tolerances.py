"""Tolerances are PyTorch's own, by model, suite, phase, dtype and device."""

from __future__ import annotations

import pytest

from collector.correctness.pytorch_accuracy import Tolerance, tolerance_for
from collector.vocabulary import Cell, Config, Phase


def cell(suite, model, phase=Phase.INFERENCE, dtype="bfloat16", device="cuda", config=None):
    return Cell(suite, model, phase, dtype, device, 1, config or Config())


FROZEN = Config(template="freezing")


@pytest.mark.parametrize(
    ("which", "tol", "multiplier"),
    [
        (cell("huggingface", "BertForMaskedLM"), 1e-3, 3.0),
        (cell("huggingface", "BertForMaskedLM", dtype="float32"), 1e-3, 2.0),
        (cell("huggingface", "BertForMaskedLM", Phase.TRAINING, "amp"), 2e-2, 3.0),
        (cell("huggingface", "MT5ForConditionalGeneration", Phase.TRAINING, "float32"), 2e-2, 3.0),
        (cell("huggingface", "GPT2ForSequenceClassification", device="cpu"), 5e-3, 3.0),
        (cell("timm", "inception_v3", Phase.TRAINING, "float32"), 4e-2, 3.0),
        (cell("timm", "adv_inception_v3"), 1e-3, 3.0),
        (cell("timm", "adv_inception_v3", config=FROZEN), 8e-2, 3.0),
        (cell("timm", "adv_inception_v3", config=Config(template="freezing", freezing=False)), 1e-3, 3.0),
        (cell("torchbench", "vision_maskrcnn", dtype="float32"), 1e-4, 2.0),
        (cell("torchbench", "vision_maskrcnn", Phase.TRAINING, "float32", "cpu"), 1e-4, 2.0),
        (cell("torchbench", "yolov3", dtype="float16"), 8e-2, 3.0),
        (cell("torchvision", "shufflenet_v2_x1_0", Phase.TRAINING), 8e-2, 3.0),
        (cell("torchbenchmark", "drq"), 1e-2, 3.0),
        (cell("torchbenchmark", "phlippe_resnet", dtype="float16"), 1e-2, 3.0),
        (cell("another", "suite"), 1e-3, 3.0),
    ],
)
def test_a_cell_has_the_tolerance_that_pytorch_gives_it(which, tol, multiplier):
    assert tolerance_for(which) == Tolerance(tol, multiplier)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        *(((), 10), ((10,), 10), ((11,), 8), ((5, 100), 8), ((501,), 3), ((999,), 3), ((1000,), 2), ((10**6,), 2)),
        *(((64, 64, 1, 1), 3), ((64, 64, 3, 3), 2), ((0, 3), 10)),
    ],
)
def test_few_elements_and_points_get_a_larger_multiplier(shape, expected):
    assert Tolerance(1e-3, 2.0).multiplier_for(shape) == expected


@pytest.mark.parametrize(
    ("which", "own", "tol"),
    [
        (cell("user", "mine", dtype="float32"), None, 10 / 1024),
        (cell("user", "mine", dtype="float32"), 1e-4, 1e-4),
        (cell("user", "mine", dtype="float32", device="cpu"), None, 1e-3),
        (cell("user", "mine"), None, 1e-3),
        (cell("timm", "inception_v3", Phase.TRAINING, "float32"), None, 4e-2),
    ],
)
def test_a_float32_program_on_a_gpu_may_round_as_tensorfloat_32_does(which, own, tol):
    assert tolerance_for(which, own, allows_tf32=True).tol == tol
    assert tolerance_for(which, own).tol == (own or tolerance_for(which).tol)
