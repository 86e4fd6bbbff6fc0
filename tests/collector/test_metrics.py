"""The page that defines the metrics, held against the list that the programs read."""

from __future__ import annotations

import re

import pytest

from collector.metrics import EXTRA_METRICS, METRICS, TIMINGS
from tests.collector.processes import ROOT

#: Rows of the page's tables of metrics: name -> (unit, better).
ROWS = {
    name: (unit.strip(), better.strip())
    for name, unit, better in re.findall(
        r"^\| `(\w+)` \|([^|]*)\|\s*(lower|higher|neither)\s*\|", (ROOT / "docs/metrics.md").read_text(), re.MULTILINE
    )
}


def test_the_page_defines_every_metric_and_no_other():
    assert set(ROWS) == METRICS.keys() | EXTRA_METRICS.keys()


@pytest.mark.parametrize("metric", [*METRICS.values(), *EXTRA_METRICS.values()], ids=lambda metric: metric.name)
def test_unit_and_direction_are_those_of_the_list(metric):
    assert ROWS[metric.name] == (metric.unit, metric.better)


def test_a_metric_is_in_one_list_and_timings_are_metrics():
    assert not METRICS.keys() & EXTRA_METRICS.keys()
    assert set(TIMINGS) <= METRICS.keys()
