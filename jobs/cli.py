"""The command line `inductor-watch`, with one line for bad input, the exit codes of docs/architecture.md and no traceback."""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from typing import Any

import click

from collector.usage_errors import nearest
from jobs import tool_version
from jobs.options import DATABASE
from jobs.output.terminal import TO_RESUME, NothingBegunError, is_bug, report_error

#: For each verb, the module that defines its `VERB_command`, and its line of help.
VERBS = {
    "run": ("measuring", "measure some cells now, store and show them"),
    "check": ("check", "is a branch slower? two commits of a clone over the installed torch, measured in turn"),
    "census": (
        "census",
        "which code cells get on a GPU, generated without one; compared with a night, or commit by commit",
    ),
    "init": ("available", "write or check models.toml, your own models for every night"),
    "nightly": ("measuring", "measure the zoo under the night's configs, store and show them"),
    "resume": ("measuring", "go on with a run that was killed, interrupted or out of time"),
    "plan": ("measuring", "the cells a nightly would measure"),
    "ingest": ("files", "put bundles into the database"),
    "import": ("files", "read PyTorch's own files: benchmarks/dynamo, benchmark-v3, GraphNet"),
    "export": ("files", "write sides as benchmark-v3 JSON, CSV, bundles or Parquet"),
    "compare": ("compare", "two sides: suites, then what changed, and whether it is real"),
    "gate": ("compare", "judge two sides; the exit code says whether the new one may pass"),
    "report": ("report", "two sides for a job summary, a pull request, a file: Markdown, JSON or HTML"),
    "publish": ("report", "the newest nights as a static site, for any web server or GitHub Pages"),
    "regressions": ("regressions", "the records of what got worse: list, open, acknowledge, close, publish as issues"),
    "changepoints": ("alert_lines", "what changed in the histories, since when, and which commits can be to blame"),
    "backfill": ("builds", "measure builds of torch that are not installed, or commits without a build"),
    "bisect": ("builds", "which build, or commit, made one cell slower or broke it"),
    "explain": ("builds", "which part of the compiler a cell fails with, by torch's own compiler bisector"),
    "kernel": ("compare", "a script that runs one generated kernel of two sides alone, and times it"),
    "runs": ("db", "what the database holds"),
    "commits": ("files", "the repository's history: import, list, show what was reverted and landed again"),
    "templates": ("available", "the templates and what the installed torch makes of them"),
    "modes": ("available", "the modes of the installed torch, likewise"),
    "zoo": ("available", "the models, their batch sizes and what each needs"),
    "doctor": ("available", "what this machine can measure, and what it lacks"),
    "dashboard": ("db", "open the dashboard on a database"),
    "mcp": ("db", "serve the database to agents, over the Model Context Protocol"),
    "db": ("db", "create, upgrade, describe, check, thin out or rebuild the database, remove a run"),
}


class Verbs(click.Group):
    """A group that loads a verb's module on demand: `compare` then never imports torch, `zoo` never SQLAlchemy."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all verbs, in the order in which they are used."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a verb, or None for any other name."""
        if cmd_name not in VERBS:
            return None
        module, _ = VERBS[cmd_name]
        command: click.Command = getattr(import_module(f"jobs.commands.{module}"), f"{cmd_name}_command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a verb. Raise `click.UsageError` that names the nearest verbs for one that is misspelt."""
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            raise click.UsageError(f"no command {args[0]!r}: {nearest(args[0], VERBS)}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb. If an unexpected error comes from a damaged database, report the damage instead.

        If the reader of its output has ended, exit as a process that SIGPIPE ends: Click's exit code 1 would mean for `gate` that
        something regressed.
        """
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Without this Python prints another error when it closes standard output.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(128 + signal.SIGPIPE) from None
        except Exception as error:
            if DATABASE in ctx.meta and is_bug(error):
                from db.maintenance.consistency import damage_of

                if damage := damage_of(ctx.meta[DATABASE]):
                    raise damage from error
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in VERBS.items()])


_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True}


@click.group(cls=Verbs, context_settings=_SETTINGS)
@click.version_option(tool_version(), prog_name="inductor-watch")
def app() -> None:
    """Track TorchInductor's performance across commits: measure, store, compare, look."""


def main() -> None:
    """Run the command line; the entry point of the console script."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # a signal that nohup ignores stays ignored
            signal.signal(number, _end)
    try:
        code = app.main(prog_name="inductor-watch", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt) as error:
        is_begun = not isinstance(error.__cause__, NothingBegunError)  # of Click's own error
        measures = sys.argv[1:2] in (["run"], ["nightly"], ["resume"]) and is_begun
        what = f": {TO_RESUME}" if measures else ""
        click.echo(f"interrupted{what}", err=True)
        code = 130
    except Exception as error:
        code = report_error(error)
    sys.exit(code if isinstance(code, int) else 0)


def _end(number: int, _: object) -> None:
    """Exit by unwinding, so that processes end and temporary folders are removed; ignore further signals meanwhile."""
    for other in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(other, signal.SIG_IGN)
    raise SystemExit(128 + number)


if __name__ == "__main__":
    main()
