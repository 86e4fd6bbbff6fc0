"""`inductor-watch backfill`, `bisect` and `explain`: measure other builds and commits of torch, and find the one to blame."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from analysis.history.bisection import level_of, looks
from collector.bundle import read_bundle
from collector.census.gpu_models import DEVICE_NAMES
from collector.configs import parse_config
from collector.device import CPU
from collector.metrics import METRICS
from collector.settings import Settings
from db.engine import open_store
from db.queries.cells import CellFilter
from jobs.bisect.judges import (
    OF_COMPILING,
    Checkouts,
    CodeJudge,
    CommitCode,
    Judge,
    MetricJudge,
    Overlays,
    Reading,
    StatusJudge,
    TorchBuilds,
    bisected_cell,
    builds_between,
    commits_between,
)
from jobs.bisect.search import LOG_NAME, Answer, Bisection, BisectionLog
from jobs.builds.build_environments import Backfill, Build, Environments, Listing, SourceCommit, commits_of, list_builds
from jobs.builds.build_options import (
    BuildError,
    BuildOptions,
    SourceOptions,
    build_options,
    import_commits,
    overlay_options,
    overlays_option,
    parse_build,
)
from jobs.builds.overlay import Wheel
from jobs.census.census_pool import CensusPlace
from jobs.census.census_runs import CensusMemory
from jobs.commands.census import choose_device
from jobs.options import (
    FOLDER,
    PHASES,
    POSITIVE,
    Storage,
    as_one,
    example,
    json_option,
    model_cell_options,
    refuse_given,
    storage_options,
)
from jobs.output.terminal import LONGEST, one_line, print_json, print_lines, tell
from jobs.plan.models_file import local_models
from jobs.plan.planning import NothingToDoError, planned_night
from jobs.pool.child import Request
from jobs.pool.explained_cells import explain, failing_cell, keep
from jobs.pool.resuming import bundle_named
from jobs.pool.session import require_cells, storing
from jobs.requested_options import (
    RequestedOptions,
    RunNames,
    Selection,
    batch_size_option,
    cache_option,
    device_option,
    dtype_option,
    label_option,
    measuring_options,
    models_file_option,
    night_options,
    samples_option,
    search_timeout_option,
    shared_tuning_option,
    timeout_option,
)


@click.command(epilog=example("backfill --torch 2.12.1 --torch 2.13.0"))
@click.option("--torch", "versions", multiple=True, metavar="VERSION", help="A build of torch, e.g. 2.9.1; repeatable.")
@click.option(
    "--source",
    "sources",
    multiple=True,
    metavar="REPO@REF|REPO@GOOD..BAD",
    help="A PyTorch commit without a build, or those after GOOD up to BAD: their Python files over the installed torch; "
    "repeatable.",
)
@click.option(
    "--last", type=POSITIVE, metavar="N", help="With --source: the last N commits up to REF, or of the range."
)
@click.option(
    "--touching",
    multiple=True,
    metavar="PATH",
    help="With --source: of a range, or the last N, only commits that touch this path, e.g. torch/_inductor; repeatable.",
)
@overlay_options
@build_options
@night_options
@measuring_options
@storage_options
@click.option("--replicates", type=POSITIVE, default=1, help="Measure each build so many times, as runs of one night.")
@click.option("--branch", help="The branch under which the builds are stored [releases, or nightly].")
@label_option
@json_option
def backfill_command(
    versions: tuple[str, ...],
    sources: tuple[str, ...],
    last: int | None,
    touching: tuple[str, ...],
    source: SourceOptions,
    options: BuildOptions,
    selection: Selection,
    configs: tuple[str, ...],
    requested: RequestedOptions,
    storage: Storage,
    replicates: int,
    branch: str | None,
    label: str,
    as_json: bool,
) -> None:
    """Measure builds of torch that are not installed, oldest first, each in an environment made for it.

    With --source measure commits of a clone without a build, their Python files over the installed torch.
    They are stored under their own commits. The same command again continues where it was stopped.
    """
    builds = sorted(set(map(parse_build, versions)))
    if not builds and not sources:
        raise click.UsageError("name what to measure: --torch 2.9.1 --torch 2.10.0, or --source REPO@REF")
    if (last or touching) and not sources:
        raise click.UsageError("--last and --touching choose among the commits of --source: add it")
    commits = [one for text in sources for one in commits_of(replace(source, source=text), touching, last)]
    request = Request(selection, configs, RunNames(branch=branch, trigger="backfill", label=label), requested)
    store = None if storage.no_store else storing(storage.database)
    environments, listing = Environments(options, selection.device), Listing()
    with suppress(BuildError):  # then no date is known
        listing = list_builds(options.words()) if builds else listing
    candidates: list[Build | SourceCommit] = [*(Build(build, environments, listing) for build in builds), *commits]
    backfill = Backfill(request, storage.out, replicates, store, tell)
    if storage.target:
        _import(commits, request.names, storage.target)
    try:
        results = [backfill.fill(candidate) for candidate in candidates]
    except KeyboardInterrupt:
        click.echo("interrupted: what was measured is in the bundles, the same command continues", err=True)
        raise click.exceptions.Exit(130) from None
    if as_json:
        print_json([result.to_json() for result in results])
    else:
        print_lines(map(str, results))
        if undated := [result.build for result in results if not result.skipped and not result.date]:
            names = ", ".join(undated)
            click.echo(f"no date is known of {names}: histories order these builds by when they were measured")
    if all(result.skipped for result in results):
        raise NothingToDoError("no build was measured")


def _import(commits: list[SourceCommit], names: RunNames, database: str) -> None:
    """Import the commits of each clone and branch at once, before they are measured one after the other."""
    groups: dict[tuple[Path, str], list[str]] = {}
    for commit in commits:
        groups.setdefault((commit.clone, names.branch or commit.branch), []).append(commit.sha)
    for (clone, branch), shas in groups.items():
        import_commits(clone, shas, replace(names, branch=branch), database)


#: The `--metric` for a cell that broke, instead of one that got slower.
STATUS = "status"
#: The `--metric` for a cell whose generated code changed, found without a GPU.
CODE = "code"
#: Options that have no effect with `--metric code`.
_OF_MEASURING = ("smallest", "replicates", "most_runs", "rounds", "shared_tuning")
_Measured = TorchBuilds | Overlays | Checkouts | CommitCode


class InconclusiveError(click.ClickException):
    """An error for a search that ends without an answer; its measurements have been printed."""

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
    type=click.Choice([*METRICS, STATUS, CODE]),
    metavar="NAME",
    default="compiled_ms",
    help="The metric that got worse; `status` for a cell that broke; `code` for one that got other code, without a GPU.",
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
@click.option(
    "--device-name",
    type=click.Choice(DEVICE_NAMES, case_sensitive=False),
    help="With --metric code: the device that the code is for. [H100; cpu with --device cpu]",
)
@cache_option
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
    device_name: str | None,
    cache: Path,
    source: SourceOptions,
    options: BuildOptions,
    settings: Settings,
    replicates: int,
    most_runs: int,
    out: Path,
    as_json: bool,
) -> None:
    """Find the torch build, or with --git the commit, that changed a cell.

    Both ends and builds between them are measured as often as it takes to tell a change from noise. With --metric code nothing
    is measured: the code of each commit is generated without a GPU, as by `census`. The same command again continues a search
    that was stopped.
    """
    _refuse_contradictions(metric, clone, prepare, versions, device_name)
    if most_runs < replicates:
        raise click.UsageError("--most-runs is less than --replicates: raise it")
    parse_config(config)
    least, most = _run_numbers(metric, replicates, most_runs)
    settings = replace(settings, code_only=metric in OF_COMPILING)
    request = Request(
        replace(selection, models=(model,)),
        (config,),
        RunNames(branch="bisect", trigger="bisect"),
        RequestedOptions(settings),
    )
    measured: _Measured
    if clone is None:
        measured = TorchBuilds(Environments(options, selection.device), request, metric, out)
    elif metric == CODE:
        measured = _commit_code(clone, source, request, choose_device(device_name, selection.device, None), cache, out)
    elif prepare is None:
        measured = Overlays(clone, source, request, metric, out)
    else:
        measured = Checkouts(clone, prepare, options.base, request, metric, out)
    candidates = commits_between(clone, good, bad) if clone else builds_between(good, bad, versions, options)
    asked = {"request": request.to_json(), "metric": metric, "builds": candidates, "smallest": smallest, "run": prepare}
    if isinstance(measured, CommitCode):
        asked["device_name"] = measured.place.device_name
    exact: dict[str, Judge] = {STATUS: StatusJudge(), CODE: CodeJudge()}
    judge = exact.get(metric) or MetricJudge(metric, level_of(len(candidates), len(looks(least, most))), smallest)
    log = BisectionLog(out / LOG_NAME, asked | {"replicates": least, "most": most})
    search = Bisection(
        candidates,
        measured.measure,
        judge,
        log,
        tell,
        least=least,
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
        both = [log.runs_of(search.measured(name))[0] for name in found]
        sides = [_side(run, metric, out) for run in both]
        for line in _lines(answer, shas, sides, out):
            click.echo(line)
    if answer.word == "inconclusive":
        raise InconclusiveError(_why(answer, metric))


def _refuse_contradictions(
    metric: str, clone: Path | None, prepare: str | None, versions: tuple[str, ...], device_name: str | None
) -> None:
    """Raise `click.UsageError` for options that exclude each other."""
    if prepare is not None and clone is None:
        raise click.UsageError("--run needs --git: the clone that the command is run in")
    if clone is not None and versions:
        raise click.UsageError("--torch names torch builds and --git searches commits: leave out one of them")
    if metric == CODE and (clone is None or prepare is not None):
        raise click.UsageError("--metric code goes with --git, whose commits need no build, and without --run")
    if metric == CODE:
        refuse_given(_OF_MEASURING, "is for what is measured, and code has no noise: leave it out")
    if device_name and metric != CODE:
        raise click.UsageError("--device-name goes with --metric code: anything else is measured on the device itself")


def _run_numbers(metric: str, replicates: int, most_runs: int) -> tuple[int, int]:
    """Return the least and the most runs of each build."""
    if metric == CODE:  # it has no noise
        return 1, 1
    # If runs disagree on a status, further runs do not settle it.
    return replicates, replicates if metric == STATUS else most_runs


def _side(run: Reading, metric: str, out: Path) -> str:
    """Return the name that `compare` takes for a run; a census is named by its run alone."""
    return read_bundle(out / run.bundle).header.run_id if metric == CODE else f"bisect@{run.commit[:12]}"


def _commit_code(
    clone: Path, source: SourceOptions, request: Request, device_name: str, cache: Path, out: Path
) -> CommitCode:
    """Return the generator of the code of the requested cell. Raises `NothingToDoError` if no cell can be generated."""
    place = CensusPlace(device_name, cache=cache)
    place = replace(place, workers=1, threads=place.workers if device_name == CPU else 1)  # as `census` has them
    memory = CensusMemory.read(place, Wheel.installed().version)
    plan = memory.without_differing(planned_night(place.device, request.selection, request.configs))
    require_cells(plan)
    settings = request.requested.settings.with_models(plan.own_models)
    asked = request.names, replace(request.requested, settings=settings)
    return CommitCode(clone, source, bisected_cell(plan.cells), place, asked, memory, out)


def _lines(answer: Answer, shas: dict[str, str], sides: Sequence[str], out: Path) -> list[str]:
    """Return the lines of an answer; `sides` are the sides that `compare` takes to show it."""
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
        f"  inductor-watch compare {sides[0]} {sides[1]}",
        "what landed between them:",
        f"  git log {shas[last]}..{shas[first]}",
    ]


def _why(answer: Answer, metric: str) -> str:
    if answer.step is not None:
        return f"inconclusive: {', '.join(answer.between)} cannot be told from good and bad; more runs (--most-runs) may help"
    if metric == CODE:
        return f"inconclusive: good and bad generate the same code: {', '.join({*answer.ends.figures['codes']})}"
    if metric == STATUS:
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
        click.echo(one_line(str(explanation), LONGEST))
    if explanation.unfinished or not explanation.backend:
        raise SystemExit(3)
