"""The types that all packages share: cells, configs, statuses, measurements. Imports only the standard library."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, Literal

OptionValue = bool | int | float | str | None


class Status(StrEnum):
    """The result of measuring a cell. Only the metrics of a cell with `PASS` enter a suite's averages."""

    PASS = "pass"  # noqa: S105
    FAIL_ACCURACY = "fail_accuracy"
    NONDETERMINISTIC = "nondeterministic"
    NOT_CHECKED = "not_checked"
    ILL_CONDITIONED = "ill_conditioned"
    NOT_COMPILED = "not_compiled"
    FAIL_TO_COMPILE = "fail_to_compile"
    FAIL_TO_RUN = "fail_to_run"
    EAGER_FAIL = "eager_fail"
    OOM = "oom"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    CONFIG_ERROR = "config_error"
    UNAVAILABLE = "unavailable"
    MODEL_FAIL_TO_LOAD = "model_fail_to_load"
    SKIPPED = "skipped"


#: Statuses that mean "cannot be measured or checked here" and not "went wrong". They do not count in a pass rate.
NOT_APPLICABLE = frozenset({Status.UNAVAILABLE, Status.SKIPPED, Status.NOT_CHECKED, Status.ILL_CONDITIONED})


class Phase(StrEnum):
    """The part of training that a cell measures: the forward pass alone, or forward, loss and backward."""

    INFERENCE = "inference"
    TRAINING = "training"


class Stage(StrEnum):
    """The stages of measuring a cell, in order."""

    START = "start"
    LOAD_MODEL = "load_model"
    RESOLVE_CONFIG = "resolve_config"
    EAGER = "eager"
    COMPILE = "compile"
    TIMING = "timing"
    PROFILE = "profile"
    CORRECTNESS = "correctness"
    DONE = "done"


#: The dtype of a model that is not cast: a quantised model, one of mixed precision, or a captured graph.
AS_IS = "as_is"
#: dtypes of cells. `amp` is float32 parameters under autocast, eager and compiled alike, with autocast's default dtype: float16
#: on CUDA and bfloat16 on a CPU, as in PyTorch's runner with `--amp`. `amp_bfloat16` is autocast to bfloat16 everywhere.
DTYPES = ("float32", "bfloat16", "float16", "amp", "amp_bfloat16", AS_IS)


def canonical_json(value: Any) -> str:
    """Return a value as JSON with sorted keys and no spaces, so that equal values have equal texts."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _fields_of(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record) if field.init}


def short_hash(value: Any, length: int = 12) -> str:
    """Return the first `length` hexadecimal digits of the SHA-256 of a value's canonical JSON."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:length]


#: The back-end that exports a model, compiles it into a library and loads that (`collector.measure.ahead_of_time`).
AHEAD_OF_TIME = "aot_inductor"
#: Back-ends that are Inductor and take its options.
INDUCTORS = ("inductor", AHEAD_OF_TIME)

#: The value of `Config.dynamic` that marks batch and sequence of the inputs as dynamic. True is torch's own `dynamic=True`.
MARKED: Literal["marked"] = "marked"
#: The value that marks the batch alone, as PyTorch's runner does with `--dynamic-batch-only`.
BATCH_MARKED: Literal["batch"] = "batch"
Dynamic = bool | Literal["marked", "batch"] | None
#: The values that mark dimensions of the inputs, in place of an argument of torch.compile.
MARKS: tuple[Dynamic, ...] = (MARKED, BATCH_MARKED)
#: The parts of a config's name that need no value, each with the field that it sets and the field's value.
SWITCHES: dict[str, tuple[str, Any]] = {
    "dynamic": ("dynamic", MARKED),
    "dynamic_batch": ("dynamic", BATCH_MARKED),
    "dynamic_all": ("dynamic", True),
    "fullgraph": ("fullgraph", True),
}


