"""Configs that mark the batch and the sequence as dynamic: the marks, and the measurement at a second size.

The dynamic dimensions are not declared: the model's inputs are built at two sizes, and the dimensions that differ are marked. The
marks are `torch._dynamo.maybe_mark_dynamic`, as in PyTorch's runner with `--dynamic-batch-only`: a program that can only have one
size is compiled again for the second size, which is counted, instead of failing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import torch
from torch.utils import _pytree

from collector.correctness.checking import check
from collector.correctness.reference import Room
from collector.failures import classify
from collector.measure.program import Inputs, Subject, seed_everything
from collector.measure.timing import garbage_collection_off, interleaved, relative_half_width, settle, timed_s
from collector.process.outcome import Outcome
from collector.settings import Settings
from collector.templates import Effective
from collector.usage_errors import UnavailableError
from collector.vocabulary import BATCH_MARKED, MARKS, OWN_BATCH, Cell, Measurement, Stage, Status
from collector.zoo.spec import Built

Call = Callable[[], Any]
Hold = Callable[[str], AbstractContextManager[None]]
#: The dimensions to mark, for each leaf of the inputs.
Dimensions = list[tuple[int, ...]]
_ERRORS = ("error_rmse_ratio", "error_margin", "cosine")


@dataclass(slots=True)
class Size:
    """Inputs of one size, marked for the dynamic program, and the results that were measured with them.

    `length` is the length of the sequences if it differs between the two sizes, else None.
    """

    batch_size: int
    length: int | None
    inputs: Inputs
    measured: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"batch {self.batch_size}" + (f", length {self.length}" if self.length else "")

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object of the size and the results at this size."""
        length = {"length": self.length} if self.length else {}
        return {"batch_size": self.batch_size, **length, **self.measured}


@dataclass(slots=True)
class TwoSizes:
    """The cell's own size and another size, whose inputs wait on the CPU without marks until they are needed."""

    subject: Subject
    own: Size
    other: Size
    dimensions: Dimensions
    is_waiting: bool = True

    @property
    def details(self) -> list[dict[str, Any]]:
        """The sizes as a measurement's details have them, the cell's own first."""
        return [self.own.to_json(), self.other.to_json()]

    def enter_other(self, compiled: Call, warmups: int, device: str, hold: Hold) -> None:
        """Call the dynamic program at the other size for the first time: any compilation in this call is a recompilation."""
        call = self.subject.on(self._other_inputs(), compiled)
        self.other.measured["first_call_s"] = round(timed_s(call, device), 3)
        with hold("device"):
            for _ in range(warmups):
                call()

    def _other_inputs(self) -> Inputs:
        if self.is_waiting:
            self.other.inputs = marked(self.subject.moved(self.other.inputs), self.dimensions)
            self.is_waiting = False
        return self.other.inputs

    def compare_with_static(
        self, compiled: Call, effective: Effective, settings: Settings, device: str, hold: Hold
    ) -> None:
        """Time eager, the dynamic program and a static program of each size in turn, at both sizes.

        The static programs are compiled in this process and share no compilation with the dynamic one: another `dynamic` is
        another back-end to Dynamo. This holds for Inductor only, so other back-ends get no static program.
        """
        subject = self.subject
        static = subject.compiled(replace(effective, config=replace(effective.config, dynamic=False)))
        for size in (self.own, self.other):
            plain = unmarked(size.inputs)
            calls = {"eager_ms": subject.on(plain, subject.eager), "compiled_ms": subject.on(size.inputs, compiled)}
            if effective.config.backend == "inductor":
                calls["static_ms"] = subject.on(plain, static)
                calls["static_ms"]()
            with hold("device"):
                for _ in range(settings.warmups):
                    for call in calls.values():
                        call()
            with hold("measure"), garbage_collection_off():
                settle(calls["eager_ms"], calls["compiled_ms"], device)
                limits = settings.rounds, settings.sample_limit_s, settings.precision
                taken = interleaved(tuple(calls.values()), device, *limits)
            samples = {name: form.ms for name, form in zip(calls, taken, strict=True)}
            size.measured |= {name: round(median(ms), 6) for name, ms in samples.items()}
            if widths := [width for ms in samples.values() if (width := relative_half_width(ms)) is not None]:
                size.measured["precision"] = round(max(widths), 5)
        subject.place(self.own.inputs)

    def over_static(self) -> float | None:
        """Return the larger ratio, over both sizes, of the dynamic to the static latency; None without a static program."""
        ratios = [
            size.measured["compiled_ms"] / size.measured["static_ms"]
            for size in (self.own, self.other)
            if size.measured.get("static_ms")
        ]
        return max(ratios, default=None)

    def check_other(self, outcome: Outcome, compiled: Call, effective: Effective, room: Room) -> None:
        """Compare the dynamic program's outputs with eager's at the other size; a failure names this size."""
        inputs = self._other_inputs()
        self.subject.place(inputs)
        self.subject.state.follow((inputs.args, inputs.kwargs, inputs.targets))
        there = Outcome(Measurement(outcome.measurement.cell, Status.PASS, "", 0.0))
        check(there, self.subject, compiled, effective, outcome.measurement.details.get("tolerance"), room)
        found = there.measurement
        outcome.lacked_room |= there.lacked_room
        self.other.measured |= {"status": found.status.value}
        self.other.measured |= {name: found.metrics[name] for name in _ERRORS if name in found.metrics}
        if found.failure:
            found.failure.message = f"at {self.other}: {found.failure.message}"
            outcome.measurement.status, outcome.measurement.failure = found.status, found.failure


