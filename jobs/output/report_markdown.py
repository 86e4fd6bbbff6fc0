"""A report as GitHub's Markdown: for a job summary, a comment, or a file; cut, with a sentence that says so, to what fits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from analysis.compare.verdicts import Outcome
from analysis.reports.facts import ORDER, CellFacts, Report
from analysis.reports.suites import SHOWN, AverageFacts, SuiteFacts
from analysis.reports.words import NOTHING, WORDS, interval, pass_rate, percent, several, tally, value
from db.queries.sides import Side
from jobs.output.report_escaping import code, fence, prose

#: GitHub's limits: a step's summary is 1 MiB, the body of a comment or an issue 65,536 characters.
SUMMARY_BYTES = 1 << 20
BODY_BYTES = 65_000
#: Rows of each table and lines of each list; where they do not fit, fewer.
ROWS = 50
_FEWER = (20, 10, 5, 2, 1)
_OPEN = (Outcome.REGRESSED, Outcome.BROKE)
_STATUS = (Outcome.BROKE, Outcome.FIXED, Outcome.FLAKY, Outcome.STILL_FAILING)
_TITLES = {outcome: outcome.value.replace("_", " ").capitalize() for outcome in Outcome}
_CUT = "This report was cut here to fit; `inductor-watch report --format json` has all of it."


def markdown(report: Report, *, limit: int = SUMMARY_BYTES, rows: int = ROWS) -> str:
    """The report, at most `limit` bytes of UTF-8: with fewer rows where it would be longer, and cut off as the last resort."""
    for count in (rows, *(fewer for fewer in _FEWER if fewer < rows)):
        text = _drawn(report, count)
        if len(text.encode()) <= limit:
            return text
    return cut(text, limit)


def cut(text: str, limit: int) -> str:
    """The text's whole lines that fit into `limit` bytes beside a sentence that says that it was cut."""
    if len(text.encode()) <= limit:
        return text
    # A fence or a `<details>` that is open would swallow the sentence.
    room = limit - len(f"\n\n{_CUT}\n".encode()) - 64
    kept: list[str] = []
    used, is_fenced, folds = 0, "", 0
    for line in text.split("\n"):
        used += len(line.encode()) + 1
        if used > room:
            break
        kept.append(line)
        mark = line[: len(line) - len(line.lstrip("`"))]
        if len(mark) >= 3:
            is_fenced = "" if mark == is_fenced else is_fenced or mark
        folds += line.count("<details>") - line.count("</details>")
    closing = ([is_fenced] if is_fenced else []) + ["", "</details>"] * folds
    return "\n".join([*kept, *closing, "", _CUT, ""])


def _drawn(report: Report, rows: int) -> str:
    blocks = [
        f"## {_headline(report)}",
        f"**{prose(report.sentence)}**",
        _sides(report),
        _counts(report),
        *_notes(report, rows),
        *(block for outcome in ORDER for block in _section(report.of(outcome), outcome, rows)),
        *_suites(report.suites, rows),
        *_environment(report, rows),
        *_again(report, rows),
    ]
    return _joined(blocks) + "\n"


def _headline(report: Report) -> str:
    bad = {word: count for word, count in report.counts.items() if word in ("regressed", "broke", "missing")}
    if report.exit_code == 3:
        return "inductor-watch: nothing to judge"
    return f"inductor-watch: {tally(bad) or 'nothing got worse'}"


def _sides(report: Report) -> str:
    if report.across:
        lines = [f"- base: {code(report.across[0])}", f"- new: {code(report.across[1])}", f"- of {_side(report.new)}"]
    else:
        lines = [f"- {role}: {_side(side)}" for role, side in (("base", report.base), ("new", report.new))]
    if report.link:
        lines.append(f"- [all cells in the dashboard]({link(report.link)})")
    return "\n".join(lines)


def _side(side: Side) -> str:
    newest = side.runs[0]
    return f"{code(side.title)}, started {newest.started_at:%Y-%m-%d %H:%M} UTC"


def _counts(report: Report) -> str:
    if not report.counts:
        return ""
    return table(["outcome", "cells"], [[_TITLES[Outcome(word)], str(count)] for word, count in report.counts.items()])


def _notes(report: Report, rows: int) -> list[str]:
    lines = [f"- {prose(note, 1000)}" for note in report.notes]
    return ["\n".join(_some(lines, rows, "note"))] if lines else []


def _section(cells: Sequence[CellFacts], outcome: Outcome, rows: int) -> list[str]:
    if not cells:
        return []
    heading = f"{_TITLES[outcome]} ({len(cells)})"
    shown = cells[:rows]
    drawn = _listed(shown, outcome)
    explained = [_explained(cell) for cell in shown if cell.evidence]
    commands = list(dict.fromkeys(cell.repro for cell in shown if cell.repro and not cell.evidence))
    folded = [fold("Measure one of them again", fence("\n".join(commands), "sh"))] if commands else []
    body = [drawn, _more(cells, rows), *explained, *folded]
    if outcome in _OPEN:
        return [f"### {heading}", *body]
    return [fold(heading, _joined(body))]


