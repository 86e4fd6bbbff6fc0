"""Switches of torch's back-ends that change kernels: set on purpose in every measuring process, and part of the testbed.

The defaults are what PyTorch's benchmark runner has in a performance run (pytorch/pytorch, benchmarks/dynamo/common.py:
`matmul.allow_tf32 = True`, `allow_fp16_bf16_reduction_math_sdp(True)`; the rest is torch's own default).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields


@dataclass(frozen=True, slots=True)
class BackendFlags:
    """Which switches are on.

    `tf32_matmul` and `tf32_cudnn`: TensorFloat-32 for float32 matrix products and for cuDNN. `reduced_math_attention`:
    attention without a fused kernel computes in the inputs' own float16 or bfloat16 and not in float32.
    `cudnn_benchmark`: cuDNN times its algorithms and takes the fastest.
    """

    tf32_matmul: bool = True
    tf32_cudnn: bool = True
    reduced_math_attention: bool = True
    cudnn_benchmark: bool = False

    def apply(self) -> None:
        """Sets the switches in this process."""
        import torch

        torch.backends.cuda.matmul.allow_tf32 = self.tf32_matmul
        torch.backends.cudnn.allow_tf32 = self.tf32_cudnn
        torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(self.reduced_math_attention)
        torch.backends.cudnn.benchmark = self.cudnn_benchmark

    def __str__(self) -> str:
        return " ".join(name for name, is_on in asdict(self).items() if is_on) or "none"

    @classmethod
    def parse(cls, words: Iterable[str]) -> BackendFlags:
        """The defaults with `NAME=on` or `NAME=off` applied. Raises `ValueError` with what to write instead."""
        known = [field.name for field in fields(cls)]
        chosen = {}
        for word in words:
            name, _, state = word.partition("=")
            if name not in known or state not in ("on", "off"):
                raise ValueError(f"{word!r} is no flag: write NAME=on or NAME=off with one of {', '.join(known)}")
            chosen[name] = state == "on"
        return cls(**chosen)
