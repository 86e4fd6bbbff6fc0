"""The command line `inductor-watch`: one line for bad input, the exit codes of docs/architecture.md, no traceback."""

from __future__ import annotations

import errno
import importlib
import importlib.util
import keyword
import os
import signal
import sys
import traceback
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import click

#: Exit codes of errors; 2 is also that of Click for wrong usage.
USAGE, INTERNAL = 2, 4

#: Each verb with its line of help and the example at the end of its --help. It is the module of that name under jobs.commands
#: (`import` would be a keyword, hence the trailing underscore).
VERBS = {
    "run": (
        "measure some cells now, store and show them",
        "run --model 'Bert*' --config cudagraphs --config max_autotune",
    ),
    "nightly": (
        "measure the zoo under the night's configs, store and show them",
        "nightly --gpus all --workers 8 --max-hours 2",
    ),
    "resume": ("go on with a run that was killed, interrupted or out of time", "resume --retry-failed"),
    "plan": ("the cells a nightly would measure", "plan --model T5Small --config triton --json"),
    "ingest": ("put bundles into the database", "ingest runs"),
    "import": (
        "read PyTorch's own files: benchmarks/dynamo, benchmark-v3, GraphNet",
        "import test-reports --commit 4f2b1c9 --branch main --date 2026-11-20",
    ),
    "export": (
        "write sides as benchmark-v3 JSON, CSV, bundles or Parquet",
        "export latest --format csv --out night.csv",
    ),
    "compare": ("two sides: suites, then what changed, and whether it is real", "compare latest~1 latest"),
    "gate": (
        "judge two sides; the exit code says whether the new one may pass",
        "gate main my-branch --fail-on regressed,broke",
    ),
    "report": (
        "two sides for a job summary, a pull request, a file: Markdown, JSON or HTML",
        "report main my-branch --format html --out report.html",
    ),
    "regressions": (
        "the records of what got worse: list, open, acknowledge, close, publish as issues",
        "regressions list",
    ),
    "changepoints": (
        "what changed in the histories, since when, and which commits can be to blame",
        "changepoints --branch main --model T5Small",
    ),
    "backfill": (
        "measure builds of torch that are not installed, and store them under their own commits",
        "backfill --torch 2.12.1 --torch 2.13.0",
    ),
    "bisect": (
        "which build, or commit, made one cell slower or broke it",
        "bisect --model T5Small --config triton --good 2.12.1 --bad 2.13.0",
    ),
    "runs": ("what the database holds", "runs --branch main"),
    "commits": (
        "the repository's history: import, list, show what was reverted and landed again",
        "commits import --git pytorch",
    ),
    "templates": ("the templates and what the installed torch makes of them", "templates --device cuda"),
    "modes": ("the modes of the installed torch, likewise", "modes --json"),
    "zoo": ("the models, their batch sizes and what each needs", "zoo --suite timm"),
    "doctor": ("what this machine can measure, and what it lacks", "doctor"),
    "dashboard": ("open the dashboard on a database", "dashboard --db inductor-watch.db"),
    "db": ("create, upgrade, describe, check, thin out or rebuild the database, remove a run", "db check"),
}


def tool_version() -> str:
    """The installed version of this program."""
    try:
        return version("inductor-watch")
    except PackageNotFoundError:
        return "0"


class Verbs(click.Group):
    """Loads a verb's module when it is asked for: `compare` then never imports torch, `zoo` never SQLAlchemy."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every verb, in the order in which they are used."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb's command, or None if there is none of that name."""
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"jobs.commands.{_module_of(cmd_name)}").command
        command.epilog = (
            f"\b\nExample:\n  inductor-watch {VERBS[cmd_name][1]}"  # \b: Click leaves the lines as they are
        )
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Names the nearest verbs when one is misspelt."""
        from collector.errors import nearest

        if args and args[0] not in VERBS and not args[0].startswith("-"):
            raise click.UsageError(f"no command {args[0]!r}: {nearest(args[0], VERBS)}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the verb. If an unexpected error comes from a damaged database, reports the damage instead."""
        from jobs.options import DATABASE

        try:
            return super().invoke(ctx)
        except Exception as error:
            if DATABASE in ctx.meta and _has_store() and _is_unforeseen(error):
                from db.maintenance.damage import damage_of

                if damage := damage_of(ctx.meta[DATABASE]):
                    raise damage from error
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the verbs without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(verb, text) for verb, (text, _) in VERBS.items()])


def _has_store() -> bool:
    """Whether the store can be used at all: a host that only measures may lack SQLAlchemy."""
    return importlib.util.find_spec("sqlalchemy") is not None


