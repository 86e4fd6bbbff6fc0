"""Keeps others off the device while Inductor times candidates, so that autotuning picks by speed and not by traffic.

Inductor times kernels in two places: GEMM and convolution choices through `benchmarking.Benchmarker.benchmark_gpu`, a
Triton kernel's configurations through `CachingAutotuner.benchmark_all_configs`. Both exist since torch 2.7; where one is
missing, that torch tunes without the hold.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol


class Holder(Protocol):
    """Something that can keep the device for this process."""

    def exclusive(self, purpose: str = "measure") -> AbstractContextManager[None]:
        """Entered while the device must belong to this process alone."""


def hold_device_while_tuning(holder: Holder) -> None:
    """Wraps Inductor's timing functions in this process; does nothing where there is no Triton."""
    for owner, name in _timing_functions():
        setattr(owner, name, _holding(getattr(owner, name), holder))


def _timing_functions() -> list[tuple[type, str]]:
    found: list[tuple[type, str]] = []
    for module_name, name in (
        ("torch._inductor.runtime.benchmarking", "benchmark_gpu"),
        ("torch._inductor.runtime.triton_heuristics", "benchmark_all_configs"),
    ):
        try:
            module: Any = importlib.import_module(module_name)
        except ImportError:
            continue
        classes = (item for _, item in inspect.getmembers(module, inspect.isclass) if item.__module__ == module_name)
        found += [(item, name) for item in classes if name in vars(item)]
    return found


def _holding(function: Callable[..., Any], holder: Holder) -> Callable[..., Any]:
    @functools.wraps(function)
    def held(*args: Any, **kwargs: Any) -> Any:
        with holder.exclusive("tune"):
            return function(*args, **kwargs)

    return held
