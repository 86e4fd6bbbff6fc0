"""`inductor-watch check BASE NEW`: judge in minutes, without a build, whether a branch is slower, and for which models.

The answer of a check has the comparison of its sides and an account of the check itself.
"""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from rich.console import Console

from analysis.compare.cell_comparison import CellComparison, Outcome
from analysis.compare.cell_verdicts import decide
from analysis.reports.facts import Report, build_report
from analysis.reports.markdown_report import code, markdown
from analysis.rerun import NOTHING_AGAIN, as_check
from collector.census.gpu_models import CensusError
from collector.device import is_accelerator
from collector.output_file import write_output
from collector.settings import Settings
from collector.vocabulary import Cell
from db.engine import open_store
from db.queries.cells import EVERYTHING
from db.store_errors import SideError, counted
from jobs.builds.build_options import SourceOptions, import_commits, overlay_options
from jobs.builds.overlay import Wheel, acting, changes_compiling, differing, saying
from jobs.census.census_pool import CensusPool
from jobs.checking.check_sides import (
    DEFAULT_MODELS,
    CodeCensus,
    OtherOption,
    census_place,
    found_sides,
    make_overlays,
    planned_check,
    started_census,
)
from jobs.checking.deciding import OF_COMPILING, Need, has_same_code, is_unconfirmed
from jobs.checking.rounds import Check, has_cores_for_all
from jobs.commands.compare import fail_on_option
from jobs.options import FOLDER, OUTPUT_FILE, Storage, dashboard_option, example, stored_options
from jobs.output.comparison_tables import show_comparison
from jobs.output.tables import console, say
from jobs.output.terminal import json_text, tell, the_first
from jobs.pool.device_slots import holding_for
from jobs.pool.session import require_cells, storing
from jobs.pool.testbeds import likely_models
from jobs.requested_options import (
    RequestedOptions,
    Selection,
    cache_option,
    label_option,
    measuring_options,
    night_options,
)

