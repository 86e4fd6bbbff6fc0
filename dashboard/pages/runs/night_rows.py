"""The page of runs: a row a night, days without one, and what a night was to measure and did."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import date, timedelta
from itertools import pairwise
from statistics import median

import pandas as pd

from collector.vocabulary import NOT_APPLICABLE, Status
from dashboard import url
from dashboard.components import code_host
from dashboard.components.formats import ABSENT, count, moment, share
from dashboard.components.markup import anchor, cell, row, span, table, text
from db.runs import NightInfo

_UNASKED = [status.value for status in NOT_APPLICABLE]
#: So many nights on days of their own, at most so many days apart, show that there is to be one each day.
_FEWEST, _DAILY = 4, 1.5


def nights_table(nights: Sequence[NightInfo]) -> str:
    """A row a night, newest first; the counts are of cells."""
    head = ("started (UTC)", "branch@commit", "measured on", "ended")
    counts = ("took", "planned", "measured", "passing", "failed", "missing")
    link = url.linker()
    rows = [_night_row(night, link) for night in nights]
    note = "of the measured ones, passing and failed are those that could be asked here"
    return table("Nights", (*head, *counts), rows, note=note, numbers=4)


def _night_row(night: NightInfo, link: Callable[..., str]) -> str:
    newest, statuses = night.runs[0], night.statuses
    planned, measured = (sum(getattr(run, name) for run in night.runs) for name in ("planned", "measured"))
    passing = statuses.get(Status.PASS.value, 0)
    failed = sum(number for status, number in statuses.items() if status not in (Status.PASS.value, *_UNASKED))
    started = anchor(link("", new=night.night, base=""), text(moment(night.started_at)))
    label = f"<br>{span('soft', text(newest.label))}" if newest.label else ""
    return row(
        f"{started}{label}",
        [
            cell(f"{text(newest.branch)}@{code_host.commit(newest.repo, newest.commit)}"),
            cell(text(night.place or ABSENT)),
            cell(_ended(night)),
            cell(_took(night), "n"),
            *(cell(text(f"{number:,}"), "n") for number in (planned, measured, passing)),
            cell(span("tag fail", f"{failed:,}") if failed else "0", "n"),
            cell(span("tag missing", f"{night.missing:,}") if night.missing else "0", "n"),
        ],
    )


def _took(night: NightInfo) -> str:
    ends = [run.finished_at for run in night.runs]
    if any(end is None for end in ends):
        return ABSENT
    minutes = (max(end for end in ends if end) - min(run.started_at for run in night.runs)).total_seconds() / 60
    return text(f"{minutes / 60:.1f} h" if minutes >= 90 else f"{minutes:.0f} min")


def _ended(night: NightInfo) -> str:
    cut = sum(run.finished_at is None for run in night.runs)
    resumed = max(run.attempt for run in night.runs) - 1
    told = [span("tag fail", f"{cut} of {len(night.runs)} runs cut or going on")] if cut else ["whole"]
    return ", ".join([*told, *([text(f"resumed {count(resumed, 'time')}")] if resumed > 0 else [])])


def silent_days(nights: Iterable[NightInfo], branch: str, today: date) -> list[date]:
    """Days on which a night of a branch was due and none started, newest first, up to the day before `today`.

    One is due each day where at least 4 nights of it are there and the median of the days between them is one.
    """
    days = sorted({night.started_at.date() for night in nights if night.runs[0].branch == branch})
    gaps = [(later - earlier).days for earlier, later in pairwise(days)]
    if len(days) < _FEWEST or median(gaps) > _DAILY:
        return []
    span_days = max(0, (today - timedelta(days=1) - days[0]).days)
    due = {days[0] + timedelta(days=number) for number in range(span_days + 1)}
    return sorted(due - set(days), reverse=True)


def coverage_table(cells: pd.DataFrame, caption: str) -> str:
    """Config x suite: how many of the planned cells were measured, how many failed and are missing.

    `cells` has suite, config and status (None for a cell that is missing).
    """
    suites = sorted(cells["suite"].unique())
    configs = list(dict.fromkeys(cells["config"]))
    groups = {key: found["status"] for key, found in cells.groupby(["config", "suite"], sort=False)}
    rows = [row(text(config), [_coverage_cell(groups.get((config, suite))) for suite in suites]) for config in configs]
    return table(caption, ("config", *suites), rows, note="measured of planned", numbers=1)


def _coverage_cell(statuses: pd.Series | None) -> str:
    if statuses is None:
        return cell("not planned", "unplanned n")
    planned, missing = len(statuses), int(statuses.isna().sum())
    unasked = int(statuses.isin(_UNASKED).sum())
    failed = planned - missing - unasked - int((statuses == Status.PASS.value).sum())
    told = [text(f"{planned - missing:,} of {planned:,} ({share(planned - missing, planned)})")]
    tags = (("tag fail", failed, "failed"), ("tag missing", missing, "missing"), ("tag", unasked, "not applicable"))
    told += [span(css, f"{number:,} {word}") for css, number, word in tags if number]
    return cell("<br>".join(told), "n")
