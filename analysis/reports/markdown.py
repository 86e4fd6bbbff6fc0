"""A report as GitHub's Markdown: for a job summary, a comment, or a file. It is cut, with a sentence that says so, to what fits.

Names and messages of a database are other people's texts: nothing in them may be taken for Markdown, HTML or a mention.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from analysis.present import tally
from analysis.reports.facts import Report
from analysis.reports.templating import environment
from db.errors import counted, one_line

#: GitHub's limits: a step's summary is 1 MiB, the body of a comment or an issue 65,536 characters.
SUMMARY_BYTES = 1 << 20
BODY_BYTES = 65_000
#: Rows of each table and lines of each list; where they do not fit, fewer.
ROWS = 50
_FEWER = (20, 10, 5, 2, 1)
_CUT = "This report was cut here to fit; `inductor-watch report --format json` has all of it."
#: A character that is never part of Markdown or HTML syntax.
_PLAIN = re.compile(r"[A-Za-z0-9 ,;%/()=+.-]")
#: GitHub links these after rendering, too. A space of no width keeps them apart from what follows.
_MENTIONS = "@#"
#: A name longer than this is cut.
_LONGEST = 300


def markdown(report: Report, *, limit: int = SUMMARY_BYTES, rows: int = ROWS) -> str:
    """The report, at most `limit` bytes of UTF-8: with fewer rows where it would be longer, and cut off as the last resort."""
    text = ""
    for count in (rows, *(fewer for fewer in _FEWER if fewer < rows)):
        text = render("report.md.j2", report=report, rows=count, headline=_headline(report))
        if len(text.encode()) <= limit:
            return text
    return cut(text, limit)


def render(template: str, **values: Any) -> str:
    """A Markdown template with these values; several blank lines become one."""
    text = _environment().get_template(template).render(values)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def cut(text: str, limit: int) -> str:
    """The text's whole lines that fit into `limit` bytes beside a sentence that says that it was cut."""
    if len(text.encode()) <= limit:
        return text
    # A fence or a `<details>` that is open would swallow the sentence.
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
    """The text outside of code: it has no markup, mentions nobody and links no issue."""
    flat = one_line(text, limit)
    return Markup("".join(_spelled(flat, at) + "&#8203;" * (char in _MENTIONS) for at, char in enumerate(flat)))  # noqa: S704


def code(text: str, limit: int = _LONGEST) -> Markup:
    """The text as `<code>`, which GitHub searches for no mention, issue or commit.

    Every character that could be syntax becomes a numeric character reference, which CommonMark takes for text.
    """
    flat = one_line(text, limit)
    return Markup(f"<code>{''.join(_spelled(flat, at) for at in range(len(flat)))}</code>")  # noqa: S704


def fence(lines: Sequence[str], language: str = "") -> Markup:
    """The lines as a block of code, under a fence longer than any run of backticks in it."""
    text = "\n".join(one_line(line, 2000) for line in lines)
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    mark = "`" * max(3, longest + 1)
    return Markup(f"{mark}{language}\n{text}\n{mark}")  # noqa: S704


@cache
def _environment() -> Environment:
    def clean(value: Any) -> Markup:
        """What is not Markup yet becomes `prose`."""
        return value if isinstance(value, Markup) else prose(str(value))

    return environment(clean, prose=prose, code=code, fence=fence, address=_address)


def _address(url: str) -> Markup:
    """An address for the round brackets of a link: nothing in it ends them, or mentions anybody."""
    return Markup("".join(f"%{ord(char):02X}" if char in "()<>|@" else char for char in url))  # noqa: S704


def _headline(report: Report) -> str:
    bad = {word: count for word, count in report.counts.items() if word in ("regressed", "broke", "missing")}
    if report.exit_code == 3:
        return "nothing to judge"
    if undecided := report.counts.get("inconclusive"):
        open_words = f"{counted(undecided, 'cell')} undecided"
        return f"{tally(bad)}, {open_words}" if bad else open_words
    return tally(bad) or "nothing got worse"


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
    # Elsewhere these begin a quotation or a link.
    if (char == ":" and text[at + 1 : at + 2] != "/") or (char == ">" and at > 0):
        return char
    if _PLAIN.fullmatch(char) or (not char.isascii() and char.isalpha()):
        return char
    return f"&#{ord(char)};"
