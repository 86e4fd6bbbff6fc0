"""Records of regressions on a terminal and as JSON: the state, the pinned base, the blame range, the history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from analysis.history.record import Record
from analysis.reports.words import NOTHING, percent, value
from db.commits.ranges import CommitEntry
from db.regressions.records import RegressionInfo
from jobs.output.terminal import one_line

#: Commits of a blame range that are printed; `--json` has all.
_COMMITS = 20


def table_row(info: RegressionInfo, name: str) -> list[str]:
    """The cells of a row of `regressions list`."""
    where = f"{info.branch}@{(info.onset_commit or '')[:10]}"
    return [
        info.regression_id,
        info.state,
        name,
        info.kind,
        change_of(info),
        where,
        f"{info.opened_at:%Y-%m-%d}",
        info.owner,
    ]


def change_of(info: RegressionInfo) -> str:
    """From the pinned value to that of the onset."""
    if info.base_value is None or info.new_value is None:
        return NOTHING
    change = percent(info.new_value / info.base_value - 1) if info.base_value > 0 else NOTHING
    return f"{value(info.metric, info.base_value)} -> {value(info.metric, info.new_value)}, {change}"


def lines_of(record: Record) -> list[str]:
    """What `regressions show` prints."""
    info = record.info
    facts: Mapping[str, str] = {
        "state": info.state,
        "cell": record.name,
        "kind": f"{info.kind}, {info.metric}" if info.metric else info.kind,
        "change": change_of(info),
        "branch": f"{info.branch} of {info.repo}, testbed {info.testbed_id}",
        "base": f"{_commit(info.base_commit)}, run {info.base_run or 'dropped'} (pinned)",
        "onset": f"{_commit(info.onset_commit)}, run {info.onset_run or 'dropped'}",
        "owner": info.owner or "nobody",
        "link": info.link or "none",
        "again": record.repro or "the config is another version's",
    }
    lines = [info.regression_id, *(f"  {name:<7} {one_line(text)}" for name, text in facts.items())]
    lines += ["blame range", *(f"  {one_line(line)}" for line in blame(record, _COMMITS))]
    lines += ["history", *(f"  {one_line(_event(event))}" for event in info.events)]
    told = [
        f"  {_moment(note.at)}  {note.author} on {note.subject} {note.name[:12]}: {note.text}" for note in record.notes
    ]
    return [*lines, *(["notes"] if told else []), *map(one_line, told)]


def blame(record: Record, most: int) -> list[str]:
    """The commits that the change can come from, oldest first, a line each."""
    if record.distance is None:
        return [record.unknown or "not known: a commit of the record is not in the database"]
    if not record.distance:
        return ["no commit landed in between: the same code, or a change that is none of the commits'"]
    lines = [_line(entry) for entry in record.commits[:most]]
    rest = record.distance - len(lines)
    return [*lines, *([f"... and {rest} more commits in between"] if rest else [])]


def to_json(record: Record) -> dict[str, Any]:
    """A JSON object with stable keys: the record, cell, repro, commits, notes."""
    return {
        **info_json(record.info, record.name),
        "repro": record.repro,
        "blame": {
            "distance": record.distance,
            "unknown": record.unknown,
            "commits": [_plain(asdict(entry)) for entry in record.commits],
        },
        "notes": [_plain(asdict(note)) for note in record.notes],
    }


def info_json(info: RegressionInfo, name: str) -> dict[str, Any]:
    """The record alone with its history, and the cell as people write it."""
    return {**_plain(asdict(info)), "cell": name, "is_open": info.is_open}


def _event(event: Any) -> str:
    moved = event.to_state if event.from_state != event.to_state else "note"
    return f"{_moment(event.at)}  {event.author}: {moved}" + (f": {event.text}" if event.text else "")


def _line(entry: CommitEntry) -> str:
    marks = {"reverted by": entry.reverted_by, "relanded by": entry.relanded_by, "reverts": entry.reverts}
    told = "".join(f"  [{word} {', '.join(sha[:10] for sha in shas)}]" for word, shas in marks.items() if shas)
    return f"{entry.sha[:10]}  {entry.title or 'no title'}{told}"


def _commit(sha: str | None) -> str:
    return sha[:10] if sha else "commit not known"


def _moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, Sequence) and not isinstance(value, str) else value
