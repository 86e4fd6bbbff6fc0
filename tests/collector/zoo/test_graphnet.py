"""A sample in GraphNet's format, made up here: listed without being executed, built with its weights bound."""

import json
import sys

import pytest
import torch

from collector.usage_errors import ZooError
from collector.vocabulary import Config, Phase
from collector.zoo.builders.outside_models import Meta, read_metas, value_of
from collector.zoo.builders.outside_models import build_graphnet as build
from collector.zoo.catalog.pytorch_suites import VARIABLE
from collector.zoo.registry import all_models, find, select
from tests.collector.zoo.conftest import measured

MODEL = """
import pathlib
import torch

pathlib.Path(__file__).with_name("executed").touch()

class GraphModule(torch.nn.Module):
    def forward(self, L_self_modules_fc_parameters_weight_, s0 : torch.SymInt, L_x_: torch.Tensor,
                L_self_modules_bn_buffers_running_mean_, L_self_modules_bn_buffers_num_batches_tracked_, L_ids_):
        linear = torch.nn.functional.linear(L_x_, L_self_modules_fc_parameters_weight_)
        view = (linear - L_self_modules_bn_buffers_running_mean_).view(s0, -1)
        return (view, L_ids_ + L_self_modules_bn_buffers_num_batches_tracked_)
"""


def record(name, shape, dtype="torch.float32", **fields):
    """A tensor as a sample has it: a class of literals."""
    known = {"name": name, "shape": shape, "dtype": dtype, **fields}
    lines = [f"    {key} = {value!r}\n" for key, value in known.items()]
    return f"class Program_weight_tensor_meta_{name}:\n{''.join(lines)}\n"


WEIGHTS = "".join(
    [
        'open(__file__ + "executed", "w")\n',
        record("L_self_modules_fc_parameters_weight_", [3, 8], device="cuda:0", mean=-0.5, std=1.0, data=None),
        record("L_self_modules_bn_buffers_running_mean_", [3], mean=2.0, std=0.0, data=None).rstrip(),
        '\n    max_val = float("inf")\n\n',
        record("L_self_modules_bn_buffers_num_batches_tracked_", [], "torch.int64", data=[7]),
        record("s0", [], "torch.int64", data=[2]),
    ]
)
INPUTS = record("L_x_", [4, 8], mean=0.0, std=5.0) + record("L_ids_", [5], "torch.int64", min_val=3, max_val=4)
ABOUT = {"framework": "torch", "source": "made_up", "num_devices_required": 1}


def write_sample(folder, about=ABOUT, **files):
    folder.mkdir(parents=True)
    (folder / "graph_net.json").write_text(about if isinstance(about, str) else json.dumps(about))
    for name, text in {"model": MODEL, "weight_meta": WEIGHTS, "input_meta": INPUTS, **files}.items():
        (folder / f"{name}.py").write_text(text)
    return folder


@pytest.fixture
def samples(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "graphnet_sample", raising=False)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    write_sample(tmp_path / "made_up" / "tiny-1.0")
    write_sample(tmp_path / "made_up" / "for_paddle", {"framework": "paddle"})
    write_sample(tmp_path / "other" / "two_gpus", {**ABOUT, "num_devices_required": 2})
    return tmp_path


def test_samples_are_selected_by_suite_or_name_or_list_and_not_executed(samples, tmp_path):
    (spec,) = select(in_suites=["graphnet"])
    assert spec.dtypes[0] == "as_is"
    assert (spec.suite, spec.name, spec.phases) == ("graphnet", "made_up/tiny-1.0", (Phase.INFERENCE,))
    assert select(patterns=["graphnet/made_up/*"]) == select(in_suites=["graphnet"], patterns=["*tiny*"]) == (spec,)
    assert find("graphnet", "made_up/tiny-1.0") == spec
    assert select() == all_models()
    assert set(read_metas(samples / "made_up" / "tiny-1.0" / "weight_meta.py")) >= {"s0"}
    assert not list(samples.rglob("*executed"))
    file = tmp_path / "list.txt"
    file.write_text("# two of one\nsamples/made_up/tiny-1.0\n\nmade_up/tiny-1.0\n")
    (spec,) = select(patterns=[f"graphnet/@{file}"])
    assert spec.name == "made_up/tiny-1.0"
    file.write_text("\n")
    for name, said in ((file, "is empty"), ("nowhere.txt", "cannot be read")):
        with pytest.raises(ZooError, match=said):
            select(in_suites=["graphnet"], patterns=[f"@{name}"])


NAMES_DEVICES = """
import torch
from torch import device

class GraphModule(torch.nn.Module):
    def forward(self, L_x_):
        made = [torch.ones(2, device=device(type="cuda", index=0)), torch.ones(2, device="cpu"), L_x_.to("cuda:0")]
        return (*made, torch.ones(2, device=torch.device("cpu")), torch.ones(2, device=None))
"""


