"""A report as GitHub's Markdown, and the Jinja2 environments of all documents.

Names and messages of a database are other people's texts: nothing in them may be read as Markdown, HTML or a mention.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from analysis import present
from analysis.compare.cell_comparison import Outcome
from analysis.present import tally
from analysis.reports.facts import ORDER, SHOWN, Report, ReportRow
from collector.metrics import METRICS
from db.store_errors import counted, one_line

#: Sections that are shown unfolded, and sections whose table has statuses instead of values.
UNFOLDED = (Outcome.REGRESSED, Outcome.BROKE)
BY_STATUS = (Outcome.BROKE, Outcome.FIXED, Outcome.FLAKY, Outcome.STILL_FAILING, Outcome.MISSING)


def environment(clean: Callable[[Any], Any], **filters: Callable[..., Any]) -> Environment:
    """Return the templates beside this module. `clean` receives the value of every expression before it is escaped."""
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
        "beside": _beside,
        "tally": present.tally,
    }
    env.filters.update({name: _markup(function) for name, function in own.items()})
    env.filters.update(
        called=present.called,
        titled=lambda text: present.called(text).capitalize(),
        setting=lambda group: f"{group.phase} {group.dtype} {group.device}",
    )
    env.filters.update(commands=_commands, short_sha=_short_sha, stamp=_stamp, describe_side=present.describe_side)
    env.filters.update(filters)
    return env


def render_page(template: str, **values: Any) -> str:
    """Render an HTML or XML template. Every text is escaped; control characters are shown as U+FFFD."""
    return _pages().get_template(template).render(values)


def render_text(template: str, **values: Any) -> str:
    """Render a template for a terminal: no text of a database can break a line or control the terminal."""
    return _texts().get_template(template).render(values)


@cache
def _pages() -> Environment:
    return environment(lambda value: one_line(value, 2000) if _is_foreign(value) else value)


@cache
def _texts() -> Environment:
    # The environment does not escape Markup for HTML.
    return environment(lambda value: Markup(one_line(str(value), 2000)) if _is_foreign(value) else value)  # noqa: S704


def _is_foreign(value: Any) -> bool:
    return isinstance(value, str) and not isinstance(value, Markup)


def _markup(function: Callable[..., str]) -> Callable[..., Markup]:
    return lambda *arguments: Markup(function(*arguments))  # noqa: S704 -- our own texts


def _beside(row: ReportRow) -> str:
    one, finding = row.compared, row.finding
    return ", ".join(filter(None, (present.beside_words(one, finding), present.measured_words(one, finding.judged))))


def _figure(number: float, metric: str) -> str:
    """Return an average over cells: seconds for compile times, else a factor."""
    return f"{number:.1f} s" if metric == "compile_cold_s" else f"{number:.2f}"


def _short_sha(sha: str | None) -> str:
    return sha[:10] if sha else "commit not known"


def _stamp(moment: datetime) -> str:
    """Return a moment in the format of RFC 3339."""
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _commands(rows: Sequence[ReportRow]) -> Iterable[str]:
    """Return the commands of the cells without evidence, each once: cells with evidence have their commands beside it."""
    explained = {row.cell for row in rows if row.evidence}
    return list(dict.fromkeys(row.repro for row in rows if row.repro and row.cell not in explained))


#: GitHub's limits: a step's summary is 1 MiB, the body of a comment or an issue 65,536 characters.
SUMMARY_BYTES = 1 << 20
BODY_BYTES = 65_000
#: Most rows of each table and lines of each list, and smaller numbers to try if they do not fit.
ROWS = 50
_FEWER = (20, 10, 5, 2, 1)
_CUT = "This report was cut here to fit; `inductor-watch report --format json` has all of it."
#: A character that is never part of Markdown or HTML syntax.
_PLAIN = re.compile(r"[A-Za-z0-9 ,;%/()=+.-]")
#: Characters that GitHub makes links of after rendering, too. A space of no width separates them from the following text.
_MENTIONS = "@#"
#: A name longer than this is cut.
_LONGEST = 300


def markdown(report: Report, *, limit: int = SUMMARY_BYTES, rows: int = ROWS) -> str:
    """Render a report in at most `limit` bytes of UTF-8: with fewer rows if it would be longer, and cut as the last resort."""
    text = ""
    for count in (rows, *(fewer for fewer in _FEWER if fewer < rows)):
        text = render("report.md.j2", report=report, rows=count, headline=_headline(report))
        if len(text.encode()) <= limit:
            return text
    return cut(text, limit)


def render(template: str, **values: Any) -> str:
    """Render a Markdown template with these values; several blank lines become one."""
    text = _environment().get_template(template).render(values)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def cut(text: str, limit: int) -> str:
    """Cut a text to the whole lines that fit into `limit` bytes, with a sentence that says that it was cut."""
    if len(text.encode()) <= limit:
        return text
    # An open fence or `<details>` would hide the sentence.
    room = limit - len(f"\n\n{_CUT}\n".encode()) - 64
    kept: list[str] = []
    used, fence_mark, folds = 0, "", 0
    for line in text.split("\n"):
        used += len(line.encode()) + 1
        if used > room:
            break
        kept.append(line)
        mark = line[: len(line) - len(line.lstrip("`"))]
        if len(mark) >= 3:
            fence_mark = "" if mark == fence_mark else fence_mark or mark
        folds += line.count("<details>") - line.count("</details>")
    closing = ([fence_mark] if fence_mark else []) + ["", "</details>"] * folds
    return "\n".join([*kept, *closing, "", _CUT, ""])


def prose(text: str, limit: int = _LONGEST) -> Markup:
    """Return a text for use outside of code: it has no markup, mentions nobody and links no issue."""
    flat = one_line(text, limit)
    return Markup("".join(_spelled(flat, at) + "&#8203;" * (char in _MENTIONS) for at, char in enumerate(flat)))  # noqa: S704


def code(text: str, limit: int = _LONGEST) -> Markup:
    """Return a text as `<code>`, in which GitHub looks for no mention, issue or commit.

    Every character that could be syntax becomes a numeric character reference, which CommonMark reads as text.
    """
    flat = one_line(text, limit)
    return Markup(f"<code>{''.join(_spelled(flat, at) for at in range(len(flat)))}</code>")  # noqa: S704


def fence(lines: Sequence[str], language: str = "") -> Markup:
    """Return lines as a block of code, under a fence longer than any run of backticks in them."""
    text = "\n".join(one_line(line, 2000) for line in lines)
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    mark = "`" * max(3, longest + 1)
    return Markup(f"{mark}{language}\n{text}\n{mark}")  # noqa: S704


@cache
def _environment() -> Environment:
    def clean(value: Any) -> Markup:
        """Turn a value into `prose`, unless it is Markup already."""
        return value if isinstance(value, Markup) else prose(str(value))

    return environment(clean, prose=prose, code=code, fence=fence, address=_address)


def _address(url: str) -> Markup:
    """Return an address for the round brackets of a link: nothing in it ends the brackets or mentions anybody."""
    return Markup("".join(f"%{ord(char):02X}" if char in "()<>|@" else char for char in url))  # noqa: S704


def _headline(report: Report) -> str:
    bad = {word: count for word, count in report.counts.items() if word in ("regressed", "broke", "missing")}
    if report.exit_code == 3 and bad.keys() <= {"missing"}:
        return "nothing to judge"
    if report.counts.keys() == {"still_failing"}:
        return "no cell passes on either side"
    parts = [tally(bad)] if bad else []
    if undecided := report.counts.get("inconclusive"):
        parts.append(f"{counted(undecided, 'cell')} undecided")
    if elsewhere := report.counts.get("environment_changed"):
        parts.append(f"{counted(elsewhere, 'cell')} on another testbed")
    if lacking := report.comparison.without_base[0] if report.exit_code == 3 else 0:
        parts.append(f"{counted(lacking, 'cell')} without a base")
    return ", ".join(parts) or "nothing got worse"


def _spelled(text: str, at: int) -> str:
    char = text[at]
    # Within a word an underscore is no emphasis; a dot or a dash may begin a list or a link to www.
    if char == "_" and 0 < at < len(text) - 1 and text[at - 1].isalnum() and text[at + 1].isalnum():
        return char
    if char == "." and text[max(0, at - 3) : at].lower() == "www":
        return "&#46;"
    # At the beginning of a line a mark, or a number with one, begins a list or a heading.
    if (at == 0 and not char.isalnum()) or (
        char in ".)" and text[:at].isdigit() and text[at + 1 : at + 2] in ("", " ")
    ):
        return f"&#{ord(char)};"
    # Only at the beginning of a line `>` begins a quotation; only before `/` a colon is part of a link.
    if (char == ":" and text[at + 1 : at + 2] != "/") or (char == ">" and at > 0):
        return char
    if _PLAIN.fullmatch(char) or (not char.isascii() and char.isalpha()):
        return char
    return f"&#{ord(char)};"