#: Counts whose rise is reported in words, before anything else.
_COUNTED = {
    "graph_breaks": "graph breaks",
    "cudagraph_skips": "skipped cudagraphs",
    "recompiles": "recompilations",
    "fallbacks": "fallbacks",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """An account of a check: the numbers of cells by what was done with them, the files that differ, and the exit code's reason.

    `census` cells were decided by their generated code before anything was measured. `against` are the options of new, if the
    sides differ by options. `unchecked` counts the cells whose base passes without a check of its outputs, since new's pass.
    """

    exit_code: int
    reason: str
    cells: int
    census: int
    same_code: int
    timed: int
    open: int
    unchecked: int
    files: int
    acting: tuple[str, ...]
    rounds: int
    minutes: float
    interrupted: bool
    against: str = ""

    def lines(self) -> list[str]:
        """Return the account for people, one sentence in each line."""
        differ = f"new is base with {self.against}" if self.against else f"files of torch that differ: {self.files}"
        lines = [differ]
        if self.acting:
            names = the_first(self.acting)
            lines.append(f"every cell is timed, since these act when a compiled program runs: {names}")
        if self.census:
            lines.append(f"the census decided {counted(self.census, 'cell')} before anything was measured")
        lines.append(
            f"{counted(self.cells, 'cell')}: {self.same_code} with the same code and not timed, {self.timed} timed, "
            f"{self.open} left open; {counted(self.rounds, 'round')} in {self.minutes:.1f} min"
        )
        if self.unchecked:
            lines.append(f"base's outputs were not checked in {counted(self.unchecked, 'cell')}, since new's pass")
        if self.interrupted:
            lines.append("interrupted: this is what was measured until then")
        return [*lines, f"check: {self.reason}"]

    def markdown(self) -> str:
        """Return the account as a Markdown section below a report."""
        return "\n".join(["", "### How it was checked", "", *(f"- {code(line, 1000)}" for line in self.lines()), ""])

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object with stable keys."""
        return asdict(self) | {"acting": list(self.acting)}


def build_answer(
    check: Check, files: Sequence[str], fail_on: frozenset[str], minutes: float, interrupted: bool, dashboard: str = ""
) -> tuple[Report, Answer]:
    """Return the report on both nights and the account of the check. Raises `SideError` if a side has no run."""
    with open_store(check.storage.database, write=False).connect() as connection:
        nights = (check.base.night, check.new.night)
        report = build_report(connection, *nights, EVERYTHING, dashboard, against=check.against)
    report = _with_commands(report, check)
    check.judge()
    exit_code, reason = _decide(check, report.counts, fail_on)
    cells = report.comparison.cells
    is_timed = ["compiled_ms" in one.base.values and "compiled_ms" in one.new.values for one in cells]
    same = sum(has_same_code(one) and not timed for one, timed in zip(cells, is_timed, strict=True))
    return report, Answer(
        exit_code=exit_code,
        reason=reason,
        cells=len(check.cells),
        census=len(check.same_code),
        same_code=same,
        timed=sum(is_timed),
        open=check.count_open(),
        unchecked=sum(one.base.cell_id in check.unchecked and one.new.passes for one in cells),
        files=len(files),
        acting=tuple(check.acting),
        rounds=check.rounds,
        minutes=round(minutes, 2),
        interrupted=interrupted,
        against=check.other.text if check.other else "",
    )


def _decide(check: Check, counts: Mapping[str, int], fail_on: frozenset[str]) -> tuple[int, str]:
    """Return the exit code and the reason as `gate` does, with three differences.

    Cells of equal code, which are unchanged anyway, decide nothing. A change of compile time in too few rounds does not fail the
    check, nor does a failure of new where base's outputs were not checked. A rise of a count is named in words.
    """
    rows = check.rows.values()
    unconfirmed = [
        row
        for cell_id, row in check.rows.items()
        if row.outcome.verdict in fail_on and is_unconfirmed(row, check.compiled[cell_id])
    ]
    broke = {cell_id for cell_id, row in check.rows.items() if row.outcome is Outcome.BROKE and row.outcome in fail_on}
    unproven = [check.rows[cell_id] for cell_id in broke & check.unproven]
    left_out = [*unconfirmed, *unproven]
    confirmed = Counter(counts) - Counter(row.outcome.value for row in left_out)
    exit_code, reason = decide({**confirmed, "unchanged": confirmed["unchanged"] + len(left_out)}, fail_on)
    rises = [line for name, words in _COUNTED.items() if (line := _more(rows, name, words))]
    if rises and Outcome.REGRESSED in fail_on:
        told = sum(row.outcome is Outcome.REGRESSED and row.metric in _COUNTED for row in rows)
        beside = decide(confirmed - Counter({Outcome.REGRESSED.value: told}), fail_on)
        return 1, "; ".join([*rises, *([beside[1]] if beside[0] == 1 else [])])
    if exit_code:
        return exit_code, reason
    if unproven:
        return (
            3,
            f"{counted(len(unproven), 'cell')} of new fails and base's outputs were not checked in time: raise --minutes",
        )
    if unconfirmed:
        return 3, f"compile time changed in {counted(len(unconfirmed), 'cell')}, not yet confirmed: raise --minutes"
    others = [row.outcome for row in check.rows.values() if check.acting or not has_same_code(row)]
    undecided = others.count(Outcome.INCONCLUSIVE)
    longer = sum(word is Need.COMPILE and _is_longer(check.rows[cell_id]) for cell_id, word in check.needs().items())
    if longer:
        return 3, f"compile time is longer in {counted(longer, 'cell')}, not decided: raise --minutes"
    if counts.get("missing"):
        return 3, f"{counted(counts['missing'], 'cell')} not measured in time: raise --minutes"
    if untimed := sum(not row.passes and row.outcome is Outcome.INCONCLUSIVE for row in rows):
        return 3, f"{counted(untimed, 'cell')} with other code not timed: raise --minutes"
    if counts.keys() == {"still_failing"}:
        return 3, "no cell passes on either side"
    if undecided and undecided == len(others):
        return 3, f"{counted(undecided, 'cell')} to time and none of them decided: raise --minutes"
    return 0, f"{reason}; no clear change in {counted(undecided, 'cell')}" if undecided else reason


def _is_longer(row: CellComparison) -> bool:
    return any(name in row.judged and (row.judged[name].change or 0) > 0 for name in OF_COMPILING)


def _more(rows: Iterable[CellComparison], name: str, words: str) -> str:
    """Return `2 cells have more graph breaks (0 -> 6)`, by the verdict of `analysis.compare.cell_verdicts`; empty for no cell."""
    regressed = [row for row in rows if name in row.judged and row.judged[name].verdict is Outcome.REGRESSED]
    worse = [(row.base.values[name], row.new.values[name]) for row in regressed]
    if not worse:
        return ""
    before, after = max(worse, key=lambda pair: pair[1] - pair[0])
    verb = "has" if len(worse) == 1 else "have"
    return f"{counted(len(worse), 'cell')} {verb} more {words} ({before:.0f} -> {after:.0f})"


def _with_commands(report: Report, check: Check) -> Report:
    """Return the report with this command, under base's configs, instead of `run`, which would measure the installed torch."""
    command = shlex.join(["inductor-watch", "check", *check.sides_words])
    configs = {
        check.on_new[cell.cell_id].config.name: cell.config.name for cell in check.cells if cell.cell_id in check.on_new
    }

    def of_check(repro: str) -> str:
        for new, base in configs.items():
            repro = repro.replace(f"--config {shlex.quote(new)} ", f"--config {shlex.quote(base)} ")
        return as_check(repro, command)

    rows = tuple(replace(row, repro=of_check(row.repro)) for row in report.rows)
    repros = {cell_id: of_check(repro) for cell_id, repro in report.repros.items()}
    return replace(report, rows=rows, repros=repros, again=NOTHING_AGAIN)


#: Rows of the table of cells.
_ROWS = 20
#: Samples of a latency, unless --samples says otherwise. A night takes 30, but two processes of a program differ by more than the
#: precision that more samples gain. On a GPU device times decide, and a check mostly waits for the GPU: 6 are the fewest that
#: give an interval, and half of the samples were a fifth of the time for which cells had the GPU alone.
_ROUNDS, _ROUNDS_ON_GPU = 12, 6
#: Calls of each form under the profiler in each of its two passes, for the same reason: a night takes 3.
_PROFILE_CALLS = 2


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
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    default=10,
    help="Start no cell after so long; half a minute later it ends.",
)
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
    requested = replace(requested, settings=replace(requested.settings, profile_calls=_PROFILE_CALLS))
    refs = (base, base) if against else (base, new)
    overlays = make_overlays(refs, repo, source, label, requested)
    from_base, from_new = (Path(of_side.execution.overlay) for _, of_side in overlays)
    files = [] if against else differing(from_base, from_new)
    at_run_time = against.acting if against else acting(from_base, from_new, files)
    storing(storage.database)  # fails now if the folder cannot be written to
    started = [] if at_run_time else [*map(context.with_resource, started_census(selection.device, overlays, cache))]
    sides = found_sides(refs, overlays, selection.device, has_cores_for_all(), likely_models(selection, DEFAULT_MODELS))
    of_base, of_new = context.with_resource(sides)
    if len(of_base.testbeds) > 1:
        raise click.UsageError("check measures both sides on one GPU: name one with --gpus")
    plan = planned_check(of_base.testbeds[0].device, selection, configs)
    require_cells(plan)
    for side in (of_base, of_new) if base else ():
        import_commits(repo, ["HEAD" if side.ref == "." else side.ref], side.names, storage.database)
    settings = _of_rounds(context, requested.settings, storage, of_base.testbeds[0].device).with_models(plan.own_models)
    for line in [*plan.left_out, *(f"acts at run time: {name}" for name in at_run_time)]:
        tell(line)
    check = Check(of_base, of_new, plan.cells, settings, storage, began + 60 * minutes, at_run_time, other=against)
    check.compares_compiling = against is not None or changes_compiling(from_base, from_new, files)
    if not (Wheel.installed().folder / ".git").exists():  # a working tree's files change under the same name
        check.cache = cache
    on_new = check.on_new  # fails now if torch does not know an option
    if not at_run_time:
        is_alike = not against and not saying(from_base, from_new, files)
        check.census = _census(check, on_new, cache, is_alike, started)
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


