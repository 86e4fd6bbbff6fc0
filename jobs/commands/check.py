"""`inductor-watch check BASE NEW`: whether a branch is slower, for which models, in minutes and without a build."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from io import StringIO
from pathlib import Path

import click
from click.core import ParameterSource
from rich.console import Console

from analysis.reports.facts import Report
from collector.census.gpu_models import CensusError
from collector.device import GPU
from collector.output_file import write_output
from collector.vocabulary import Cell
from db.store_errors import SideError
from jobs.builds.build_options import SourceOptions, import_commits, overlay_options
from jobs.builds.overlay import acting, changes_compiling, differing, saying
from jobs.checking.answer import Answer, build_answer
from jobs.checking.check_sides import CodeCensus, OtherOption, census_place, find_sides, make_overlays, planned_check
from jobs.checking.rounds import Check
from jobs.commands.compare import fail_on_option
from jobs.commands.report import draw
from jobs.measuring_options import cache_option, label_option, measuring_options, night_options
from jobs.options import FOLDER, OUTPUT_FILE, Storage, dashboard_option, example, stored_options
from jobs.output.printed_comparison import show_comparison
from jobs.output.tables import console, say
from jobs.output.terminal import tell
from jobs.pool.device_slots import holding_for, list_gpus
from jobs.pool.session import require_cells, storing
from jobs.requested_options import RequestedOptions, Selection

#: Rows of the table of cells.
_ROWS = 20
#: Cells that compile at once on a GPU unless --workers says otherwise; more gain little, and compile times get noisy.
_WORKERS = 8


@click.command(epilog=example("check main my-branch --repo ~/pytorch --minutes 10"))
@click.argument("base", default="", required=False)
@click.argument("new", default="", required=False)
@click.option(
    "--against",
    metavar="+NAME=VALUE",
    callback=lambda _, __, text: OtherOption.parse(text) if text else None,
    help="An option of Inductor as the other side: judge BASE, or the installed torch without one, with it against without it.",
)
@click.option("--repo", type=FOLDER, default=Path(), help="The clone of PyTorch [this folder].")
@click.option("--minutes", type=click.FloatRange(min=0, min_open=True), default=10, help="Start no cell after so long.")
@night_options
@overlay_options
@measuring_options
@cache_option
@stored_options
@label_option
@fail_on_option("regressed,broke")
@click.option(
    "--format", "form", type=click.Choice(("text", "markdown", "json")), default="text", help="The report's format."
)
@click.option("--output", type=OUTPUT_FILE, help="Write the report to this file and print the table [standard output].")
@dashboard_option
@click.pass_context
def check_command(
    context: click.Context,
    base: str,
    new: str,
    against: OtherOption | None,
    repo: Path,
    minutes: float,
    selection: Selection,
    configs: tuple[str, ...],
    source: SourceOptions,
    requested: RequestedOptions,
    cache: Path,
    storage: Storage,
    label: str,
    fail_on: frozenset[str],
    form: str,
    output: Path | None,
    dashboard_url: str,
) -> None:
    """Judge NEW against BASE, two refs of a clone of PyTorch, or . for its working tree, over the installed torch.

    The code of both sides is generated first, without the GPU. Cells whose code is the same are unchanged without being
    measured, unless files differ that act at run time. The others are timed in turn on one GPU until they are decided or the
    time is over. The default is twelve models under three configs.

    With --against the sides differ by an option of Inductor: `check main --against +combo_kernels=true`.

    Exit code 0: no cell has an outcome of --fail-on; 1: some cell has; 3: too little was measured.
    """
    if against and new not in ("", base):
        raise click.UsageError("--against takes one ref, or none: the option is the other side")
    if not against and not (base and new):
        raise click.UsageError("name two refs, BASE and NEW, or an option with --against")
    context.with_resource(holding_for(selection.device, requested.execution.gpus))  # for all rounds
    began = time.monotonic()
    if context.get_parameter_source("workers") is ParameterSource.DEFAULT:
        requested = _with_workers(requested, selection.device)
    refs = (base, base) if against else (base, new)
    overlays = make_overlays(refs, repo, source, label, requested)
    from_base, from_new = (Path(of_side.execution.overlay) for _, of_side in overlays)
    files = [] if against else differing(from_base, from_new)
    at_run_time = against.acting if against else acting(from_base, from_new, files)
    storing(storage.database)  # a folder that cannot be written is known at once
    of_base, of_new = find_sides(refs, overlays, selection.device)
    if len(of_base.testbeds) > 1:
        raise click.UsageError("check measures both sides on one GPU: name one with --gpus")
    plan = planned_check(of_base.testbeds[0].device, selection, configs)
    require_cells(plan)
    for side in (of_base, of_new) if base else ():
        import_commits(repo, ["HEAD" if side.ref == "." else side.ref], side.names, storage.database)
    # Both sides share what autotuning chose: beside the bundles unless the user names a folder.
    tuning = requested.settings.shared_tuning or str((storage.out / "tuning").resolve())
    settings = replace(requested.settings, shared_tuning=tuning).with_models(plan.own_models)
    for line in [*plan.left_out, *(f"acts at run time: {name}" for name in at_run_time)]:
        tell(line)
    check = Check(of_base, of_new, plan.cells, settings, storage, began + 60 * minutes, at_run_time, other=against)
    check.compares_compiling = against is not None or changes_compiling(from_base, from_new, files)
    on_new = check.on_new  # an option that torch does not know is known at once
    if not at_run_time:
        check.census = _census(check, on_new, cache, is_alike=not against and not saying(from_base, from_new, files))
    interrupted = False
    try:
        check.run()
    except KeyboardInterrupt:
        interrupted = True
    minutes = (time.monotonic() - began) / 60
    try:
        report, answer = build_answer(check, files, fail_on, minutes, interrupted, dashboard_url)
    except SideError as error:
        tell(f"nothing was measured on both sides: {error}")
        raise SystemExit(130 if interrupted else 3) from None
    _write(report, answer, form, output)
    raise SystemExit(130 if interrupted else answer.exit_code)


def _census(check: Check, on_new: Mapping[str, Cell], cache: Path, *, is_alike: bool) -> CodeCensus | None:
    """The census of both sides; None with a line where this machine's device is not one that it knows."""
    try:
        places = [census_place(check.base.testbeds[0], side, cache) for side in (check.base, check.new)]
    except CensusError as error:
        tell(f"no census: {error}")
        return None
    return CodeCensus((places[0], places[1]), check.settings, is_alike, on_new)


def _with_workers(requested: RequestedOptions, device: str | None) -> RequestedOptions:
    on_gpu = device in (None, GPU) and bool(list_gpus())
    workers = max(1, min(_WORKERS, len(os.sched_getaffinity(0)) // 2)) if on_gpu else 1
    return replace(requested, execution=replace(requested.execution, workers=workers))


def _write(report: Report, answer: Answer, form: str, output: Path | None) -> None:
    """Prints the answer or writes it to the file, and prints the table then as well."""
    text = _text(report, answer)
    if form == "markdown":
        drawn = draw(report, "markdown", _ROWS) + answer.markdown()
    elif form == "json":
        drawn = json.dumps({"check": answer.to_json(), **report.to_json()}, indent=2) + "\n"
    else:
        drawn = text
    if output:
        write_output(output, drawn)
    click.echo(text if output else drawn, nl=False)


def _text(report: Report, answer: Answer) -> str:
    out = Console(file=StringIO(), width=console().width)
    with out.capture() as captured:
        show_comparison(out, report.comparison, _ROWS)
        for line in answer.lines():
            say(out, line)
    return captured.get()
