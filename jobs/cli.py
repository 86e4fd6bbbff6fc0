"""The command line `inductor-watch`: one line for bad input, the exit codes of docs/architecture.md, no traceback."""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from typing import Any, NamedTuple

import click

from collector.errors import nearest
from jobs import tool_version
from jobs.errors import is_bug, report_error
from jobs.options import DATABASE


class Verb(NamedTuple):
    """Where a verb is (its command is `VERB_command` there), its line of help, and the example at the end of its --help."""

    module: str
    text: str
    example: str


VERBS = {
    "run": Verb(
        "run",
        "measure some cells now, store and show them",
        "run --model 'Bert*' --config cudagraphs --config max_autotune",
    ),
    "check": Verb(
        "check",
        "is a branch slower? two commits of a clone over the installed torch, measured in turn",
        "check main my-branch --repo ~/pytorch --minutes 10",
    ),
    "init": Verb("available", "write or check models.toml, your own models for every night", "init my_models:small"),
    "nightly": Verb(
        "nightly",
        "measure the zoo under the night's configs, store and show them",
        "nightly --gpus all --workers 8 --max-hours 2",
    ),
    "resume": Verb("run", "go on with a run that was killed, interrupted or out of time", "resume --retry-failed"),
    "plan": Verb("plan", "the cells a nightly would measure", "plan --model T5Small --config triton --json"),
    "ingest": Verb("files", "put bundles into the database", "ingest runs"),
    "import": Verb(
        "files",
        "read PyTorch's own files: benchmarks/dynamo, benchmark-v3, GraphNet",
        "import test-reports --commit 4f2b1c9 --branch main --date 2026-11-20",
    ),
    "export": Verb(
        "files",
        "write sides as benchmark-v3 JSON, CSV, bundles or Parquet",
        "export latest --format csv --out night.csv",
    ),
    "compare": Verb(
        "compare", "two sides: suites, then what changed, and whether it is real", "compare latest~1 latest"
    ),
    "gate": Verb(
        "compare",
        "judge two sides; the exit code says whether the new one may pass",
        "gate main my-branch --fail-on regressed,broke",
    ),
    "report": Verb(
        "report",
        "two sides for a job summary, a pull request, a file: Markdown, JSON or HTML",
        "report main my-branch --format html --out report.html",
    ),
    "regressions": Verb(
        "regressions",
        "the records of what got worse: list, open, acknowledge, close, publish as issues",
        "regressions list",
    ),
    "changepoints": Verb(
        "changepoints",
        "what changed in the histories, since when, and which commits can be to blame",
        "changepoints --branch main --model T5Small",
    ),
    "backfill": Verb(
        "backfill",
        "measure builds of torch that are not installed, or commits without a build",
        "backfill --torch 2.12.1 --torch 2.13.0",
    ),
    "bisect": Verb(
        "bisect",
        "which build, or commit, made one cell slower or broke it",
        "bisect --model T5Small --config triton --good 2.12.1 --bad 2.13.0",
    ),
    "explain": Verb(
        "bisect",
        "which part of the compiler a cell fails with, by torch's own compiler bisector",
        "explain latest T5Small --config max_autotune",
    ),
    "runs": Verb("runs", "what the database holds", "runs --branch main"),
    "commits": Verb(
        "commits",
        "the repository's history: import, list, show what was reverted and landed again",
        "commits import --git pytorch",
    ),
    "templates": Verb(
        "available", "the templates and what the installed torch makes of them", "templates --device cuda"
    ),
    "modes": Verb("available", "the modes of the installed torch, likewise", "modes --json"),
    "zoo": Verb("available", "the models, their batch sizes and what each needs", "zoo --suite timm"),
    "doctor": Verb("available", "what this machine can measure, and what it lacks", "doctor"),
    "dashboard": Verb("runs", "open the dashboard on a database", "dashboard --db inductor-watch.db"),
    "db": Verb("db", "create, upgrade, describe, check, thin out or rebuild the database, remove a run", "db check"),
}


class Verbs(click.Group):
    """Loads a verb's module when it is asked for: `compare` then never imports torch, `zoo` never SQLAlchemy."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every verb, in the order in which they are used."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb's command, or None if there is none of that name."""
        if cmd_name not in VERBS:
            return None
        verb = VERBS[cmd_name]
        command: click.Command = getattr(import_module(f"jobs.commands.{verb.module}"), f"{cmd_name}_command")
        command.epilog = f"\b\nExample:\n  inductor-watch {verb.example}"  # \b: Click leaves the lines as they are
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Names the nearest verbs when one is misspelt."""
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            raise click.UsageError(f"no command {args[0]!r}: {nearest(args[0], VERBS)}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the verb. If an unexpected error comes from a damaged database, reports the damage instead."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            if DATABASE in ctx.meta and is_bug(error):
                from db.maintenance.check import damage_of

                if damage := damage_of(ctx.meta[DATABASE]):
                    raise damage from error
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the verbs without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.text) for name, verb in VERBS.items()])


_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True}


@click.group(cls=Verbs, context_settings=_SETTINGS)
@click.version_option(tool_version(), prog_name="inductor-watch")
def app() -> None:
    """Track TorchInductor's performance across commits: measure, store, compare, look."""


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


def _end(number: int, _: object) -> None:
    """Unwinds, so that processes are ended and temporary folders removed; a second signal must not cut that short."""
    for other in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(other, signal.SIG_IGN)
    raise SystemExit(128 + number)


if __name__ == "__main__":
    main()
