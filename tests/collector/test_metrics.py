"""The page that defines the metrics, held against the list that the programs read."""

from __future__ import annotations

import re

import pytest

from collector.measure import counters
from collector.metrics import METRICS
from tests.collector.processes import ROOT

PAGE = (ROOT / "docs/metrics.md").read_text()
#: Rows of the page's tables of metrics: name -> (unit, better, definition).
ROWS = {
    name: (unit.strip(), better, definition.strip().replace("`", ""))
    for name, unit, better, definition in re.findall(
        r"^\| `(\w+)` \|([^|]*)\|\s*(lower|higher|neither)\s*\|([^|]*)\|", PAGE, re.MULTILINE
    )
}


def test_the_page_defines_every_metric_and_no_other():
    assert set(ROWS) == METRICS.keys()


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda metric: metric.name)
def test_unit_direction_and_definition_are_those_of_the_list(metric):
    assert ROWS[metric.name] == (metric.unit, metric.better, metric.meaning)


def test_the_page_explains_every_phase_of_compiling_and_no_other():
    section = PAGE.partition("### Phases")[2].partition("\n## ")[0].partition("\n### ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == list(counters._PHASES.values())
