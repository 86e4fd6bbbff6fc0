"""How a cell is measured: the numbers that are the same for every cell of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from collector.configs.backend_flags import BackendFlags
from collector.own_models import OwnModel

#: What a training step can end with.
OPTIMIZERS = ("none", "sgd", "adam")


@dataclass(frozen=True, slots=True)
class Settings:
    """Times in seconds.

    `rounds` interleaved eager/compiled pairs, stopped early after `sample_limit_s`; `warmups` compiled calls after the
    first (a cudagraph is recorded in the second call and replayed from the third); `profile_calls` calls of each form
    under the profiler; `timeout_s` for the whole cell.

    With a `precision` rounds go on until the 95 % interval of both medians is within this fraction of them, ten times
    `rounds` or `sample_limit_s` at most. `warm_compile`: a new process compiles the program once more from the same caches.
    `trace` and `shared_tuning` are folders, or empty (`collector.process.worker.start_trace`,
    `collector.measure.shared_tuning`). `compiled` is a folder in which each cell keeps the compiler's caches, or empty: a
    later process of the cell finds its program there and has no compile time. `flags` are torch's back-end switches.
    `optimizer` is what a training step ends with, as in PyTorch's runner; with none every step computes the same. With
    `code_only` a cell ends when it is compiled: its code, counters and compile time are all that is wanted. So does one that
    compiles to the `known_code`, which is set for each cell (`collector.code`). With `explain` torch's compiler bisector
    looks for the part of the compiler with which the cell fails (`collector.measure.explaining`). `own_models` are the user's
    own models with short names that cells of the run are of.
    """

    rounds: int = 30
    sample_limit_s: float = 30.0
    warmups: int = 4
    profile_calls: int = 5
    timeout_s: float = 600.0
    precision: float = 0.0
    warm_compile: bool = False
    trace: str = ""
    flags: BackendFlags = field(default_factory=BackendFlags)
    optimizer: str = "none"
    shared_tuning: str = ""
    compiled: str = ""
    code_only: bool = False
    explain: bool = False
    known_code: str = ""
    own_models: tuple[OwnModel, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """A JSON object; `from_json` reads it back."""
        return {name: value for name, value in asdict(self).items() if value or name not in ("own_models", "compiled")}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Settings:
        """The inverse of `to_json`. Raises `TypeError` for a field that this version does not know."""
        flags = BackendFlags(**data.get("flags", {}))
        own_models = tuple(map(OwnModel.from_json, data.get("own_models", ())))
        return cls(**{**data, "flags": flags, "own_models": own_models})

    def with_models(self, own_models: Iterable[OwnModel]) -> Settings:
        """The same with these models of the user's own besides those that it has."""
        by_name = {model.name: model for model in (*self.own_models, *own_models)}
        return replace(self, own_models=tuple(by_name.values()))

    def testbed(self) -> dict[str, str]:
        """What of the settings must be equal for two latencies to be comparable."""
        # A compilation that need not tune is shorter.
        tuning = {"tuning": "shared"} if self.shared_tuning else {}
        return {"flags": str(self.flags), "optimizer": self.optimizer, **tuning}
