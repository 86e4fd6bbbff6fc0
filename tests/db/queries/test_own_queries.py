"""The queries that docs/store.md shows run on both databases, and say what they promise."""

import re
from pathlib import Path

import pytest
from sqlalchemy import text

from collector.metrics import METRICS
from collector.vocabulary import Status
from db.ingest import ingest_bundle
from tests.factories import COMMIT_A, cell, failing, header, night, passing, write_bundle

PAGE = Path(__file__).parents[3] / "docs" / "store.md"
QUERIES = re.findall(r"^```sql\n(.*?);\n```", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


@pytest.fixture
def answers(store, tmp_path):
    """The rows of the six queries, after two runs: the second is slower, and one of its cells fails."""
    ingest_bundle(store, night(tmp_path, "RUN-A", cells=[cell("T5Small"), cell("bert")]))
    slower = [passing(cell("T5Small"), slower=1.5, minutes=61), failing(cell("bert"), Status.OOM, minutes=61)]
    ingest_bundle(store, write_bundle(tmp_path, header("RUN-B", minutes=60), slower))
    with store.connect() as conn:
        return [conn.execute(text(query)).mappings().all() for query in QUERIES]


def test_the_page_shows_six_queries_that_answer(answers):
    everything, latency, slowed, failures, averages, series = answers
    assert [(row["run_id"], row["model"], row["sha"]) for row in everything] == [
        ("RUN-A", "T5Small", COMMIT_A),
        ("RUN-B", "T5Small", COMMIT_A),
    ]
    assert set(METRICS) < set(everything[0])
    assert [row["speedup"] for row in latency] == [row["speedup"] for row in everything]
    assert [(row["model"], row["change"] > 0.4) for row in slowed] == [("T5Small", True)]
    assert [(row["status"], row["cells"], row["example"]) for row in failures] == [("oom", 1, "bert")]
    assert [(row["night"], row["suite"], row["name"], row["passed"]) for row in averages] == [
        ("RUN-A", "huggingface", "default", 2),
        ("RUN-B", "huggingface", "default", 1),
    ]
    assert [(row["metric"], row["value"]) for row in series] == [("default", row["speedup"]) for row in everything]
    assert series[0]["time"] < series[1]["time"]
