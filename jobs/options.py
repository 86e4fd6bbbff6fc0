"""Options that several verbs share, and how their texts become configs, phases and a store."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

import click

from collector.configs.spelling import parse_config, parse_value
from collector.machine.environment import TUNING_VARIABLE
from collector.vocabulary import Config, OptionValue, Phase
from jobs.option_groups import together

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


def _share(_: click.Context, __: click.Parameter, folder: Path | None) -> None:
    # By the environment, since it is part of the testbed: the process that finds out what this machine is gets it as well.
    if folder:
        os.environ[TUNING_VARIABLE] = str(folder.resolve())


sharing_option = click.option(
    "--shared-tuning",
    type=click.Path(file_okay=False, path_type=Path),
    envvar=TUNING_VARIABLE,
    callback=_share,
    expose_value=False,
    help=f"Folder in which the first process keeps what autotuning chose, for all later ones (or {TUNING_VARIABLE}).",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")

config_options = together(
    click.option(
        "--config",
        "configs",
        multiple=True,
        metavar="NAME[+key=value...]",
        help="A template or a mode with overrides, e.g. cudagraphs+graph_partition=false, or GraphNet's JSON, in base64 or "
        "not; repeatable.",
    ),
    click.option(
        "--backend",
        default="inductor",
        show_default=True,
        help="Any back-end that torch has registered, or aot_inductor: exported, compiled into a library, loaded again.",
    ),
    click.option("--template", help="One of `inductor-watch templates`."),
    click.option("--mode", help="One of `inductor-watch modes`."),
    click.option("-c", "overrides", multiple=True, metavar="KEY=VALUE", help="An Inductor option by its dotted name."),
    click.option("--freezing/--no-freezing", default=None, help="Inline weights as constants."),
    click.option("--dynamic/--no-dynamic", default=None, help="Dynamic shapes."),
    click.option("--fullgraph", is_flag=True, help="Fail on a graph break."),
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
