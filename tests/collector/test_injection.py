"""Known slow-downs: as long as asked for, and beside the cell's own metrics."""

from __future__ import annotations

import time

import pytest
import torch

from collector.injection import delayed
from collector.settings import Settings


@pytest.mark.parametrize("extra_ms", [0.0, 5.0, 20.0])
def test_a_delayed_call_gives_the_same_and_takes_longer_by_what_was_asked(extra_ms):
    began = time.perf_counter()
    assert delayed(lambda: "made", extra_ms, "cpu")() == "made"
    assert 1e3 * (time.perf_counter() - began) >= extra_ms


def test_less_than_no_delay_is_an_error():
    with pytest.raises(ValueError, match=r"-1.0 ms"):
        delayed(lambda: None, -1.0, "cpu")


@pytest.mark.gpu
@pytest.mark.parametrize("extra_ms", [0.05, 1.0, 10.0])
def test_on_a_gpu_the_delay_is_a_kernel_of_that_length(extra_ms):
    call = delayed(lambda: None, extra_ms, "cuda")
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    call()
    begin.record()
    call()
    end.record()
    torch.cuda.synchronize()
    assert begin.elapsed_time(end) == pytest.approx(extra_ms, rel=0.1, abs=0.02)


def test_settings_keep_what_is_injected_and_older_ones_inject_nothing():
    settings = Settings(rounds=7, inject=(0.02, 0.1))
    assert Settings.from_json({**settings.to_json(), "inject": [0.02, 0.1]}) == settings
    older = settings.to_json()
    del older["inject"]
    assert Settings.from_json(older).inject == ()
