"""The requested options of a run: one object from the command line to the workers and into the bundle's header.

It is made from the options of the verbs that measure: the cells, their configs, and how to measure them. `resume` reads it back
and needs no other option.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import click

from collector.configs import parse_config
from collector.device import DEVICES
from collector.settings import OPTIMIZERS, BackendFlags, Settings
from collector.vocabulary import DTYPES, Config
from jobs.options import FOLDER, INPUT_FILE, PHASES, POSITIVE, Decorator, as_one, repeatable, together


@dataclass(frozen=True, slots=True)
class Selection:
    """The selected models and their forms; empty or None for options not given. `models_file` has the user's own models.

    `everything` selects the whole zoo instead of a night's default models, besides the user's own models.
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
        """Return a JSON object; `from_json` reads it back."""
        return {
            name: value for name, value in asdict(self).items() if value or name not in ("models_file", "everything")
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Selection:
        """Return the selection of a JSON object of `to_json`."""
        values: dict[str, Any] = {name: tuple(value) if type(value) is list else value for name, value in data.items()}
        return cls(**values)

    @property
    def is_narrowed(self) -> bool:
        """Return whether any of suites, models, phases, dtype and batch size was given."""
        return any((self.suites, self.models, self.phases, self.dtype, self.batch_size))


def job_url(environ: Mapping[str, str] = os.environ) -> str:
    """Return the URL of the job's page, so that a run links to its log; empty outside a service that gives it.

    GitHub Actions documents the URL's three parts under "Default environment variables"; GitLab and Jenkins give the whole URL.
    """
    server, repo, run = (environ.get(f"GITHUB_{name}", "") for name in ("SERVER_URL", "REPOSITORY", "RUN_ID"))
    if server and repo and run:
        attempt = environ.get("GITHUB_RUN_ATTEMPT", "")
        return f"{server}/{repo}/actions/runs/{run}" + (f"/attempts/{attempt}" if attempt else "")
    return environ.get("CI_JOB_URL") or environ.get("BUILD_URL") or ""


def workflow_night(environ: Mapping[str, str] = os.environ) -> str:
    """Return a name for the night of this workflow run, equal in all of its jobs; empty outside GitHub Actions.

    The name has the attempt, since a workflow that is run again from its start is another night.
    """
    run, attempt = environ.get("GITHUB_RUN_ID", ""), environ.get("GITHUB_RUN_ATTEMPT", "")
    return f"actions-{run}-{attempt or 1}" if run else ""


@dataclass(frozen=True, slots=True)
class RunNames:
    """The names of a run. The default commit is the installed torch's own, the default branch the one it was built from.

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
    """The options for executing a plan.

    On each GPU `workers` cells compile at once; None, until the devices are known, stands for as many as fit. After `budget_s`
    seconds no further cell starts. `start` is `fork` (from a process that has imported everything) or `spawn` (a new process for
    each cell). `gpus` is as in `jobs.pool.device_slots.choose_gpus`. `overlay` is a folder from which torch is imported in place
    of the installed torch, and `source` describes it (`jobs.builds.overlay`). With `confirm` changed cells are measured again
    (`jobs.checking.confirming`). For `carried_nights` nights a cell whose code did not change is carried over, 0 for none
    (`jobs.plan.spared_cells`).
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
    """The options for measuring each cell (`settings`, which the worker gets) and for executing the plan (`execution`)."""

    settings: Settings = field(default_factory=Settings)
    execution: ExecutionOptions = field(default_factory=ExecutionOptions)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object for a header or another process, without the budget: each attempt has its own.

        The bundle format calls the execution options `pace`.
        """
        execution = {
            name: value for name, value in asdict(self.execution).items() if name != "budget_s" and value != ""
        }
        return {"settings": self.settings.to_json(), "pace": execution}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], budget_s: float = float("inf")) -> RequestedOptions:
        """Return the options of `to_json`, with this attempt's budget. Raises `KeyError` or `TypeError` for another object.

        Settings that a scheduler makes for each cell are left out, above all folders of compiled programs and candidates: their
        files are loaded and run, and anybody may have written the header.
        """
        known = {item.name for item in fields(ExecutionOptions)}
        execution = {name: value for name, value in data["pace"].items() if name in known}
        settings = Settings.from_json(data["settings"])
        settings = replace(settings, compiled="", candidates="", compile_cores=(), passed_code="", unchecked=False)
        return cls(settings, ExecutionOptions(**execution | {"budget_s": budget_s}))


#: The default folder in which a census caches code for the next one.
DEFAULT_CACHE = Path("~/.cache/inductor-watch/census")

device_option = click.option(
    "--device", type=click.Choice(list(DEVICES)), help="Where to measure [the GPU if there is one]."
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
#: Options that select the cells to measure.
selection_options = as_one("selection", Selection, *_SELECTION)


def _config_option(text: str) -> Decorator[Any]:
    return click.option("--config", "configs", multiple=True, metavar="NAME[+key=value...]", help=text)


def _of_night(**given: Any) -> Selection:
    selection = Selection(**given)
    if selection.everything and (selection.suites or selection.models):
        raise click.UsageError("--all measures the whole zoo: leave out --suite and --model")
    return selection


#: Options for the cells of a night: the selection, and configs by name.
night_options = together(
    as_one(
        "selection",
        _of_night,
        *_SELECTION,
        click.option("--all", "everything", is_flag=True, help="The whole zoo, not the default models."),
    ),
    _config_option("A config of `templates` or `modes`, with overrides; repeatable [those of the night]."),
)


def build_configs(configs: tuple[str, ...], backend: str | None) -> list[Config]:
    """Return every `--config`, or the config of `torch.compile` without options; each with the back-end if one is named."""
    named = [parse_config(text) for text in configs] or [Config()]
    return [replace(config, backend=backend) for config in named] if backend else named


#: Options for configs by name, and their back-end.
config_options = as_one(
    "configs",
    build_configs,
    _config_option(
        "A template or a mode with options, e.g. cudagraphs+graph_partition=false, default+freezing=true, triton+dynamic, "
        "aten+fullgraph, or GraphNet's JSON, in base64 or not; repeatable."
    ),
    click.option(
        "--backend",
        help="Any back-end that torch has registered, or aot_inductor: exported, compiled into a library, loaded again. "
        "[inductor, or what --config says]",
    ),
)


def night_name_option(text: str) -> Decorator[Any]:
    """Return the option `--night`, the name of a night; `text` is its help."""
    return click.option(
        "--night", default="", show_default=False, envvar="INDUCTOR_WATCH_NIGHT", metavar="NAME", help=text
    )


# The requested options of a run

label_option = click.option("--label", default="", show_default=False, help="A word to find these runs by.")
replicates_option = click.option(
    "--replicates", type=POSITIVE, default=1, help="Measure everything so many times, as runs of one night."
)
#: Options for the names of the runs.
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
    # The path is stored in the bundle, which may be published, and `resume` is called from this folder, too.
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
    help="Samples of the compiled latency; eager has half as many, between them.",
)
_SECONDS = click.FloatRange(min=1)
timeout_option = click.option(
    "--timeout", "timeout_s", type=_SECONDS, default=1800, help="Seconds after which a cell is given up."
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
cache_option = click.option(
    "--cache",
    type=FOLDER,
    default=DEFAULT_CACHE,
    help="Folder for generated code and compiled programs that later checks find.",
)
max_hours_option = click.option(
    "--max-hours",
    "budget_s",
    type=click.FloatRange(min=0),
    callback=lambda _, __, hours: float("inf") if hours is None else 3600 * hours,
    help="Start no cell after so many hours; `resume` measures the rest.",
)
#: Options that change the compiled program besides the config.
_PROGRAM = (
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
)
_MEASURING = (
    samples_option,
    timeout_option,
    click.option(
        "--workers",
        type=POSITIVE,
        help="Cells that compile at the same time on each GPU, each on its own cores; a third more may wait or be stopped "
        "meanwhile. [as many as cores and memory allow on a GPU, 1 on a CPU]",
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
    *_PROGRAM,
    click.option(
        "--precision",
        type=click.FloatRange(min=0.0001, max=1),
        callback=lambda _, __, fraction: fraction or 0.0,
        help="Sample until both medians are known to this fraction (at 95 % confidence), up to ten times --samples or 30 s.",
    ),
    click.option("--warm-compile", is_flag=True, help="Compile a second time, in a new process with full caches."),
    click.option(
        "--energy",
        is_flag=True,
        help="Measure the joules of a call, for which each cell has the GPU alone for 0.8 to 3 s.",
    ),
    click.option(
        "--trace",
        type=FOLDER,
        callback=_relative,
        help="A folder for torch's trace of each compilation, to be read with tlparse; compiling takes longer.",
    ),
    shared_tuning_option,
)
#: The options of measuring, as `RequestedOptions`.
measuring_options = as_one("requested", _requested, *_MEASURING)
#: The options of measuring a night, which may be cut short.
night_measuring_options = as_one("requested", _requested, *_MEASURING, max_hours_option)
#: The options of a census, which measures nothing.
generating_options = as_one("requested", _requested, timeout_option, *_PROGRAM)
