"""The feed of records: valid Atom that leads to each record, whatever its texts hold."""

from __future__ import annotations

from datetime import datetime
from xml.etree import ElementTree

import pytest

from tests.jobs.test_regressions import call, database, filled, nights, one  # noqa: F401 -- fixtures

ATOM = "{http://www.w3.org/2005/Atom}"


def read(path):
    root = ElementTree.fromstring(path.read_text(encoding="utf-8"))  # noqa: S314 -- what we have just written
    assert root.tag == f"{ATOM}feed"
    return root


def test_an_entry_a_record_with_its_state_change_and_history(filled, tmp_path):  # noqa: F811
    out = tmp_path / "feed.xml"
    done = call(filled, "feed", "--out", str(out), "--dashboard-url", "https://watch.example/d")
    assert (done.exit_code, done.output) == (0, f"{out}: 2 records\n")
    feed = read(out)
    entries = feed.findall(f"{ATOM}entry")
    assert len(entries) == 2
    record = one(filled)
    (entry,) = [item for item in entries if record["regression_id"] in item.findtext(f"{ATOM}id")]
    assert entry.findtext(f"{ATOM}title").startswith("new: huggingface/")
    change = 100 * (record["new_value"] / record["base_value"] - 1)
    assert f"{change:+.1f} %" in entry.findtext(f"{ATOM}title")
    assert entry.find(f"{ATOM}author/{ATOM}name").text == "ann"
    link = entry.find(f"{ATOM}link").attrib["href"]
    assert link == f"https://watch.example/d/regressions?closed=1&record={record['regression_id']}"
    for tag in ("updated", "published"):
        assert datetime.fromisoformat(entry.findtext(f"{ATOM}{tag}")).tzinfo is not None


def test_what_was_changed_last_comes_first_and_dates_the_feed(filled, tmp_path):  # noqa: F811
    record = one(filled)
    assert call(filled, "ack", record["regression_id"], "--note", "looking <b>&\x07").exit_code == 0
    out = tmp_path / "feed.xml"
    assert call(filled, "feed", "--out", str(out)).exit_code == 0
    feed = read(out)
    first = feed.find(f"{ATOM}entry")
    assert record["regression_id"] in first.findtext(f"{ATOM}id")
    assert "looking <b>&" in first.findtext(f"{ATOM}content")
    assert feed.findtext(f"{ATOM}updated") == first.findtext(f"{ATOM}updated")
    assert feed.find(f"{ATOM}link") is None


def test_without_records_the_feed_is_empty_and_valid(database, tmp_path):  # noqa: F811
    out = tmp_path / "feed.xml"
    assert call(database, "feed", "--out", str(out)).exit_code == 0
    assert read(out).findall(f"{ATOM}entry") == []


@pytest.mark.parametrize("url", ["javascript:alert(1)", "watch.example"])
def test_a_dashboard_that_is_no_address_is_refused_and_nothing_written(filled, tmp_path, url):  # noqa: F811
    out = tmp_path / "feed.xml"
    done = call(filled, "feed", "--out", str(out), "--dashboard-url", url)
    assert done.exit_code == 2
    assert not out.exists()
