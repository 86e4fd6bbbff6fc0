"""Write the tables of docs/metrics.md from the table of metrics: `python -m scripts.metrics_page`."""

from __future__ import annotations

import re
from pathlib import Path

from collector.metrics import METRICS, Metric, Section

PAGE = Path(__file__).parents[1] / "docs" / "metrics.md"
_HEAD = "| metric | unit | better | definition | how it is measured | absent |\n|---|---|---|---|---|---|\n"


def with_tables(page: str) -> str:
    """Return the page with new tables in place of its old ones."""
    for section in Section:
        made = _HEAD + "".join(_row(metric) for metric in METRICS.values() if metric.section is section)
        before, head, after = page.partition(f"### {section}\n\n")
        page = before + head + re.sub(r"\A(?:\|.*\n)+", lambda _, table=made: table, after)  # type: ignore[misc]
    return page


def _row(metric: Metric) -> str:
    meaning = re.sub(r"\w+_\w+", lambda word: f"`{word[0]}`" if word[0] in METRICS else word[0], metric.meaning)
    cells = (f"`{metric.name}`", metric.unit, metric.better, meaning, metric.how, metric.absent)
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells) + "\n"


def main() -> None:
    """Write the page."""
    PAGE.write_text(with_tables(PAGE.read_text()))


if __name__ == "__main__":
    main()
