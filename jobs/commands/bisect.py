"""`inductor-watch bisect` finds the torch build or the commit that changed a cell, `explain` the part of the compiler."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from analysis.history.bisection import level_of, looks
from collector.configs.spelling import parse_config
from collector.metrics import METRICS
from collector.settings import Settings
from db.engine import open_store
from db.queries.filters import CellFilter
from jobs.bisect.judges import OF_COMPILING, MetricJudge, StatusJudge
from jobs.bisect.search import Answer, Bisection, BisectionLog
from jobs.bisect.sources import Checkouts, Overlays, TorchBuilds, builds_between, commits_between
from jobs.builds.environment import Environments
from jobs.builds.options import BuildOptions, SourceOptions, build_options, overlay_options, overlays_option
from jobs.measuring_options import (
    batch_size_option,
    device_option,
    dtype_option,
    models_file_option,
    samples_option,
    search_timeout_option,
    shared_tuning_option,
    timeout_option,
)
from jobs.options import FOLDER, PHASES, Storage, as_one, example, json_option, model_cell_options, storage_options
from jobs.output.terminal import one_line, print_json, tell
from jobs.plan.local_models import local_models
from jobs.pool.child import Request
from jobs.pool.explaining import explain, failing_cell, keep
from jobs.pool.requested_options import RequestedOptions, RunNames, Selection
from jobs.pool.resuming import bundle_named
from jobs.pool.session import storing

#: What looks for a cell that broke, instead of one that got slower.
STATUS = "status"


class InconclusiveError(click.ClickException):
    """The measurements do not tell; what they do tell has been printed."""

    exit_code = 3


def _of_one(suite: str | None, phase: str | None, **form: Any) -> Selection:
    return Selection(suites=(suite,) if suite else (), phases=(phase,) if phase else (), **form)


@click.command(epilog=example("bisect --model T5Small --config triton --good 2.12.1 --bad 2.13.0"))
@click.option("--model", required=True, help="A model of `zoo` or of --models-file, or your own as module:function.")
@click.option(
    "--config", required=True, metavar="NAME[+key=value...]", help="A config of `templates` or `modes`, with overrides."
)
@as_one(
    "selection",
    _of_one,
    click.option(
        "--suite", metavar="NAME", help="The model's suite, needed where two suites have a model of this name."
    ),
    click.option("--phase", type=PHASES, help="Forward alone, or forward and backward [inference]."),
    dtype_option,
    device_option,
    batch_size_option,
    models_file_option,
)
@click.option(
    "--metric",
    type=click.Choice([*METRICS, STATUS]),
    metavar="NAME",
    default="compiled_ms",
    help="The metric that got worse; `status` for a cell that broke.",
)
@click.option(
    "--smallest",
    type=click.FloatRange(min=0, min_open=True),
    help="The smallest change to look for, e.g. 0.05 for 5 % [the metric's own].",
)
@click.option("--good", required=True, metavar="VERSION|COMMIT", help="The older end.")
@click.option("--bad", required=True, metavar="VERSION|COMMIT", help="The newer end.")
@click.option(
    "--torch",
    "versions",
    multiple=True,
    metavar="VERSION",
    help="A build between the two ends; repeatable [all that the index has].",
)
@click.option(
    "--run",
    "prepare",
    metavar="COMMAND",
    help="With --git: this command, run by sh in the clone, checks out and builds $INDUCTOR_WATCH_COMMIT.",
)
@click.option(
    "--git",
    "clone",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="PATH",
    help="Search the commits of this clone: without --run by their Python files over the installed torch.",
)
@overlay_options
@build_options
@as_one("settings", Settings, samples_option, timeout_option, shared_tuning_option)
@click.option(
    "--replicates", type=click.IntRange(min=2), default=3, help="Runs of each build or commit, to begin with."
)
@click.option(
    "--most-runs",
    type=click.IntRange(min=2),
    default=12,
    help="At most so many runs of each, where fewer do not decide.",
)
@click.option(
    "--out", type=FOLDER, default=Path("bisect"), help="The folder of the log (bisect.jsonl) and the bundles."
)
@json_option
def bisect_command(
    model: str,
    config: str,
    selection: Selection,
    metric: str,
    smallest: float | None,
    good: str,
    bad: str,
    versions: tuple[str, ...],
    prepare: str | None,
    clone: Path | None,
    source: SourceOptions,
    options: BuildOptions,
    settings: Settings,
    replicates: int,
    most_runs: int,
    out: Path,
    as_json: bool,
) -> None:
    """Find the torch build, or with --git the commit, that changed a cell.

    Both ends and builds between them are measured as often as it takes to tell a change from noise. The same command again
    continues a search that was stopped.
    """
    if most_runs < replicates:
        raise click.UsageError("--most-runs is less than --replicates: raise it")
    if prepare is not None and clone is None:
        raise click.UsageError("--run needs --git: the clone that the command is run in")
    if clone is not None and versions:
        raise click.UsageError("--torch names torch builds and --git searches commits: leave out one of them")
    parse_config(config)
    # Where runs disagree on a status, further ones do not settle it.
    most = replicates if metric == STATUS else most_runs
    settings = replace(settings, code_only=metric in OF_COMPILING)
    request = Request(
        replace(selection, models=(model,)),
        (config,),
        RunNames(branch="bisect", trigger="bisect"),
        RequestedOptions(settings),
    )
    measured: TorchBuilds | Overlays | Checkouts = TorchBuilds(
        Environments(options, selection.device), request, metric, out
    )
    if clone:
        overlays = Overlays(clone, source, request, metric, out)
        measured = overlays if prepare is None else Checkouts(clone, prepare, options.base, request, metric, out)
    candidates = commits_between(clone, good, bad) if clone else builds_between(good, bad, versions, options)
    asked = {"request": request.to_json(), "metric": metric, "builds": candidates, "smallest": smallest, "run": prepare}
    level = level_of(len(candidates), len(looks(replicates, most)))
    judge = StatusJudge() if metric == STATUS else MetricJudge(metric, level, smallest)
    log = BisectionLog(out / "bisect.jsonl", asked | {"replicates": replicates, "most": most})
    search = Bisection(
        candidates,
        measured.measure,
        judge,
        log,
        tell,
        least=replicates,
        most=most,
        in_turn=prepare is None,
        same_as=measured.same_as if isinstance(measured, Overlays) else None,
    )
    try:
        answer = search.run()
    except KeyboardInterrupt:
        click.echo("interrupted: the same command continues the search", err=True)
        raise click.exceptions.Exit(130) from None
    # A commit that was not measured is named by its sha.
    found = (answer.last_good, answer.first_bad)
    shas = {name: runs[0].commit if (runs := log.runs_of(name)) else name for name in found}
    if as_json:
        print_json({**answer.to_json(), "commits": shas, "log": str(log.path)})
    else:
        both = [log.runs_of(search.measured(name))[0].commit for name in found]
        for line in _lines(answer, shas, both, out):
            click.echo(line)
    if answer.word == "inconclusive":
        raise InconclusiveError(_why(answer, metric == STATUS))


def _lines(answer: Answer, shas: dict[str, str], both: Sequence[str], out: Path) -> list[str]:
    """The answer for a person; `both` are the commits whose runs show it."""
    if answer.step is None:
        return []
    last, first = answer.last_good, answer.first_bad
    return [
        f"last good  {last}  {shas[last][:12]}",
        f"first bad  {first}  {shas[first][:12]}"
        + (f", or one of {', '.join(answer.between)}" if answer.between else ""),
        f"between them: {answer.step.text}",
        *(f"not decided: {name}: {why}" for name, why in answer.between.items()),
        "look at both:",
        f"  inductor-watch ingest {shlex.quote(str(out))}",
        f"  inductor-watch compare bisect@{both[0][:12]} bisect@{both[1][:12]}",
        "what landed between them:",
        f"  git log {shas[last]}..{shas[first]}",
    ]


def _why(answer: Answer, is_status: bool) -> str:
    if answer.step is not None:
        return f"inconclusive: {', '.join(answer.between)} cannot be told from good and bad; more runs (--most-runs) may help"
    if is_status:
        return f"inconclusive: the good end must pass in every run and the bad end in none: {answer.ends.text}"
    if answer.ends.word == "same":
        return f"inconclusive: good and bad differ by less than what matters (--smallest): {answer.ends.text}"
    return f"inconclusive: good and bad cannot be told apart: {answer.ends.text}; more runs (--most-runs) may help"


@click.command(epilog=example("explain latest T5Small --config max_autotune"))
@click.argument("run")
@click.argument("cell")
@model_cell_options
@search_timeout_option
@storage_options
@json_option
@models_file_option
@overlays_option
def explain_command(
    run: str,
    cell: str,
    chosen: CellFilter,
    timeout_s: float,
    storage: Storage,
    as_json: bool,
    models_file: str,
    overlays: Path,
) -> None:
    """Name the part of the compiler with which a cell fails: back-end, subsystem, and operator or pass.

    RUN is a run, a night or `latest`, CELL is MODEL, SUITE/MODEL or a cell_id. torch's own compiler bisector compiles the cell
    some twenty times, each time in a new process. The answer is kept with the cell's evidence: in the bundle, which must be
    in --out, and in the database. Exit code 3 if nothing could be named.
    """
    run_id, cell_id = failing_cell(open_store(storage.database, write=False), run, cell, chosen)
    path = bundle_named(storage.out, run_id)
    store = None if storage.no_store else storing(storage.database)
    explanation = explain(path, cell_id, timeout_s, local_models(models_file, [cell]), overlays)
    kept = keep(path, cell_id, explanation)
    if store:
        store(kept)
    if as_json:
        print_json({"run": run_id, "cell": cell_id, "explained": explanation.to_json(), "bundle": str(kept)})
    else:
        click.echo(one_line(str(explanation)))
    if explanation.unfinished or not explanation.backend:
        raise SystemExit(3)
