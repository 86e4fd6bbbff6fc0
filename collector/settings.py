"""The settings of a measurement: numbers and switches that are equal for all cells of a run.

The default flags are those of PyTorch's benchmark runner in a performance run (pytorch/pytorch, benchmarks/dynamo/common.py:
`matmul.allow_tf32 = True`, `allow_fp16_bf16_reduction_math_sdp(True)`; the rest is torch's own default).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from collector.own_models import OwnModel


@dataclass(frozen=True, slots=True)
class BackendFlags:
    """Switches of torch's back-ends.

    `tf32_matmul` and `tf32_cudnn`: TensorFloat-32 for float32 matrix products and for cuDNN. `reduced_math_attention`:
    attention without a fused kernel computes in the inputs' own float16 or bfloat16 and not in float32.
    `cudnn_benchmark`: cuDNN times its algorithms and takes the fastest.
    """

    tf32_matmul: bool = True
    tf32_cudnn: bool = True
    reduced_math_attention: bool = True
    cudnn_benchmark: bool = False

    def apply(self) -> None:
        """Set the switches in this process."""
        import torch

        torch.backends.cuda.matmul.allow_tf32 = self.tf32_matmul
        torch.backends.cudnn.allow_tf32 = self.tf32_cudnn
        torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(self.reduced_math_attention)
        torch.backends.cudnn.benchmark = self.cudnn_benchmark

    def __str__(self) -> str:
        return " ".join(name for name, is_on in asdict(self).items() if is_on) or "none"

    @classmethod
    def parse(cls, words: Iterable[str]) -> BackendFlags:
        """Return the defaults with `NAME=on` and `NAME=off` applied. Raises `ValueError`, which says what to write instead."""
        known = [field.name for field in fields(cls)]
        chosen = {}
        for word in words:
            name, _, state = word.partition("=")
            if name not in known or state not in ("on", "off"):
                raise ValueError(f"{word!r} is no flag: write NAME=on or NAME=off with one of {', '.join(known)}")
            chosen[name] = state == "on"
        return cls(**chosen)


#: Optimisers that a training step can end with.
OPTIMIZERS = ("none", "sgd", "adam")


#: Settings that a JSON object has only where they are not their default.
_WITHOUT_DEFAULT = frozenset(
    ("own_models", "compiled", "candidates", "compile_cores", "passed_code", "unchecked", "energy")
)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a run's cells. Times are in seconds; an empty folder turns its feature off.

    Timing: `rounds` compiled calls, with an eager call before every other one, stop early after `sample_limit_s`. `warmups`
    compiled calls follow the first call (a cudagraph is recorded in the second call and replayed from the third).
    `profile_calls` calls of each form run under the profiler. `timeout_s` is for the whole cell. With a `precision` rounds go
    on until half the 95 % interval of each median is at most this fraction of it, for ten times `rounds` or `sample_limit_s`
    at most.

    Compiling: with `warm_compile` a new process compiles the program once more from the same caches. `shared_tuning` is the
    folder of shared choices of autotuning (`collector.measure.tuning`). `candidates` is a folder in which cells find each
    other's compiled candidates of autotuning (`collector.measure.candidates`). On `compile_cores` a few processes compile kernels
    and candidates. `compiled` is a folder in which each cell keeps the compiler's caches: a later process of the cell finds its
    program there and has no compile time. The outputs of a program that was found there are not checked again if its code is
    the `passed_code`. With `unchecked` no outputs are checked, and the cell's details say so. With `code_only` a cell ends once
    it is compiled, with its code, counters and compile time only; so does a cell that compiles to the `known_code`, which is set
    for each cell (`collector.code.known_by`).

    Other: `energy` reads a GPU's energy counter over 0.8 to 3 s of calls. `trace` is a folder for torch's structured trace
    (`collector.process.worker.start_trace`). `flags` are torch's back-end switches. `optimizer` ends a training step, as in
    PyTorch's runner; with `none` all steps compute the same. With `explain` torch's compiler bisector looks for the part of the
    compiler with which the cell fails (`collector.measure.explaining`). `own_models` are the user's own models, with short
    names, among the cells of the run.
    """

    rounds: int = 30
    sample_limit_s: float = 30.0
    warmups: int = 4
    profile_calls: int = 3
    timeout_s: float = 1800.0
    precision: float = 0.0
    warm_compile: bool = False
    energy: bool = False
    trace: str = ""
    flags: BackendFlags = field(default_factory=BackendFlags)
    optimizer: str = "none"
    shared_tuning: str = ""
    compiled: str = ""
    candidates: str = ""
    compile_cores: tuple[int, ...] = ()
    passed_code: str = ""
    unchecked: bool = False
    code_only: bool = False
    explain: bool = False
    known_code: str = ""
    own_models: tuple[OwnModel, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object that `from_json` reads back."""
        return {name: value for name, value in asdict(self).items() if value or name not in _WITHOUT_DEFAULT}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Settings:
        """Build settings from the object that `to_json` made. Raises `TypeError` for a field that this version does not know."""
        flags = BackendFlags(**data.get("flags", {}))
        own_models = tuple(map(OwnModel.from_json, data.get("own_models", ())))
        cores = tuple(data.get("compile_cores", ()))
        return cls(**{**data, "flags": flags, "own_models": own_models, "compile_cores": cores})

    def with_models(self, own_models: Iterable[OwnModel]) -> Settings:
        """Return these settings with further models of the user's own; a new model replaces an old one with its name."""
        by_name = {model.name: model for model in (*self.own_models, *own_models)}
        return replace(self, own_models=tuple(by_name.values()))

    def testbed(self) -> dict[str, str]:
        """Return the settings that must be equal for two measurements to be comparable, as part of the testbed."""
        # With shared tuning a compilation may skip the tuning and is shorter.
        tuning = {"tuning": "shared"} if self.shared_tuning else {}
        return {"flags": str(self.flags), "optimizer": self.optimizer, **tuning}