def _is_unforeseen(error: Exception) -> bool:
    known = (*expected_errors(), OSError, click.ClickException, click.Abort, click.exceptions.Exit)
    return not isinstance(error, known)


def _module_of(verb: str) -> str:
    return f"{verb}_" if keyword.iskeyword(verb) else verb


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(tool_version(), prog_name="inductor-watch")
def app() -> None:
    """Track TorchInductor's performance across commits: measure, store, compare, look."""


def expected_errors() -> dict[type[BaseException], int]:
    """Errors of the input or of the machine, with their exit code; all others are bugs."""
    from collector.bundle import BundleError
    from collector.errors import ConfigError
    from collector.process.launcher import LauncherError
    from collector.zoo.spec import ZooError
    from jobs.pool.gpu_scheduler import LostDeviceError
    from jobs.pool.host import HostError

    codes: dict[type[BaseException], int] = dict.fromkeys((ConfigError, ZooError, HostError, BundleError), USAGE)
    codes |= {LostDeviceError: INTERNAL, LauncherError: INTERNAL}
    if _has_store():
        from db.errors import CommitError, ExportingError, FilterError, RecordError, SideError, StoreError
        from db.importing.rows import ImportingError
        from jobs.git.log import GitError

        codes |= {ImportingError: USAGE, ExportingError: USAGE, RecordError: USAGE}
        codes |= {SideError: USAGE, FilterError: USAGE, CommitError: USAGE, GitError: USAGE, StoreError: INTERNAL}
    return codes


def main() -> None:
    """Entry point of the console script."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # nohup has it ignored, and so it stays
            signal.signal(number, _end)
    try:
        code = app.main(prog_name="inductor-watch", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        code = error.exit_code
    except click.ClickException as error:
        click.echo(f"inductor-watch: {one_line(spell(error))}", err=True)
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        measures = sys.argv[1:2] in (["run"], ["nightly"], ["resume"])
        what = ": what was measured is in the bundle, `inductor-watch resume` measures the rest" if measures else ""
        click.echo(f"interrupted{what}", err=True)
        code = 130
    except BrokenPipeError:
        # The reader of a pipe has ended; without this Python prints another error when it closes standard output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except Exception as error:
        code = report_error(error)
    sys.exit(code if isinstance(code, int) else 0)


def spell(error: click.ClickException) -> str:
    """The text of an error of Click's; for a wrong command line also where the right one is described."""
    text = error.format_message().rstrip(".")
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f"{text} (see {context.command_path} --help)" if context else text


def _end(number: int, _: object) -> None:
    """Unwinds, so that processes are ended and temporary folders removed; a second signal must not cut that short."""
    for other in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(other, signal.SIG_IGN)
    raise SystemExit(128 + number)


def report_error(error: Exception) -> int:
    """Prints one line for an error and returns its exit code; `INDUCTOR_WATCH_TRACEBACK=1` shows the traceback of a bug."""
    expected = expected_errors()
    for kind, code in expected.items():
        if isinstance(error, kind):
            click.echo(f"inductor-watch: {one_line(str(error))}", err=True)
            return code
    if isinstance(error, OSError):
        file = f"{error.filename}: " if error.filename else ""
        advice = ": make room and repeat; what was written before is whole" if error.errno == errno.ENOSPC else ""
        click.echo(one_line(f"inductor-watch: {file}{error.strerror or error}{advice}"), err=True)
        return INTERNAL
    if isinstance(error, ModuleNotFoundError) and str(error.name).partition(".")[0] == "torch":
        click.echo("inductor-watch: this needs torch, and the Python that runs it has none: install it there", err=True)
        return USAGE
    if isinstance(error, ImportError) and _comes_from_torch(error):
        click.echo(f"inductor-watch: torch does not import here: {one_line(str(error))}: install it again", err=True)
        return USAGE
    if os.environ.get("INDUCTOR_WATCH_TRACEBACK"):
        raise error
    text = one_line(str(error)) or "no message"
    where = "(INDUCTOR_WATCH_TRACEBACK=1 says where)"
    click.echo(f"inductor-watch: internal error, {type(error).__name__}: {text} {where}", err=True)
    return INTERNAL


def _comes_from_torch(error: Exception) -> bool:
    """Whether torch, or a library that it needs, raised it: a build for another CUDA or Python is installed."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(str(frame.f_globals.get("__name__")).partition(".")[0] == "torch" for frame in frames)


def one_line(text: str) -> str:
    """A message's words on one line, without characters that steer the terminal."""
    from jobs.output import terminal

    return terminal.one_line(" ".join(text.split()))


if __name__ == "__main__":
    main()
