"""AOTInductor as a way of compiling: what it refuses, how a model that does not export ends, and a real library."""

import re
import tempfile
from dataclasses import replace

import pytest
import torch
import torch._inductor
from torch import nn

from collector.measure.ahead_of_time import NOT_COUNTED
from collector.measure.cell import measure
from collector.process.orphans import PREFIX
from collector.templates import resolve_config
from collector.usage_errors import ConfigError
from collector.vocabulary import AHEAD_OF_TIME, Cell, Config, Phase, Stage, Status
from collector.zoo.spec import Built
from jobs.plan.planning import check_config
from jobs.plan.spared_cells import program_key
from tests.collector.correctness.test_checking import Does
from tests.collector.measure.tiny_cells import CELL as ANY_CELL
from tests.collector.measure.tiny_cells import FEW, measured, measured_apart
from tests.collector.processes import pooled

AHEAD = Config(backend=AHEAD_OF_TIME)
CELL = replace(ANY_CELL, config=AHEAD)


class Nested(nn.Module):
    """Takes an argument by name and one that is no tensor, and returns tensors and None in a structure."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x, *, scale, mask=None):
        y = torch.softmax(self.linear(x).relu(), -1) * scale
        return {"logits": y, "rest": (y.sum(), mask)}


def build(batch_size, phase, device):
    kwargs = {"scale": torch.tensor(2.0), "mask": None}
    return Built(Nested(), (torch.randn(batch_size, 16),), kwargs, lambda made, _: made["logits"].sum())


def test_its_program_is_none_that_torch_compile_makes():
    ahead, wrapped, plain = (
        resolve_config(config, "cuda") for config in (AHEAD, Config(template="cpp_wrapper"), Config())
    )
    assert len({found.program_id for found in (ahead, wrapped, plain)}) == 3
    assert ahead.options == {}
    assert ahead.changed == {"cpp_wrapper": True, "torch.compile.backend": AHEAD_OF_TIME}
    assert len({program_key(config, "cuda") for config in (AHEAD, replace(AHEAD, template="aten"), Config())}) == 3


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (replace(AHEAD, mode="reduce-overhead"), "records no cudagraphs"),
        (replace(AHEAD, dynamic=True), "shapes of the batch"),
        (replace(AHEAD, overrides={"max_autotun": True}), "did you mean max_autotune"),
    ],
)
def test_what_it_cannot_do_is_refused_in_the_plan_and_in_the_cell(config, said):
    with pytest.raises(ConfigError, match=said):
        check_config(config, "cpu")
    found = measure(replace(CELL, config=config), build, FEW).measurement
    assert (found.status, found.failure.stage) == (Status.CONFIG_ERROR, Stage.RESOLVE_CONFIG)
    assert said in found.failure.message
    found = measure(replace(CELL, phase=Phase.TRAINING), build, FEW).measurement
    assert (found.status, "compiles no gradients" in found.failure.message) == (Status.CONFIG_ERROR, True)


@pytest.mark.parametrize(
    ("make", "exception", "said", "logged"),
    [
        # It goes one way or the other by what it computed, which no single graph can.
        (
            lambda: Does(lambda _, x: x + 1 if x.sum() > 0 else x - 1),
            "ExportFailedError",
            "the model does not export (",
            "x.sum() > 0",
        ),
        (nn.Identity, "AheadOfTimeError", "RuntimeError: no such archive", ""),
    ],
)
def test_what_cannot_be_made_fails_to_compile_with_the_reason(monkeypatch, capfd, make, exception, said, logged):
    def broken(exported, **options):
        raise RuntimeError("no such archive")

    monkeypatch.setattr(torch._inductor, "aoti_compile_and_package", broken)
    found = measured(make, config=AHEAD)
    assert (found.status, found.failure.stage) == (Status.FAIL_TO_COMPILE, Stage.COMPILE)
    assert found.failure.exception == exception
    assert said in found.failure.message and "--backend inductor" in found.failure.hint
    assert logged in capfd.readouterr().err
    assert "compiled_ms" not in found.metrics


def assert_compared_and_timed(found):
    assert (found.status, found.failure) == (Status.PASS, None)
    assert {"compiled_ms", "speedup", "compile_cold_s", "kernels_generated"} <= found.metrics.keys()
    assert not found.metrics.keys() & set(NOT_COUNTED)
    assert found.metrics["cosine"] > 0.999
    assert found.details["tensors_compared"] == 3  # the mask that is none is compared, too
    assert found.metrics["compile_cold_s"] > 100 * found.metrics["compiled_ms"] / 1e3


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "amp"])
def test_a_real_library_is_compared_and_timed_like_any_compiled_form(dtype, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert_compared_and_timed(measured_apart(replace(CELL, dtype=dtype), build).measurement)
    assert len(list((tmp_path / "cache").glob("aot-*/model.pt2"))) == 1
    assert not list(tmp_path.glob("aotinductor_*"))  # what was unpacked goes with the library


@pytest.mark.gpu
def test_a_library_for_a_gpu_is_measured_unless_torch_cannot_load_one(tmp_path, monkeypatch):
    cell = Cell("user", f"{__name__}:build", Phase.INFERENCE, "bfloat16", "cuda", 4, AHEAD)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (outcome,) = pooled([cell], FEW)
    assert not list(tmp_path.glob(f"{PREFIX}*"))
    found = outcome.measurement
    # A signal ended the process, and Python's stack of it is inside torch's loading of a package.
    loading = r"Current thread .*\n(?:  File .*\n)*?  File .* in (?:load_package|load_pt2|_load_aoti)\n"
    if found.status is Status.CRASHED and re.search(loading, found.log_tail or ""):
        pytest.xfail(f"torch {torch.__version__} dies where it loads AOTInductor's library")
    assert_compared_and_timed(found)