@dataclass(frozen=True, slots=True)
class Config:
    """One way of compiling, as it was requested.

    `config_id` hashes the request, so that a changed default of torch does not end a series. Fields at their default are
    left out of the hash, so that a field added later changes no old id.

    `dynamic`: `MARKED` marks the dimensions of the inputs that change with batch or sequence, `BATCH_MARKED` the dimensions
    that change with the batch; True makes all dimensions dynamic, False none; None is torch.compile's default.
    """

    backend: str = "inductor"
    template: str | None = None
    mode: str | None = None
    overrides: Mapping[str, OptionValue] = field(default_factory=dict)
    freezing: bool | None = None
    dynamic: Dynamic = None
    fullgraph: bool = False

    def __post_init__(self) -> None:
        # mode="default" and no mode mean the same to torch; two ids would split a series.
        if self.mode == "default":
            object.__setattr__(self, "mode", None)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object of the fields that differ from their defaults."""
        blank, own = Config(), _fields_of(self) | {"overrides": dict(self.overrides)}
        return {name: value for name, value in own.items() if value != getattr(blank, name)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Config:
        """Build a config from the object that `to_json` made. Raises `ValueError` for an unknown field or a wrong type."""
        unknown = sorted(set(data) - {f.name for f in fields(cls)})
        if unknown:
            raise ValueError(f"a config has no field {', '.join(unknown)}")
        if not (
            all(isinstance(data.get(name), str | None) for name in ("backend", "template", "mode"))
            and isinstance(data.get("dynamic"), bool | str | None)
            and isinstance(data.get("freezing"), bool | None)
            and isinstance(data.get("fullgraph", False), bool)
            and all(isinstance(value, OptionValue) for value in dict(data.get("overrides", {})).values())
        ):
            raise ValueError("a config has a value of another kind")
        return cls(**data)

    @property
    def is_inductors(self) -> bool:
        """Return whether Inductor compiles this config, so that templates, modes and options have a meaning."""
        return self.backend in INDUCTORS

    @property
    def config_id(self) -> str:
        """The id of this request, twelve hexadecimal digits."""
        return short_hash(self.to_json())

    @property
    def name(self) -> str:
        """The name that people use: `cudagraphs`, `cudagraphs+graph_partition=false`; `collector.configs` reads it back."""
        parts = [name for name in (self.template, self.mode) if name] or ["default"]
        parts += [f"freezing={_spell(self.freezing)}"] if self.freezing is not None else []
        parts += ["dynamic=false"] if self.dynamic is False else []
        parts += [word for word, (name, value) in SWITCHES.items() if name == "dynamic" and value == self.dynamic]
        parts += [f"{key}={_spell(value)}" for key, value in sorted(self.overrides.items())]
        parts += ["fullgraph"] if self.fullgraph else []
        parts += [f"backend={self.backend}"] if self.backend != "inductor" else []
        return "+".join(parts)

    def __hash__(self) -> int:
        return hash(self.config_id)


def _spell(value: OptionValue) -> str:
    """Spell a value in a config's name so that it reads back as itself; a `+`, which joins parts, is escaped."""
    if isinstance(value, str):
        return json.dumps(value).replace("+", "\\u002b") if _reads_as_something_else(value) else value
    if isinstance(value, float):
        return repr(value).replace("e+", "e")
    return json.dumps(value)


def _reads_as_something_else(text: str) -> bool:
    if "+" in text or text in ("True", "False", "None"):
        return True
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


#: The batch size of a cell whose model chooses its inputs: the plan can neither choose nor know the real one. Imported results
#: of an unknown batch size have it too.
OWN_BATCH = 0
#: The key of a measurement's details with the batch size of the inputs of a cell with `OWN_BATCH`.
INPUT_BATCH = "input_batch"


def batch_word(batch_size: int) -> str:
    """Return a batch size as part of a cell's name: `bs64`, or `bs-own` for the model's own."""
    return "bs-own" if batch_size == OWN_BATCH else f"bs{batch_size}"


def batch_words(batch_size: int) -> str:
    """Return a batch size in words: `batch 64`, or `own batch` for the model's own."""
    return "own batch" if batch_size == OWN_BATCH else f"batch {batch_size}"


