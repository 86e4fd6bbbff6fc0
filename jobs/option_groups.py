"""Options that verbs share, so that each has one name, one default and one help text.

Groups of them reach a verb as one object: what to measure, under which names, how, how carefully, or which cells to show.
The fields of an object are the names of its options.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from collector.configs.backend_flags import BackendFlags
from collector.settings import OPTIMIZERS, Settings
from collector.vocabulary import DTYPES, Phase
from jobs.pool.extra_measurements import Care

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from db.queries.filters import CellFilter
    from jobs.pool.runner import Pace, RunNames

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


class Renamed(click.Option):
    """An option whose `former` names still work and stand in no help."""

    def __init__(self, *names: Any, former: Sequence[str], **how: Any) -> None:
        super().__init__(*names, **how)
        self._former = list(former)

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Has the parser take the former names as well."""
        shown = self.opts
        self.opts = shown + self._former
        super().add_to_parser(parser, ctx)
        self.opts = shown


device_option = click.option(
    "--device", type=click.Choice(["cuda", "cpu"]), help="Where to measure [the GPU if there is one]."
)
dtype_option = click.option(
    "--dtype",
    type=click.Choice(DTYPES),
    help="The data type of weights and inputs [bfloat16 on a GPU, float32 on a CPU].",
)
batch_size_option = click.option("--batch-size", type=click.IntRange(min=1), help="The batch size [each model's own].")
samples_option = click.option(
    "--samples",
    type=click.IntRange(min=5),
    default=30,
    show_default=True,
    help="Samples of each latency: pairs of an eager and a compiled call.",
)
timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=600,
    show_default=True,
    help="Seconds after which a cell is given up.",
)
branch_option = click.option("--branch", help="Only runs of this branch.")
label_option = click.option("--label", default="", help="A word to find these runs by.")
out_option = click.option(
    "--out",
    cls=Renamed,
    former=["--runs"],  # `import` called it so
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("runs"),
    show_default=True,
    help="The folder of the bundles.",
)
no_store_option = click.option(
    "--no-store", is_flag=True, help="Write bundles only; `ingest` can store them later, or elsewhere."
)
max_hours_option = click.option(
    "--max-hours",
    type=click.FloatRange(min=0),
    help="Start no cell after so many hours; `resume` measures the rest.",
)


@dataclass(frozen=True, slots=True)
class CellChoice:
    """Which stored cells are asked for, by names and patterns; empty for all."""

    suites: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    configs: tuple[str, ...] = ()

    def filter(self, connection: Connection) -> CellFilter:
        """The same for a database, patterns as the names that they match. Raises `FilterError` for what matches none."""
        from db.queries.filters import CellFilter, expand_patterns

        return expand_patterns(connection, CellFilter(**asdict(self)))


def _only(what: str, plural: str, more: str = "name or pattern") -> Decorator[Any]:
    return click.option(
        f"--{what}", plural, multiple=True, metavar="NAME", help=f"Only this {what}, by {more}; repeatable."
    )


cell_options = as_one(
    "chosen",
    CellChoice,
    _only("suite", "suites"),
    _only("model", "models", "name or pattern, e.g. 'Bert*'"),
    _only("phase", "phases"),
    _only("dtype", "dtypes"),
    _only("device", "devices"),
    _only("config", "configs", "name, pattern or config_id"),
)


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
    click.option(
        "--suite", "suites", multiple=True, metavar="NAME", help="A suite of `zoo`; repeatable [all installed]."
    ),
    click.option(
        "--model",
        "models",
        multiple=True,
        metavar="NAME",
        help="A model of `zoo` by name or pattern, e.g. 'Bert*', or your own as module:function; repeatable.",
    ),
    click.option(
        "--phase",
        "phases",
        multiple=True,
        type=click.Choice([phase.value for phase in Phase]),
        help="Forward alone, or forward and backward; repeatable [inference].",
    ),
    dtype_option,
    device_option,
    batch_size_option,
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
        from jobs.pool.runner import RunNames

        return RunNames(self.branch, self.commit, self.repo, trigger, self.label, branch_start=self.base, night=night)


naming_options = as_one(
    "naming",
    Naming,
    click.option("--branch", help="The branch that is measured [what the installed torch was built from]."),
    click.option("--commit", help="The commit that is measured [the installed torch's own]."),
    click.option("--base", default="", metavar="SHA", help="The commit at which the branch left the main line."),
    click.option("--repo", default="pytorch/pytorch", show_default=True, help="The repository of branch and commit."),
    label_option,
)


@dataclass(frozen=True, slots=True)
class Working:
    """How many samples and seconds, where the bundles go, and who works: `jobs.pool.runner.Pace` has more of the last."""

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
        from jobs.pool.runner import Pace

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
    samples_option,
    timeout_option,
    out_option,
    click.option(
        "--workers",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="Cells that compile at the same time, each on its own cores; while one is measured, the others pause.",
    ),
    click.option(
        "--start",
        type=click.Choice(["fork", "spawn"]),
        default="fork",
        show_default=True,
        help="Fork each cell from a process that has imported torch, or start a new Python for each: slower.",
    ),
    click.option(
        "--gpus", metavar="all|N,M...", help="The GPUs to measure on, each with its own workers [the first one]."
    ),
    no_store_option,
    click.option(
        "--flag",
        "flags",
        multiple=True,
        metavar="NAME=on|off",
        callback=_parse_flags,
        help=f"A switch of torch's back-ends: {', '.join(asdict(BackendFlags()))}; repeatable [{BackendFlags()}].",
    ),
    click.option(
        "--optimizer",
        type=click.Choice(OPTIMIZERS),
        default="none",
        show_default=True,
        help="The optimizer in a training step; PyTorch's own runner has Adam, or SGD for some models.",
    ),
)


care_options = as_one(
    "care",
    Care,
    click.option(
        "--precision",
        type=click.FloatRange(min=0.0001, max=1),
        help="Sample until both medians are known to this fraction (at 95 % confidence), up to ten times --samples or 30 s.",
    ),
    click.option("--warm-compile", is_flag=True, help="Compile a second time, in a new process with full caches."),
    click.option(
        "--trace",
        type=click.Path(file_okay=False, path_type=Path),
        help="A folder for torch's trace of each compilation, to be read with tlparse; compiling takes longer.",
    ),
)