def test_devices_in_the_code_of_a_sample_are_the_one_that_is_measured(samples):
    write_sample(samples / "devices", model=NAMES_DEVICES)
    built = build(1, Phase.INFERENCE, "meta", "devices")
    assert [made.device.type for made in built.model(*built.args)] == ["meta"] * 4 + ["cpu"]
    assert str(samples) in sys.modules["graphnet_sample"].__file__


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("made_up/for_paddle", "for paddle on 1 devices"),
        ("made_up/none", "no model 'made_up/none'"),
        ("../made_up/tiny-1.0", "no model"),
        ("/etc", "no model"),
        ("broken", "cannot be read"),
        ("odd", "cannot be read"),
    ],
)
def test_what_is_no_sample_for_this_suite_is_told_in_a_line(samples, name, said):
    write_sample(samples / "broken", "{")
    write_sample(samples / "odd", {"framework": "torch", "num_devices_required": "many"})
    with pytest.raises(ZooError, match=said):
        find("graphnet", name)
    assert [spec.name for spec in select(in_suites=["graphnet"])] == ["made_up/tiny-1.0"]


def test_without_a_folder_the_suite_says_what_it_needs(monkeypatch, tmp_path):
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(ZooError, match=VARIABLE):
        select(in_suites=["graphnet"])
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(ZooError, match="no folder"):
        find("graphnet", "a")


def test_a_sample_has_its_weights_and_is_measured_like_any_other_model(samples):
    torch.manual_seed(0)
    built = build(1, Phase.INFERENCE, "cpu", "made_up/tiny-1.0")
    weights, buffers = dict(built.model.named_parameters()), dict(built.model.named_buffers())
    assert set(weights) == {"L_self_modules_fc_parameters_weight_"}
    assert weights.popitem()[1].mean().item() == pytest.approx(-0.5, abs=0.15)
    assert buffers["L_self_modules_bn_buffers_running_mean_"].tolist() == [2, 2, 2]
    assert buffers["L_self_modules_bn_buffers_num_batches_tracked_"].item() == 7
    rows, x, ids = built.args
    assert (rows, x.shape, ids.shape) == (2, (4, 8), (5,))
    assert x.std().item() == pytest.approx(1.0, abs=0.3)  # a fifth of the recorded deviation
    assert set(ids.tolist()) <= {3, 4}
    assert built.model(*built.args)[0].shape == (2, 6)
    found = measured(find("graphnet", "made_up/tiny-1.0"), Config(backend="eager"))
    assert found.cell.dtype == "as_is"


def test_records_are_values_cut_off_or_refused(tmp_path):
    path, unnamed = tmp_path / "weight_meta.py", "class A:\n    shape = [1]"
    called = "class A:\n    name = 'a'\n    data = open('x')"
    for text, said in ((unnamed, "has no name"), (called, "no literal"), ("class A(", "cannot be read")):
        path.write_text(text)
        with pytest.raises(ZooError, match=said):
            read_metas(path)
    assert value_of(Meta("a", (9,), mean=1e6)).unique().tolist() == [100]
    assert value_of(Meta("a", (99,), mean=float("nan"))).abs().max() < 0.1
    assert value_of(Meta("a", (99,), mean=5.0, std=1.0, min_val=5, max_val=6)).aminmax().min == 5
    assert value_of(Meta("a", (64,), "torch.bool")).unique().tolist() == [False, True]
    assert value_of(Meta("a", (2, 1), "torch.float16", data=[1, 2])).tolist() == [[1], [2]]
    with pytest.raises(ZooError, match="holds no value"):
        value_of(Meta("s0"), is_symbol=True)
    for dtype in ("torch.nonsense", "numpy.float32"):
        with pytest.raises(ZooError, match="unknown dtype"):
            value_of(Meta("a", (1,), dtype))
    # A variance is never negative.
    name = "L_self_modules_bn_buffers_running_var_"
    assert value_of(Meta(name, (64,), mean=0.0, std=1.0)).min() >= 0
    assert value_of(Meta("L_x_", (64,), mean=0.0, std=1.0)).min() < 0


def test_what_a_graph_needs_must_be_recorded_and_its_size_is_its_own(samples):
    write_sample(samples / "older", weight_meta=WEIGHTS + INPUTS)
    (samples / "older" / "input_meta.py").unlink()  # all records may be in one file
    assert len(build(1, Phase.INFERENCE, "cpu", "older").args) == 3
    write_sample(samples / "lacking", input_meta="")
    with pytest.raises(ZooError, match="nothing of its argument L_x_"):
        build(1, Phase.INFERENCE, "cpu", "lacking")
    with pytest.raises(ZooError, match="batch size cannot be changed"):
        build(2, Phase.INFERENCE, "cpu", "made_up/tiny-1.0")
