"""Shorthands for `ModelSpec.batch_sizes`."""

from __future__ import annotations

from collections.abc import Mapping

from collector.vocabulary import Phase
from collector.zoo.spec import ACCELERATOR, BOTH

BatchSizes = Mapping[Phase, Mapping[str, int]]


def same_in_both_phases(accelerator: int, cpu: int | None) -> BatchSizes:
    """One batch size per device for inference and training; `cpu=None` where a CPU is too slow for the model."""
    sizes = {ACCELERATOR: accelerator} if cpu is None else {ACCELERATOR: accelerator, "cpu": cpu}
    return dict.fromkeys(BOTH, sizes)
