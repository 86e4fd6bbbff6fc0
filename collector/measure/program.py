"""A model with its inputs as two callables: eager, and compiled under an effective config."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree

from collector.correctness.comparing import checking, differences, held_once, identical
from collector.correctness.snapshot import (
    GRADIENT,
    LOSS,
    NOTHING,
    Layout,
    Snapshot,
    kept,
    layout_of,
    leaves_of,
    snapshot,
)
from collector.correctness.state import State
from collector.device import device_named, is_accelerator
from collector.measure.ahead_of_time import Program
from collector.measure.counters import GradientGraph
from collector.measure.generated_code import ask_for_provenance
from collector.templates import Effective
from collector.vocabulary import AHEAD_OF_TIME, AS_IS, MARKS, Cell, Phase
from collector.zoo.spec import Built

#: The number of calls in a row, from one state, of which the last is compared: the third call of a cudagraph is always a replay.
IN_A_ROW = 3
#: The seed of PyTorch's benchmarks.
SEED = 1337

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, AS_IS: None}
#: The dtype of operators under autocast, None for autocast's own default. The parameters are float32.
_AUTOCAST = {"amp": None, "amp_bfloat16": torch.bfloat16}
#: The first scale of the loss in the backward pass of a compared training step in float16 (half of torch.amp.GradScaler's, which
#: float16 itself cannot hold), and the factor by which it is lowered while eager's gradients overflow.
_FIRST_SCALE, _BACKOFF = 2.0**15, 0.25
#: The variable and the value that make cuBLAS deterministic; torch requires them for deterministic algorithms.
_CUBLAS, _DETERMINISTIC_CUBLAS = "CUBLAS_WORKSPACE_CONFIG", ":4096:8"


def seed_everything(seed: int = SEED) -> None:
    """Seed torch (every device), `random`, and NumPy if it is installed."""
    torch.manual_seed(seed)
    random.seed(seed)
    try:
        import numpy
    except ImportError:
        return
    numpy.random.seed(seed)


@contextlib.contextmanager
def _deterministic_cublas() -> Iterator[None]:
    before = os.environ.get(_CUBLAS)
    os.environ[_CUBLAS] = _DETERMINISTIC_CUBLAS
    try:
        yield
    finally:
        if before is None:
            del os.environ[_CUBLAS]
        else:
            os.environ[_CUBLAS] = before


def allow_determinism_later(device: str) -> None:
    """Prepare this process so that `deterministic_algorithms` can be strict. Call it before anything is computed on a GPU.

    torch reads CUBLAS_WORKSPACE_CONFIG only at the first matrix product of a process, so this function computes one with it.
    """
    if not is_accelerator(device):
        return
    kind = device_named(device)
    with _deterministic_cublas():
        one = torch.ones(16, 16, device=kind.torch_name)
        torch.mm(one, one)
    kind.synchronize()


@contextlib.contextmanager
def deterministic_algorithms(strict: bool) -> Iterator[None]:
    """Run eager in deterministic kernels, if there are any, in this context. They are slower: use it for compared runs only.

    Else sums by atomic additions (gradients of attention and of an embedding) differ between two eager runs. Never run the
    compiled program in this context: the switch is one of its guards. `strict` raises if an operator has no deterministic
    kernel, else there is a warning; flash attention's backward pass takes its deterministic kernel only if strict.
    """
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    cudnn = torch.backends.cudnn.deterministic
    with _deterministic_cublas():
        torch.use_deterministic_algorithms(True, warn_only=not strict)
        torch.backends.cudnn.deterministic = True
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before[0], warn_only=before[1])
            torch.backends.cudnn.deterministic = cudnn


@dataclass(frozen=True, slots=True)
class Inputs:
    """The arguments of one call of a model, and the targets of its loss."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    targets: Any


@dataclass(frozen=True, slots=True)
class EagerRuns:
    """The results of eager runs: the first run's `outputs`, and the first place at which the second run differed, or None.

    `seed_errors`: the root mean square difference from the first run of each tensor that the third run, under another seed,
    changed. `written`: the parameters, buffers and inputs that the first run wrote to. `layout`: the form of its outputs.
    `later`: the outputs of the last of `IN_A_ROW` calls without putting the state back, or None if they equal the first run's.
    """

    outputs: Snapshot
    differ_at: str | None
    seed_errors: dict[str, float]
    written: frozenset[str]
    layout: Layout = NOTHING
    later: Snapshot | None = None


