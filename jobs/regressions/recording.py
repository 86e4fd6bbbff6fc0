"""Record alerts and comparisons: records are opened once, kept, taken up again, and `fixed` by one stated rule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection, Engine

from analysis.compare.cell_comparison import WORSE, CellComparison
from analysis.compare.compare_sides import compare_named
from analysis.compare.comparison import Comparison
from analysis.history.alerts import Alert
from analysis.history.branch_series import Certainty, Change, Direction
from analysis.history.regression_record import RUNS, Standing, Timeline, standing
from analysis.present import interval, percent
from analysis.stats.levels import is_nearer
from collector.metrics import METRICS, MIN_EFFECT
from db.connecting import changing
from db.regression_records import OPEN, Finding, RegressionInfo, change_state, list_regressions, open_regression
from db.store_errors import RecordError, counted, nearest, one_line

_KINDS = {"ms": "slower", "s": "slower", "B": "larger"}

_Series = tuple[str, str, str, str, str]


@dataclass(frozen=True, slots=True)
class Recorded:
    """The result of recording: the regression_ids of records that were opened, found again, returned, and fixed."""

    opened: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    returned: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()


def record_alerts(engine: Engine, alerts: Sequence[Alert], *, author: str, now: datetime | None = None) -> Recorded:
    """Write the alerts that `analysis.history.alerts.survey` found into the records of the store, all of them or nothing.

    A record is opened for every cell and metric that got worse in an alert and is worse still, with the last run measured
    before as its pinned base. No record is opened for a change that is pending or for the better, if both sides measured one
    commit, or for a change that the machine caused, as the eager runs of all cells show (`Alert.of_machine`). A change belongs
    to an existing record, and adds nothing, if series and metric are equal and

    - some commit can be to blame for both, or
    - it goes from the level of the record's base to its worse level again. The exception is a record of a status that is closed
      as `expected` or `false_alarm`: a cell that breaks again gets a new record.

    A record that is `fixed` becomes `returned` once its worse level is back and the two newest runs, both from after the
    fix, are still there. An open record becomes `fixed` when the two newest runs are back at the base's level
    (`analysis.history.regression_record.standing`), and in no other way: it is not fixed because its alert is no longer found.
    This is checked for every open record of the store, whatever the alerts. `now` is the time of the events (UTC), by default
    the current time.

    Raises:
        RecordError: an alert is from another store, whose runs or cells this store does not have.
    """
    at = now or datetime.now(UTC)
    with changing(engine) as change:
        book = _Book(change.conn, author, at)
        for alert in alerts:
            of_machine = {id(one) for one in alert.of_machine()}
            for one in alert.changes:
                if _opens(one) and id(one) not in of_machine:
                    book.enter(one, alert)
        book.mark_fixed()
    return book.recorded()


def kind_of(metric: str) -> str:
    """Return the word for a metric's change for the worse; `broke` for a status, which is no metric."""
    return _KINDS.get(METRICS[metric].unit, "worse") if metric else "broke"


def _opens(change: Change) -> bool:
    is_worse = change.direction is Direction.WORSE and not change.is_over
    return is_worse and change.certainty is Certainty.ESTABLISHED and not change.span.is_one_commit


class _Book:
    """The records of a store while alerts are entered."""

    def __init__(self, conn: Connection, author: str, at: datetime) -> None:
        self._conn, self._author, self._at = conn, author, at
        records = list_regressions(conn)
        self._timeline = Timeline(conn, (record.metric for record in records))
        self._known: dict[_Series, list[RegressionInfo]] = {}
        for record in records:
            series = (record.repo, record.branch, record.testbed_id, record.cell_id, record.metric)
            self._known.setdefault(series, []).append(record)
        #: The records by the action that was taken, in its order, each record once.
        self._done: dict[str, dict[str, None]] = {"opened": {}, "kept": {}, "returned": {}, "fixed": {}}

    def enter(self, change: Change, alert: Alert) -> None:
        """Find the record of a change, or open one; of several records, take the one that was opened last."""
        series = (change.repo, change.branch, change.testbed_id, change.cell_id, change.metric)
        records = self._known.setdefault(series, [])
        record = next((one for one in records if self._overlaps(one, change)), None)
        record = record or next((one for one in records if _is_again(one, change)), None)
        if record is None:
            records.insert(0, self._open(change, alert))
        elif record.state == "fixed" and self._standing(record, since=record.state_since) is Standing.STILL_THERE:
            records[records.index(record)] = self._move(record, "returned", f"it is back: {_spelled(change)}")
        else:
            self._done["kept"][record.regression_id] = None

    def mark_fixed(self) -> None:
        """Mark every open record as fixed whose two newest runs are back at the level of its base."""
        for records in self._known.values():
            for record in records:
                if record.state in OPEN and not self._is_new(record) and self._standing(record) is Standing.BACK:
                    self._move(record, "fixed", f"the {RUNS} newest runs are back at the level of the base")

    def recorded(self) -> Recorded:
        """Return the actions that were taken; a record that was found again and then fixed counts as fixed only."""
        kept = (name for name in self._done["kept"] if name not in self._done["fixed"])
        return Recorded(**{name: tuple(names) for name, names in {**self._done, "kept": kept}.items()})

    def _is_new(self, record: RegressionInfo) -> bool:
        return record.regression_id in (*self._done["opened"], *self._done["returned"])

    def _overlaps(self, record: RegressionInfo, change: Change) -> bool:
        """Return whether some commit is in the range of both the record and the change."""
        base, onset = (
            self._timeline.position(record.repo, record.branch, commit)
            for commit in (record.base_commit, record.onset_commit)
        )
        if base is None or onset is None:
            return False
        return base < change.possible.onset.index and change.possible.base.index < onset

    def _open(self, change: Change, alert: Alert) -> RegressionInfo:
        levels = change.levels
        finding = Finding(
            cell_id=change.cell_id,
            base_run=change.span.base.runs[-1].run_id,
            onset_run=change.span.onset.runs[0].run_id,
            kind=kind_of(change.metric),
            metric=change.metric,
            base_value=levels.before if levels else None,
            new_value=levels.after if levels else None,
        )
        text = f"{_spelled(change)}; alert {alert.alert_id} of {counted(len(alert.cells), 'cell')}"
        opened = open_regression(self._conn, finding, at=self._at, author=self._author, text=text)
        self._done["opened"][opened.regression_id] = None
        return opened

    def _move(self, record: RegressionInfo, state: str, text: str) -> RegressionInfo:
        moved = change_state(self._conn, record.regression_id, state, at=self._at, author=self._author, text=text)
        self._done[state][record.regression_id] = None
        return moved

    def _standing(self, record: RegressionInfo, since: datetime | None = None) -> Standing:
        return standing(record, self._timeline, since)


