"""Records of regressions, with their history: opened with a pinned base, moved from state to state, never cleared by themselves.

No clock is asked: the caller says when. Authors are texts. Everything is named by its public name, so that a record
means the same in every database that holds the same bundles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine, Select, insert, select, update
from sqlalchemy.orm import aliased

from collector.metrics import METRICS
from collector.vocabulary import short_hash
from db.connecting import Change, Source, changing, chunks, connected
from db.incoming import branch_key, ensure
from db.schema import Branch, CellRow, Commit, Regression, RegressionEvent, Run, Series, Testbed
from db.store_errors import RecordError, nearest, one_line
from db.stored_values import clean, from_epoch

#: A shorter beginning of a name is taken for a mistake.
_SHORTEST_NAME = 4
#: States in which somebody has still to look, or it is still slow. Samples behind such a regression must not be thinned out.
OPEN = ("new", "confirmed", "acknowledged", "returned")
CLOSED = ("expected", "false_alarm", "fixed")
STATES = (*OPEN, *CLOSED)

#: The states that may follow each. A person may reopen a closed regression, and a fixed one may return; none is new again.
_AFTER = {
    "new": ("confirmed", "acknowledged", *CLOSED),
    "confirmed": ("acknowledged", *CLOSED),
    "acknowledged": ("confirmed", *CLOSED),
    "returned": ("confirmed", "acknowledged", *CLOSED),
    "expected": ("acknowledged", "false_alarm", "fixed"),
    "false_alarm": ("confirmed", "acknowledged", "expected"),
    "fixed": ("returned", "acknowledged"),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """A cell on a branch and testbed that got worse between the last run before the change and the first one after it.

    `metric` is empty where a status changed, and the values (in the metric's unit) are then None. Branch, repository and
    testbed are those of `onset_run`; `base_run` must be of the same ones.
    """

    cell_id: str
    base_run: str
    onset_run: str
    kind: str
    metric: str = ""
    base_value: float | None = None
    new_value: float | None = None


@dataclass(frozen=True, slots=True)
class EventInfo:
    """One step of a regression's history; `from_state` is None for its opening."""

    at: datetime
    author: str
    from_state: str | None
    to_state: str
    text: str


@dataclass(frozen=True, slots=True)
class RegressionInfo:
    """A regression in its current state. A run is None once it was dropped, or is not stored yet; commits and values stay.

    `onset_at` is when the onset run started; None without that run.
    """

    regression_id: str
    cell_id: str
    repo: str
    branch: str
    testbed_id: str
    metric: str
    kind: str
    state: str
    base_run: str | None
    onset_run: str | None
    base_commit: str | None
    onset_commit: str | None
    base_value: float | None
    new_value: float | None
    opened_at: datetime
    onset_at: datetime | None
    owner: str
    link: str
    events: tuple[EventInfo, ...] = ()

    @property
    def state_since(self) -> datetime:
        """The time of its last change of state. Notes, owners and links are events, too, and do not count."""
        moved = (event.at for event in reversed(self.events) if event.from_state != event.to_state)
        return next(moved, self.opened_at)

    @property
    def is_open(self) -> bool:
        """Return whether the state is one of `OPEN`: somebody has still to do something about the regression."""
        return self.state in OPEN


def following(state: str) -> tuple[str, ...]:
    """Return the states that may follow one. Raises `RecordError` for a word that is no state."""
    if state not in STATES:
        raise RecordError(f"no state {one_line(state)!r}: one of {', '.join(STATES)}")
    return _AFTER[state]


def _check_link(link: str | None) -> None:
    """Raise `RecordError` for a link that is no http(s) address. None, or an empty link, is fine."""
    if link and (not link.startswith(("https://", "http://")) or not link.isprintable() or " " in link):
        raise RecordError(f"link {one_line(link[:80])!r}: write an address that begins with https://")


def open_regression(
    target: Engine | Connection,
    finding: Finding,
    *,
    at: datetime,
    author: str,
    text: str = "",
    owner: str = "",
    link: str = "",
) -> RegressionInfo:
    """Record a finding as a `new` regression and return it. If it is recorded already, change nothing and return the record.

    Raises `RecordError` for a cell, run or metric that the database does not know, runs that do not belong together, or
    a link that is no address.
    """
    _check_link(link)
    with changing(target) as change:
        base, onset = _run(change.conn, finding.base_run), _run(change.conn, finding.onset_run)
        _check(finding, base, onset)
        series = _series(change.conn, finding.cell_id, onset)
        place = (onset.repo, onset.branch, onset.testbed_id)
        name = short_hash([*place, finding.cell_id, finding.metric, finding.kind, finding.onset_run])
        if change.conn.execute(select(Regression.id).where(Regression.regression_id == name)).first() is None:
            row = {
                "regression_id": name,
                "series": series,
                "metric": finding.metric,
                "kind": clean(finding.kind),
                "state": "new",
                "base_run": base.id,
                "onset_run": onset.id,
                "base_commit": base.commit,
                "onset_commit": onset.commit,
                "base_value": finding.base_value,
                "new_value": finding.new_value,
                "opened_at": at.timestamp(),
                "owner": clean(owner),
                "link": clean(link),
            }
            change.conn.execute(insert(Regression), row)
            _event(change.conn, name, at, author, None, "new", text)
            change.made = True
        return regression(change.conn, name)


def change_state(
    target: Engine | Connection,
    regression_id: str,
    state: str,
    *,
    at: datetime,
    author: str,
    text: str = "",
    owner: str | None = None,
    link: str | None = None,
) -> RegressionInfo:
    """Move a regression to a state, and add the move to its history; change owner and link where they are given.

    Raises `RecordError` for an unknown regression or state, a state that cannot follow, or a link that is no address.
    """
    _check_link(link)
    with changing(target) as change:
        known = regression(change.conn, regression_id)
        following(state)  # a word that is no state is refused as such
        if state not in (allowed := following(known.state)):
            raise RecordError(
                f"regression {one_line(known.regression_id)} is {known.state}:"
                f" that can become {', '.join(allowed)}, not {state}"
            )
        return _change(change, known, state, _given(owner, link), at, author, text)


def note_regression(
    target: Engine | Connection,
    regression_id: str,
    *,
    at: datetime,
    author: str,
    text: str = "",
    owner: str | None = None,
    link: str | None = None,
) -> RegressionInfo:
    """Add a text to a regression's history, or change its owner or link, and leave its state as it is.

    Nothing is written if there is no text, and owner and link are as they were. Raises `RecordError` for an unknown regression,
    for a call without text, owner and link, or for a link that is no address.
    """
    if not text.strip() and owner is None and link is None:
        raise RecordError("a note needs a text, an owner or a link")
    _check_link(link)
    with changing(target) as change:
        known = regression(change.conn, regression_id)
        new = {name: value for name, value in _given(owner, link).items() if getattr(known, name) != value}
        parts = [text.strip(), *(f"{name}: {value or 'none'}" for name, value in new.items())]
        line = "; ".join(part for part in parts if part)
        return _change(change, known, known.state, new, at, author, line) if line else known


def _given(owner: str | None, link: str | None) -> dict[str, str]:
    return {name: clean(value) for name, value in (("owner", owner), ("link", link)) if value is not None}


def _change(
    change: Change, known: RegressionInfo, state: str, values: dict[str, str], at: datetime, author: str, text: str
) -> RegressionInfo:
    of_record = Regression.regression_id == known.regression_id
    change.conn.execute(update(Regression).where(of_record).values(state=state, **values))
    _event(change.conn, known.regression_id, at, author, known.state, state, text)
    change.made = True
    return regression(change.conn, known.regression_id)


def find_regression(source: Source, text: str) -> RegressionInfo:
    """Return the regression of a name, or of the beginning of one (4 characters at least).

    Raises `RecordError` for none, or several.
    """
    with connected(source) as conn:
        known = conn.execute(select(Regression.regression_id)).scalars().all()
        names = [name for name in known if name.startswith(text)] if text else []
        if text not in known and (len(names) > 1 or (names and len(text) < _SHORTEST_NAME)):
            raise RecordError(f"{one_line(text)} could be {', '.join(sorted(names)[:4])}: write more of it")
        return regression(conn, names[0] if text not in known and names else text)


def list_regressions(source: Source, *, open_only: bool = False, branch: str | None = None) -> list[RegressionInfo]:
    """Return regressions with their histories, the one that was opened last first."""
    where = [Regression.state.in_(OPEN)] if open_only else []
    return _listed(source, *where, *([] if branch is None else [Branch.name == branch]))


def regression(source: Source, regression_id: str) -> RegressionInfo:
    """Return one regression. Raises `RecordError`, with the nearest names, if there is none of that name."""
    with connected(source) as conn:
        if records := _listed(conn, Regression.regression_id == clean(regression_id)):
            return records[0]
        known = conn.execute(select(Regression.regression_id)).scalars().all()
    raise RecordError(f"no regression {one_line(regression_id)!r}{nearest(regression_id, known)}")


def _check(finding: Finding, base: Any, onset: Any) -> None:
    if finding.metric and finding.metric not in METRICS:
        raise RecordError(f"no metric {one_line(finding.metric)!r}{nearest(finding.metric, METRICS)}")
    if not finding.kind:
        raise RecordError("a regression needs a kind, such as `slower` or `broke`")
    if any(getattr(base, name) != getattr(onset, name) for name in ("repo", "branch", "testbed_id")):
        raise RecordError(
            f"runs {one_line(base.run_id)} and {one_line(onset.run_id)} are not of one branch and testbed: choose two that are"
        )


def _run(conn: Connection, run_id: str) -> Any:
    query = (
        select(Run.id, Run.run_id, Run.branch, Run.commit, Run.testbed, Commit.repo, Testbed.testbed_id)
        .join(Commit, Commit.id == Run.commit)
        .join(Testbed, Testbed.id == Run.testbed)
        .where(Run.run_id == clean(run_id))
    )
    if run := conn.execute(query).first():
        return run
    raise RecordError(f"no run {one_line(run_id)!r}{nearest(run_id, conn.execute(select(Run.run_id)).scalars())}")


def _series(conn: Connection, cell_id: str, run: Any) -> int:
    cell = conn.execute(select(CellRow.id).where(CellRow.cell_id == clean(cell_id))).scalar()
    if cell is None:
        raise RecordError(f"no cell {one_line(cell_id)!r} in the database")
    row = {"cell": cell, "branch": branch_key(conn, run.repo, run.branch), "testbed": run.testbed}
    return ensure(conn, Series, tuple(row), [row])[tuple(row.values())]


def _event(conn: Connection, name: str, at: datetime, author: str, old: str | None, new: str, text: str) -> None:
    number = select(Regression.id).where(Regression.regression_id == name).scalar_subquery()
    moved = {"at": at.timestamp(), "from_state": old, "to_state": new}
    conn.execute(insert(RegressionEvent).values(regression=number, author=clean(author), text=clean(text), **moved))


_BASE, _ONSET = aliased(Run), aliased(Run)
_BASE_COMMIT, _ONSET_COMMIT = aliased(Commit), aliased(Commit)


def _query(*where: Any) -> Select[Any]:
    names = ("regression_id", "metric", "kind", "state", "base_value", "new_value", "owner", "link")
    same = [getattr(Regression, name) for name in names]
    return (
        select(Regression.id, *same, Regression.opened_at, CellRow.cell_id, Branch.repo, Branch.name.label("branch"))
        .add_columns(Testbed.testbed_id, _BASE.run_id.label("base_run"), _ONSET.run_id.label("onset_run"))
        .add_columns(_ONSET.started_at.label("onset_at"))
        .add_columns(_BASE_COMMIT.sha.label("base_commit"), _ONSET_COMMIT.sha.label("onset_commit"))
        .join(Series, Series.id == Regression.series)
        .join(CellRow, CellRow.id == Series.cell)
        .join(Branch, Branch.id == Series.branch)
        .join(Testbed, Testbed.id == Series.testbed)
        .outerjoin(_BASE, _BASE.id == Regression.base_run)
        .outerjoin(_ONSET, _ONSET.id == Regression.onset_run)
        .outerjoin(_BASE_COMMIT, _BASE_COMMIT.id == Regression.base_commit)
        .outerjoin(_ONSET_COMMIT, _ONSET_COMMIT.id == Regression.onset_commit)
        .where(*where)
        .order_by(Regression.opened_at.desc(), Regression.regression_id)
    )


def _listed(source: Source, *where: Any) -> list[RegressionInfo]:
    with connected(source) as conn:
        rows = conn.execute(_query(*where)).mappings().all()
        events = _events(conn, [row["id"] for row in rows])
    return [
        RegressionInfo(
            **{name: value for name, value in row.items() if name not in ("id", "opened_at", "onset_at")},
            opened_at=from_epoch(row["opened_at"]),
            onset_at=None if row["onset_at"] is None else from_epoch(row["onset_at"]),
            events=tuple(events.get(row["id"], ())),
        )
        for row in rows
    ]


def _events(conn: Connection, regressions: Sequence[int]) -> dict[int, list[EventInfo]]:
    """Return the events of each regression in the order in which they were written, whatever the clocks said."""
    by_record: dict[int, list[EventInfo]] = {}
    for some in chunks(regressions):
        query = select(RegressionEvent).where(RegressionEvent.regression.in_(some)).order_by(RegressionEvent.id)
        for row in conn.execute(query):
            event = EventInfo(from_epoch(row.at), row.author, row.from_state, row.to_state, row.text)
            by_record.setdefault(row.regression, []).append(event)
    return by_record
