"""One model with its inputs as two callables: eager, and compiled under an effective config."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any

import torch

from collector.ahead_of_time import Program
from collector.snapshot import Snapshot, snapshot
from collector.templates import Effective
from collector.vocabulary import AHEAD_OF_TIME, Cell, Phase
from collector.zoo.spec import Built

#: PyTorch's benchmarks seed everything with this.
SEED = 1337

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
#: What operators compute in under autocast; the parameters are float32 then.
_AUTOCAST = {"amp": torch.bfloat16, "amp_float16": torch.float16}


def seed_everything(seed: int = SEED) -> None:
    """Seeds torch (every device), `random` and NumPy where it is installed."""
    torch.manual_seed(seed)
    random.seed(seed)
    try:
        import numpy
    except ImportError:
        return
    numpy.random.seed(seed)


@contextlib.contextmanager
def deterministic_algorithms(strict: bool) -> Iterator[None]:
    """Eager in deterministic kernels where there are some; for the reference only.

    Sums by atomic additions (attention's and an embedding's gradients) otherwise differ between two runs of the same
    eager program, and nothing could be compared with it. The compiled program is never run in here: it was compiled
    without, and the switch is one of its guards.

    Args:
        strict: raise where an operator has no deterministic kernel; else warn. Flash attention's backward pass has one
            and takes it only when strict.
    """
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    cudnn = torch.backends.cudnn.deterministic
    torch.use_deterministic_algorithms(True, warn_only=not strict)
    torch.backends.cudnn.deterministic = True
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        torch.backends.cudnn.deterministic = cudnn


class Subject:
    """A model on its device, called in eager or in a compiled form, for inference or one training step.

    An inference call is the forward pass without gradients. A training step clears the gradients, runs forward, loss and
    backward, and takes no optimiser step, so that every step computes the same. Eager and compiled share one module and
    one set of inputs: nothing but the compiler differs between them.
    """

    def __init__(self, cell: Cell, built: Built) -> None:
        dtype = torch.float32 if cell.dtype in _AUTOCAST else _DTYPES[cell.dtype]
        self._cell = cell
        self._training = cell.phase is Phase.TRAINING
        self.model = (
            built.model.to(device=cell.device, dtype=dtype).train(self._training).requires_grad_(self._training)
        )
        self._args = move(built.args, cell.device, dtype)
        self._kwargs = move(built.kwargs, cell.device, dtype)
        self._targets = move(built.targets, cell.device, dtype)
        self._loss = built.loss
        self.eager: Callable[[], Any] = self._step(self._loss_of if self._training else self.model)

    def compiled(self, effective: Effective) -> Callable[[], Any]:
        """The compiled form; the compiler runs at its first call."""
        config = effective.config
        if config.backend == AHEAD_OF_TIME:
            return self._step(Program(self.model, dict(effective.options), self._autocast))
        program = torch.compile(
            self._loss_of if self._training else self.model,
            backend=config.backend,
            # mode is already part of the options; torch takes no options at all from other back-ends.
            options=dict(effective.options) or None if config.backend == "inductor" else None,
            dynamic=config.dynamic,
            fullgraph=config.fullgraph,
        )
        marks_steps = bool(effective.options.get("triton.cudagraphs"))
        return self._step(program, marks_steps)

    def outputs(self, call: Callable[[], Any]) -> Snapshot:
        """Runs a call under the fixed seed and clones all that it made: outputs, and gradients of a training step."""
        seed_everything()
        made = call()
        if not self._training:
            return snapshot(made)
        gradients = {name: p.grad for name, p in self.model.named_parameters() if p.grad is not None}
        return snapshot({"loss": made, "grad": gradients})

    def deterministic_pair(self) -> tuple[Snapshot, Snapshot]:
        """The outputs of two eager runs, in deterministic kernels as far as there are some."""
        for strict in (True, False):
            try:
                with deterministic_algorithms(strict):
                    return self.outputs(self.eager), self.outputs(self.eager)
            except RuntimeError as error:
                if not strict or "deterministic" not in str(error):
                    raise
        raise AssertionError("the second turn returns or raises")

    def float64_twin(self) -> Subject:
        """A copy in double precision, for the reference. Raises whatever the model raises when it cannot be copied."""
        cell = Cell(**{**{f: getattr(self._cell, f) for f in Cell.__dataclass_fields__}, "dtype": "float32"})
        twin = object.__new__(Subject)
        twin._cell, twin._training, twin._loss = cell, self._training, self._loss
        # Gradients are not copied: the twin makes its own.
        self.model.zero_grad(set_to_none=True)
        twin.model = deepcopy(self.model).to(torch.float64)
        twin._args = move(self._args, cell.device, torch.float64)
        twin._kwargs = move(self._kwargs, cell.device, torch.float64)
        twin._targets = move(self._targets, cell.device, torch.float64)
        twin.eager = twin._step(twin._loss_of if twin._training else twin.model)
        return twin

    def release_gradients(self) -> None:
        """Frees the gradients, so that they do not count in the next peak."""
        self.model.zero_grad(set_to_none=True)

    def _loss_of(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        return self._loss(self.model(*args, **kwargs), self._targets)

    def _step(self, forward: Callable[..., Any], marks_steps: bool = False) -> Callable[[], Any]:
        def inference() -> Any:
            if marks_steps:
                torch.compiler.cudagraph_mark_step_begin()
            with torch.no_grad(), self._autocast():
                return forward(*self._args, **self._kwargs)

        def training() -> torch.Tensor:
            if marks_steps:
                torch.compiler.cudagraph_mark_step_begin()
            self.model.zero_grad(set_to_none=True)
            with self._autocast():
                loss: torch.Tensor = forward(*self._args, **self._kwargs)
            loss.backward()
            return loss.detach()

        return training if self._training else inference

    @contextlib.contextmanager
    def _autocast(self) -> Iterator[None]:
        if self._cell.dtype not in _AUTOCAST:
            yield
            return
        with torch.autocast(self._cell.device, dtype=_AUTOCAST[self._cell.dtype]):
            yield


def move(value: Any, device: str, dtype: torch.dtype) -> Any:
    """Moves every tensor of a structure to a device and its floating tensors to a dtype; other leaves stay as they are."""
    if isinstance(value, torch.Tensor):
        return value.to(device=device, dtype=dtype) if value.is_floating_point() else value.to(device=device)
    if isinstance(value, Mapping):
        return {key: move(item, device, dtype) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(move(item, device, dtype) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(move(item, device, dtype) for item in value)
    return value
