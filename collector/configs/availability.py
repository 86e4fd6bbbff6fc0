"""Whether this machine and this torch have what a config needs: CUTLASS, TMA, a CUDA device, frozen weights."""

from __future__ import annotations

import importlib
import shutil
from typing import Any

from collector.templates import Effective
from collector.usage_errors import ConfigError, UnavailableError
from collector.vocabulary import AHEAD_OF_TIME, Phase

#: Where torch keeps the function that looks for CUTLASS: since 2.11, and before.
_CUTLASS_MODULES = ("torch._inductor.codegen.cutlass.utils", "torch._inductor.codegen.cuda.cutlass_utils")


def check(effective: Effective, device: str, phase: Phase, dtype: str) -> None:
    """Raises `UnavailableError` if a component is missing, and `ConfigError` if the options contradict the cell."""
    options = effective.options
    if effective.config.backend == AHEAD_OF_TIME:
        from collector.measure.ahead_of_time import check_ahead_of_time

        check_ahead_of_time(options, effective.config.dynamic, phase)
    if options.get("freezing") and phase is Phase.TRAINING:
        raise ConfigError(
            "freezing inlines weights as constants and cannot act while gradients are wanted: use inference"
        )
    if options and device == "cpu" and not effective.changed and effective.inert:
        raise UnavailableError(
            f"{', '.join(sorted(effective.inert))} act on a GPU only: on a CPU this is the default program"
        )
    if options.get("triton.enable_persistent_tma_matmul"):
        _check_tma(device)
    if "CUTLASS" in str(options.get("max_autotune_gemm_backends", "")).upper():
        _check_cutlass(device, dtype)


def _check_tma(device: str) -> None:
    import torch

    if device != "cuda" or not torch.cuda.is_available():
        raise UnavailableError("TMA needs an NVIDIA GPU of compute capability 9.0 or newer")
    capability = torch.cuda.get_device_capability()
    if capability < (9, 0):
        raise UnavailableError(
            f"TMA needs compute capability 9.0 or newer, this GPU has {capability[0]}.{capability[1]}"
        )
    triton: Any = importlib.import_module("torch.utils._triton")
    probe = getattr(triton, "has_triton_tma_device", None) or getattr(triton, "has_triton_tma", None)
    if probe is None or not probe():
        raise UnavailableError("the installed Triton has no TMA descriptors: update triton")


def _check_cutlass(device: str, dtype: str) -> None:
    if device != "cuda":
        raise UnavailableError("CUTLASS needs an NVIDIA GPU")
    if shutil.which("nvcc") is None:
        raise UnavailableError("CUTLASS kernels are built with nvcc, which is not on the PATH")
    if not _try_import_cutlass():
        raise UnavailableError(
            "no CUTLASS checkout found: set TORCHINDUCTOR_CUTLASS_DIR to one (python/cutlass_library in it)"
        )
    if dtype == "float32":
        raise UnavailableError("Inductor's CUTLASS back-end takes bfloat16 and float16, not float32")


def _try_import_cutlass() -> bool:
    for name in _CUTLASS_MODULES:
        try:
            return bool(importlib.import_module(name).try_import_cutlass())
        except (ImportError, AttributeError):
            continue
    return False