class Subject:
    """A model on its device, called in eager or in a compiled form, for inference or one training step.

    A training step clears the gradients, runs forward, loss and backward, and takes the optimiser's step if there is one.
    Forward and loss are compiled as one function, which returns the model's outputs beside the loss, as a compiled model does.
    Eager and compiled share one module, one set of inputs and one optimiser.
    """

    def __init__(self, cell: Cell, built: Built, optimizer: str = "none") -> None:
        kind = device_named(cell.device)
        self._cell, self._device = cell, kind.torch_name
        dtype = self._dtype
        self._training = cell.phase is Phase.TRAINING
        self.model = cast(built.model, self._device, dtype).train(self._training).requires_grad_(self._training)
        self.place(self.moved(built))
        self._loss = built.loss
        self._optimizer = _optimizer(optimizer, self.model, kind.records_graphs) if self._training else None
        #: Whether a step updates the parameters; False while outputs are compared.
        self._timed = True
        #: The scale of the loss in the backward pass of a compared step.
        self._scale = 1.0
        #: The form of the outputs of the last compared run.
        self.layout = NOTHING
        #: Clones of the last step's outputs, and whether to make any.
        self._made: list[torch.Tensor] = []
        self._keeps_outputs = False
        #: The last step's gradient graph, and whether to read it.
        self._graph = GradientGraph()
        self._looks_at_graph = False
        self.state = State(
            self.model, (self._args, self._kwargs, self._targets), keep_parameters=self._optimizer is not None
        )
        update = self._optimizer.step if self._optimizer else None
        self.eager: Callable[[], Any] = self._step(self._loss_of if self._training else self.model, update)

    @property
    def phase(self) -> Phase:
        """The phase, which says whether a call is a forward pass or a training step."""
        return self._cell.phase

    @property
    def _dtype(self) -> torch.dtype | None:
        return torch.float32 if self._cell.dtype in _AUTOCAST else _DTYPES[self._cell.dtype]

    @property
    def computes_in(self) -> torch.dtype | None:
        """The dtype in which autocast computes; None without autocast, where each tensor's own dtype counts."""
        if self._cell.dtype not in _AUTOCAST:
            return None
        return _AUTOCAST[self._cell.dtype] or torch.get_autocast_dtype(self._device)

    @property
    def lowest_dtype(self) -> str:
        """The dtype of the cell; for `as_is` the least precise floating dtype of weights and inputs, or float32 without any."""
        if self._cell.dtype != AS_IS:
            return self._cell.dtype
        given = [leaf for leaf in _pytree.tree_leaves((self._args, self._kwargs)) if isinstance(leaf, torch.Tensor)]
        tensors = [*self.model.parameters(), *self.model.buffers(), *given]
        used = {tensor.dtype for tensor in tensors if tensor.is_floating_point()}
        lowest = max(used, key=lambda dtype: torch.finfo(dtype).eps, default=torch.float32)
        return str(lowest).removeprefix("torch.")

    @property
    def _computes_in_float16(self) -> bool:
        return self.computes_in is torch.float16 or self.lowest_dtype == "float16"

    def moved(self, given: Built | Inputs) -> Inputs:
        """Return inputs moved to the device and cast to the dtype of the cell."""
        device, dtype = self._device, self._dtype
        return Inputs(*(move(value, device, dtype) for value in (given.args, given.kwargs, given.targets)))

    @property
    def inputs(self) -> Inputs:
        """The inputs of the next call."""
        return Inputs(self._args, self._kwargs, self._targets)

    def place(self, inputs: Inputs) -> None:
        """Set the inputs of the next calls. `state` keeps watching the former inputs until `State.follow`."""
        self._args, self._kwargs, self._targets = inputs.args, inputs.kwargs, inputs.targets

    def on(self, inputs: Inputs, call: Callable[[], Any]) -> Callable[[], Any]:
        """Return a call that sets these inputs each time before it runs `call`."""

        def placed() -> Any:
            self.place(inputs)
            return call()

        return placed

    def compiled(self, effective: Effective) -> Callable[[], Any]:
        """Return the compiled form; the compiler runs at its first call."""
        self.state.remember()
        config = effective.config
        if config.backend == AHEAD_OF_TIME:
            return self._step(Program(self.model, dict(effective.options), self._autocast), None)
        compile_as_asked = partial(
            torch.compile,
            backend=config.backend,
            # The options already contain the mode; torch accepts no options for other back-ends.
            options=dict(effective.options) or None if config.backend == "inductor" else None,
            # For `MARKS` the marks on the inputs say which dimensions are dynamic.
            dynamic=None if config.dynamic in MARKS else config.dynamic,
            fullgraph=config.fullgraph,
        )
        if effective.options.get("cpp_wrapper"):
            _prepare_for_cpp_wrapper()
        if config.is_inductors:
            ask_for_provenance()
        program = compile_as_asked(self._loss_of if self._training else self.model)
        update = self._optimizer.step if self._optimizer else None
        if isinstance(self._optimizer, torch.optim.Adam):
            update = compile_as_asked(self._optimizer.step)  # PyTorch's runner compiles Adam and leaves SGD alone
        marks_steps = bool(effective.options.get("triton.cudagraphs"))
        return self._step(program, update, marks_steps)

    def outputs(self, call: Callable[[], Any], seed: int = SEED, calls: int = 1) -> Snapshot:
        """Make `calls` calls in a row from the kept state under a fixed seed, and return a snapshot of the last one.

        The snapshot has clones of the outputs, for a training step also of the loss and the gradients, and of the changed
        state. The form of the outputs is in `layout` until the next run. Gradients are multiplied by the scale that `eager_runs`
        has chosen.
        """
        with checking():
            self.state.put_back()
            self.state.watch()
        seed_everything(seed)
        self._timed, self._keeps_outputs = False, True
        try:
            for _ in range(calls - 1):
                call()
            made = call()
        finally:
            self._timed, self._keeps_outputs = True, False
        with checking():
            self.layout = layout_of(made, self.state.tensors()) if not self._training else NOTHING
            if not self._training:
                return snapshot(made) | self.state.changed()
            found: Snapshot = {LOSS: kept(made)}
            for number, output in enumerate(self._made):
                found |= leaves_of(f"output[{number}]", output)
            self._made = []
            for name, tensor in self._with_gradients():
                if tensor.grad is not None:
                    found |= leaves_of(f"{GRADIENT}{name!r}]", tensor.grad)
                    tensor.grad = None  # a large model's gradients and clones would take twice its weights' memory
            return found | self.state.changed()

    def _with_gradients(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the parameters, and the inputs that require a gradient, with their names."""
        yield from self.model.named_parameters()
        leaves = [leaf for leaf in _pytree.tree_leaves((self._args, self._kwargs)) if isinstance(leaf, torch.Tensor)]
        yield from ((f"input {number}", leaf) for number, leaf in enumerate(leaves) if leaf.requires_grad)

    def gradient_graph(self, call: Callable[[], Any]) -> GradientGraph:
        """Make one more training step and return its gradient graph, as it is before the backward pass."""
        self._looks_at_graph, self._timed = True, False
        try:
            call()
            return self._graph
        finally:
            self._looks_at_graph, self._timed = False, True

    def eager_runs(self) -> EagerRuns:
        """Run eager twice under one seed and once under another, in deterministic kernels as far as there are any.

        For float16 this also chooses the scale of the loss for all later compared steps, of compiled programs and twins too.
        Else many gradients are below float16's smallest number, and rounding to zero decides the comparison.
        """
        for strict in (True, False):
            try:
                with deterministic_algorithms(strict):
                    self._choose_scale()
                    first = self.outputs(self.eager)
                    written, layout = self.state.written(), self.layout
                    again = self.outputs(self.eager)
                    with checking():
                        differ_at = identical(first, again)
                    del again
                    other = {} if differ_at else self.outputs(self.eager, SEED + 1)
                    with checking():
                        errors = differences(first, other) if other else {}
                    del other
                    later = None if differ_at or errors else self._later(first)
                    return EagerRuns(first, differ_at, errors, written, layout, later)
            except RuntimeError as error:
                if not strict or "deterministic" not in str(error):
                    raise
        raise AssertionError("the second turn returns or raises")

    def _choose_scale(self) -> None:
        """Set the scale to a quarter of the largest at which eager's gradients are finite; 1 if not training in float16."""
        self._scale = 1.0
        if not (self._training and self._computes_in_float16):
            return
        self._scale = _FIRST_SCALE
        while self._scale > 1.0 and not _has_finite_gradients(self.outputs(self.eager)):
            self._scale *= _BACKOFF
        # A compiled program may round up where eager rounds down.
        self._scale = max(1.0, self._scale * _BACKOFF)

    def _later(self, first: Snapshot) -> Snapshot | None:
        later = self.outputs(self.eager, calls=IN_A_ROW)
        with checking():
            later = held_once(later, first)
            return later if identical(first, later) else None

    def twin(self, dtype: torch.dtype | None = None, device: str | None = None) -> Subject:
        """Copy this subject, in a higher precision without autocast (for the reference) or unchanged (for runs of other weights).

        The copy starts from the kept state. It is on this subject's device unless another device is given.
        """
        twin = object.__new__(Subject)
        twin._cell = replace(self._cell, dtype="float32" if dtype else self._cell.dtype)
        twin._device = device = device or self._device
        twin._training, twin._loss = self._training, self._loss
        # Gradients are not copied: the copy computes its own.
        self.release_gradients()
        self.state.put_back()
        # Each tensor is copied directly into the higher precision: a plain copy of the model first would take more memory.
        every = [*self.model.parameters(), *self.model.buffers()]
        held = [tensor for tensor in every if type(tensor) in (torch.Tensor, nn.Parameter)]
        wide = deepcopy(self.model, {id(tensor): _widened(tensor, device, dtype) for tensor in held})
        twin.model = cast(wide, device, dtype)
        twin.layout = NOTHING
        twin._looks_at_graph, twin._made, twin._keeps_outputs = False, [], False
        twin._args = move(self._args, device, dtype)
        twin._kwargs = move(self._kwargs, device, dtype)
        twin._targets = move(self._targets, device, dtype)
        twin.state = State(twin.model, (twin._args, twin._kwargs, twin._targets), on_host=False)
        twin._scale = self._scale
        twin.eager = twin._step(twin._loss_of if twin._training else twin.model, None)
        return twin

    def resident(self) -> list[torch.Tensor]:
        """Return the tensors that stay in memory between calls: weights, buffers, inputs and targets."""
        given = _pytree.tree_leaves((self._args, self._kwargs, self._targets))
        tensors = [leaf for leaf in given if isinstance(leaf, torch.Tensor)]
        return [*self.model.parameters(), *self.model.buffers(), *tensors]

    def release_gradients(self) -> None:
        """Free the gradients, so that they do not count in the next peak."""
        for _, tensor in self._with_gradients():
            tensor.grad = None

    def _loss_of(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, list[torch.Tensor]]:
        made = self.model(*args, **kwargs)
        # Detached: a differentiable output would cost a gradient of zeros in the backward pass.
        tensors = [leaf.detach() for leaf in _pytree.tree_leaves(made) if isinstance(leaf, torch.Tensor)]
        return self._loss(made, self._targets), tensors

    def _step(
        self, forward: Callable[..., Any], update: Callable[[], Any] | None, marks_steps: bool = False
    ) -> Callable[[], Any]:
        def inference() -> Any:
            if marks_steps:
                torch.compiler.cudagraph_mark_step_begin()
            with torch.no_grad(), self._autocast():
                return forward(*self._args, **self._kwargs)

        def training() -> torch.Tensor:
            if marks_steps:
                torch.compiler.cudagraph_mark_step_begin()
            self.release_gradients()
            with self._autocast():
                loss, outputs = forward(*self._args, **self._kwargs)
            # Cloned and deleted before the backward pass, which therefore runs without them, as in every timed step.
            self._made = [kept(output) for output in outputs] if self._keeps_outputs else []
            del outputs
            if self._looks_at_graph:  # read now: after the backward pass a compiled node cannot be read any more
                self._graph = GradientGraph.of(loss.grad_fn)
            if self._timed:
                loss.backward()
                if update:
                    update()
            else:
                # A compiled backward pass takes the scale as an input, so that the compared program is the timed one.
                loss.backward(torch.full_like(loss, self._scale))
            made: torch.Tensor = loss.detach()
            return made

        return training if self._training else inference

    @contextlib.contextmanager
    def _autocast(self) -> Iterator[None]:
        if self._cell.dtype not in _AUTOCAST:
            yield
            return
        with torch.autocast(self._device, dtype=_AUTOCAST[self._cell.dtype]):
            yield


def _prepare_for_cpp_wrapper() -> None:
    """Set `cpp_wrapper` in the Inductor config of this process too.

    torch 2.11 and 2.13 compile the backward graph outside of the options of `torch.compile` and read the process's config there:
    without it a training step on a GPU ends with "CudaKernelParamCache not populated".
    """
    from torch._inductor import config

    config.cpp_wrapper = True


def _widened(tensor: torch.Tensor, device: str, dtype: torch.dtype | None) -> torch.Tensor:
    """Copy a tensor to a device, in a higher precision if one is given; the copy of a parameter is a parameter."""
    # First moved, then cast: in one step to the host, the tensor would be widened in the device's memory.
    moved = move(move(tensor.detach(), device, None), device, dtype)
    # A tensor that needs no move and no cast, such as integers, is not copied by `move`.
    own = moved.clone() if (moved.dtype, moved.device) == (tensor.dtype, tensor.device) else moved
    return nn.Parameter(own, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else own


def _has_finite_gradients(made: Snapshot) -> bool:
    gradients = [value for path, value in made.items() if path.startswith(GRADIENT) and isinstance(value, torch.Tensor)]
    return all(bool(gradient.isfinite().all()) for gradient in gradients)


def _optimizer(name: str, model: torch.nn.Module, is_recorded: bool) -> torch.optim.Optimizer | None:
    """Return the optimiser as PyTorch's runner makes it (benchmarks/dynamo/common.py, `init_optimizer`); None for `none`."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if name == "none":
        return None
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=0.01, foreach=True)
    # A cudagraph can capture the step only if its counter is on the device.
    return torch.optim.Adam(parameters, lr=0.01, capturable=is_recorded, foreach=True)


def cast(model: torch.nn.Module, device: str, dtype: torch.dtype | None) -> torch.nn.Module:
    """Move a model to a device and cast its floating tensors to a dtype, if one is given; complex tensors stay complex.

    `Module.to` would cast a complex tensor to a real dtype and drop its imaginary part.
    """
    tensors = [*model.named_parameters(), *model.named_buffers()]
    kept_complex = {name: tensor for name, tensor in tensors if dtype and tensor.is_complex()}
    for name in kept_complex:
        _put(model, name, None)
    model = model.to(device=device, dtype=dtype)
    for name, tensor in kept_complex.items():
        moved = move(tensor.detach(), device, dtype)
        is_parameter = isinstance(tensor, torch.nn.Parameter)
        _put(model, name, torch.nn.Parameter(moved, tensor.requires_grad) if is_parameter else moved)
    return model


def _put(model: torch.nn.Module, name: str, value: torch.Tensor | None) -> None:
    owner, _, leaf = name.rpartition(".")
    setattr(model.get_submodule(owner), leaf, value)


def move(value: Any, device: str, dtype: torch.dtype | None) -> Any:
    """Move every tensor of a structure to a device and cast its floating tensors to a dtype, if one is given.

    Complex tensors are cast to complex128 if the dtype is float64, else they keep their precision.
    """
    if isinstance(value, torch.Tensor):
        if value.is_complex() and dtype is torch.float64:
            dtype = torch.complex128
        elif not value.is_floating_point():
            dtype = None
        # A leaf stays a leaf: the gradient of an input is kept there.
        return value.detach().to(device=device, dtype=dtype).requires_grad_(value.requires_grad)
    if isinstance(value, Mapping):
        return {key: move(item, device, dtype) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(move(item, device, dtype) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(move(item, device, dtype) for item in value)
    return value
