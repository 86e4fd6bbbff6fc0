"""A report as one HTML file that asks nobody for anything: no script, no font, no picture from elsewhere; light and dark.

Orange is worse and blue is better, as on the dashboard; a word and a sign say it, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from analysis.compare.verdicts import Outcome
from analysis.reports.charts import changes_chart, suites_chart
from analysis.reports.facts import ORDER, CellFacts, Report
from analysis.reports.forest import IN_PAGE
from analysis.reports.suites import SHOWN, AverageFacts
from analysis.reports.words import NOTHING, WORDS, describe_side, interval, pass_rate, percent, several, value
from db.errors import one_line

#: Rows of a table before the rest is counted only: a browser lays out some thousand rows well.
ROWS = 2000
_LOOKS = {Outcome.REGRESSED: "bad", Outcome.BROKE: "bad", Outcome.IMPROVED: "good", Outcome.FIXED: "good"}
_OPEN = (Outcome.REGRESSED, Outcome.BROKE)
_STATUS = (Outcome.BROKE, Outcome.FIXED, Outcome.FLAKY, Outcome.STILL_FAILING, Outcome.MISSING)
#: Half the width of the interval's picture, in its own units, and the change that reaches its edge at the least.
_HALF, _LEAST = 60.0, 0.05
#: The page may draw itself and nothing else.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE = """
:root{color-scheme:light dark;--ink:#1a1f26;--soft:#5c6670;--line:#d5dae0;--back:#fff;--panel:#f4f6f8;--bad:#b44a00;
--good:#0b61a4}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ec;--soft:#9aa4ae;--line:#39424b;--back:#14181c;--panel:#1d2329;--bad:#ffb077;
--good:#8cc4ff}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--back);max-width:80rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem;margin:0 0 .5rem}h2{font-size:1.15rem;margin:2rem 0 .5rem}.soft{color:var(--soft)}
.bad{color:var(--bad)}.good{color:var(--good)}.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%}th,td{padding:.25rem .6rem;border-bottom:1px solid var(--line);text-align:left;
vertical-align:top}
th{font-weight:600;color:var(--soft);white-space:nowrap}.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
code,pre{font:13px/1.5 ui-monospace,monospace}pre{background:var(--panel);padding:.5rem .75rem;overflow-x:auto;
white-space:pre-wrap;word-break:break-word}
details{margin:.5rem 0}summary{cursor:pointer}a{color:inherit}svg{display:block}figure{margin:1rem 0}
.wide:focus-visible{outline:2px solid currentColor;outline-offset:2px}
""".strip()


def html(report: Report) -> str:
    """The whole page. Every text is escaped; what steers a line or turns the writing round is shown as U+FFFD."""
    body = [
        f"<h1>{_text(report.sentence)}</h1>",
        _sides(report),
        _notes(report.notes),
        _figure(changes_chart(report, IN_PAGE), "What changed, as a picture"),
        *(_section(report.of(outcome), outcome) for outcome in ORDER),
        _suites(report),
        _environment(report),
        _again(report),
    ]
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}"><meta name="color-scheme" content="light dark">'
        f"<title>inductor-watch: {_text(report.sentence)}</title><style>{_STYLE}</style>"
    )
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body><main>\n'
        + "\n".join(filter(None, body))
        + "\n</main></body></html>\n"
    )


def _text(words: str, limit: int = 2000) -> str:
    return escape(one_line(words, limit), quote=True)


def _sides(report: Report) -> str:
    if report.across:
        lines = [_text(describe_side(report.new)), *(f"{role} {_text(name)}" for role, name in _roles(report.across))]
    else:
        lines = [f"base {_text(describe_side(report.base))}", f"new {_text(describe_side(report.new))}"]
    counts = ", ".join(f"{count} {_text(word.replace('_', ' '))}" for word, count in report.counts.items())
    link = _anchor(report.link, "all cells in the dashboard") if report.link else ""
    return f'<p class="soft">{"<br>".join(part for part in (*lines, counts, link) if part)}</p>'


def _roles(names: tuple[str, str]) -> Iterable[tuple[str, str]]:
    return zip(("base", "new"), names, strict=True)


def _figure(svg: str, name: str) -> str:
    """A picture that is as wide as it is, in a region that scrolls on a narrow screen."""
    return f'<figure class="wide" tabindex="0" role="region" aria-label="{_text(name)}">{svg}</figure>' if svg else ""


def _notes(notes: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{_text(note)}</li>' for note in notes)}</ul>" if notes else ""


def _anchor(url: str, words: str) -> str:
    return f'<a href="{escape(url, quote=True)}" rel="noreferrer">{_text(words)}</a>'


def _section(cells: Sequence[CellFacts], outcome: Outcome) -> str:
    if not cells:
        return ""
    title = f"{outcome.value.replace('_', ' ').capitalize()} ({len(cells)})"
    shown = cells[:ROWS]
    if outcome in _STATUS:
        heads, rows = ["cell", "base", "new"], [_changed_status(cell) for cell in shown]
    else:
        reach = _reach(shown)
        heads = ["cell", "by", "!base", "!new", "!change", "!95 %", "as a picture"]
        rows = [_judged(cell, reach, _LOOKS.get(outcome, "")) for cell in shown]
    body = _table(heads, rows) + _more(cells)
    if outcome in _OPEN:
        return f"<h2>{title}</h2>{body}"
    return f"<details><summary><b>{title}</b></summary>{body}</details>"


def _changed_status(cell: CellFacts) -> list[str]:
    return [_name(cell), _text(cell.status_base or "missing"), _text(cell.status_new or "missing")]


def _judged(cell: CellFacts, reach: float, look: str) -> list[str]:
    values = [value(cell.metric, cell.base), value(cell.metric, cell.new)]
    change = f'<span class="{look}">{_text(percent(cell.change))}</span>'
    words = WORDS[cell.metric] if cell.metric else NOTHING
    return [
        _name(cell),
        words,
        *map(_text, values),
        change,
        _text(interval(cell.low, cell.high)),
        _picture(cell, reach, look),
    ]


def _name(cell: CellFacts) -> str:
    """The cell, its evidence and the command that measures it again."""
    name = _anchor(cell.link, cell.cell) if cell.link else _text(cell.cell)
    lines = "".join(f"<li><code>{_text(line)}</code></li>" for line in cell.evidence)
    parts = [f"<ul>{lines}</ul>" if lines else "", f"<pre>{_text(cell.repro)}</pre>" if cell.repro else ""]
    opened = " open" if cell.evidence else ""
    said = "what else changed, and the command" if lines else "measure it again"
    return (
        f"{name}<details{opened}><summary class='soft'>{said}</summary>{''.join(parts)}</details>"
        if any(parts)
        else name
    )


def _reach(cells: Iterable[CellFacts]) -> float:
    """The change at the edge of the pictures of one table: no interval of moderate size is cut."""
    ends = [abs(end) for cell in cells for end in (cell.low, cell.high) if end is not None]
    return max(_LEAST, min(max(ends, default=_LEAST), 0.5))


def _picture(cell: CellFacts, reach: float, look: str) -> str:
    """The interval as a line, the change as a dot, no change as a thin upright line; what lies outside ends at the edge."""
    if cell.low is None or cell.high is None or cell.change is None:
        return ""
    low, high, change = (
        _HALF + _HALF * max(-1.0, min(1.0, found / reach)) for found in (cell.low, cell.high, cell.change)
    )
    said = f"{percent(cell.change)}, 95 % interval {interval(cell.low, cell.high)}"
    return (
        f'<svg class="{look}" width="{2 * _HALF:.0f}" height="16" viewBox="0 0 {2 * _HALF:.0f} 16" role="img" '
        f'aria-label="{_text(said)}">'
        f'<line x1="{_HALF}" x2="{_HALF}" y1="0" y2="16" stroke="var(--line)"/>'
        f'<line x1="{low:.1f}" x2="{high:.1f}" y1="8" y2="8" stroke="currentColor" stroke-width="2"/>'
        f'<circle cx="{change:.1f}" cy="8" r="3.5" fill="currentColor"/></svg>'
    )


def _suites(report: Report) -> str:
    suites = report.suites
    if not suites:
        return ""
    picture = _figure(suites_chart(report, IN_PAGE), "Suites, as a picture")
    heads = ["suite", "phase", "config", "!pass rate", "!paired", *(f"!{words}" for words in SHOWN.values())]
    rows = [
        [
            _text(suite.group.suite),
            _text(f"{suite.group.phase} {suite.group.dtype} {suite.group.device}"),
            _text(suite.group.config),
            _text(f"{pass_rate(suite.base)} -> {pass_rate(suite.new)}"),
            str(suite.averages["speedup"].n),
            *(_text(_average(suite.averages[metric], metric)) for metric in SHOWN),
        ]
        for suite in suites[:ROWS]
    ]
    rule = "Averages over the cells that pass on both sides; in brackets the 95 % interval of the change over models, from 5 on."
    moved = _notes([suite.moved for suite in suites if suite.moved])
    return f'<h2>Suites</h2>{picture}{_table(heads, rows)}{_more(suites)}<p class="soft">{rule}</p>{moved}'


def _average(found: AverageFacts, metric: str) -> str:
    if found.base is None or found.new is None:
        return NOTHING
    shown = f"{found.base:.3g} -> {found.new:.3g}{' s' * (metric == 'compile_cold_s')}, {percent(found.change)}"
    within = found.interval
    return f"{shown} ({interval(within.low - 1, within.high - 1)})" if within else shown


def _environment(report: Report) -> str:
    if not report.environment:
        return ""
    rows = [
        [_text(item.key), _text(", ".join(item.base) or "nothing"), _text(", ".join(item.new) or "nothing")]
        for item in report.environment
    ]
    return f"<h2>Environment</h2>{_table(['key', 'base', 'new'], rows[:ROWS])}{_more(rows)}"


def _again(report: Report) -> str:
    again = report.again
    left = {
        "would take more than 50 further runs": again.too_noisy,
        "were measured on different testbeds: measure both sides on one": again.elsewhere,
        "are missing: inductor-watch resume goes on with a night that was cut short": again.missing,
        "have a config that this version cannot read": again.unreadable,
    }
    notes = _notes([f"{several(count, 'cell')} {words}" for words, count in left.items() if count])
    if not again.cells:
        return f"<h2>What to measure again</h2>{notes}" if notes else ""
    rows = [[_text(item.name), _text(item.why), str(item.runs)] for item in again.cells[:ROWS]]
    listed = _table(["cell", "outcome", "!further runs of each side"], rows) + _more(again.cells)
    said = f"{several(len(again.cells), 'cell')}, {several(again.runs, 'further run')} of each side at the most:"
    return (
        f"<h2>What to measure again</h2><p>{said}</p><pre>{'<br>'.join(map(_text, report.again_command.splitlines()))}</pre>"
        f"<details><summary>Cells</summary>{listed}</details>{notes}"
    )


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of what is HTML already; columns whose heading begins with `!` hold numbers."""
    kinds = [' class="n"' if head.startswith("!") else "" for head in heads]
    top = "".join(
        f'<th scope="col"{kind}>{_text(head.lstrip("!"))}</th>' for kind, head in zip(kinds, heads, strict=True)
    )
    lines = (
        "<tr>" + "".join(f"<td{kind}>{cell}</td>" for kind, cell in zip(kinds, line, strict=True)) + "</tr>"
        for line in rows
    )
    return f'<div class="wide" tabindex="0"><table><thead><tr>{top}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def _more(items: Sequence[object]) -> str:
    return f"<p>... and {len(items) - ROWS} more, which --format json has</p>" if len(items) > ROWS else ""
