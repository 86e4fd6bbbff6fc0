"""One cell of a census: its generated code, with the `code_id` that `measure` would get, or why a GPU is needed to know it.

The project's own builders make the model of fake tensors, which have shapes, dtypes and a device, but no values. Functions that
only set values (drawn weights, calibrated batch norms) are left out, since the code does not depend on values. A builder that
reads values makes the model for real on the CPU, and its tensors become fake when they are moved to the device.
"""

from __future__ import annotations

import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import torch
from torch import nn

from collector import configs
from collector.bundle import CENSUS
from collector.census.gpu_models import TIMING, Questions, find_private, replace_private
from collector.code import Code, Graph
from collector.failures import classify
from collector.machine.environment import environment_id
from collector.measure import counters
from collector.measure.counters import demand_graphs
from collector.measure.dynamic_shapes import load
from collector.measure.generated_code import CodeLog
from collector.measure.program import seed_everything
from collector.own_models import described
from collector.process.outcome import Outcome
from collector.settings import Settings
from collector.templates import Effective, resolve_config
from collector.usage_errors import UnavailableError
from collector.vocabulary import Cell, Measurement, Phase, Stage, Status
from collector.zoo.registry import find as find_model
from collector.zoo.spec import Built, ModelSpec

#: Functions of `torch.nn.init`, and methods of tensors, that set values and return the tensor that they were given.
_INITS = (
    *("normal_", "uniform_", "trunc_normal_", "kaiming_uniform_", "kaiming_normal_", "xavier_uniform_"),
    *("xavier_normal_", "orthogonal_", "constant_", "zeros_", "ones_"),
)
_DRAWS = ("normal_", "uniform_", "erfinv_")
#: Functions of the zoo that compute with values only.
_CONDITIONING = ("wake_dead_gains", "calibrate_batch_norms", "spread_output")


def leave_out_values() -> None:
    """Replace the functions that set values and that move modules. Call it before a builder of the zoo is imported."""
    for path in (*(f"torch.nn.init:{name}" for name in _INITS), *(f"torch:Tensor.{name}" for name in _DRAWS)):
        replace_private(path, _left_out(find_private(path)))
    for name in _CONDITIONING:
        replace_private(f"collector.zoo.builders.conditioning:{name}", lambda *_, **__: None)
    replace_private("collector.zoo.builders.conditioning:settle", _settle)
    for name in ("put_back", "remember"):
        replace_private(f"collector.correctness.state:State.{name}", lambda *_: None)
    moving = _Moving()
    replace_private("torch.nn:Module._apply", lambda module, fn, recurse=True: moving.apply(module, fn, recurse))


def fake_mode() -> Any:
    """Return a mode in which new tensors are fake and real tensors are allowed as inputs."""
    return find_private("torch._subclasses.fake_tensor:FakeTensorMode")(allow_non_fake_inputs=True)


def build_fake(spec: ModelSpec, mode: Any, notes: list[str]) -> Callable[..., Built]:
    """Return a builder of the model with fake tensors; if that fails, it builds with real ones and adds a line to `notes`."""

    def build(batch_size: int, phase: Phase, device: str, **options: Any) -> Built:
        global _is_fake
        try:
            with mode, _prompts_without_values():
                return spec.build(batch_size, phase, device, **options)
        except Exception as error:
            text = (str(error).strip().splitlines() or [""])[0]
            notes.append(f"built with values: {type(error).__name__}: {text[:120]}")
        _is_fake = False
        try:
            with find_private("torch._subclasses.fake_tensor:unset_fake_temporarily")():
                return spec.build(batch_size, phase, device, **options)
        finally:
            _is_fake = True

    return build