def _listed(cells: Sequence[CellFacts], outcome: Outcome) -> str:
    if outcome is Outcome.MISSING:
        return "\n".join(f"- {_cell(cell)}" for cell in cells)
    if outcome in _STATUS:
        rows = [
            [_cell(cell), *map(prose, (cell.status_base or "missing", cell.status_new or "missing"))] for cell in cells
        ]
        return table(["cell", "base", "new"], rows)
    heads = ["cell", "verdict", "by", "base", "new", "change", "95 %"]
    return table(heads, [_judged(cell) for cell in cells], numbers=4)


def _judged(cell: CellFacts) -> list[str]:
    return [
        _cell(cell),
        cell.verdict.replace("_", " "),
        WORDS[cell.metric] if cell.metric else NOTHING,
        value(cell.metric, cell.base),
        value(cell.metric, cell.new),
        percent(cell.change),
        interval(cell.low, cell.high),
    ]


def _cell(cell: CellFacts) -> str:
    return f"[{code(cell.cell)}]({link(cell.link)})" if cell.link else code(cell.cell)


def _explained(cell: CellFacts) -> str:
    lines = [f"{code(cell.cell)}, what else changed:", *(f"- {code(line, 500)}" for line in cell.evidence)]
    return "\n".join(lines) + (f"\n\n{fence(cell.repro, 'sh')}" if cell.repro else "")


def _suites(suites: Sequence[SuiteFacts], rows: int) -> list[str]:
    if not suites:
        return []
    heads = ["suite", "phase", "config", "pass rate", "paired", *(f"{words} x" for words in SHOWN.values())]
    heads[-2] = "compile time s"
    drawn = table(heads, [_suite(suite) for suite in suites[:rows]], numbers=4)
    rule = "Averages over the cells that pass on both sides; in brackets the 95 % interval of the change over models, from 5 on."
    moved = "\n".join(_some([f"- {prose(suite.moved, 600)}" for suite in suites if suite.moved], rows, "group"))
    return ["### Suites", drawn, _more(suites, rows), rule, moved]


def _suite(suite: SuiteFacts) -> list[str]:
    group = suite.group
    rates = f"{pass_rate(suite.base)} -> {pass_rate(suite.new)}"
    paired = str(suite.averages["speedup"].n)
    where = [code(group.suite), code(f"{group.phase} {group.dtype} {group.device}"), code(group.config)]
    return [*where, rates, paired, *(_average(suite.averages[metric], metric) for metric in SHOWN)]


def _average(found: AverageFacts, metric: str) -> str:
    if found.base is None or found.new is None:
        return NOTHING
    digits = 1 if metric == "compile_cold_s" else 2
    shown = f"{found.base:.{digits}f} -> {found.new:.{digits}f}, {percent(found.change)}"
    within = found.interval
    return f"{shown} ({interval(within.low - 1, within.high - 1)})" if within else shown


def _environment(report: Report, rows: int) -> list[str]:
    if not report.environment:
        return []
    lines = [[code(item.key), _values(item.base), _values(item.new)] for item in report.environment]
    blocks = [table(["", "base", "new"], lines[:rows]), _more(lines, rows)]
    return [fold(f"Environment: {several(len(lines), 'difference')}", _joined(blocks))]


def _values(values: Sequence[str]) -> str:
    return (
        ", ".join(code(text, 100) for text in values[:4]) + (", ..." if len(values) > 4 else "")
        if values
        else "nothing"
    )


def _again(report: Report, rows: int) -> list[str]:
    again = report.again
    left = [
        (again.too_noisy, "would take more than 50 further runs: lower the noise instead"),
        (
            again.elsewhere,
            "were measured on different testbeds: no number of runs settles them, measure both sides on one",
        ),
        (again.missing, "are missing: `inductor-watch resume` goes on with a night that was cut short"),
        (again.unreadable, "have a config that this version cannot read"),
    ]
    lines = [f"- {several(count, 'cell')}: {words}" for count, words in left if count]
    if not again.cells:
        return ["### What to measure again", "\n".join(lines)] if lines else []
    said = f"{several(len(again.cells), 'cell')}, {several(again.runs, 'further run')} of each side at the most:"
    heads = ["cell", "outcome", "further runs of each side"]
    cells = [[code(item.name), item.why, str(item.runs)] for item in again.cells[:rows]]
    listed = fold("Cells", _joined([table(heads, cells), _more(again.cells, rows)]))
    return ["### What to measure again", said, fence(report.again_command, "sh"), listed, "\n".join(lines)]


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: int = 0) -> str:
    """A table; the last `numbers` columns are set to the right. Its texts are Markdown already."""
    plain = len(heads) - numbers
    lines = [heads, ["---"] * plain + ["--:"] * numbers, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def fold(title: str, body: str) -> str:
    """A block that opens when it is asked to; its title is a text of ours."""
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"


def link(url: str) -> str:
    """An address for the round brackets of a link: nothing in it ends them, or calls anybody."""
    return "".join(f"%{ord(char):02X}" if char in "()<>|@" else char for char in url)


def _some(lines: Sequence[str], rows: int, what: str) -> list[str]:
    return [*lines[:rows], *([f"- ... and {several(len(lines) - rows, f'more {what}')}"] if len(lines) > rows else [])]


def _more(items: Sequence[object], rows: int) -> str:
    return f"... and {len(items) - rows} more, which `--format json` has" if len(items) > rows else ""


def _joined(blocks: Iterable[str]) -> str:
    return "\n\n".join(block for block in blocks if block)
