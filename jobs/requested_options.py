"""What a run is asked to do: one object from the command line to the workers and into the bundle's header.

`resume` reads it back and needs no other option.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from collector.settings import Settings


@dataclass(frozen=True, slots=True)
class Selection:
    """Which models, and in which form; empty or None where nothing was given. `models_file` has the user's own models.

    `everything` is the whole zoo instead of a night's default models, besides the user's own.
    """

    suites: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    dtype: str | None = None
    device: str | None = None
    batch_size: int | None = None
    models_file: str = ""
    everything: bool = False

    def to_json(self) -> dict[str, Any]:
        """A JSON object; `from_json` reads it back."""
        return {
            name: value for name, value in asdict(self).items() if value or name not in ("models_file", "everything")
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Selection:
        """The inverse of `to_json`."""
        values: dict[str, Any] = {name: tuple(value) if type(value) is list else value for name, value in data.items()}
        return cls(**values)

    @property
    def is_narrowed(self) -> bool:
        """Whether anything but the device was given."""
        return any((self.suites, self.models, self.phases, self.dtype, self.batch_size))


@dataclass(frozen=True, slots=True)
class RunNames:
    """What a run is called. Without a commit it is the installed torch's own, without a branch the one it was built from.

    `branch_start` is the commit at which the branch left the main line. Runs of several hosts or replicates share `night`.
    """

    branch: str | None = None
    commit: str | None = None
    repo: str = "pytorch/pytorch"
    trigger: str = "adhoc"
    label: str = ""
    commit_date: str | None = None
    commit_title: str | None = None
    branch_start: str = ""
    night: str = ""


@dataclass(frozen=True, slots=True)
class ExecutionOptions:
    """How a plan is worked through.

    Each GPU measures `workers` cells at once; None is as many as fit, until the devices are known. After `budget_s` seconds
    no further cell starts. `start` is `fork` (from a
    process that has imported everything) or `spawn` (a new process a cell). `gpus` is as in
    `jobs.pool.device_slots.choose_gpus`. `overlay` is a folder from which torch is imported in place of the installed one,
    and `source` says what it is (`jobs.builds.overlay`). With `confirm` what changed is measured again
    (`jobs.checking.confirming`). For `carried_nights` nights a cell whose code did not change is
    carried over, 0 for none (`jobs.plan.spared_cells`).
    """

    workers: int | None = None
    budget_s: float = float("inf")
    start: str = "fork"
    gpus: str | None = None
    overlay: str = ""
    source: str = ""
    carried_nights: int = 0
    confirm: bool = False


@dataclass(frozen=True, slots=True)
class RequestedOptions:
    """How each cell is measured (`settings`, which the worker gets) and how the plan is worked through (`execution`)."""

    settings: Settings = field(default_factory=Settings)
    execution: ExecutionOptions = field(default_factory=ExecutionOptions)

    def to_json(self) -> dict[str, Any]:
        """A JSON object for a header or another process, without the budget: each attempt has its own.

        The bundle format calls the execution options `pace`.
        """
        execution = {
            name: value for name, value in asdict(self.execution).items() if name != "budget_s" and value != ""
        }
        return {"settings": self.settings.to_json(), "pace": execution}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], budget_s: float = float("inf")) -> RequestedOptions:
        """The inverse of `to_json`, with this attempt's budget; raises `KeyError` or `TypeError` for another object.

        A folder of compiled programs is left out: they are loaded and run, and a header may be anybody's.
        """
        known = {item.name for item in fields(ExecutionOptions)}
        execution = {name: value for name, value in data["pace"].items() if name in known}
        settings = replace(Settings.from_json(data["settings"]), compiled="")
        return cls(settings, ExecutionOptions(**execution | {"budget_s": budget_s}))
