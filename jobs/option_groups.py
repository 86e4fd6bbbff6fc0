"""Options that a verb gets as one object: what to measure, under which names, how, and how carefully.

`run`, `nightly` and `plan` share them. The fields of an object are the names of its options.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from collector.backend_flags import BackendFlags
from collector.settings import OPTIMIZERS, Settings
from collector.vocabulary import DTYPES, Phase
from jobs.care import Care

if TYPE_CHECKING:
    from jobs.runner import Pace, RunNames

F = TypeVar("F", bound=Callable[..., Any])
Decorator = Callable[[F], F]


def together(*options: Decorator[Any]) -> Decorator[Any]:
    """One decorator for several; `--help` shows them in this order."""

    def decorate(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def as_one(name: str, kind: type, *options: Decorator[Any]) -> Decorator[Any]:
    """The options, handed to the command as one `kind` under `name`; they are called as the fields of `kind` are."""

    def decorate(function: Any) -> Any:
        @wraps(function)
        def called(*rest: Any, **given: Any) -> Any:
            own = {field.name: given.pop(field.name) for field in fields(kind)}
            return function(*rest, **{name: kind(**own)}, **given)

        return together(*options)(called)

    return decorate


@dataclass(frozen=True, slots=True)
class Selection:
    """Which models, and in which form; empty or None where it was not said."""

    suites: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    dtype: str | None = None
    device: str | None = None
    batch_size: int | None = None

    @property
    def is_narrowed(self) -> bool:
        """Whether anything but the device was said."""
        return any((self.suites, self.models, self.phases, self.dtype, self.batch_size))


selection_options = as_one(
    "selection",
    Selection,
    click.option("--suite", "suites", multiple=True, help="Suites to take [all installed]."),
    click.option("--model", "models", multiple=True, help="Models by name or pattern, e.g. 'Bert*'."),
    click.option("--phase", "phases", multiple=True, type=click.Choice([p.value for p in Phase]), help="[inference]"),
    click.option("--dtype", type=click.Choice(DTYPES), help="[bfloat16 on a GPU, float32 on a CPU]"),
    click.option("--device", type=click.Choice(["cuda", "cpu"]), help="[the GPU if there is one]"),
    click.option("--batch-size", type=click.IntRange(min=1), help="[each model's own]"),
)


@dataclass(frozen=True, slots=True)
class Naming:
    """What the runs are called."""

    branch: str | None = None
    commit: str | None = None
    base: str = ""
    repo: str = "pytorch/pytorch"
    label: str = ""

    def names(self, trigger: str, night: str = "") -> RunNames:
        """The names of runs that `trigger` started, of the night `night` if that is not empty."""
        from jobs.runner import RunNames

        return RunNames(self.branch, self.commit, self.repo, trigger, self.label, branch_start=self.base, night=night)


naming_options = as_one(
    "naming",
    Naming,
    click.option("--branch", help="[what the installed torch was built from]"),
    click.option("--commit", help="[the installed torch's own]"),
    click.option("--base", default="", metavar="SHA", help="The commit at which the branch left the main line."),
    click.option("--repo", default="pytorch/pytorch", show_default=True, help="The repository of branch and commit."),
    click.option("--label", default="", help="A word to find this run by."),
)


@dataclass(frozen=True, slots=True)
class Working:
    """How many samples and seconds, where the bundles go, and who works: `jobs.runner.Pace` has more of the last."""

    samples: int
    timeout: float
    out: Path
    workers: int
    start: str
    gpus: str | None
    no_store: bool
    flags: BackendFlags
    optimizer: str

    def pace(self, **more: Any) -> Pace:
        """How a plan is worked through; `more` are fields of `Pace` that no option here sets."""
        from jobs.runner import Pace

        return Pace(self.workers, start=self.start, gpus=self.gpus, **more)

    def settings(self, care: Care) -> Settings:
        """How each cell is measured."""
        return Settings(
            rounds=self.samples,
            timeout_s=self.timeout,
            precision=care.precision or 0.0,
            warm_compile=care.warm_compile,
            # Relative: it is kept in the bundle, which may be handed on, and `resume` takes the bundles from here, too.
            trace=os.path.relpath(care.trace) if care.trace else "",
            flags=self.flags,
            optimizer=self.optimizer,
        )


def _parse_flags(_: click.Context, __: click.Parameter, words: tuple[str, ...]) -> BackendFlags:
    try:
        return BackendFlags.parse(words)
    except ValueError as error:
        raise click.UsageError(f"--flag {error}") from error


measuring_options = as_one(
    "working",
    Working,
    click.option("--samples", type=click.IntRange(min=5), default=30, show_default=True, help="Eager/compiled pairs."),
    click.option(
        "--timeout", type=click.FloatRange(min=1), default=600, show_default=True, help="Seconds a cell may take."
    ),
    click.option(
        "--out",
        type=click.Path(file_okay=False, path_type=Path),
        default=Path("runs"),
        show_default=True,
        help="Folder for the bundle.",
    ),
    click.option(
        "--workers",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="Cells that compile at once, each on its own cores; one alone measures while the others stand still.",
    ),
    click.option(
        "--start",
        type=click.Choice(["fork", "spawn"]),
        default="fork",
        show_default=True,
        help="Fork each cell from a process that has imported everything, or start a fresh one: slower, as a user would.",
    ),
    click.option("--gpus", metavar="all|N,M...", help="GPUs to measure on, each with workers of its own [the first]."),
    click.option("--no-store", is_flag=True, help="Write the bundle only; `ingest` can store it later, elsewhere."),
    click.option(
        "--flag",
        "flags",
        multiple=True,
        metavar="NAME=on|off",
        callback=_parse_flags,
        help=f"A switch of torch's back-ends, of {', '.join(asdict(BackendFlags()))}; repeatable [{BackendFlags()}]",
    ),
    click.option(
        "--optimizer",
        type=click.Choice(OPTIMIZERS),
        default="none",
        show_default=True,
        help="What a training step ends with. PyTorch's runner has Adam, or SGD for some models.",
    ),
)


care_options = as_one(
    "care",
    Care,
    click.option(
        "--precision",
        type=click.FloatRange(min=0.0001, max=1),
        help="Sample on until both medians are known to this fraction (95 %), up to ten times --samples or 30 s.",
    ),
    click.option("--warm-compile", is_flag=True, help="Compile once more in a new process that finds the caches full."),
    click.option(
        "--trace",
        type=click.Path(file_okay=False, path_type=Path),
        help="Folder for torch's trace of each compilation, one a cell, to be read with tlparse; compiling takes longer.",
    ),
)