def _census(
    check: Check, on_new: Mapping[str, Cell], cache: Path, is_alike: bool, started: Sequence[CensusPool]
) -> CodeCensus | None:
    """Return the census of both sides; print a line and return None if it does not know this machine's device."""
    testbed = check.base.testbeds[0]
    gpu, threads = testbed.environment.get("gpu"), int(testbed.environment.get("torch_threads", 1))
    try:
        base, new = (
            census_place(testbed.device, gpu, testbed.slot, side.testbeds[0].execution, cache, threads)
            for side in (check.base, check.new)
        )
    except CensusError as error:
        tell(f"no census: {error}")
        return None
    return CodeCensus((base, new), check.settings, is_alike, on_new, started)


def _of_rounds(context: click.Context, settings: Settings, storage: Storage, device: str) -> Settings:
    """Return the settings of all rounds: choices of autotuning are shared, and samples are few unless a number is asked for."""
    # Both sides share the choices, in a folder beside the bundles unless the user names one.
    settings = replace(settings, shared_tuning=settings.shared_tuning or str((storage.out / "tuning").resolve()))
    if context.get_parameter_source("rounds") is not ParameterSource.DEFAULT:
        return settings
    return replace(settings, rounds=_ROUNDS_ON_GPU if is_accelerator(device) else _ROUNDS)


def _write(report: Report, answer: Answer, form: str, output: Path | None) -> None:
    """Print the answer in its format, or write it to the file and print the table."""
    text = _text(report, answer)
    if form == "markdown":
        drawn = markdown(report, rows=_ROWS) + answer.markdown()
    elif form == "json":
        drawn = json_text({"check": answer.to_json(), **report.to_json()}) + "\n"
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