@contextmanager
def _prompts_without_values() -> Iterator[None]:
    """Make a fake prompt fill a cache: transformers keeps the mask, and the experts' products are computed in bfloat16.

    transformers reads the cache's length to skip the mask of an empty cache, which changes no output. The shape function of
    `grouped_mm` takes bfloat16 only.
    """
    grouped_mm = find_private("torch.nn.functional:grouped_mm")

    def in_bfloat16(one: torch.Tensor, other: torch.Tensor, *rest: Any, **options: Any) -> torch.Tensor:
        made: torch.Tensor = grouped_mm(one.bfloat16(), other.bfloat16(), *rest, **options)
        return made.to(one.dtype)

    others: dict[str, Any] = {"torch.nn.functional:grouped_mm": in_bfloat16}
    if "transformers.masking_utils" in sys.modules:
        others["transformers.masking_utils:_ignore_causal_mask_sdpa"] = lambda *_, **__: False
    kept = {path: find_private(path) for path in others}
    for path, other in others.items():
        replace_private(path, other)
    try:
        yield
    finally:
        for path, own in kept.items():
            replace_private(path, own)


#: Whether models are being built from fake tensors.
_is_fake = True


def _settle(model: nn.Module, device: str) -> str:
    """Move a model to the device and return the device; a model with values goes to the CPU. Replaces the zoo's `settle`."""
    place = device if _is_fake else "cpu"
    model.to(place)
    return place


