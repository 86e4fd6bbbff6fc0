"""Repeat measurements that a comparison left open: `nightly --confirm` repeats the changed cells of a night, and `run --again`.

A night is compared with its base (`db.queries.sides`). The cells that changed, and the cells that one more run would decide,
are measured again in new processes, first on base, if its torch is at hand, then on new. The new runs belong to the two nights,
with a trigger of their own, so every later comparison includes them. The due cells are read from the store each time, so a
confirmation that was interrupted goes on where it stopped. `run --again` takes a file of `report --again-plan`, or two sides,
and makes a plan for each run that is needed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import click
from sqlalchemy import Connection, func, select

from analysis.compare.compare_sides import compare
from analysis.compare.comparison import MOST_CONFIRMATIONS, due_cells
from collector.bundle import CONFIRM, BundleContents, RunHeader, check_bundle, read_bundle
from collector.machine.environment import environment_id
from collector.output_file import both_paths, path_of
from collector.own_models import OwnModel
from collector.settings import Settings
from collector.usage_errors import BundleError, ConfigError, ZooError
from collector.vocabulary import Cell, short_hash
from collector.zoo.registry import find
from db.engine import open_store
from db.queries.sides import Side, previous_night, resolve_side
from db.schema import CellRow, measurements
from db.store_errors import SideError, StoreError, counted
from jobs.output.tables import console, say
from jobs.plan.models_file import check_local, refusal
from jobs.plan.planning import NothingToDoError, Plan, check_config, check_plan, load_plan
from jobs.pool.resuming import Unfinished, bundle_named, newest_first
from jobs.pool.session import measure_and_store
from jobs.pool.testbeds import Testbed, find_testbeds, keeping_servers
from jobs.requested_options import RunNames

if TYPE_CHECKING:
    from analysis.rerun import Again
    from db.queries.sides import Side
    from jobs.pool.testbeds import Testbed


_LATEST = ("latest~1", "latest")


@dataclass(frozen=True, slots=True)
class Rounds:
    """The plans of the runs to make on a device, one after the other, and the `sides` that they are for, if known."""

    device: str
    plans: list[Plan]
    sides: tuple[Side, Side] | None = None

    @property
    def next_step(self) -> str:
        """The command that shows the results: naming a commit includes all of its runs, naming a night only its own."""
        names = ["BRANCH@BASE", "BRANCH@NEW"]
        if self.sides:
            if set(self.sides[0].commits) & set(self.sides[1].commits):
                return "both sides are of one commit, so name nights: inductor-watch report BASE latest"
            names = [f"{side.branches[0]}@{side.commits[0][:12]}" for side in self.sides]
        return f"look at it with all runs of each commit: inductor-watch report {' '.join(names)}"

    def cautions(self, testbeds: Sequence[Testbed], commit: str | None) -> list[str]:
        """Return the reasons why measurements on this machine would settle nothing, one line each."""
        if self.sides is None:
            return []
        from jobs.pool.runner import make_header

        headers = [make_header(testbed.environment, RunNames(commit=commit)) for testbed in testbeds]
        commits = {sha for side in self.sides for sha in side.commits}
        known = [run.testbed for side in self.sides for run in side.runs]
        lines = []
        if here := {header.commit for header in headers} - commits:
            lines.append(
                f"the installed torch is {', '.join(sha[:12] for sha in sorted(here))}, not a commit of either side: "
                "it counts for neither"
            )
        if not any(header.testbed in known for header in headers):
            lines.append(
                "this machine is another testbed than that of either side: its latencies are not compared with theirs"
            )
        return lines


def plans_again(
    named: Sequence[str],
    database: str,
    device: str | None,
    most: int,
    local: Mapping[str, OwnModel] = MappingProxyType({}),
) -> Rounds:
    """Return the plans that a file or two sides ask for: each cell in as many runs as it needs, at most `most`.

    Of a user's own models only the `local` ones are called (`jobs.plan.models_file`).

    Raises:
        ConfigError: the file holds no plan, or one for another device.
        SideError: a text names no side.
        NothingToDoError: no cell that further runs would settle can be measured here.
    """
    if len(named) == 1:
        try:
            plan = load_plan(Path(named[0]))
        except OSError as error:
            raise ConfigError(f"--again {named[0]}: {error.strerror}") from error
        if not plan.cells:
            raise NothingToDoError(f"nothing to measure again: {named[0]} plans no cell")
        plan = replace(plan, own_models=tuple(local.values()))
        check_local(plan.cells, local)
        check_plan(plan, named[0], device)
        return Rounds(plan.cells[0].device, rounds(plan, most))
    base, new = named or _LATEST
    again, sides = _of_sides(base, new, database)
    devices = sorted({item.cell.device for item in again.cells})
    if len(devices) > 1 and not device:
        raise click.UsageError(f"cells of {' and '.join(devices)} are to be measured again: choose with --device")
    runs = {item.cell.cell_id: item.runs for item in again.cells}
    plan = Plan([], runs=runs, own_models=tuple(local.values()))
    for cell in [item.cell for item in again.cells if not device or item.cell.device == device]:
        if reason := refusal(cell, local):
            plan.left_out.append(reason)
            continue
        try:
            # The results may be another host's: this one may lack a model, or its torch an option.
            find(cell.suite, cell.model, plan.own_models)
            check_config(cell.config, cell.device)
            plan.cells.append(cell)
        except (ZooError, ConfigError) as error:
            plan.left_out.append(f"{cell}: {error}")
    if plan.left_out and not plan.cells:
        reasons = list(dict.fromkeys(plan.left_out))
        raise NothingToDoError(f"nothing to measure again here: {'; '.join(reasons[:3])}")
    if not plan.cells:
        left = f"{again.too_noisy} too noisy, {again.elsewhere} of different testbeds"
        raise NothingToDoError(f"nothing to measure again: {left}, {again.missing} missing (see `resume`)")
    return Rounds(device or devices[0], rounds(plan, most), sides)


def rounds(plan: Plan, most: int) -> list[Plan]:
    """Return a plan for each run, at most `most`: the first has every cell, a later one the cells that need as many runs."""
    needed = {cell: plan.runs.get(cell.cell_id, 1) for cell in plan.cells}
    plans = []
    for number in range(min(most, max(needed.values(), default=0))):
        cells = [cell for cell in plan.cells if needed[cell] > number]
        plans.append(replace(plan, cells=cells, left_out=[] if number else plan.left_out, night=""))
    return plans


def check_arguments(named: Sequence[str], again: bool, is_selected: bool) -> None:
    """Raise `click.UsageError` if names without `--again`, too many names, or a selection of cells beside it are given."""
    if named and not again:
        raise click.UsageError(
            f"unexpected argument {named[0]!r}: name models with --model; a file or two sides need --again"
        )
    if again and len(named) > 2:
        raise click.UsageError("--again takes a file, or BASE and NEW")
    if again and is_selected:
        raise click.UsageError(
            "--again measures what the comparison names: leave out models, phases, sizes and configs (but for --model "
            "module:function, which lets it call a model of your own)"
        )


def _of_sides(base: str, new: str, database: str) -> tuple[Again, tuple[Side, Side]]:
    """Return the cells of two sides that are to be measured again, and the two sides."""
    from analysis.compare.compare_sides import compare_named
    from analysis.rerun import find_again
    from db.engine import open_store
    from db.queries.details import configs_of

    with open_store(database, write=False).connect() as connection:
        comparison = compare_named(connection, base, new)
        again = find_again(comparison, configs_of(connection, {one.cell.config_id for one in comparison.cells}))
    return again, (comparison.base, comparison.new)


#: Seconds that a confirmation may take even if the night itself took less.
_SHORT_S = 600.0


@dataclass(frozen=True, slots=True)
class Due:
    """The cells of a night left to confirm: both sides, and by `cell_id` the id of the testbed that measures the cell again."""

    base: Side
    new: Side
    testbed_of: Mapping[str, str]


class NoBaseNightError(Exception):
    """An error for a night that has no base, so that it cannot be confirmed; its text says why."""


def find_due(database: str, night: str) -> Due:
    """Return the due cells of a stored night. Raises `NoBaseNightError` if no earlier night can be its base."""
    with open_store(database, write=False).connect() as connection:
        name = previous_night(connection, night)
        if not name:
            raise NoBaseNightError(f"no earlier night in the database measured at least half of the cells of {night}")
        base, new = resolve_side(connection, name), resolve_side(connection, night)
        due = due_cells(compare(connection, base, new), _confirmed(connection, new))
    return Due(base, new, {one.cell.cell_id: one.new.testbed_id or "" for one in due})


def _due_of(database: str, run_id: str) -> Due:
    """Return the due cells of the night of a run. The store names the night, since the bundle may use another name."""
    with open_store(database, write=False).connect() as connection:
        (night,) = resolve_side(connection, run_id).nights
    return find_due(database, night)


def _confirmed(connection: Connection, side: Side) -> dict[str, int]:
    """Return how many runs measured each cell of a side again, by `cell_id`."""
    again = [run.key for run in side.runs if run.trigger == CONFIRM]
    row = measurements.c
    query = select(CellRow.cell_id, func.count(row.run.distinct())).join(CellRow, CellRow.id == row.cell)
    rows = connection.execute(query.where(row.run.in_(again)).group_by(CellRow.cell_id)).all()
    return {str(cell_id): int(count) for cell_id, count in rows}


@dataclass
class Confirming:
    """A confirmation under way.

    `runs` are the night's bundles, one for each testbed, and `testbeds` the testbeds that measured them, in the same order.
    `overlays` are the folders that hold this machine's overlays, commits laid over its torch. No cell starts after `budget_s`
    seconds.
    """

    runs: Sequence[BundleContents]
    testbeds: Sequence[Testbed]
    settings: Settings
    out: Path
    database: str
    overlays: Sequence[Path]
    budget_s: float
    _servers: ExitStack = field(default_factory=ExitStack, init=False)

    def run(self) -> str:
        """Measure the due cells until none is left, and return a line with their number and the time; empty if none was due.

        It takes at most as long as the night itself, or ten minutes if that is longer. Raises `NoBaseNightError` if the night
        has no base.
        """
        with ExitStack() as self._servers:
            return self._run()

    def _run(self) -> str:
        began = time.monotonic()
        budget_s = min(self.budget_s, max(self._night_s(), _SHORT_S))
        cells, passes, base_words, took_s = set[str](), 0, "", 0.0
        due = self._find_due()
        of_base: Sequence[Testbed] = ()
        for _ in range(MOST_CONFIRMATIONS):
            parts = self._parts(due)
            if not any(parts):
                break
            if not passes:
                of_base, base_words = self._base_testbeds(due.base)
                changed = sum(map(len, parts))
                say(console(), f"{counted(changed, 'cell')} to confirm against {due.base.nights[0]}, {base_words}")
            left_s = budget_s - (time.monotonic() - began)
            if left_s <= took_s:
                break
            measured = self._measure(due.base, of_base, parts, left_s / 2) if of_base else set[str]()
            before_s, left_s = left_s, budget_s - (time.monotonic() - began)
            cells |= measured | self._measure(due.new, self.testbeds, parts, left_s)
            passes, took_s = passes + 1, before_s - (budget_s - (time.monotonic() - began))
            due = self._find_due()
        if not (passes or any(self._parts(due))):
            return ""
        left = sum(map(len, self._parts(due)))
        minutes = (time.monotonic() - began) / 60
        words = f"confirmed {counted(len(cells), 'cell')} in {minutes:.1f} min"
        words += f", {base_words}" if base_words else ""
        return words + (f"; {counted(left, 'cell')} not in time, see `resume`" if left else "")

    def _parts(self, due: Due) -> list[list[Cell]]:
        """Return the due cells of each testbed, in the order of `runs`."""
        testbed_of_run = {run.run_id: run.testbed_id for run in due.new.runs}
        return [
            [cell for cell in run.planned if due.testbed_of.get(cell.cell_id) == testbed_of_run[run.header.run_id]]
            for run in self.runs
        ]

    def _find_due(self) -> Due:
        return _due_of(self.database, self.runs[0].header.run_id)

    def _night_s(self) -> float:
        """Return the seconds for which the night's cells occupied each worker, on the testbed with the most."""
        return max(
            sum(item.wall_s for item in run.measurements) / (testbed.execution.workers or 1)
            for run, testbed in zip(self.runs, self.testbeds, strict=True)
        )

    def _measure(self, side: Side, testbeds: Sequence[Testbed], parts: list[list[Cell]], budget_s: float) -> set[str]:
        """Measure the cells of a side once, and return the `cell_id` of each cell that was measured."""
        of = [
            (replace(testbed, execution=replace(testbed.execution, budget_s=budget_s, carried_nights=0)), part)
            for testbed, part in zip(testbeds, parts, strict=True)
            if part
        ]
        if budget_s <= 0:
            return set()
        run = side.runs[0]
        names = RunNames(
            branch=run.branch,
            commit=run.commit,
            repo=run.repo,
            trigger=CONFIRM,
            label=run.label,
            commit_date=run.commit_date.isoformat() if run.commit_date else None,
            commit_title=run.commit_title,
            night=side.nights[0],
        )
        plan = Plan([cell for _, part in of for cell in part], own_models=self.settings.own_models)
        chosen, cells = [testbed for testbed, _ in of], [part for _, part in of]
        _, progress = measure_and_store(plan, chosen, names, self.settings, self.out, self.database, parts=cells)
        return progress.measured

    def _base_testbeds(self, base: Side) -> tuple[Sequence[Testbed], str]:
        """Return the testbeds with base's torch, none if it is not at hand, and words that say which sides are measured."""
        try:
            contents = self._contents(base)
        except BundleError:
            return (), "new side only: the bundle of base is not here"
        asked = contents.header.asked or {}
        if asked.get("torch_git") != self.testbeds[0].environment["torch_git"]:
            return (), "new side only: base is another torch"
        pace = asked.get("pace", {})
        overlay, source = str(pace.get("overlay", "")), str(pace.get("source", ""))
        found, execution = self.testbeds, self.testbeds[0].execution
        if overlay != execution.overlay:
            place = Path(overlay).resolve()
            is_ours = any(place.is_relative_to(folder.expanduser().resolve()) for folder in self.overlays)
            if overlay and not (is_ours and place.is_dir()):
                return (), "new side only: the files of base are gone from --overlays"
            execution = replace(execution, overlay=overlay, source=source)
            at_once = find_testbeds(self.testbeds[0].device, execution, serve=True, plans=False)
            self._servers.enter_context(keeping_servers(at_once))
            of_gpu = {testbed.environment.get("gpu_index"): testbed for testbed in at_once}
            found = [of_gpu[testbed.environment.get("gpu_index")] for testbed in self.testbeds]
        # If a library or a variable differs, the runs would not be comparable with base's.
        if not any(environment_id(testbed.environment) in contents.environments for testbed in found):
            return (), "new side only: base ran in another environment"
        return found, "both sides"

    def _contents(self, base: Side) -> BundleContents:
        """Return the bundle of base's newest run, preferably no confirmation. Raises `BundleError` if it is not in the folder."""
        run = next((run for run in base.runs if run.trigger != CONFIRM), base.runs[0])
        plain, packed = both_paths(path_of(self.out, run.run_id))
        return read_bundle(plain if plain.exists() else packed)


