"""How a cell is measured: the numbers that are the same for every cell of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from collector.configs.backend_flags import BackendFlags

#: What a training step can end with.
OPTIMIZERS = ("none", "sgd", "adam")
#: Fields of older bundles that mean nothing any more.
_FORMER_FIELDS = ("inject",)


@dataclass(frozen=True, slots=True)
class Settings:
    """Times in seconds.

    `rounds` interleaved eager/compiled pairs, stopped early after `sample_limit_s`; `warmups` compiled calls after the
    first (a cudagraph is recorded in the second call and replayed from the third); `profile_calls` calls of each form
    under the profiler; `timeout_s` for the whole cell.

    `precision`, where it is not 0: rounds go on until the 95 % interval of both medians is within this fraction of them,
    ten times `rounds` or `sample_limit_s` at most. `warm_compile`: the program is compiled once more from the same caches
    by a new process. `trace`: the folder for torch's traces (`collector.process.worker.start_trace`), none where it is empty.
    `shared_tuning`: the folder in which processes share autotuning results (`collector.measure.shared_tuning`), or empty.

    `flags` are torch's back-end switches. `optimizer` is what a training step ends with: `none`, or `sgd` or `adam` as in
    PyTorch's runner. The default is none: every step then computes the same, and a change of the model's own kernels is
    not diluted by an optimiser that is the same few kernels for every model.
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

    def to_json(self) -> dict[str, Any]:
        """A JSON object; `from_json` reads it back."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Settings:
        """The inverse of `to_json`. Raises `TypeError` for a field that this version does not know."""
        flags = BackendFlags(**data.get("flags", {}))
        kept = {name: value for name, value in data.items() if name not in _FORMER_FIELDS}
        return cls(**{**kept, "flags": flags})

    def testbed(self) -> dict[str, str]:
        """What of the settings must be equal for two latencies to be comparable."""
        # A compilation that need not tune is shorter.
        tuning = {"tuning": "shared"} if self.shared_tuning else {}
        return {"flags": str(self.flags), "optimizer": self.optimizer, **tuning}
