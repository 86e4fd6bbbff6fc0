"""Switches of torch's back-ends: what is asked for is what torch then says."""

import pytest
import torch

from collector.settings import BackendFlags, Settings


def switches():
    cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
    allowed = cuda.fp16_bf16_reduction_math_sdp_allowed()
    return cuda.matmul.allow_tf32, cudnn.allow_tf32, allowed, cudnn.benchmark


def test_flags_are_applied_and_the_default_is_that_of_pytorchs_runner():
    before = switches()
    words = ["tf32_matmul=off", "tf32_cudnn=off", "reduced_math_attention=off", "cudnn_benchmark=on"]
    try:
        BackendFlags().apply()
        assert switches() == (True, True, True, False)
        BackendFlags.parse(words).apply()
        assert switches() == (False, False, False, True)
    finally:
        BackendFlags(*before).apply()


def test_settings_with_flags_are_read_back():
    settings = Settings(flags=BackendFlags.parse(["cudnn_benchmark=on"]), optimizer="adam")
    assert Settings.from_json(settings.to_json()) == settings
    assert Settings.from_json({"rounds": 5}).flags == BackendFlags()
    for word in ("tf32=on", "tf32_matmul", "tf32_matmul=true"):
        with pytest.raises(ValueError, match="write NAME=on or NAME=off with one of tf32_matmul"):
            BackendFlags.parse([word])
