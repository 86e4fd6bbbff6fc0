"""Records of regressions as text, as an Atom feed and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from analysis.history.regression_record import Listed, Record, dimension_of
from analysis.present import NOTHING, percent, value
from analysis.reports.markdown_report import render_page, render_text
from analysis.reports.permalinks import address
from db.commits.ranges import CommitEntry
from db.regression_records import RegressionInfo

#: Commits of a blame range that are printed; `--json` has all.
_COMMITS = 20


def change_of(info: RegressionInfo) -> str:
    """From the pinned value to that of the onset."""
    if info.base_value is None or info.new_value is None:
        return NOTHING
    change = percent(info.new_value / info.base_value - 1) if info.base_value > 0 else NOTHING
    return f"{value(info.metric, info.base_value)} -> {value(info.metric, info.new_value)}, {change}"


def by_onset(infos: Iterable[RegressionInfo]) -> dict[tuple[str, ...], list[RegressionInfo]]:
    """Records by what an alert has in common: repository, branch, base and onset."""
    groups: dict[tuple[str, ...], list[RegressionInfo]] = {}
    for info in infos:
        base, onset = info.base_commit or info.base_run or "", info.onset_commit or info.onset_run or ""
        groups.setdefault((info.repo, info.branch, base, onset), []).append(info)
    return groups


def record_text(record: Record) -> str:
    """What `regressions show` prints."""
    blame = blame_lines(record, _COMMITS)
    return render_text("record.txt.j2", record=record, info=record.info, change=change_of(record.info), blame=blame)


def page_of(record: Record, dashboard: str) -> str:
    """The cell's page with both runs that the record pins; empty without a dashboard, or where a run is gone."""
    cell, info = record.cell, record.info
    if not (dashboard and cell and info.base_run and info.onset_run):
        return ""
    setting = f"{cell.phase.value},{cell.dtype},{cell.device},{cell.batch_size}"
    query = {"base": [info.base_run], "new": [info.onset_run], "model": [f"{cell.suite}/{cell.model}"]}
    return address(f"{dashboard.rstrip('/')}/model", {**query, "setting": [setting], "config": [cell.config.name]})


def blame_lines(record: Record, most: int) -> list[str]:
    """The commits that the change can come from, oldest first, a line each."""
    if record.distance is None:
        return [record.unknown or "not known: a commit of the record is not in the database"]
    if not record.distance:
        return ["no commit landed in between: the same code, or a change that is none of the commits'"]
    lines = [commit_line(entry) for entry in record.commits[:most]]
    rest = record.distance - len(lines)
    return [*lines, *([f"... and {rest} more commits in between"] if rest else [])]


def commit_line(entry: CommitEntry) -> str:
    """A commit with its title and pull request, and the commits that revert or reland it."""
    marks = "".join(f"  [{word} {shas}]" for word, shas in entry.links.items())
    title = entry.title or "no title"
    pr = f" (#{entry.pr_number})" if entry.pr_number and f"#{entry.pr_number}" not in title else ""
    return f"{entry.sha[:10]}  {title[:120]}{pr}{marks}"


def record_json(record: Record) -> dict[str, Any]:
    """An object with stable keys for `json.dumps(..., default=str_of_time)`: the record, cell, repro, commits."""
    return {
        **info_json(record.info, record.name),
        "repro": record.repro,
        "kernels": list(record.kernels),
        "blame": {
            "distance": record.distance,
            "unknown": record.unknown,
            "commits": [asdict(entry) for entry in record.commits],
        },
    }


def info_json(info: RegressionInfo, name: str) -> dict[str, Any]:
    """The record alone with its history, and the cell as people write it."""
    return {**asdict(info), "dimension": dimension_of(info), "cell": name, "is_open": info.is_open}


def atom(records: Sequence[Listed], dashboard: str = "") -> str:
    """An Atom feed (RFC 4287) of these records, newest change first; with a `dashboard` each entry links to its record there."""
    entries: list[dict[str, Any]] = [
        {
            "info": one.info,
            "name": one.name,
            "change": change_of(one.info),
            "updated": max([one.info.opened_at, *(event.at for event in one.info.events)]),
        }
        for one in records
    ]
    entries.sort(key=lambda entry: (entry["updated"], entry["info"].regression_id), reverse=True)
    updated = entries[0]["updated"] if entries else datetime.fromtimestamp(0, UTC)
    return render_page("feed.xml.j2", entries=entries, updated=updated, dashboard=dashboard.rstrip("/"))
