"""What became of a cell, in words: each dimension that changed, or its status, or what is ruled out."""

from __future__ import annotations

from analysis.compare.cell_comparison import CellComparison
from analysis.compare.cell_outcome import CHANGES, Look, Outcome
from analysis.compare.findings import Finding
from analysis.present import beside_words, called, undecided_words
from collector.metrics import METRICS
from dashboard.components.formats import signed
from db.queries.side_rows import CellState

#: In the order in which they are worth a look. The key is also what the address says.
OUTCOMES = {
    outcome.value: called(outcome)
    for outcome in (
        *(Outcome.BROKE, Outcome.REGRESSED, Outcome.FLAKY, Outcome.MISSING, Outcome.STILL_FAILING, Outcome.IMPROVED),
        *(Outcome.FIXED, Outcome.INCONCLUSIVE, Outcome.UNCHANGED, Outcome.ENVIRONMENT_CHANGED),
        *(Outcome.MISSING_IN_BASE, Outcome.MISSING_IN_BOTH, Outcome.NOT_APPLICABLE, Outcome.ENTERED, Outcome.LEFT),
    )
}
#: The glyphs say without a colour what the colour says.
_GLYPHS = {"worse": "\N{MULTIPLICATION X}", "better": "\N{CHECK MARK}"}
_CALM_GLYPHS = {Outcome.INCONCLUSIVE: "?", Outcome.UNCHANGED: "="}


def glyph(outcome: Outcome) -> str:
    """Return the glyph of an outcome; empty where it has none."""
    return _GLYPHS.get(outcome.look) or _CALM_GLYPHS.get(outcome, "")


def look(one: CellComparison) -> Look:
    """Return the look of a cell: one that is faster and larger is neither good nor bad."""
    looks = {outcome.look for outcome, _ in said(one)}
    return looks.pop() if len(looks) == 1 else "calm"


def said(one: CellComparison) -> list[tuple[Outcome, str]]:
    """Return what became of a cell, and by what: metrics that changed, statuses, or what is ruled out.

    A cell that changed for the worse and for the better has both. The second text may be empty.
    """
    if one.changes and one.is_comparable:
        return [
            (verdict, ", ".join(_change(one, finding) for finding in one.changes if finding.verdict is verdict))
            for verdict in CHANGES
            if any(finding.verdict is verdict for finding in one.changes)
        ]
    statuses = " → ".join(dict.fromkeys((status(one.base), status(one.new))))
    detail = "" if statuses == "pass" else statuses
    if one.outcome is Outcome.INCONCLUSIVE and one.leading:
        detail = undecided_words(one, one.leading)
    return [(one.outcome, detail)]


def status(state: CellState) -> str:
    """Return the status of a cell on a side, or that it has none."""
    return state.status or ("missing" if state.is_expected else "not planned")


def _change(one: CellComparison, finding: Finding) -> str:
    """`device time -88 %`; what was nothing before has no ratio."""
    title = METRICS[finding.metric].title if finding.metric else finding.dimension.value
    size = f" {signed(100 * finding.change, 0)}" if finding.change is not None else ""
    beside = beside_words(one, finding)
    return f"{title}{size}{f' ({beside})' if beside else ''}"
