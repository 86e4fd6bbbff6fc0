"""The reference that judges a program: the model in a higher precision, if a comparison's memory allows it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from traceback import clear_frames
from typing import Any, TypeVar

import torch
from torch import nn

from collector.correctness.snapshot import Snapshot
from collector.device import Device, device_named
from collector.failures import classify, reason_of
from collector.measure.memory import free_copies
from collector.measure.program import Subject
from collector.process.outcome import Outcome
from collector.vocabulary import BY_COSINE, ON_THE_CPU, Phase, Stage, Status

T = TypeVar("T")

#: The part of a GPU's memory up to which a program in reduced precision has a float64 reference, by estimate. Above it the
#: reference has float32, 2^16 times finer than bfloat16, so that cells beside this one can go on: at a quarter, cells of a night
#: with 15 workers asked for 10 to 20 GB each and waited for each other.
_SMALL_PART = 0.05
#: The part of the memory of all cells together up to which a reference is tried at all.
_PART = 0.95
#: The factor on an estimate for the allocator's fragments and the workspaces of libraries.
_MARGIN = 1.1
#: The most tries of an action that runs out of memory, each with twice as much.
_TRIES = 3
#: Snapshots of outputs, gradients and state that are held beside a call, in multiples of the memory that stays between calls.
_KEPT = 3
#: The memory of a reference on the host's processor, with such snapshots, in multiples of its peak.
_SNAPSHOTS = 1.5

#: The part of the host's free memory that a reference on the host's processor may take: cells beside this one need some too.
_HOST_PART = 0.5

#: A function that enters a hold of the device for a purpose, with a number of bytes in all.
Hold = Callable[[str, int | None], AbstractContextManager[None]]


def _no_hold(_: str, __: int | None) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass(frozen=True, slots=True)
class Room:
    """The device memory of a comparison, in bytes.

    `eager_peak` is the most that an eager call holds, weights and inputs included, 0 if unknown. `total` is the device's memory
    and `for_cells` the memory that all cells may use together, each None if unknown. `release` enters a context in which a held
    device is given back for some time. `host_memory` returns the free bytes of the host's memory; it is None for a cell on the
    CPU, which has no other place for a reference. `promised` returns the device memory that is promised for this check.
    """

    hold: Hold = _no_hold
    device: str = "cpu"
    eager_peak: int = 0
    total: int | None = None
    for_cells: int | None = None
    release: Callable[[], AbstractContextManager[None]] = nullcontext
    host_memory: Callable[[], int | None] | None = None
    promised: Callable[[], int | None] = lambda: None

    @property
    def reserved(self) -> int:
        """The device memory in bytes that torch's allocator has reserved in this process."""
        return device_named(self.device).reserved()

    def for_calls(self) -> int | None:
        """Return the bytes in all that eager and compiled calls need if their outputs are kept; None if unknown.

        Outputs, gradients and state of one call are about as large as the memory that stays between calls.
        """
        if not self.eager_peak:
            return None
        stays = device_named(self.device).allocated() or 0
        return self.reserved + int(_MARGIN * max(0, self.eager_peak - stays)) + _KEPT * stays

    def for_reference(self, growth: float) -> int | None:
        """Return the bytes in all that a reference with numbers `growth` times as wide needs; None if unknown."""
        return int(_MARGIN * growth * self.eager_peak) + self.reserved if self.eager_peak else None

    def is_too_large(self, needs: int | None) -> bool:
        """Return whether this many bytes never fit, however long the cell waits; False if unknown."""
        limit = min((size for size in (self.total, self.for_cells) if size), default=None)
        return needs is not None and limit is not None and needs > _PART * limit

    def is_small(self, needs: int | None) -> bool:
        """Return whether this many bytes are a small part of the device's memory; True if unknown."""
        return needs is None or self.total is None or needs <= _SMALL_PART * self.total

    def run(self, needs: int | None, action: Callable[[], T]) -> T:
        """Run an action within `needs` bytes of device memory; if they run out, within twice, then four times as many.

        `needs` is an estimate; a larger promise is used instead. The last try has no limit. Objects that the action made and
        does not return are freed before the device is given back. Raises the action's error.
        """
        sizes, device = [needs], device_named(self.device)
        while needs is not None and len(sizes) < _TRIES and not self.is_too_large(needs := 2 * needs):
            sizes.append(needs)
        for number, size in enumerate(sizes, 1):
            is_last = number == len(sizes)
            with self.hold("device", size):
                try:
                    with nullcontext() if is_last or size is None else device.limited(partial(self._limit, size)):
                        return action()
                except Exception as error:
                    oom = classify(error, Stage.CORRECTNESS, device.is_full())[0] is Status.OOM
                    clear_frames(error.__traceback__)  # they hold the objects that the action made
                    if not oom or is_last:
                        raise
                finally:
                    free_copies(device)
        raise AssertionError("unreachable")

    def _limit(self, size: int) -> int:
        return max(size, self.promised() or 0)

    def on_host(self, growth: float) -> int | None:
        """Return the bytes of the host's memory that a reference on the host's processor needs; None if unknown."""
        return int(_SNAPSHOTS * growth * self.eager_peak) if self.eager_peak else None

    def fits_on_host(self, needs: int | None, left: int | None) -> bool:
        """Return whether `needs` bytes of the host's memory may be taken if `left` are free; True if either is unknown."""
        return needs is None or left is None or needs <= _HOST_PART * left