#: Reasons why there is nothing to mark, by the batch size of a cell.
_HINTS = {
    1: ": torch compiles for a batch of 1 alone, take a larger --batch-size",
    OWN_BATCH: ": its function makes one size, let it take batch_size",
}


def load(cell: Cell, build: Callable[..., Built], optimizer: str) -> tuple[Subject, TwoSizes | None]:
    """Build the model of a cell on its device; add a second size, and marks on its inputs, if the config asks for them.

    The model is the one that was built for the first size. Raises `UnavailableError` if nothing can be marked, or the model
    runs at no second size.
    """
    subject = Subject(cell, build(cell.batch_size, cell.phase, cell.device), optimizer)
    if cell.config.dynamic not in MARKS:
        return subject, None
    try:
        waiting, (own, other), dimensions = _second_size(subject, cell, build)
    except UnavailableError:
        raise
    except Exception as error:
        if classify(error, Stage.LOAD_MODEL)[0] is Status.OOM:
            raise
        line = (str(error).strip().splitlines() or [""])[0]
        raise UnavailableError(f"{cell.model} runs at no second size: {type(error).__name__}: {line}") from error
    subject.release_gradients()
    subject.state.follow((subject.inputs.args, subject.inputs.kwargs, subject.inputs.targets))
    return subject, TwoSizes(subject, Size(*own, marked(subject.inputs, dimensions)), Size(*other, waiting), dimensions)


def _second_size(
    subject: Subject, cell: Cell, build: Callable[..., Built]
) -> tuple[Inputs, list[tuple[int, int | None]], Dimensions]:
    """Build inputs of the second size on the CPU; return them, batch and length of both sizes, and the dimensions that differ."""
    seed_everything()
    batches = cell.batch_size, other_batch(cell.batch_size)
    shorter = 1 if cell.config.dynamic == BATCH_MARKED else 2
    built = build(batches[1], cell.phase, cell.device, shorter=shorter)
    waiting, own = Inputs(built.args, built.kwargs, built.targets), subject.inputs
    leaves = _leaves(own), _leaves(waiting)
    if len(leaves[0]) != len(leaves[1]):
        raise UnavailableError(f"the inputs of {cell.model} have another structure at a batch of {batches[1]}")
    dimensions = [_differing(*pair) for pair in zip(*leaves, strict=True)]
    if not any(dimensions):
        hint, what = _HINTS.get(cell.batch_size, ""), "a batch" if shorter == 1 else "a batch or a sequence"
        raise UnavailableError(f"no input of {cell.model} has {what} to mark{hint}")
    pairs = [(a.shape[d], b.shape[d]) for a, b, found in zip(*leaves, dimensions, strict=True) for d in found]
    lengths = next((pair for pair in pairs if pair != batches), (None, None))
    subject.on(subject.moved(waiting), subject.eager)()
    subject.place(own)
    return waiting, list(zip(batches, lengths, strict=True)), dimensions


def other_batch(batch_size: int) -> int:
    """Return the batch of the second size: half the first, or twice a first one of 2 or 3; 1 stays 1.

    torch compiles a batch of 1 separately, so the second batch must not be 1.
    """
    return batch_size if batch_size == 1 else 2 * batch_size if batch_size < 4 else batch_size // 2


def marked(inputs: Inputs, dimensions: Dimensions) -> Inputs:
    """Mark these dimensions of the tensors as dynamic, in place, and return the inputs."""
    for leaf, found in zip(_leaves(inputs), dimensions, strict=True):
        for dimension in found:
            torch._dynamo.maybe_mark_dynamic(leaf, dimension)
    return inputs


def unmarked(inputs: Inputs) -> Inputs:
    """Return inputs whose tensors have no marks and share their memory with the given ones."""
    parts = (inputs.args, inputs.kwargs, inputs.targets)
    return Inputs(*_pytree.tree_map_only(torch.Tensor, _alias, parts))


def _alias(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().requires_grad_(tensor.requires_grad)


def _leaves(inputs: Inputs) -> list[Any]:
    return list(_pytree.tree_leaves((inputs.args, inputs.kwargs, inputs.targets)))


def _differing(one: Any, two: Any) -> tuple[int, ...]:
    if not isinstance(one, torch.Tensor) or not isinstance(two, torch.Tensor) or one.dim() != two.dim():
        return ()
    return tuple(number for number in range(one.dim()) if one.shape[number] != two.shape[number])