@dataclass(frozen=True, slots=True)
class Cell:
    """One entry of the measured matrix: suite, model, phase, dtype, device, batch size and config."""

    suite: str
    model: str
    phase: Phase
    dtype: str
    device: str
    batch_size: int
    config: Config
    #: `cell_id` after its first use: a scheduler asks for it thousands of times a second.
    _cell_id: str = field(default="", init=False, repr=False, compare=False)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object that `from_json` reads back."""
        return _fields_of(self) | {"phase": self.phase.value, "config": self.config.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Cell:
        """Build a cell from the object that `to_json` made. Raises `KeyError`, `ValueError` or `TypeError` for other data."""
        return cls(
            suite=str(data["suite"]),
            model=str(data["model"]),
            phase=Phase(data["phase"]),
            dtype=str(data["dtype"]),
            device=str(data["device"]),
            batch_size=int(data["batch_size"]),
            config=Config.from_json(data["config"]),
        )

    @property
    def cell_id(self) -> str:
        """The id of this cell in all runs, sixteen hexadecimal digits."""
        if not self._cell_id:
            object.__setattr__(self, "_cell_id", short_hash(self.to_json(), 16))
        return self._cell_id

    def __hash__(self) -> int:
        return hash(self.cell_id)

    def __str__(self) -> str:
        batch = batch_word(self.batch_size)
        return f"{self.suite}/{self.model} {self.phase} {self.dtype} {self.device} {batch} {self.config.name}"


@dataclass(slots=True)
class Failure:
    """The reason why a cell did not pass, and a hint what to do about it."""

    stage: Stage
    exception: str
    message: str
    hint: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object that `from_json` reads back."""
        data = _fields_of(self) | {"stage": self.stage.value}
        return {key: value for key, value in data.items() if value is not None}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Failure:
        """Build a failure from the object that `to_json` made."""
        return cls(Stage(data["stage"]), data["exception"], data["message"], data.get("hint"))


@dataclass(slots=True)
class Measurement:
    """The result of one process that measured one cell.

    `metrics` holds only what was measured. `samples` holds the raw values behind the latency medians, in the metric's unit and
    in the order of the interleaved rounds: `compiled_ms` has a value for each round, `eager_ms` for every other round (in older
    bundles for each). `details` holds evidence, such as reasons of graph breaks.
    """

    cell: Cell
    status: Status
    started_at: str
    wall_s: float
    metrics: dict[str, float] = field(default_factory=dict)
    samples: dict[str, list[float]] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    program_id: str | None = None
    environment_id: str | None = None
    failure: Failure | None = None
    log_tail: str | None = None
    replicate: int = 0
    code_id: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object that `from_json` reads back."""
        failure = self.failure.to_json() if self.failure else None
        data = _fields_of(self) | {"cell": self.cell.to_json(), "status": self.status.value, "failure": failure}
        return {key: value for key, value in data.items() if value not in (None, {}, [])}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Measurement:
        """Build a measurement from `to_json`'s object. Raises `KeyError`, `ValueError` or `TypeError` for other data."""
        failure = data.get("failure")
        return cls(
            cell=Cell.from_json(data["cell"]),
            status=Status(data["status"]),
            started_at=str(data["started_at"]),
            wall_s=float(data["wall_s"]),
            metrics={str(name): float(value) for name, value in data.get("metrics", {}).items()},
            samples={str(name): [float(v) for v in values] for name, values in data.get("samples", {}).items()},
            details=dict(data.get("details", {})),
            program_id=data.get("program_id"),
            environment_id=data.get("environment_id"),
            failure=Failure.from_json(failure) if failure else None,
            log_tail=data.get("log_tail"),
            replicate=int(data.get("replicate", 0)),
            code_id=data.get("code_id"),
        )

    @property
    def cell_name(self) -> str:
        """The cell's name with the measured batch size, also if the cell leaves the batch size to the model."""
        made = self.details.get(INPUT_BATCH)
        return str(replace(self.cell, batch_size=made) if isinstance(made, int) else self.cell)


