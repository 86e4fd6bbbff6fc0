"""The GPUs of a census, what only they can decide, its names of torch, its preloaded runtime, and its fake modules."""

import os

import pytest
import torch
from torch import nn
from torch._inductor.fx_passes import pad_mm
from torch._inductor.runtime import benchmarking

from collector.census import gpu_models
from collector.census.generating import _Moving
from collector.usage_errors import ConfigError
from collector.vocabulary import short_hash

WIDE = (
    "((torch.Size([8192, 768]), (768, 1), torch.bfloat16), (torch.Size([768, 30522]), (1, 768), torch.bfloat16), 'x')"
)
SINGLE = WIDE.replace("bfloat16", "float32")
BATCHES = "((torch.Size([768, 196, 64]), (1, 1, 1), torch.float16), (torch.Size([768, 64, 196]), (1, 1, 1), torch.float16), 'x')"
ROWS = "((torch.Size([30522, 8192]), (1, 30522), torch.bfloat16), (torch.Size([8192, 768]), (768, 1), torch.bfloat16), 'x')"
THIN = "((torch.Size([14, 16800, 64]), (1, 1, 1), torch.bfloat16), (torch.Size([14, 64, 14]), (1, 1, 1), torch.bfloat16), 'x')"


@pytest.mark.parametrize(
    ("known", "answer", "source"),
    [({short_hash(WIDE): (False, "night-1")}, False, "night-1"), ({}, True, gpu_models.ASSUMED)],
)
def test_an_answer_is_known_or_assumed_and_a_timing_is_refused(monkeypatch, known, answer, source):
    # What `attach` replaces is put back.
    monkeypatch.setattr(pad_mm, "get_cached_should_pad", pad_mm.get_cached_should_pad)
    for kind in (benchmarking.Benchmarker, benchmarking.TritonBenchmarker, benchmarking.InductorBenchmarker):
        for name in vars(kind).keys() & {"benchmark", "benchmark_gpu", "benchmark_cpu"}:
            monkeypatch.setattr(kind, name, vars(kind)[name])
    questions = gpu_models.Questions(known).attach()
    assert {pad_mm.get_cached_should_pad(WIDE) for _ in range(2)} == {answer}
    (question,) = questions.asked.values()
    assert (question.kind, question.answer, question.source) == (gpu_models.PAD_MM, answer, source)
    with pytest.raises(RuntimeError, match="times nothing"):
        benchmarking.benchmarker.benchmark_gpu(lambda: None)
    assert gpu_models.TIMING in questions.asked


@pytest.mark.parametrize(
    ("key", "answer"), [(WIDE, True), (SINGLE, False), (BATCHES, True), (THIN, False), (ROWS, False), ("?", False)]
)
def test_the_assumption_depends_on_the_product_alone(key, answer):
    assert gpu_models.assume_padding(key) is answer


def test_a_gpu_has_a_word_and_a_missing_name_of_torch_is_one_line():
    assert {gpu_models.find_gpu(name).name for name in ("h100", "H100", "NVIDIA H100 80GB HBM3")} == {
        gpu_models.GPU_MODELS["H100"].name
    }
    with pytest.raises(ConfigError, match=r"no device 'H10': did you mean H100"):
        gpu_models.find_gpu("H10")
    for path in ("torch:no_such_name", "torch.no_such_module:name", "torch:Tensor.no.such"):
        with pytest.raises(gpu_models.CensusError) as caught:
            gpu_models.find_private(path)
        assert str(caught.value).startswith(f"torch {torch.__version__} has no {path.replace(':', '.')}")
        assert "\n" not in str(caught.value)
    with pytest.raises(gpu_models.CensusError):
        gpu_models.replace_private("torch:no_such_name", 1)
    assert not hasattr(torch, "no_such_name")


H100, A100 = gpu_models.GPU_MODELS["H100"], gpu_models.GPU_MODELS["A100"]


def test_a_runtime_is_built_once_for_each_gpu_or_it_is_said_why_not(tmp_path, monkeypatch):
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "cuda_runtime_api.h").write_text("/* header */")
    monkeypatch.setattr(gpu_models, "_header_folders", lambda: iter([tmp_path / "include"]))
    # A compiler that notes its calls and writes a file; `refuse` in its folder makes it fail.
    program = tmp_path / "bin" / "cc"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n[ -e {tmp_path}/refuse ] && echo "bad source" >&2 && exit 1\n'
        'while [ "$1" != -o ]; do shift; done\necho built > "$2"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CC", raising=False)
    first = gpu_models.build_runtime(H100, tmp_path / "cache")
    assert gpu_models.build_runtime(H100, tmp_path / "cache") == first
    assert gpu_models.build_runtime(A100, tmp_path / "cache") != first
    calls = (tmp_path / "calls").read_text().splitlines()
    assert len(calls) == 2
    assert '-DGPU_NAME="NVIDIA H100 80GB HBM3"' in calls[0]
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: os.getuid() + 1)  # who finds another user's library loads none of it
        assert gpu_models.build_runtime(H100, tmp_path / "cache") == first
    assert len((tmp_path / "calls").read_text().splitlines()) == 3
    (tmp_path / "include" / "cuda_runtime_api.h").write_text("/* another CUDA */")
    assert gpu_models.build_runtime(H100, tmp_path / "cache") != first

    def said(words):
        with pytest.raises(gpu_models.CensusError, match=words):
            gpu_models.build_runtime(H100, tmp_path / "refused")

    (tmp_path / "refuse").touch()
    said("does not compile the runtime of a census: bad source")
    assert not list((tmp_path / "refused").iterdir())
    with pytest.raises(gpu_models.CensusError, match="cannot be written: Not a directory: "):
        gpu_models.build_runtime(H100, tmp_path / "calls" / "cache")
    with monkeypatch.context() as patch:
        patch.setattr(gpu_models, "_header_folders", lambda: iter(()))
        said("needs torch's wheel for CUDA")
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    said("needs a C compiler and there is none: install")


def test_a_shared_weight_stays_shared(monkeypatch):
    moving, model = _Moving(), nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    monkeypatch.setattr(nn.Module, "_apply", lambda module, fn, recurse=True: moving.apply(module, fn, recurse))
    model.double()
    assert model[1].weight is model[0].weight
    assert model[0].weight.dtype is torch.float64
