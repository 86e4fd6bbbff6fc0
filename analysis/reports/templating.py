"""The Jinja2 environments of all documents: pages and feeds, Markdown, and text for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from analysis import present
from analysis.compare.cell_outcome import Outcome
from analysis.compare.suite_groups import Group
from analysis.reports.facts import ORDER, SHOWN, ReportRow
from collector.metrics import METRICS
from db.errors import counted, one_line

#: Sections that are shown unfolded, and sections whose table has statuses instead of values.
UNFOLDED = (Outcome.REGRESSED, Outcome.BROKE)
BY_STATUS = (Outcome.BROKE, Outcome.FIXED, Outcome.FLAKY, Outcome.STILL_FAILING, Outcome.MISSING)


def environment(clean: Callable[[Any], Any], **filters: Callable[..., Any]) -> Environment:
    """The templates beside this module. `clean` receives the value of every expression before it is escaped."""
    env = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        finalize=clean,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    env.globals.update(order=ORDER, unfolded=UNFOLDED, by_status=BY_STATUS, averages=SHOWN)
    # The texts of these filters are our own, made of numbers, units and the names of metrics.
    own: dict[str, Callable[..., str]] = {
        "value": lambda number, metric: present.value(metric, number),
        "percent": present.percent,
        "interval": present.interval,
        "ruled_out": present.ruled_out,
        "figure": _figure,
        "metric_name": lambda metric: METRICS[metric].title if metric else present.NOTHING,
        "pass_rate": present.pass_rate,
        "commit_title": present.commit_title,
        "several": counted,
        "beside": lambda row: present.beside_words(row.compared, row.finding),
        "tally": present.tally,
    }
    env.filters.update({name: _markup(function) for name, function in own.items()})
    env.filters.update(called=present.called, titled=lambda text: present.called(text).capitalize(), setting=_setting)
    env.filters.update(commands=_commands, short_sha=_short_sha, stamp=_stamp, describe_side=present.describe_side)
    env.filters.update(filters)
    return env


def render_page(template: str, **values: Any) -> str:
    """An HTML or XML template. Every text is escaped; control characters are shown as U+FFFD."""
    return _pages().get_template(template).render(values)


def render_text(template: str, **values: Any) -> str:
    """A template for a terminal: no text of a database can break a line or steer the terminal."""
    return _texts().get_template(template).render(values)


@cache
def _pages() -> Environment:
    return environment(lambda value: one_line(value, 2000) if _is_foreign(value) else value)


@cache
def _texts() -> Environment:
    # Markup is what the environment does not escape for HTML.
    return environment(lambda value: Markup(one_line(str(value), 2000)) if _is_foreign(value) else value)  # noqa: S704


def _is_foreign(value: Any) -> bool:
    return isinstance(value, str) and not isinstance(value, Markup)


def _markup(function: Callable[..., str]) -> Callable[..., Markup]:
    return lambda *arguments: Markup(function(*arguments))  # noqa: S704 -- our own texts


def _setting(group: Group) -> str:
    return f"{group.phase} {group.dtype} {group.device}"


def _figure(number: float, metric: str) -> str:
    """An average over cells: seconds for compile times, else a factor."""
    return f"{number:.1f} s" if metric == "compile_cold_s" else f"{number:.2f}"


def _short_sha(sha: str | None) -> str:
    return sha[:10] if sha else "commit not known"


def _stamp(moment: datetime) -> str:
    """A moment as RFC 3339 has it."""
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _commands(rows: Sequence[ReportRow]) -> Iterable[str]:
    """The commands of the cells that have no evidence (the others show theirs beside it), each once."""
    explained = {row.cell for row in rows if row.evidence}
    return list(dict.fromkeys(row.repro for row in rows if row.repro and row.cell not in explained))