#: The key of a measurement's details with the reference of the correctness check: its precision, `BY_COSINE` if at least one
#: floating tensor could be compared with eager's only, or `UNCHECKED` if no check was asked for.
CHECKED_BY = "checked_by"
#: The key of a detail: the outputs were checked in an earlier process of the cell, which compiled the program.
CHECKED_ELSEWHERE = "checked_elsewhere"
BY_COSINE, UNCHECKED = "cosine", "nothing"
#: What is said of a pass by the reference of its check, where no reference confirms it.
_WEAK = {BY_COSINE: "checked by cosine", UNCHECKED: "outputs not checked"}
#: The key that names the tensor whose error is nearest to its limit.
NEAREST = "nearest_to_limit"
#: The metric that is 1 if PyTorch's own accuracy check passes a cell, and the key of the details with that check's messages.
PYTORCH_CHECK = "accuracy_pytorch"
#: The suffix of the precision of a reference that had no room on the device.
ON_THE_CPU = "on the CPU"
#: The key of the most bytes of device memory that a cell keeps between its calls before it compiles.
KEPT_BYTES = "kept_bytes"


def status_words(status: str, details: Mapping[str, Any]) -> str:
    """Return a status as users see it: `pass`, or `pass (checked by cosine)` if no reference confirms it."""
    weak = _WEAK.get(str(details.get(CHECKED_BY))) if status == Status.PASS else None
    return f"{status} ({weak})" if weak else str(status)


def is_unchecked(details: Mapping[str, Any]) -> bool:
    """Return whether no check of the outputs was asked for, by a measurement's details."""
    return details.get(CHECKED_BY) == UNCHECKED


#: Statuses of cells that fail before outputs are compared.
_FAILS_ANYWHERE = frozenset(
    (
        *(Status.FAIL_TO_COMPILE, Status.FAIL_TO_RUN, Status.OOM),
        *(Status.TIMEOUT, Status.CRASHED, Status.MODEL_FAIL_TO_LOAD),
    )
)


def passes_pytorch(status: str | None, found: float | None) -> bool | None:
    """Return whether PyTorch's own check passes a cell; None if unknown. `found` is the metric `PYTORCH_CHECK`.

    A cell that failed before outputs were compared fails that check as well.
    """
    if found is not None:
        return found == 1
    return False if status in _FAILS_ANYWHERE else None


def judged_otherwise(status: str | None, found: float | None) -> bool:
    """Return whether PyTorch's own check and ours disagree on a cell; False if either result is unknown."""
    theirs = passes_pytorch(status, found)
    return theirs is not None and status not in NOT_APPLICABLE and theirs is not (status == Status.PASS)


#: The key of a measurement's details with the answers that Inductor found by timing to whether a matrix product is padded.
PADDING = "padding"
#: The key of a measurement's details with the measured sizes (`MeasuredSize`); the cell's own size comes first.
SIZES = "sizes"


@dataclass(frozen=True, slots=True)
class MeasuredSize:
    """One input size of a dynamic cell: its interleaved latencies and its recompilations. None is a value that was not measured.

    `static_ms` is the latency of a program that was compiled for this size alone; `status` is the result of the correctness
    check at the second size.
    """

    batch_size: int
    length: int | None = None
    eager_ms: float | None = None
    compiled_ms: float | None = None
    static_ms: float | None = None
    recompiles: int | None = None
    status: str | None = None

    @property
    def over_static(self) -> float | None:
        """The latency of the dynamic program divided by the latency of the static one, or None."""
        return self.compiled_ms / self.static_ms if self.compiled_ms and self.static_ms else None

    def __str__(self) -> str:
        return f"batch {self.batch_size}" + (f", length {self.length}" if self.length else "")


def sizes_of(details: Mapping[str, Any]) -> list[MeasuredSize]:
    """Return the sizes in a measurement's details; [] if it has none."""
    recorded, kinds = details.get(SIZES), {field.name: int | float for field in fields(MeasuredSize)} | {"status": str}
    return [
        MeasuredSize(**{name: entry[name] for name, kind in kinds.items() if isinstance(entry.get(name), kind)})
        for entry in (recorded if isinstance(recorded, list) else [])
        if isinstance(entry, Mapping) and isinstance(entry.get("batch_size"), int)
    ]
