"""A marked batch or sequence: one program for two sizes, what recompiles or is wrong at the second one, and what has none."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from collector.measure.cell import measure
from collector.vocabulary import BATCH_MARKED, MARKED, Config, Phase, Status
from collector.zoo.spec import Built
from tests.collector.measure.tiny_cells import CELL, FEW

MARKS = Config(backend="eager", dynamic=MARKED)


class Tiny(nn.Linear):
    """A layer, and a last step that gets what it made and its input."""

    def __init__(self, last=lambda made, x: made):
        super().__init__(16, 8)
        self.last = last

    def forward(self, x):
        return self.last(super().forward(x).relu(), x)


def builder(make, length=8):
    def build(batch_size, phase, device, shorter=1):
        x = torch.randn(batch_size, max(1, length // shorter), 16)
        return Built(make(), (x,), {}, lambda out, wanted: (out - wanted).square().mean(), x[..., :8].clone())

    return build


def measured(make, length=8, **changes):
    return measure(replace(CELL, **{"config": MARKS} | changes), builder(make, length), FEW).measurement


def test_one_program_serves_both_sizes_or_one_of_them_alone_is_marked():
    found = measured(Tiny, phase=Phase.TRAINING)
    assert (found.status, found.failure) == (Status.PASS, None)
    assert found.metrics["graphs"] == 1 and found.metrics["recompiles"] == 0
    own, other = found.details["sizes"]
    assert [(size["batch_size"], size["length"], size["recompiles"]) for size in (own, other)] == [(4, 8, 0), (2, 4, 0)]
    assert other["status"] == "pass" and other["compiled_ms"] > 0 and other["eager_ms"] > 0
    for dynamic, batch_size, sizes in [(BATCH_MARKED, 4, [(4, None), (2, None)]), (MARKED, 1, [(1, 8), (1, 4)])]:
        found = measured(Tiny, config=Config(backend="eager", dynamic=dynamic), batch_size=batch_size)
        assert (found.status, found.metrics["recompiles"]) == (Status.PASS, 0)
        assert [(size["batch_size"], size.get("length")) for size in found.details["sizes"]] == sizes


@pytest.mark.slow
def test_each_size_is_compared_with_a_static_program_of_that_size(own_cache):
    found = measured(Tiny, config=Config(template="triton", dynamic=MARKED))
    assert found.status is Status.PASS and found.metrics["recompiles"] == 0
    sizes = found.details["sizes"]
    assert found.metrics["over_static"] == max(size["compiled_ms"] / size["static_ms"] for size in sizes)
    # One program for both sizes, and one for each size alone.
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 3


def test_a_second_size_may_recompile_and_must_be_right_and_there_at_all():
    found = measured(lambda: Tiny(lambda made, x: made * (2 if x.shape[0] == 4 else 3)))
    assert (found.status, found.metrics["recompiles"]) == (Status.PASS, 1)
    assert len(found.details["recompile_reasons"]) == 1
    assert [size["recompiles"] for size in found.details["sizes"]] == [0, 1]
    found = measured(lambda: Tiny(lambda made, x: made + (torch.compiler.is_compiling() and x.shape[0] != 4)))
    assert found.status is Status.FAIL_ACCURACY
    assert found.failure.message.startswith("at batch 2, length 4: ")
    assert found.details["sizes"][1]["status"] == "fail_accuracy" and found.metrics["cosine"] > 0.999
    for found, reason in (
        (measured(lambda: Tiny(lambda made, x: made.view(4, 2, 4))), "tiny runs at no second size: RuntimeError"),
        (measured(Tiny, batch_size=1, length=1), "larger --batch-size"),
    ):
        assert found.status is Status.UNAVAILABLE and reason in found.failure.message
