"""The GPUs of a census, what only they can decide, and the names of torch that it needs."""

import pytest
import torch

from collector.census.gpu_models import (
    ASSUMED,
    GPU_MODELS,
    PAD_MM,
    TIMING,
    CensusError,
    Questions,
    assume_padding,
    find_gpu,
    find_private,
    replace_private,
)
from collector.usage_errors import ConfigError
from collector.vocabulary import short_hash


@pytest.mark.parametrize("name", ["h100", "H100", "NVIDIA H100 80GB HBM3"])
def test_a_gpu_has_a_word_and_the_name_of_its_driver(name):
    assert find_gpu(name) is GPU_MODELS["H100"]


def test_an_unknown_gpu_is_one_line_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"no device 'H10': did you mean H100"):
        find_gpu("H10")


WIDE = (
    "((torch.Size([8192, 768]), (768, 1), torch.bfloat16), (torch.Size([768, 30522]), (1, 768), torch.bfloat16), 'x')"
)
SINGLE = WIDE.replace("bfloat16", "float32")
BATCHES = "((torch.Size([768, 196, 64]), (1, 1, 1), torch.float16), (torch.Size([768, 64, 196]), (1, 1, 1), torch.float16), 'x')"
ROWS = "((torch.Size([30522, 8192]), (1, 30522), torch.bfloat16), (torch.Size([8192, 768]), (768, 1), torch.bfloat16), 'x')"
THIN = "((torch.Size([14, 16800, 64]), (1, 1, 1), torch.bfloat16), (torch.Size([14, 64, 14]), (1, 1, 1), torch.bfloat16), 'x')"


@pytest.fixture
def inductor(monkeypatch):
    """Keeps what `attach` replaces, and puts it back."""
    from torch._inductor.fx_passes import pad_mm
    from torch._inductor.runtime import benchmarking

    monkeypatch.setattr(pad_mm, "get_cached_should_pad", pad_mm.get_cached_should_pad)
    for kind in (benchmarking.Benchmarker, benchmarking.TritonBenchmarker, benchmarking.InductorBenchmarker):
        for name in ("benchmark", "benchmark_gpu", "benchmark_cpu"):
            if name in vars(kind):
                monkeypatch.setattr(kind, name, vars(kind)[name])
    return pad_mm, benchmarking


def test_a_known_answer_names_its_source(inductor):
    questions = Questions({short_hash(WIDE): (False, "night-1")}).attach()
    assert inductor[0].get_cached_should_pad(WIDE) is False
    (question,) = questions.asked.values()
    assert (question.kind, question.answer, question.source) == (PAD_MM, False, "night-1")


def test_an_open_question_is_assumed(inductor):
    questions = Questions().attach()
    assert inductor[0].get_cached_should_pad(WIDE) is True
    assert inductor[0].get_cached_should_pad(WIDE) is True
    (question,) = questions.asked.values()
    assert question.source == ASSUMED


def test_a_timing_is_refused_and_noted(inductor):
    questions = Questions().attach()
    with pytest.raises(RuntimeError, match="times nothing"):
        inductor[1].benchmarker.benchmark_gpu(lambda: None)
    assert TIMING in questions.asked


@pytest.mark.parametrize(
    ("key", "answer"), [(WIDE, True), (SINGLE, False), (BATCHES, True), (THIN, False), (ROWS, False), ("?", False)]
)
def test_the_assumption_depends_on_the_product_alone(key, answer):
    assert assume_padding(key) is answer


@pytest.mark.parametrize("path", ["torch:no_such_name", "torch.no_such_module:name", "torch:Tensor.no.such"])
def test_a_missing_name_is_one_line(path):
    with pytest.raises(CensusError) as caught:
        find_private(path)
    assert str(caught.value).startswith(f"torch {torch.__version__} has no {path.replace(':', '.')}")
    assert "\n" not in str(caught.value)


def test_a_missing_name_is_not_made(monkeypatch):
    with pytest.raises(CensusError):
        replace_private("torch:no_such_name", 1)
    assert not hasattr(torch, "no_such_name")
