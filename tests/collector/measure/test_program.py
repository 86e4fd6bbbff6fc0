"""One model as eager, compiled and in higher precision: each call starts from one state and one seed."""

import os

import pytest
import torch
from torch import nn
from torch._inductor import config

from collector.correctness.norms import asking_rmse, settle
from collector.measure.program import Subject, deterministic_algorithms
from collector.templates import resolve_config
from collector.vocabulary import Cell, Config, Phase
from collector.zoo.spec import Built
from tests.collector.correctness.test_checking import Does
from tests.collector.measure.tiny_cells import mean_square


def subject(model, phase=Phase.INFERENCE, dtype="float32", optimizer="none", width=4, loss=mean_square):
    cell = Cell("tests", "tiny", phase, dtype, "cpu", 8, Config(backend="eager"))
    torch.manual_seed(0)
    return Subject(cell, Built(model, (torch.randn(8, width),), {}, loss), optimizer)


@pytest.mark.parametrize(("before", "strict"), [(None, True), (":16:8", False)])
def test_the_variable_of_cublas_is_set_inside_only(monkeypatch, before, strict):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    if before:
        monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", before)
    with pytest.raises(ZeroDivisionError), deterministic_algorithms(strict):
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled() is not strict
        raise ZeroDivisionError
    assert os.environ.get("CUBLAS_WORKSPACE_CONFIG") == before
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize(("optimizer", "moves"), [("none", False), ("adam", True)])
def test_a_timed_step_takes_the_optimizers_step_a_compared_one_not(optimizer, moves):
    model = nn.Linear(4, 2)
    one = subject(model, Phase.TRAINING, optimizer=optimizer)
    compiled = one.compiled(resolve_config(Config(backend="eager"), "cpu"))
    start = model.weight.detach().clone()
    first = one.outputs(one.eager)
    assert torch.equal(model.weight, start)
    for call in (one.eager, compiled):
        before = model.weight.detach().clone()
        call()
        assert torch.equal(model.weight, before) is not moves
    for call in (one.eager, compiled):
        again = one.outputs(call)
        assert again.keys() == first.keys()
        assert all(torch.allclose(again[path], value) for path, value in first.items())


@pytest.mark.parametrize(("dtype", "lowest"), [("as_is", "bfloat16"), ("float32", "float32")])
def test_as_is_casts_nothing_and_is_as_precise_as_its_least_precise_part(dtype, lowest):
    # int8 weights with a bfloat16 scale, and a float32 norm: casting any of them makes another model.
    parts = {"weight": torch.ones(4, 4, dtype=torch.int8), "scale": torch.ones(4, dtype=torch.bfloat16)}
    of = subject(Does(lambda *_: None, norm=nn.LayerNorm(4), **parts), dtype=dtype)
    dtypes = {name: value.dtype for name, value in of.model.state_dict().items()}
    assert dtypes["scale"] == getattr(torch, lowest)
    assert (dtypes["norm.weight"], dtypes["weight"]) == (torch.float32, torch.int8)
    assert of.inputs.args[0].dtype == torch.float32
    assert of.lowest_dtype == lowest


def small_loss(factor, dtype, width=16):
    """A training step whose loss, and so every gradient, is this factor as large."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
    return subject(model, Phase.TRAINING, dtype, width=width, loss=lambda out, _: factor * mean_square(out, _))


def rmse(value, exact):
    return settle([asking_rmse(value, exact)])[0]


@pytest.mark.parametrize(("factor", "dtype"), [(1.0, "float16"), (1e-7, "float16"), (1e3, "float16"), (1e-7, "amp")])
def test_gradients_compared_in_float16_neither_vanish_nor_overflow(factor, dtype):
    of = small_loss(factor, dtype)
    of.eager()
    timed = of.model[0].weight.grad.clone()
    compiled = of.compiled(resolve_config(Config(backend="aot_eager"), "cpu"))
    runs, twin = of.eager_runs(), of.twin(torch.float64)
    made, exact = of.outputs(compiled), twin.outputs(twin.eager)
    gradients = [name for name in exact if name.startswith("grad")]
    assert len(gradients) == 4
    for name in gradients:
        size = rmse(exact[name], torch.zeros_like(exact[name]))
        assert max(rmse(found[name], exact[name]) for found in (runs.outputs, made)) < 0.05 * size, name
    of.eager()
    assert torch.equal(of.model[0].weight.grad.nan_to_num(), timed.nan_to_num()), "a timed step is never scaled"


@pytest.mark.parametrize(("dtype", "scales"), [(torch.float16, True), (torch.bfloat16, False)])
def test_autocast_is_scaled_where_its_dtype_is_float16(monkeypatch, dtype, scales):
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda device: dtype)
    of = small_loss(1e-3, "amp")
    first = of.outputs(of.eager)["grad['0.weight']"]
    ratio = (of.eager_runs().outputs["grad['0.weight']"] / first).nanmedian()
    assert ratio == pytest.approx(2.0**13 if scales else 1.0, rel=0.01)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_training_step_compiles_under_cpp_wrapper(device):
    """A reduction in front of a product, so that kernels are generated in both passes."""
    cell = Cell("tests", "tiny", Phase.TRAINING, "float32", device, 64, Config(template="cpp_wrapper"))
    model = nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 32), nn.GELU())
    with config.patch(cpp_wrapper=False):
        of = Subject(cell, Built(model, (torch.randn(64, 32),), {}, mean_square))
        call = of.compiled(resolve_config(cell.config, device))
        assert config.cpp_wrapper is True, "the process asks for it in backward"
        if device == "cuda":
            made, wanted = of.outputs(call), of.outputs(of.eager)
            assert made.keys() == wanted.keys()
            assert all(rmse(made[path], wanted[path]) < 1e-4 for path in wanted)


class Boxes(nn.Linear):
    """Returns its tensor in a structure, and alone where it trains."""

    def forward(self, x):
        made = super().forward(x).relu()
        return made if self.training else [{"boxes": (made, made.sum(), None)}]


@pytest.mark.gpu
@pytest.mark.parametrize(("phase", "path"), [(Phase.INFERENCE, "[0]['boxes'][0]"), (Phase.TRAINING, "loss")])
@pytest.mark.parametrize(
    "config", [Config(mode="reduce-overhead"), Config(template="cudagraphs")], ids=["mode", "template"]
)
def test_outputs_keep_their_values_over_the_next_replay_of_a_cudagraph(config, phase, path):
    torch._dynamo.reset()
    torch.manual_seed(0)
    cell = Cell("tests", "tiny", phase, "float32", "cuda", 4, config)
    of = Subject(cell, Built(Boxes(16, 16), (torch.randn(4, 16),), {}, mean_square))
    call = of.compiled(resolve_config(config, "cuda"))
    # The first call warms up, the second records the cudagraph, and from the third on it is replayed.
    for _ in range(4):
        call()
    wanted, first = of.outputs(of.eager), of.outputs(call)
    with torch.no_grad():
        of.model.bias.add_(1.0)  # so that the next replay writes other values into the same buffers
    second = of.outputs(call)
    assert first.keys() == second.keys() == wanted.keys()
    assert not torch.allclose(second[path], first[path])
    tensors = [name for name, value in wanted.items() if isinstance(value, torch.Tensor)]
    assert all(torch.allclose(first[name], wanted[name], atol=1e-3) for name in tensors)
