"""Options that several verbs share, and how their texts become configs, phases and a store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click

from collector.spelling import parse_config, parse_value
from collector.vocabulary import DTYPES, Config, OptionValue, Phase

F = TypeVar("F", bound=Callable[..., Any])


def _all(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


#: Under this name the contexts of a command share which database it was told to use.
DATABASE = f"{__name__}.database"


def _remember(context: click.Context, _: click.Parameter, place: str) -> str:
    context.meta[DATABASE] = place
    return place


db_option = click.option(
    "--db",
    "database",
    callback=_remember,
    envvar="INDUCTOR_WATCH_DB",
    default="inductor-watch.db",
    show_default=True,
    metavar="PATH|URL",
    help="The database (or INDUCTOR_WATCH_DB).",
)


def _check_dashboard(_: click.Context, __: click.Parameter, url: str) -> str:
    """The address as it is given. Raises `click.UsageError` if it is no http(s) address."""
    if not url:
        return ""
    try:
        found = urlsplit(url)
        is_fine = found.scheme in ("http", "https") and bool(found.hostname) and not (found.query or found.fragment)
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
    metavar="URL",
    help="Where the dashboard is, for links (or INDUCTOR_WATCH_DASHBOARD_URL).",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")

selection_options = _all(
    click.option("--suite", "suites", multiple=True, help="Suites to take [all installed]."),
    click.option("--model", "models", multiple=True, help="Models by name or pattern, e.g. 'Bert*'."),
    click.option("--phase", "phases", multiple=True, type=click.Choice([p.value for p in Phase]), help="[inference]"),
    click.option("--dtype", type=click.Choice(DTYPES), help="[bfloat16 on a GPU, float32 on a CPU]"),
    click.option("--device", type=click.Choice(["cuda", "cpu"]), help="[the GPU if there is one]"),
    click.option("--batch-size", type=click.IntRange(min=1), help="[each model's own]"),
)

config_options = _all(
    click.option(
        "--config",
        "configs",
        multiple=True,
        metavar="NAME[+key=value...]",
        help="A template or a mode with overrides, e.g. cudagraphs+graph_partition=false, or GraphNet's JSON, in base64 or "
        "not; repeatable.",
    ),
    click.option("--backend", default="inductor", show_default=True, help="Any back-end that torch has registered."),
    click.option("--template", help="One of `inductor-watch templates`."),
    click.option("--mode", help="One of `inductor-watch modes`."),
    click.option("-c", "overrides", multiple=True, metavar="KEY=VALUE", help="An Inductor option by its dotted name."),
    click.option("--freezing/--no-freezing", default=None, help="Inline weights as constants."),
    click.option("--dynamic/--no-dynamic", default=None, help="Dynamic shapes."),
    click.option("--fullgraph", is_flag=True, help="Fail on a graph break."),
)

naming_options = _all(
    click.option("--branch", help="[what the installed torch was built from]"),
    click.option("--commit", help="[the installed torch's own]"),
    click.option("--base", default="", metavar="SHA", help="The commit at which the branch left the main line."),
    click.option("--repo", default="pytorch/pytorch", show_default=True, help="The repository of branch and commit."),
    click.option("--label", default="", help="A word to find this run by."),
)

measuring_options = _all(
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
)

more_measuring_options = _all(
    click.option(
        "--precision",
        type=click.FloatRange(min=0.0001, max=1),
        help="Sample on until both medians are known to this fraction (95 %), up to ten times --samples or 30 s.",
    ),
    click.option("--warm-compile", is_flag=True, help="Compile once more in a new process that finds the caches full."),
    click.option(
        "--replicates",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="Measure everything so many times, each time in new processes: runs of one night.",
    ),
    click.option(
        "--trace",
        type=click.Path(file_okay=False, path_type=Path),
        help="Folder for torch's trace of each compilation, one a cell, to be read with tlparse; compiling takes longer.",
    ),
)


def parse_phases(words: tuple[str, ...]) -> tuple[Phase, ...]:
    """The phases asked for; inference where none is."""
    return tuple(Phase(word) for word in words) or (Phase.INFERENCE,)


def build_configs(
    configs: tuple[str, ...],
    template: str | None,
    mode: str | None,
    overrides: tuple[str, ...],
    freezing: bool | None,
    dynamic: bool | None,
    fullgraph: bool,
    backend: str = "inductor",
) -> list[Config]:
    """The configs that the options spell: every `--config`, or the one that the single options make up.

    Raises:
        click.UsageError: both forms at once, or an override without `=`.
    """
    single = Config(
        backend=backend,
        template=template,
        mode=mode,
        overrides=dict(_override(text) for text in overrides),
        freezing=freezing,
        dynamic=dynamic,
        fullgraph=fullgraph,
    )
    if configs and single != Config():
        raise click.UsageError("use --config NAME+key=value, or --backend, --template, --mode and -c, not both")
    return [parse_config(text) for text in configs] or [single]


def _override(text: str) -> tuple[str, OptionValue]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise click.UsageError(f"-c {text!r}: write KEY=VALUE, e.g. -c triton.cudagraphs=true")
    return key, parse_value(value)