def find_confirmable(folder: Path, name: str | None, resumed: Sequence[Unfinished]) -> list[Unfinished]:
    """Return the newest run of each testbed of the night that `resume` confirms; empty if that night has no `--confirm`.

    It is the night of the resumed runs or of `name`, else the newest night. A run that is itself a confirmation is skipped.

    Raises:
        ConfigError: no run of this name in the folder.
        BundleError: the path names a file that is no bundle.
    """
    named = [bundle_named(folder, str(run.path)) for run in resumed] or ([bundle_named(folder, name)] if name else [])
    of_nights = (header for header in map(check_bundle, [*named, *newest_first(folder)]) if header.trigger != CONFIRM)
    night = next(map(_night_of, of_nights), "")
    runs: dict[str, Unfinished] = {}
    for path in newest_first(folder):
        header = check_bundle(path)
        is_asked = bool((header.asked or {}).get("pace", {}).get("confirm"))
        if is_asked and header.trigger != CONFIRM and _night_of(header) == night:
            runs.setdefault(short_hash(header.testbed), Unfinished(path, read_bundle(path)))
    return sorted(runs.values(), key=lambda run: run.contents.header.run_id)


def confirm(
    runs: Sequence[Unfinished],
    testbeds: Sequence[Testbed],
    settings: Settings,
    database: str,
    budget_s: float,
    *,
    is_asked: bool = False,
) -> None:
    """Confirm the night of these bundles and print a line about it; with `is_asked` also if nothing could be confirmed."""
    contents, out, overlays = [run.contents for run in runs], runs[0].path.parent, runs[0].overlays
    try:
        line = Confirming(contents, testbeds, settings, out, database, overlays, budget_s).run()
        line = line or ("nothing is confirmed: no cell changed, and one more run decides none" if is_asked else "")
    except NoBaseNightError as error:
        line = f"nothing is confirmed: {error}" if is_asked else ""
    if line:
        say(console(), line)


def is_any_due(runs: Sequence[Unfinished], database: str) -> bool:
    """Return whether the night of these runs has due cells; False if the store lacks the night or its base."""
    try:
        return bool(_due_of(database, runs[0].contents.header.run_id).testbed_of)
    except (NoBaseNightError, SideError, StoreError):  # the night may be in another store
        return False


def _night_of(header: RunHeader) -> str:
    return header.night or header.run_id
