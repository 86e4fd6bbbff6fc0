"""The findings of a comparison in a line for each dimension, the same on a terminal, in Markdown and on a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.compare.cell_outcome import CHANGES, Outcome
from analysis.compare.findings import Finding, count_findings, findings, of_findings
from analysis.reports.words import called, percent
from collector.metrics import METRICS, Dimension

#: What of a cell a line names, besides what its findings need.
_READ = ("model", "phase")
#: Cells that a line names for each verdict, those that changed most.
_NAMED = 3


def dimension_lines(cells: pd.DataFrame) -> list[str]:
    """Return a line for each dimension: how many cells have which verdict, and which changed most.

    `cells` are those of a comparison with what was judged of them.
    """
    read = [name for name in (*_READ, *of_findings()) if name in cells]
    found = [(row, findings(row)) for row in cells[read].to_dict("records")]
    counts = count_findings(of_cell for _, of_cell in found)
    return [f"{dimension.value}: {_tally(dimension, counts[dimension], found)}" for dimension in counts]


def finding_words(finding: Finding) -> str:
    """Return a finding in a few words: `device time +37.5 %`; the dimension where no metric decided."""
    if finding.metric is None:
        return finding.dimension.value
    title = METRICS[finding.metric].title
    return title if finding.change is None else f"{title} {percent(finding.change)}"


def _tally(
    dimension: Dimension, counts: Mapping[str, int], found: Sequence[tuple[Mapping[Any, Any], tuple[Finding, ...]]]
) -> str:
    parts = []
    for word, count in counts.items():
        verdict = Outcome(word)
        named = [
            (row, one)
            for row, of_cell in found
            for one in of_cell
            if (one.dimension, one.verdict) == (dimension, verdict)
        ]
        named.sort(key=lambda item: -item[1].size)
        shown = ", ".join(_named(row, one) for row, one in named[:_NAMED]) if verdict in CHANGES else ""
        more = ", ..." if shown and len(named) > _NAMED else ""
        parts.append(f"{count} {called(word)}" + (f" ({shown}{more})" if shown else ""))
    return ", ".join(parts)


def _named(row: Mapping[Any, Any], finding: Finding) -> str:
    phase = "" if row["phase"] == "inference" else f" {row['phase']}"
    change = "" if finding.change is None else f" {percent(finding.change)}"
    return f"{row['model']}{phase}{change}"
