"""Options that several verbs share, so that each has one name, one default and one help text.

A group of options reaches its verb as one object (`as_one`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import SplitResult, urlsplit

import click
from click.core import ParameterSource

from collector.vocabulary import Phase

if TYPE_CHECKING:
    from db.queries.cells import CellFilter


#: Names of this host, which needs no proxy and no encryption.
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def split_address(name: str, text: str) -> SplitResult:
    """Return the parts of the address that an option or a variable holds. Raises `click.UsageError` if it is no address."""
    try:
        parts = urlsplit(text)
        is_fine = bool(parts.hostname) and (parts.port or 1) > 0 and text.isprintable()
    except ValueError:
        is_fine = False
    if not is_fine:
        raise click.UsageError(f"{name} is no address such as https://host/path")
    return parts


def check_secret_address(name: str, text: str) -> str:
    """Return an address that may hold a secret or gets one. Raises `click.UsageError` unless it is https, or on this host."""
    parts = split_address(name, text)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOOPBACK):
        raise click.UsageError(f"{name} must be an https:// address: a secret is in it, or sent there")
    return text


def check_token(name: str, text: str) -> str:
    """Return a token. Raises `click.UsageError` if it cannot be part of a header."""
    if not re.fullmatch(r"[\x21-\x7e]*", text):
        raise click.UsageError(f"{name} holds characters that no token has: copy it again")
    return text


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
    """Combine several options into one decorator; `--help` shows them in this order."""

    def decorate(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def as_one(name: str, make: Callable[..., Any], *options: Decorator[Any]) -> Decorator[Any]:
    """Pass several options to the command as one argument `name`: the result of `make` for their values by name."""
    names = [parameter.name for parameter in click.command()(together(*options)(lambda: None)).params]

    def decorate(function: Any) -> Any:
        @wraps(function)
        def called(*rest: Any, **given: Any) -> Any:
            values = {option: given.pop(option) for option in names}
            return function(*rest, **{name: make(**values)}, **given)

        return together(*options)(called)

    return decorate


class Moment(click.ParamType[datetime]):
    """A day or moment from the command line, in UTC unless it says otherwise."""

    name = "date"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Return the moment in UTC."""
        from db.stored_values import from_epoch, to_epoch

        try:
            return from_epoch(to_epoch(value))
        except ValueError:
            return self.fail(f"{value!r} is no date: write 2026-08-01 or 2026-08-01T12:00", param, ctx)


def refuse_given(names: Iterable[str], why: str) -> None:
    """Raise `click.UsageError` for the first of these options that the command line names; `why` says what to do."""
    context = click.get_current_context()
    for name in names:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = next(item for item in context.command.params if item.name == name).opts[0]
            raise click.UsageError(f"{option} {why}")


def example(words: str) -> str:
    """Return the end of a verb's --help: a command line that it takes."""
    return f"\b\nExample:\n  inductor-watch {words}"  # \b: Click does not rewrap the lines


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


def check_page_address(_: click.Context, parameter: click.Parameter, url: str) -> str:
    """Return the address unchanged. Raises `click.UsageError` if it is no http(s) address, or cannot be used in a link."""
    option = parameter.opts[0]
    parts = split_address(option, url) if url else None
    if parts and (
        parts.scheme not in ("http", "https") or parts.query or parts.fragment or set(url) & set(" <>\"'`|\\")
    ):
        raise click.UsageError(f"{option} is no address such as https://host/path")
    return url


dashboard_option = click.option(
    "--dashboard-url",
    callback=check_page_address,
    envvar="INDUCTOR_WATCH_DASHBOARD_URL",
    default="",
    show_default=False,
    metavar="URL",
    help="Where the dashboard is, for links (or INDUCTOR_WATCH_DASHBOARD_URL).",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Machine-readable output.")


@dataclass(frozen=True, slots=True)
class Storage:
    """The folder of the bundles, the database, and whether nothing is stored in it."""

    out: Path
    no_store: bool
    database: str

    @property
    def target(self) -> str | None:
        """The database to store into, if any."""
        return None if self.no_store else self.database


_out_option = click.option("--out", type=FOLDER, default=Path("runs"), help="The folder of the bundles.")
storage_options = as_one(
    "storage",
    Storage,
    _out_option,
    click.option("--no-store", is_flag=True, help="Write bundles only; `ingest` can store them later, or elsewhere."),
    db_option,
)
#: Storage options of a verb that reads its own measurements, which are always stored.
stored_options = as_one("storage", lambda out, database: Storage(out, False, database), _out_option, db_option)


def repeatable(what: str, plural: str, text: str, **more: Any) -> Decorator[Any]:
    """Return the option `--what`, which may be given several times."""
    return click.option(f"--{what}", plural, multiple=True, metavar="NAME", help=f"{text}; repeatable.", **more)


def _cell_filter(**names: tuple[str, ...]) -> CellFilter:
    from db.queries.cells import CellFilter

    return CellFilter(**names)


_OF_A_MODEL = (
    repeatable("phase", "phases", "Only this phase, by name or pattern"),
    repeatable("dtype", "dtypes", "Only this dtype, by name or pattern"),
    repeatable("device", "devices", "Only this device, by name or pattern"),
    repeatable("config", "configs", "Only this config, by name, pattern or config_id"),
)
#: Options that choose stored cells, as a `db.queries.cells.CellFilter` with patterns in it.
cell_options = as_one(
    "chosen",
    _cell_filter,
    repeatable("suite", "suites", "Only this suite, by name or pattern"),
    repeatable("model", "models", "Only this model, by name or pattern, e.g. 'Bert*'"),
    *_OF_A_MODEL,
)
#: `cell_options` of a verb whose model is an argument.
model_cell_options = as_one("chosen", _cell_filter, *_OF_A_MODEL)
branch_option = click.option("--branch", help="Only runs of this branch.")
