"""Options that several verbs share, so that each has one name, one default and one help text.

A group of options reaches its verb as one object (`as_one`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import click

from collector.configs.backend_flags import BackendFlags
from collector.configs.spelling import parse_config, parse_value
from collector.settings import OPTIMIZERS, Settings
from collector.vocabulary import DTYPES, MARKED, Config, OptionValue, Phase
from jobs.pool.requested_options import ExecutionOptions, ExtraMeasurements, RequestedOptions, RunNames, Selection

if TYPE_CHECKING:
    from db.queries.filters import CellFilter

F = TypeVar("F", bound=Callable[..., Any])
Decorator = Callable[[F], F]

#: Key in a Click context's `meta`: the database that the command uses.
DATABASE = f"{__name__}.database"

FOLDER = click.Path(file_okay=False, path_type=Path)
OUTPUT_FILE = click.Path(dir_okay=False, path_type=Path)
INPUT_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
EXISTING = click.Path(exists=True, path_type=Path)
POSITIVE = click.IntRange(min=1)
PHASES = click.Choice([phase.value for phase in Phase])


def together(*options: Decorator[Any]) -> Decorator[Any]:
    """One decorator for several options; `--help` shows them in this order."""

    def decorate(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def as_one(name: str, make: Callable[..., Any], *options: Decorator[Any]) -> Decorator[Any]:
    """Hands several options to the command as one argument `name`: what `make` returns for their values by name."""
    names = [parameter.name for parameter in click.command()(together(*options)(lambda: None)).params]

    def decorate(function: Any) -> Any:
        @wraps(function)
        def called(*rest: Any, **given: Any) -> Any:
            values = {option: given.pop(option) for option in names}
            return function(*rest, **{name: make(**values)}, **given)

        return together(*options)(called)

    return decorate


class Renamed(click.Option):
    """An option whose `former` names still work and are not in the help."""

    def __init__(self, *names: Any, former: Sequence[str], **how: Any) -> None:
        super().__init__(*names, **how)
        self._former = list(former)

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Lets the parser accept the former names as well."""
        shown = self.opts
        self.opts = shown + self._former
        super().add_to_parser(parser, ctx)
        self.opts = shown


class Moment(click.ParamType[datetime]):
    """A day or moment from the command line, in UTC unless it says otherwise."""

    name = "date"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """The moment in UTC."""
        from db.queries.moments import from_epoch, to_epoch

        try:
            return from_epoch(to_epoch(value))
        except ValueError:
            return self.fail(f"{value!r} is no date: write 2026-08-01 or 2026-08-01T12:00", param, ctx)


# Store, output and links


def _remember_database(context: click.Context, _: click.Parameter, database: str) -> str:
    context.meta[DATABASE] = database
    return database


db_option = click.option(
    "--db",
    "database",
    callback=_remember_database,
    envvar="INDUCTOR_WATCH_DB",
    default="inductor-watch.db",
    metavar="PATH|URL",
    help="The database (or INDUCTOR_WATCH_DB).",
)


def _check_dashboard(_: click.Context, __: click.Parameter, url: str) -> str:
    """The address as it is given. Raises `click.UsageError` if it is no http(s) address."""
    if not url:
        return ""
    try:
        parts = urlsplit(url)
        is_fine = parts.scheme in ("http", "https") and bool(parts.hostname) and not (parts.query or parts.fragment)
    except ValueError:
        is_fine = False
    if not is_fine or not url.isprintable() or any(char in url for char in " <>\"'`|\\"):
        raise click.UsageError(f"--dashboard-url: {url[:80]!r} is no address such as https://host/path")
    return url


