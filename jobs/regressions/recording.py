"""Alerts and comparisons become records: opened once, kept, taken up again, and `fixed` by one stated rule."""

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
    """What became of the records: the regression_ids that were opened, found again, that returned, and that are fixed."""

    opened: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    returned: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()


def record_alerts(engine: Engine, alerts: Sequence[Alert], *, author: str, now: datetime | None = None) -> Recorded:
    """Writes what `analysis.history.alerts.survey` found into the records of the store, all of it or nothing.

    A record is opened for every cell and metric that got worse in an alert and is worse still, with the last run measured
    before as its pinned base. Nothing is opened for what is pending, for what got better, where both sides measured one
    commit, and for what the eager runs of all cells show to be the machine's doing (`Alert.of_machine`). A change is that of a
    record already there, and adds nothing, where it is of the same series and metric and

    - some commit can be to blame for both, or
    - it goes from the level of the record's base to its worse one again, unless the record is of a status and closed as
      `expected` or `false_alarm`: what breaks anew is looked at anew.

    A record that is `fixed` becomes `returned` once its worse level is back and the two newest runs, both from after the
    fix, are still there. An open one becomes `fixed` when the two newest runs are back at the base's level
    (`analysis.history.regression_record.standing`), and by nothing else: that its alert is no longer found fixes nothing. This is
    looked at for every open record of the store, whatever the alerts. `now` is the moment of the events (UTC), the present
    one if it is not given.

    Raises:
        RecordError: an alert of another store, whose runs or cells this one does not have.
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
    """What a change of a metric for the worse is called; `broke` for a status, which is no metric."""
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
        #: The records by what was done, in the order in which it was, each once.
        self._done: dict[str, dict[str, None]] = {"opened": {}, "kept": {}, "returned": {}, "fixed": {}}

    def enter(self, change: Change, alert: Alert) -> None:
        """Finds the record of a change, or opens one; the one that was opened last counts where there are several."""
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
        """Says of every open record that the two newest runs show to be back that it is fixed."""
        for records in self._known.values():
            for record in records:
                if record.state in OPEN and not self._is_new(record) and self._standing(record) is Standing.BACK:
                    self._move(record, "fixed", f"the {RUNS} newest runs are back at the level of the base")

    def recorded(self) -> Recorded:
        """What was done; a record that was found again and then fixed is named as fixed alone."""
        kept = (name for name in self._done["kept"] if name not in self._done["fixed"])
        return Recorded(**{name: tuple(names) for name, names in {**self._done, "kept": kept}.items()})

    def _is_new(self, record: RegressionInfo) -> bool:
        return record.regression_id in (*self._done["opened"], *self._done["returned"])

    def _overlaps(self, record: RegressionInfo, change: Change) -> bool:
        """Whether some commit lies in the ranges of both."""
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
    """Whether a change goes the way of a record once more, from its better level to its worse one."""
    if change.levels is None:
        return record.state not in ("expected", "false_alarm")
    base, new = record.base_value, record.new_value
    if base is None or new is None or min(base, new) <= 0 or base == new:
        return False
    return is_nearer(change.levels.before, base, new) and not is_nearer(change.levels.after, base, new)


def _spelled(change: Change) -> str:
    """`compiled_ms +5.1 % (+4.2 .. +6.0 %) between 0123456789 and 9876543210`."""
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
    """The records as they stand, which of them are new, and what could not be recorded, a line each."""

    records: tuple[RegressionInfo, ...]
    new: tuple[str, ...]
    left_out: tuple[str, ...]


def open_from_sides(
    engine: Engine, base: str, new: str, wanted: Sequence[str], *, at: datetime, author: str, text: str = ""
) -> Opened:
    """Opens a record for each dimension in which a cell regressed or broke, or for the `wanted` cells, all or nothing.

    A wanted cell, by its name or cell_id, is recorded whatever the verdict if it is slower or fails, since a person says so.
    The run of base is the pinned one. A cell that the sides measured on two branches or testbeds has no record: a wanted
    one is refused, the others are named.

    Raises:
        SideError: a text names no side.
        RecordError: no such cell, or a wanted one that did not get worse or cannot be recorded.
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
    """Return the cell of that name or cell_id. Raises `RecordError` with the nearest names where the sides have none."""
    found = next((one for one in comparison.cells if name in (str(one.cell), one.cell.cell_id)), None)
    if found is None:
        names = (str(one.cell) for one in comparison.cells)
        raise RecordError(f"these sides have no cell {one_line(name, 200)!r}{nearest(name, names)}")
    return found


def _findings(one: CellComparison, *, is_wanted: bool) -> Iterator[Finding]:
    """Yield what got worse in each dimension. Raises `RecordError` for a wanted cell where nothing did or a side is missing."""
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
    """Return the metric that grew most beyond the smallest change that matters; None where none did."""
    grown = {name: found - 1 - least for name, least in MIN_EFFECT.items() if (found := one.ratio(name)) is not None}
    worst = max(grown, key=lambda name: grown[name], default=None)
    return worst if worst is not None and grown[worst] >= 0 else None