def _left_out(draw: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function that sets values: it is called only while a model is built with values."""

    def draw_or_not(tensor: Any, *rest: Any, **options: Any) -> Any:
        return tensor if _is_fake else draw(tensor, *rest, **options)

    return draw_or_not


class _Moving:
    """A `Module._apply` for fake tensors, which torch's own, as it swaps tensors in place, cannot move.

    A tensor that several modules share stays shared.
    """

    def __init__(self) -> None:
        self._moved: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._depth = 0

    def apply(self, module: Any, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:
        self._depth += 1
        try:
            if recurse:
                for child in module.children():
                    child._apply(fn)
            for tensors in (module._parameters, module._buffers):
                for name, tensor in tensors.items():
                    if tensor is not None:
                        tensors[name] = self._move(tensor, fn)
        finally:
            self._depth -= 1
            if not self._depth:
                self._moved.clear()
        return module

    def _move(self, tensor: torch.Tensor, fn: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        if id(tensor) not in self._moved:
            with torch.no_grad():
                moved = fn(tensor)
            if isinstance(tensor, nn.Parameter) and moved is not tensor:
                moved = nn.Parameter(moved, tensor.requires_grad)
            self._moved[id(tensor)] = tensor, moved  # keeps the old tensor alive: its id could become another tensor's
        return self._moved[id(tensor)][1]


#: Options under which Inductor times candidates, or runs generated code, while it generates.
_TIMED = (
    *("max_autotune", "max_autotune_gemm", "max_autotune_pointwise", "cpp_wrapper", "benchmark_kernel"),
    *("benchmark_fusion", "benchmark_combo_kernel", "triton.multi_kernel"),
)


#: The beginning of a backward graph's wrapper.
_BACKWARD = re.compile(r"^# AOT ID: \['\d+_backward'\]")


def _as_compiled(graphs: Sequence[Graph], texts: Mapping[str, str]) -> tuple[Graph, ...]:
    """Return the graphs in the order in which a process compiles them.

    It compiles a backward graph when the backward pass comes to it, from the last one to the first. Here each is generated with
    its forward graph.
    """
    backward = [graph for graph in graphs if _BACKWARD.match(texts[graph.wrapper])]
    return (*(graph for graph in graphs if graph not in backward), *reversed(backward))


#: Errors of torch where the value of a fake tensor is asked for.
_READS_VALUES = ("DataDependentOutputException", "DynamicOutputShapeException")


def why_unknown(effective: Effective) -> str:
    """Return why the code of a config cannot be known without running it; "" if it can."""
    if effective.config.backend != "inductor":
        return f"not known without a GPU: {effective.config.backend} is not generated by a census"
    acting = [name for name in _TIMED if effective.program.get(name)]
    return f"not known without a GPU: {', '.join(acting)} times or runs code while it generates" if acting else ""


@contextmanager
def _values_are_unknown() -> Iterator[None]:
    """Raise `UnavailableError` in place of an error of a program that reads the values of its tensors: they have none here."""
    errors = [find_private(f"torch._subclasses.fake_tensor:{name}") for name in _READS_VALUES]
    try:
        yield
    except tuple(errors) as error:
        raise UnavailableError(f"not known without a GPU: the program reads values of its tensors ({error})") from error


def generate(
    cell: Cell, settings: Settings, environment: Mapping[str, Any], answers: Mapping[str, tuple[bool, str]]
) -> Outcome:
    """Generate the code of a cell. Errors of the model or the compiler become the status and are not raised."""
    one = _Generation(cell, settings, environment)
    try:
        one.run(Questions(answers).attach())
    except Exception as error:
        one.outcome.measurement.status, one.outcome.measurement.failure = classify(error, one.stage)
        if not isinstance(error, UnavailableError):
            traceback.print_exception(error)
    return one.finish()


class _Generation:
    """The state of one cell while its code is generated."""

    def __init__(self, cell: Cell, settings: Settings, environment: Mapping[str, Any]) -> None:
        self.cell, self.settings = cell, settings
        self.outcome = Outcome(
            Measurement(cell, Status.NOT_CHECKED, datetime.now(UTC).isoformat(timespec="seconds"), 0.0)
        )
        self.stage = Stage.START
        self.known: dict[str, Any] = {"known": False, "questions": []}
        self.outcome.measurement.details = {"only": "code", CENSUS: self.known}
        self.outcome.environment = {**environment, **described(cell.suite, cell.model, settings.own_models)}
        self.outcome.measurement.environment_id = environment_id(self.outcome.environment)
        self.begin, self.cpu_begin = time.monotonic(), time.process_time()

    def run(self, questions: Questions) -> None:
        """Run the stages of a census. Raises any error of a stage, and `UnavailableError` if the code cannot be known."""
        measurement, cell = self.outcome.measurement, self.cell
        self.settings.flags.apply()
        self.stage = Stage.RESOLVE_CONFIG
        effective = resolve_config(cell.config, cell.device)
        self.outcome.program, measurement.program_id = effective.program, effective.program_id
        if reason := why_unknown(effective):
            raise UnavailableError(reason)
        configs.check_availability(effective, cell.device, cell.phase, cell.dtype)
        self.stage = Stage.LOAD_MODEL
        log, skips, notes = CodeLog(), counters.CompilerLog(), list[str]()
        mode = fake_mode()
        spec = find_model(cell.suite, cell.model, self.settings.own_models)
        seed_everything()
        build = build_fake(spec, mode, notes)
        with mode:
            subject, _ = load(cell, build, self.settings.optimizer)
        self.known |= {"notes": notes} if notes else {}
        self.known["build_s"] = round(time.monotonic() - self.begin, 2)
        # A measurement calls the model before it compiles: what its first call makes and keeps is no part of the program.
        with mode, suppress(Exception):
            subject.eager()
        self.stage = Stage.COMPILE
        counters.reset()
        log.attach()
        compiled = subject.compiled(effective)
        seed_everything()
        with mode, _values_are_unknown():
            compiled()
        found, details = counters.read(skips)
        demand_graphs(cell.config, found, True, details.get(counters.FALLBACK_REASONS, []))
        code, self.outcome.texts = log.take()
        if code is None:
            demand_graphs(cell.config, found, False, details.get(counters.FALLBACK_REASONS, []))
            return
        code = Code.of(_as_compiled(code.graphs, self.outcome.texts))
        self.outcome.code, measurement.code_id = code.to_json(), code.code_id
        self.known["questions"] = [question.to_json() for question in questions.asked.values()]
        if TIMING in questions.asked:
            raise UnavailableError("not known without a GPU: the compiler timed something while it generated")
        self.known["known"] = True

    def finish(self) -> Outcome:
        """Return the outcome up to the stage in which the cell ended, with its times."""
        measurement = self.outcome.measurement
        measurement.wall_s = round(time.monotonic() - self.begin, 3)
        self.known["cpu_s"] = round(time.process_time() - self.cpu_begin, 2)
        return self.outcome
