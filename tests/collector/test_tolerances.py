"""Tolerances are PyTorch's own, by model, suite, phase, dtype and device."""

from __future__ import annotations

import pytest

from collector.tolerances import Tolerance, tolerance_for
from collector.vocabulary import Cell, Config, Phase


def cell(suite, model, phase=Phase.INFERENCE, dtype="bfloat16", device="cuda"):
    return Cell(suite, model, phase, dtype, device, 1, Config())


@pytest.mark.parametrize(
    ("which", "tol", "multiplier"),
    [
        (cell("huggingface", "BertForMaskedLM"), 1e-3, 3.0),
        (cell("huggingface", "BertForMaskedLM", dtype="float32"), 1e-3, 2.0),
        (cell("huggingface", "BertForMaskedLM", Phase.TRAINING, "amp"), 1e-2, 3.0),
        (cell("huggingface", "GPT2ForSequenceClassification"), 4e-3, 3.0),
        (cell("timm", "inception_v3", Phase.TRAINING, "float32"), 4e-2, 3.0),
        (cell("torchbench", "vision_maskrcnn"), 1e-2, 3.0),
        (cell("torchbench", "vision_maskrcnn", dtype="float32"), 1e-3, 2.0),
        (cell("torchbench", "yolov3"), 8e-2, 3.0),
        (cell("huggingface", "BertForMaskedLM", dtype="float32", device="cpu"), 5e-3, 2.0),
        (cell("huggingface", "BertForMaskedLM", Phase.TRAINING, "float32", "cpu"), 1e-2, 2.0),
        (cell("another", "suite"), 1e-3, 3.0),
    ],
)
def test_a_cell_has_the_tolerance_that_pytorch_gives_it(which, tol, multiplier):
    assert tolerance_for(which) == Tolerance(tol, multiplier)


@pytest.mark.parametrize(("numel", "expected"), [(1, 10), (10, 10), (11, 8), (500, 8), (501, 3), (10**6, 3)])
def test_few_elements_get_a_larger_multiplier(numel, expected):
    assert Tolerance(1e-3, 3.0).multiplier_for(numel) == expected


def test_a_small_tensor_never_gets_less_than_its_model():
    assert Tolerance(1e-3, 20.0).multiplier_for(1) == 20.0
