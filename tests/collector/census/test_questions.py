"""What only a GPU decides is a question with an answer and its source."""

import pytest

from collector.census.questions import ASSUMED, PAD_MM, TIMING, Questions, assume_padding
from collector.vocabulary import short_hash

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
