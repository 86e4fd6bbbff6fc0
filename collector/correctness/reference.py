"""The reference that judges a program: the model in a higher precision, on the device or else on the host's processor."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from collector.correctness.room import Room
from collector.correctness.snapshot import Snapshot
from collector.failures import classify
from collector.measure.memory import free_copies, give_back_unused, is_full
from collector.measure.program import Subject
from collector.process.outcome import Outcome
from collector.vocabulary import BY_COSINE, ON_THE_CPU, Phase, Stage, Status

#: Seconds that a reference on the host's processor may take: a model of a billion parameters needs 20 for a forward pass over a
#: thousand tokens on eight cores.
CPU_LIMIT_S = 120.0
#: The part of a training step that its forward pass is: a backward pass takes twice as long.
_FORWARD_PART = 1 / 3


class TooSlowError(RuntimeError):
    """A reference on the host's processor that takes too long."""


@dataclass(frozen=True, slots=True)
class Reference:
    """The outputs of a reference and what it is called; no outputs where there is none.

    `lacked` says why there is none, where that is for want of memory or time: a limit of the check and not of the model.
    """

    by: str = BY_COSINE
    outputs: Snapshot | None = None
    lacked: str | None = None


def reference_of(outcome: Outcome, subject: Subject, room: Room) -> Reference:
    """Return the most precise reference that there is room for, and note in the outcome why others were not taken.

    A program in reduced precision has a small one where float64 takes much memory. Where none has room on the device, the least
    precise one is made on the host's processor.
    """
    cell, details = outcome.measurement.cell, outcome.measurement.details
    higher = {"float64": torch.float64} | ({"float32": torch.float32} if subject.lowest_dtype != "float32" else {})
    lacked, ran_out, least = "", False, list(higher)[-1]
    for name, dtype in higher.items():
        give_back_unused(cell.device)
        needs = room.for_reference(_growth(subject, dtype))
        if name != least and not room.is_small(needs):
            details[f"no_{name}"] = f"it would take {_gigabytes(needs)} of device memory: float32 is precise enough"
            continue
        if room.is_too_large(needs):
            details[f"no_{name}"] = lacked = f"it would take {_gigabytes(needs)} of device memory, more than there is"
            continue
        try:
            return Reference(name, room.run(needs, partial(_outputs_of_twin, subject, dtype)))
        except Exception as error:
            details[f"no_{name}"] = reason = _reason(error)
            if classify(error, Stage.CORRECTNESS, is_full(cell.device))[0] is Status.OOM:
                details[f"no_room_for_{name}"] = ran_out = True
                lacked = reason
        finally:
            give_back_unused(cell.device)
    if not lacked:
        return Reference()
    if room.host_memory is not None:
        try:
            return Reference(f"{least} {ON_THE_CPU}", _outputs_on_cpu(subject, higher[least], room))
        except Exception as error:
            details[f"no_{least}_on_cpu"] = reason = _reason(error)
            lacked = f"{least}: {lacked}; {ON_THE_CPU}: {reason}"
    # Beside others the memory may have been theirs: who runs several cells at once measures this one again alone.
    outcome.lacked_room |= ran_out
    return Reference(lacked=lacked)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:300]}"


def _growth(subject: Subject, dtype: torch.dtype) -> float:
    """Return by how much wider numbers of a dtype are than the cell's; autocast computes in two bytes."""
    known = getattr(torch, subject.lowest_dtype, None)
    width = known.itemsize if isinstance(known, torch.dtype) else 2
    return float(dtype.itemsize / width)


def _gigabytes(size: int | None) -> str:
    return f"{(size or 0) / 1e9:.1f} GB"


def _outputs_of_twin(subject: Subject, dtype: torch.dtype) -> Snapshot:
    twin = subject.twin(dtype)
    return twin.outputs(twin.eager)


def _outputs_on_cpu(subject: Subject, dtype: torch.dtype, room: Room) -> Snapshot:
    """Run a copy of the model on the host's processor, with the device given back meanwhile."""
    needs, left = room.on_host(_growth(subject, dtype)), room.host_memory() if room.host_memory else None
    if not room.fits_on_host(needs, left):
        raise MemoryError(f"it would take {_gigabytes(needs)} of the host's memory, which has {_gigabytes(left)} left")
    limit = CPU_LIMIT_S * (_FORWARD_PART if subject.phase is Phase.TRAINING else 1.0)
    until = time.monotonic() + limit
    twin = subject.twin(dtype, "cpu")
    _watch(twin.model, until)
    try:
        with room.release():
            return twin.outputs(twin.eager)
    finally:
        del twin
        free_copies(room.device)


def _watch(model: nn.Module, until: float) -> None:
    """Make a model raise `TooSlowError` where one of its modules is called after a time."""

    def refuse(*_: Any) -> None:
        if time.monotonic() > until:
            raise TooSlowError(f"more than {CPU_LIMIT_S:.0f} s on the host's processor")

    for module in model.modules():
        module.register_forward_pre_hook(refuse)
