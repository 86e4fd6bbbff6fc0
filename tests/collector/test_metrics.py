"""The page that defines the metrics, held against the list that the programs read."""

import re

from collector.measure import counters
from scripts.metrics_page import with_tables
from tests.collector.processes import ROOT

PAGE = (ROOT / "docs/metrics.md").read_text()


def test_the_page_is_made_of_the_table_of_metrics():
    """`python -m scripts.metrics_page` writes it."""
    assert with_tables(PAGE) == PAGE


def test_the_page_explains_every_phase_of_compiling_and_no_other():
    section = PAGE.partition("### Phases")[2].partition("\n## ")[0].partition("\n### ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == list(counters._PHASES.values())