def _is_again(record: RegressionInfo, change: Change) -> bool:
    """Return whether a change repeats a record's change, from its better level to its worse one."""
    if change.levels is None:
        return record.state not in ("expected", "false_alarm")
    base, new = record.base_value, record.new_value
    if base is None or new is None or min(base, new) <= 0 or base == new:
        return False
    return is_nearer(change.levels.before, base, new) and not is_nearer(change.levels.after, base, new)


def _spelled(change: Change) -> str:
    """Return `compiled_ms +5.1 % (+4.2 .. +6.0 %) between 0123456789 and 9876543210`, or the change of a status."""
    span = f"between {change.span.base.commit[:10]} and {change.span.onset.commit[:10]}"
    aside = "; the environment or the options changed there, too" if change.environment_changed else ""
    if change.levels is None:
        before, after = change.statuses or ("pass", "a failure")
        return f"{before} became {after} {span}{aside}"
    levels = change.levels
    within = interval(levels.low - 1, levels.high - 1)
    return f"{change.metric} {percent(levels.ratio - 1)} ({within}) {span}{aside}"


@dataclass(frozen=True, slots=True)
class Opened:
    """The current records, the regression_ids of new ones, and a line for each cell that could not be recorded."""

    records: tuple[RegressionInfo, ...]
    new: tuple[str, ...]
    left_out: tuple[str, ...]


def open_from_sides(
    engine: Engine, base: str, new: str, wanted: Sequence[str], *, at: datetime, author: str, text: str = ""
) -> Opened:
    """Open a record for each dimension in which a cell regressed or broke, or for the `wanted` cells, all or nothing.

    A wanted cell, by its name or cell_id, is recorded whatever the verdict if it is slower or fails, since a person asks for it.
    The run of base is pinned. A cell that the sides measured on two branches or testbeds gets no record: a wanted cell is
    refused, all other cells are listed in `left_out`.

    Raises:
        SideError: a text names no side.
        RecordError: there is no such cell, or a wanted cell did not get worse or cannot be recorded.
    """
    with engine.connect() as conn:
        comparison = compare_named(conn, base, new)
    cells = [find_cell(comparison, name) for name in dict.fromkeys(wanted)] if wanted else list(comparison.cells)
    records, fresh, left_out = [], [], []
    with engine.begin() as conn:
        for one in cells:
            try:
                opened = [
                    open_regression(conn, finding, at=at, author=author, text=text or one.outcome.value)
                    for finding in _findings(one, is_wanted=bool(wanted))
                ]
            except RecordError as error:
                if wanted:
                    raise
                left_out.append(f"{one.cell}: {error}")
                continue
            records += opened
            fresh += [each.regression_id for each in opened if len(each.events) == 1 and each.opened_at == at]
    return Opened(tuple(records), tuple(fresh), tuple(left_out))


def find_cell(comparison: Comparison, name: str) -> CellComparison:
    """Return the cell of this name or cell_id. Raises `RecordError` with the nearest names if the sides have no such cell."""
    found = next((one for one in comparison.cells if name in (str(one.cell), one.cell.cell_id)), None)
    if found is None:
        names = (str(one.cell) for one in comparison.cells)
        raise RecordError(f"these sides have no cell {one_line(name, 200)!r}{nearest(name, names)}")
    return found


def _findings(one: CellComparison, *, is_wanted: bool) -> Iterator[Finding]:
    """Yield a finding for each worse metric. Raises `RecordError` if a side has no run, or a wanted cell has no worse metric."""
    cell_id, base, new = one.cell.cell_id, one.base.run_id, one.new.run_id
    worse = [finding for finding in one.findings if finding.verdict in WORSE]
    if not worse and not is_wanted:
        return
    if base is None or new is None:
        raise RecordError("it was not measured on both sides: there is no run to pin")
    if one.base.passes and not one.new.passes:
        yield Finding(cell_id, base, new, "broke")
        return
    grown = _grown_most(one)
    metrics = [finding.metric for finding in worse if finding.metric] or ([grown] if grown else [])
    if not metrics:
        raise RecordError(f"{one_line(str(one.cell), 200)} did not get worse from base to new: nothing to record")
    for metric in metrics:
        values = one.base.values[metric], one.new.values[metric]
        yield Finding(cell_id, base, new, kind_of(metric), metric, *values)


def _grown_most(one: CellComparison) -> str | None:
    """Return the metric that grew most beyond its smallest effect; None if none grew that much."""
    grown = {name: found - 1 - least for name, least in MIN_EFFECT.items() if (found := one.ratio(name)) is not None}
    worst = max(grown, key=lambda name: grown[name], default=None)
    return worst if worst is not None and grown[worst] >= 0 else None