#: The most seconds of a reference on the host's processor: a model of a billion parameters needs 20 for a forward pass over a
#: thousand tokens on eight cores.
CPU_LIMIT_S = 120.0
#: The part of a training step's time that its forward pass takes: a backward pass takes twice as long.
_FORWARD_PART = 1 / 3


class TooSlowError(RuntimeError):
    """A reference on the host's processor that takes too long."""


@dataclass(frozen=True, slots=True)
class Reference:
    """The outputs of a reference, and its name `by`; the outputs are None if there is no reference.

    `lacked` says why there is none if memory or time was lacking, which is a limit of the check and not of the model.
    `fails_in_float64` says whether the model was tried in float64 and cannot be computed in it.
    """

    by: str = BY_COSINE
    outputs: Snapshot | None = None
    lacked: str | None = None
    fails_in_float64: bool = False


def reference_of(outcome: Outcome, subject: Subject, room: Room) -> Reference:
    """Return the most precise reference that there is room for, and record in the outcome why others were not taken.

    A program in reduced precision gets a float32 reference if float64 takes much memory. If no reference has room on the
    device, the least precise one is made on the host's processor.
    """
    details, device = outcome.measurement.details, device_named(outcome.measurement.cell.device)
    higher = {"float64": torch.float64} | ({"float32": torch.float32} if subject.lowest_dtype != "float32" else {})
    lacked, ran_out, fails, least = "", False, False, list(higher)[-1]
    for name, dtype in higher.items():
        device.give_back_unused()
        needs = room.for_reference(_growth(subject, dtype))
        if name != least and not room.is_small(needs):
            details[f"no_{name}"] = f"it would take {_gigabytes(needs)} of device memory: float32 is precise enough"
            continue
        if room.is_too_large(needs):
            details[f"no_{name}"] = lacked = f"it would take {_gigabytes(needs)} of device memory, more than there is"
            continue
        try:
            return Reference(
                name, room.run(needs, partial(_outputs_of_twin, subject, dtype, device)), fails_in_float64=fails
            )
        except Exception as error:
            details[f"no_{name}"] = reason = reason_of(error)
            if classify(error, Stage.CORRECTNESS, device.is_full())[0] is Status.OOM:
                details[f"no_room_for_{name}"] = ran_out = True
                lacked = reason
            else:
                fails = fails or name == "float64"
        finally:
            device.give_back_unused()
    if not lacked:
        return Reference()
    if room.host_memory is not None:
        try:
            return Reference(f"{least} {ON_THE_CPU}", _outputs_on_cpu(subject, higher[least], room))
        except Exception as error:
            details[f"no_{least}_on_cpu"] = reason = reason_of(error)
            lacked = f"{least}: {lacked}; {ON_THE_CPU}: {reason}"
    # Other cells may have held the memory: a parent that runs several cells at once measures this cell again alone.
    outcome.lacked_room |= ran_out
    return Reference(lacked=lacked)


def _growth(subject: Subject, dtype: torch.dtype) -> float:
    """Return how many times as wide a dtype's numbers are as the cell's; autocast computes in two bytes."""
    known = getattr(torch, subject.lowest_dtype, None)
    width = known.itemsize if isinstance(known, torch.dtype) else 2
    return float(dtype.itemsize / width)


def _gigabytes(size: int | None) -> str:
    return f"{(size or 0) / 1e9:.1f} GB"


def _outputs_of_twin(subject: Subject, dtype: torch.dtype, device: Device) -> Snapshot:
    twin = subject.twin(dtype)
    with device.exact_products():
        return twin.outputs(twin.eager)


def _outputs_on_cpu(subject: Subject, dtype: torch.dtype, room: Room) -> Snapshot:
    """Run a copy of the model on the host's processor, while the device is given back."""
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
        free_copies(device_named(room.device))


def _watch(model: nn.Module, until: float) -> None:
    """Make a model raise `TooSlowError` if one of its modules is called after `until` (of `time.monotonic`)."""

    def refuse(*_: Any) -> None:
        if time.monotonic() > until:
            raise TooSlowError(f"more than {CPU_LIMIT_S:.0f} s on the host's processor")

    for module in model.modules():
        module.register_forward_pre_hook(refuse)