dashboard_option = click.option(
    "--dashboard-url",
    callback=_check_dashboard,
    envvar="INDUCTOR_WATCH_DASHBOARD_URL",
    default="",
    show_default=False,
    metavar="URL",
    help="Where the dashboard is, for links (or INDUCTOR_WATCH_DASHBOARD_URL).",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")


@dataclass(frozen=True, slots=True)
class Storage:
    """Where bundles go, the database, and whether they stay out of it."""

    out: Path
    no_store: bool
    database: str

    @property
    def target(self) -> str | None:
        """The database to store into, if any."""
        return None if self.no_store else self.database


_out_option = click.option(
    "--out",
    cls=Renamed,
    former=["--runs"],  # `import` called it so
    type=FOLDER,
    default=Path("runs"),
    help="The folder of the bundles.",
)
storage_options = as_one(
    "storage",
    Storage,
    _out_option,
    click.option("--no-store", is_flag=True, help="Write bundles only; `ingest` can store them later, or elsewhere."),
    db_option,
)
#: The same for a verb that reads again what it has measured.
stored_options = as_one("storage", lambda out, database: Storage(out, False, database), _out_option, db_option)

# Which cells


def repeatable(what: str, plural: str, text: str, **more: Any) -> Decorator[Any]:
    """`--what`, which may be given several times."""
    return click.option(f"--{what}", plural, multiple=True, metavar="NAME", help=f"{text}; repeatable.", **more)


def _cell_filter(**names: tuple[str, ...]) -> CellFilter:
    from db.queries.filters import CellFilter

    return CellFilter(**names)


_OF_A_MODEL = (
    repeatable("phase", "phases", "Only this phase, by name or pattern"),
    repeatable("dtype", "dtypes", "Only this dtype, by name or pattern"),
    repeatable("device", "devices", "Only this device, by name or pattern"),
    repeatable("config", "configs", "Only this config, by name, pattern or config_id"),
)
#: Which stored cells, as a `db.queries.filters.CellFilter` with patterns in it.
cell_options = as_one(
    "chosen",
    _cell_filter,
    repeatable("suite", "suites", "Only this suite, by name or pattern"),
    repeatable("model", "models", "Only this model, by name or pattern, e.g. 'Bert*'"),
    *_OF_A_MODEL,
)
#: The same where the model is an argument.
model_cell_options = as_one("chosen", _cell_filter, *_OF_A_MODEL)
branch_option = click.option("--branch", help="Only runs of this branch.")

device_option = click.option(
    "--device", type=click.Choice(["cuda", "cpu"]), help="Where to measure [the GPU if there is one]."
)
dtype_option = click.option(
    "--dtype",
    type=click.Choice(DTYPES),
    help="The data type of weights and inputs, as_is to keep the model's [bfloat16 on a GPU, float32 on a CPU].",
)
batch_size_option = click.option("--batch-size", type=POSITIVE, help="The batch size [each model's own].")


def _here(_: click.Context, __: click.Parameter, path: Path | None) -> str:
    default = Path("models.toml")
    return str(path or (default if default.is_file() else ""))


models_file_option = click.option(
    "--models-file",
    type=INPUT_FILE,
    callback=_here,
    help="Your own models, as `init` writes them. [models.toml, if this folder has it]",
)
_SELECTION = (
    repeatable("suite", "suites", "A suite of `zoo`, or user for your own models [all installed]"),
    repeatable(
        "model",
        "models",
        "A model of `zoo` or of --models-file by name or pattern, e.g. 'Bert*', or your own as module:function",
    ),
    click.option(
        "--phase",
        "phases",
        multiple=True,
        type=PHASES,
        help="Forward alone, or forward and backward; repeatable [inference].",
    ),
    dtype_option,
    device_option,
    batch_size_option,
    models_file_option,
)
#: Which cells to measure.
selection_options = as_one("selection", Selection, *_SELECTION)


def _config_option(text: str) -> Decorator[Any]:
    return click.option("--config", "configs", multiple=True, metavar="NAME[+key=value...]", help=text)


def _of_night(**given: Any) -> Selection:
    selection = Selection(**given)
    if selection.everything and (selection.suites or selection.models):
        raise click.UsageError("--all measures the whole zoo: leave out --suite and --model")
    return selection


#: Which cells a night measures: the selection, and configs by name.
night_options = together(
    as_one(
        "selection",
        _of_night,
        *_SELECTION,
        click.option("--all", "everything", is_flag=True, help="The whole zoo, not the default models."),
    ),
    _config_option("A config of `templates` or `modes`, with overrides; repeatable [those of the night]."),
)


def build_configs(configs: tuple[str, ...], overrides: tuple[str, ...], **single: Any) -> list[Config]:
    """The configs that the options spell: every `--config`, or the one that the single options make up.

    Raises:
        click.UsageError: both forms at once, or an override without `=`.
    """
    is_all, dynamic = single.pop("dynamic_all"), single.pop("dynamic")
    if is_all and dynamic is not None:
        raise click.UsageError("use --dynamic, --no-dynamic or --dynamic-all, not two of them")
    single["dynamic"] = True if is_all else MARKED if dynamic else dynamic
    alone = Config(**single, overrides=dict(_override(text) for text in overrides))
    if configs and alone != Config():
        raise click.UsageError("use --config NAME+key=value, or --backend, --template, --mode and -c, not both")
    return [parse_config(text) for text in configs] or [alone]


def _override(text: str) -> tuple[str, OptionValue]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise click.UsageError(f"-c {text!r}: write KEY=VALUE, e.g. -c triton.cudagraphs=true")
    return key, parse_value(value)


#: Configs by name, or one option by option.
config_options = as_one(
    "configs",
    build_configs,
    _config_option(
        "A template or a mode with overrides, e.g. cudagraphs+graph_partition=false, or GraphNet's JSON, in base64 or "
        "not; repeatable."
    ),
    click.option(
        "--backend",
        default="inductor",
        help="Any back-end that torch has registered, or aot_inductor: exported, compiled into a library, loaded again.",
    ),
    click.option("--template", help="One of `inductor-watch templates`."),
    click.option("--mode", help="One of `inductor-watch modes`."),
    click.option("-c", "overrides", multiple=True, metavar="KEY=VALUE", help="An Inductor option by its dotted name."),
    click.option("--freezing/--no-freezing", default=None, help="Inline weights as constants."),
    click.option(
        "--dynamic/--no-dynamic",
        default=None,
        help="Mark the batch and the sequence as dynamic, and measure at a second size, too.",
    ),
    click.option("--dynamic-all", is_flag=True, help="Make every dimension dynamic: torch.compile(dynamic=True)."),
    click.option("--fullgraph", is_flag=True, help="Fail on a graph break."),
)

# What a run is asked to do

label_option = click.option("--label", default="", show_default=False, help="A word to find these runs by.")
replicates_option = click.option(
    "--replicates", type=POSITIVE, default=1, help="Measure everything so many times, as runs of one night."
)
#: What the runs are called.
naming_options = as_one(
    "names",
    RunNames,
    click.option("--branch", help="The branch that is measured [what the installed torch was built from]."),
    click.option("--commit", help="The commit that is measured [the installed torch's own]."),
    click.option(
        "--base",
        "branch_start",
        default="",
        show_default=False,
        metavar="SHA",
        help="The commit at which the branch left the main line.",
    ),
    click.option("--repo", default="pytorch/pytorch", help="The repository of branch and commit."),
    label_option,
)


def _parse_flags(_: click.Context, __: click.Parameter, words: tuple[str, ...]) -> BackendFlags:
    try:
        return BackendFlags.parse(words)
    except ValueError as error:
        raise click.UsageError(f"--flag {error}") from error


def _relative(_: click.Context, __: click.Parameter, folder: Path | None) -> str:
    # It is kept in the bundle, which may be given to others, and `resume` is called from here, too.
    return os.path.relpath(folder) if folder else ""


def _absolute(_: click.Context, __: click.Parameter, folder: Path | None) -> str:
    return str(folder.resolve()) if folder else ""


def _requested(**values: Any) -> RequestedOptions:
    execution = {item.name: values.pop(item.name) for item in fields(ExecutionOptions) if item.name in values}
    return RequestedOptions(Settings(**values), ExecutionOptions(**execution))


samples_option = click.option(
    "--samples",
    "rounds",
    type=click.IntRange(min=5),
    default=30,
    help="Samples of each latency: pairs of an eager and a compiled call.",
)
_SECONDS = click.FloatRange(min=1)
timeout_option = click.option(
    "--timeout", "timeout_s", type=_SECONDS, default=600, help="Seconds after which a cell is given up."
)
search_timeout_option = click.option(
    "--timeout", "timeout_s", type=_SECONDS, default=3600, help="Seconds after which the search is given up."
)
shared_tuning_option = click.option(
    "--shared-tuning",
    type=FOLDER,
    envvar="INDUCTOR_WATCH_TUNING",
    callback=_absolute,
    help="Folder in which the first process keeps what autotuning chose, for all later ones (or INDUCTOR_WATCH_TUNING).",
)
max_hours_option = click.option(
    "--max-hours",
    "budget_s",
    type=click.FloatRange(min=0),
    callback=lambda _, __, hours: float("inf") if hours is None else 3600 * hours,
    help="Start no cell after so many hours; `resume` measures the rest.",
)
_EXTRA = (
    click.option(
        "--precision",
        type=click.FloatRange(min=0.0001, max=1),
        callback=lambda _, __, fraction: fraction or 0.0,
        help="Sample until both medians are known to this fraction (at 95 % confidence), up to ten times --samples or 30 s.",
    ),
    click.option("--warm-compile", is_flag=True, help="Compile a second time, in a new process with full caches."),
    click.option(
        "--trace",
        type=FOLDER,
        callback=_relative,
        help="A folder for torch's trace of each compilation, to be read with tlparse; compiling takes longer.",
    ),
)
#: Measurements that a plan in a file can ask for.
extra_options = as_one("extra", ExtraMeasurements, *_EXTRA)
_MEASURING = (
    samples_option,
    timeout_option,
    click.option(
        "--workers",
        type=POSITIVE,
        default=1,
        help="Cells that compile at the same time, each on its own cores; while one is measured, the others pause.",
    ),
    click.option(
        "--start",
        type=click.Choice(["fork", "spawn"]),
        default="fork",
        help="Fork each cell from a process that has imported torch, or start a new Python for each: slower.",
    ),
    click.option(
        "--gpus", metavar="all|N,M...", help="The GPUs to measure on, each with its own workers [the first one]."
    ),
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
        help="The optimizer in a training step; PyTorch's own runner has Adam, or SGD for some models.",
    ),
    *_EXTRA,
    shared_tuning_option,
)
#: What a run is asked to do, as `RequestedOptions`.
measuring_options = as_one("requested", _requested, *_MEASURING)
#: The same for a night, which may be cut short and may share the device in other ways.
night_measuring_options = as_one(
    "requested",
    _requested,
    *_MEASURING,
    max_hours_option,
    click.option("--exclusive", is_flag=True, help="One cell at a time, on the cores of one of the --workers."),
    click.option(
        "--tune-together", is_flag=True, help="Let several cells autotune at once: faster, choices less certain."
    ),
)
