"""Models that others wrote: a user's `module:function`, and a made-up `torchbenchmark`; no list imports any."""

import sys
from dataclasses import dataclass

import pytest
import torch
from torch import nn

from collector.own_models import OwnModel, is_user_model, takes_batch_size
from collector.usage_errors import ZooError
from collector.vocabulary import OWN_BATCH, Phase
from collector.zoo.builders.outside_models import build_torchbenchmark, own_loss_or_mean_squares
from collector.zoo.builders.outside_models import build_user as build
from collector.zoo.registry import USER as SUITE
from collector.zoo.registry import all_models, find, select
from collector.zoo.spec import Built

TARGET = "own_models_of_a_test"
SOURCE = """
import torch
from torch import nn
from collector.zoo.spec import Built
from collector.zoo.builders.outside_models import build_user as imported

def plain():
    return nn.Linear(4, 2), torch.ones(3, 4)

def sized(batch_size, device):
    return nn.Linear(4, 2), (torch.ones(batch_size, 4),), {}

def everything(**given):
    model = nn.Linear(4, 2)
    model.given = given
    return model, [torch.ones(1, 4)]

def built():
    return Built(nn.Linear(4, 2), (torch.ones(1, 4),), {}, lambda made, _: made.sum(), "targets")

def shaped(seq, batch=1):
    return nn.Linear(seq, 2), torch.ones(batch, seq)

def flat():
    return nn.Linear(4, 2), torch.ones(4)

def a_number():
    return 3

not_a_function = 5
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / f"{TARGET}.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop(TARGET, None)


def made(name, batch_size=5, phase=Phase.TRAINING):
    return build(batch_size, phase, "cpu", f"{TARGET}:{name}")


def test_a_module_and_a_function_name_a_model_without_an_import(own):
    for name in ("models:tiny", "a.b_c.d1:_make", "_x:y"):
        assert is_user_model(name)
        assert (find(SUITE, name).suite, find(SUITE, name).name) == ("user", name)
    for name in ("tiny", "a:b:c", "a.:b", ":b", "../a:b", "a:b()", "1a:b"):
        with pytest.raises(ZooError, match="module:function"):
            find(SUITE, name)
    found = select(patterns=[f"{TARGET}:plain", "alexnet", "my:two", "my:two"])
    assert [spec.name for spec in found] == [f"{TARGET}:plain", "my:two", "alexnet"]
    assert found[0] == find(SUITE, f"{TARGET}:plain")
    assert TARGET not in sys.modules
    assert len(select()) == len(all_models())


def test_a_function_gets_what_it_asks_for(own):
    assert made("plain", 3).args[0].shape == (3, 4)
    assert made("sized").args[0].shape == (5, 4)
    assert made("everything").model.given == {"batch_size": 5, "phase": "training", "device": "cpu"}
    assert isinstance(made("built", 1), Built)
    assert made("built", 1).targets == "targets"
    assert made("flat", 1).args[0].shape == (4,)  # without a batch dimension the size is 1
    # Without a size each makes its own batch, and one where the plan could not see that it takes a size.
    assert [made(name, OWN_BATCH).args[0].shape for name in ("plain", "flat", "sized")] == [(3, 4), (4,), (1, 4)]
    assert made("everything", OWN_BATCH).model.given["batch_size"] == 1


def test_a_plan_sees_without_an_import_who_takes_a_batch_size(own, tmp_path):
    for name, size in {"plain": 0, "sized": 1, "everything": 1, "imported": 0, "missing": 0}.items():
        spec = find(SUITE, f"{TARGET}:{name}")
        assert {spec.batch_size(phase, device) for phase in Phase for device in ("cpu", "cuda")} == {size}
    assert TARGET not in sys.modules
    (tmp_path / "pack" / "sub").mkdir(parents=True)
    (tmp_path / "pack" / "__init__.py").write_text("raise SystemExit('imported')")
    (tmp_path / "pack" / "sub" / "__init__.py").write_text("def one(batch_size): ...")
    (tmp_path / "pack" / "models.py").write_text("def one(*, batch_size=2): ...\ndef two(): ...\n")
    (tmp_path / "pack" / "broken.py").write_text("def one(batch_size:")
    targets = ("pack.sub:one", "pack.models:one", "pack.models:two", "pack.broken:one", "pack:one", "pack.none:one")
    seen = [takes_batch_size(OwnModel("m", target, folder=str(tmp_path))) for target in targets]
    assert seen == [True, True, False, False, False, False]


def test_a_shape_gives_arguments_and_a_second_size_has_its_own_batch(own):
    target = f"{TARGET}:shaped"
    assert build(4, Phase.INFERENCE, "cpu", target, {"batch": 4, "seq": 6}).args[0].shape == (4, 6)
    assert build(2, Phase.INFERENCE, "cpu", target, {"batch": 4, "seq": 6}).args[0].shape == (2, 6)
    with pytest.raises(TypeError, match="takes no length, only seq, batch"):
        build(4, Phase.INFERENCE, "cpu", target, {"length": 6})


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("plain", ValueError, "makes a batch of 3, not of 8: leave out the batch size"),
        ("flat", ValueError, "no known batch, not of 8: leave out the batch size"),
        ("not_a_function", ImportError, "no function"),
        ("a_number", TypeError, r"returned a int: return \(model, args\)"),
    ],
)
def test_what_is_no_model_or_makes_another_size_is_refused(own, name, error, message):
    with pytest.raises(error, match=message) as caught:
        made(name, 8)
    assert "\n" not in str(caught.value)


@dataclass
class Output:
    values: torch.Tensor
    others: object


def test_the_loss_is_the_models_own_or_the_mean_squares_of_what_it_made():
    own_loss = torch.tensor(7.0)
    assert own_loss_or_mean_squares({"loss": own_loss, "logits": torch.ones(2)}, None) is own_loss
    assert own_loss_or_mean_squares(nn.Linear(1, 1).weight.data * 0 + 2, None).item() == 4
    assert own_loss_or_mean_squares([torch.full((3,), 2.0), (torch.ones(2), torch.ones(1).long())], None).item() == 5
    made = Output(torch.full((3,), 2.0), (torch.tensor([3 + 4j]), 3))
    assert own_loss_or_mean_squares(made, None).item() == 29
    assert torch.compile(own_loss_or_mean_squares, fullgraph=True, backend="eager")(made, None).item() == 29
    with pytest.raises(ValueError, match=r"`loss` must have one element, and has shape \(2,\)"):
        own_loss_or_mean_squares({"loss": torch.ones(2)}, None)
    with pytest.raises(TypeError, match="floating or complex output"):
        own_loss_or_mean_squares({"ids": torch.ones(2).long()}, None)


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


def test_without_the_package_the_suite_says_what_it_needs():
    with pytest.raises(ZooError, match="install it from a checkout"):
        select(in_suites=["torchbenchmark"])


def test_models_and_their_sizes_are_found_without_an_import(package):
    found = select(in_suites=["torchbenchmark"])
    assert [spec.name for spec in found] == ["bare", "in_a_dict", "in_a_list", "unsized"]
    assert (found[0].batch_size(Phase.INFERENCE, "cuda"), found[0].batch_size(Phase.TRAINING, "cpu")) == (16, 32)
    assert found[-1].batch_size(Phase.INFERENCE, "cuda") == 1
    assert "torchbenchmark" not in sys.modules
    found = select(patterns=["torchbenchmark/in_a_*", "alexnet"])
    assert [spec.name for spec in found][:2] == ["in_a_dict", "in_a_list"]
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
    assert build_torchbenchmark(7, Phase.INFERENCE, "cpu", name).model.told[0] == "eval"
