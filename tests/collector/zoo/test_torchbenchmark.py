"""Models of a `torchbenchmark` that is made up here: listed without an import, built as its own runner would."""

from __future__ import annotations

import sys

import pytest
import torch

from collector.usage_errors import ZooError
from collector.vocabulary import Phase
from collector.zoo.builders.outside_models import build_torchbenchmark as build
from collector.zoo.registry import all_models, find, select

MODEL = """
import torch

class Model:
    DEFAULT_TRAIN_BSIZE = 32
    DEFAULT_EVAL_BSIZE = 16
    task = None

    def __init__(self, test, device, batch_size=None, extra_args=None):
        self.told = (test, device, batch_size)
        self.inputs = INPUTS

    def get_module(self):
        model = torch.nn.Linear(4, 2)
        model.told = self.told
        return model, self.inputs
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    models = tmp_path / "torchbenchmark" / "models"
    inputs = {"in_a_list": "[torch.ones(3, 4)]", "in_a_dict": "{'input': torch.ones(3, 4)}", "bare": "torch.ones(3, 4)"}
    for name, text in inputs.items():
        (models / name).mkdir(parents=True)
        (models / name / "__init__.py").write_text(MODEL.replace("INPUTS", text))
    (models / "unsized").mkdir()
    (models / "unsized" / "__init__.py").write_text(
        "DEFAULT_EVAL_BSIZE = 9\nclass Model(Other):\n    DEFAULT_EVAL_BSIZE = f()\n"
    )
    for folder in (models.parent, models):
        (folder / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in [name for name in sys.modules if name.startswith("torchbenchmark")]:
        del sys.modules[name]


def test_models_and_their_sizes_are_found_without_an_import(package):
    found = select(in_suites=["torchbenchmark"])
    assert [spec.name for spec in found] == ["bare", "in_a_dict", "in_a_list", "unsized"]
    assert (found[0].batch_size(Phase.INFERENCE, "cuda"), found[0].batch_size(Phase.TRAINING, "cpu")) == (16, 32)
    assert found[-1].batch_size(Phase.INFERENCE, "cuda") == 1
    assert "torchbenchmark" not in sys.modules


def test_they_are_selected_by_their_suite_or_prefix_only(package):
    assert [spec.name for spec in select(patterns=["torchbenchmark/in_a_*", "alexnet"])][:2] == [
        "in_a_dict",
        "in_a_list",
    ]
    assert select() == all_models()
    with pytest.raises(ZooError, match="no model like 'resnet18'"):
        select(in_suites=["torchbenchmark"], patterns=["resnet18"])
    with pytest.raises(ZooError, match="no model"):
        find("torchbenchmark", "../models/bare")


@pytest.mark.parametrize("name", ["bare", "in_a_dict", "in_a_list"])
def test_a_model_comes_with_its_inputs_whatever_they_are_in(package, name):
    built = find("torchbenchmark", name).build(7, Phase.TRAINING, "cpu")
    assert built.model.told == ("train", "cpu", 7)
    made = built.model(*built.args, **built.kwargs)
    assert made.shape == (3, 2)
    assert torch.equal(built.loss(made, None), made.square().mean())
    assert build(7, Phase.INFERENCE, "cpu", name).model.told[0] == "eval"


def test_without_the_package_the_suite_says_what_it_needs():
    with pytest.raises(ZooError, match="install it from a checkout"):
        select(in_suites=["torchbenchmark"])
