"""From bundles to a report, a comment, records and an issue, as people and CI call it: real processes, a stand-in for GitHub."""

from __future__ import annotations

import json

from tests.analysis.compare.test_cell_verdicts import MODELS, make_run
from tests.command_line import call, is_one_line, tell
from tests.factories import failing, new_store
from tests.jobs.github_server import TOKEN, github_server


def test_a_worse_night_reaches_summary_pull_request_and_issue(tmp_path):
    """Thirteen synthetic nights; in the last one a model is slower and another fails."""
    bundles, said = tmp_path / "bundles", []
    store = new_store(tmp_path / "other.db")
    for number in range(13):
        slower = {MODELS[4]: {"compiled_ms": 1.1}, MODELS[7]: failing} if number == 12 else {}
        make_run(store, bundles, number, slower=slower)
    store.dispose()

    def do(*words, code=0, **environ):
        done = call(*words, folder=tmp_path, **environ)
        said.append(tell(done))
        assert done.returncode == code, tell(done)
        return done.stdout

    with github_server() as server:
        there = {"GITHUB_TOKEN": TOKEN, "GITHUB_API_URL": server.url, "INDUCTOR_WATCH_AUTHOR": "ann"}
        do("ingest", bundles)
        do("gate", "r11", "r12", code=1)
        summary = {"GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
        do("report", "r11", "r12", "--github-summary", "--comment", "o/r#3", **there, **summary)
        assert "1 regressed, 1 broke" in (tmp_path / "summary.md").read_text()
        assert "1 regressed, 1 broke" in server.comments[0]["body"]
        do("regressions", "open", "r11", "r12", **there)
        (slow,) = [item for item in json.loads(do("regressions", "list", "--json")) if item["kind"] == "slower"]
        do("regressions", "ack", slow["regression_id"], "--owner", "bob", **there)
        published = do("regressions", "publish", "--repo", "o/r", **there)
        assert published == "issue opened: https://github.com/o/r/issues/1\n"
        shown = do("regressions", "show", slow["regression_id"])
        assert "link    https://github.com/o/r/issues/1" in shown
        assert "ann: acknowledged" in shown
        said.append((tmp_path / "summary.md").read_text())
    # The server is gone: one line, the records as they were.
    done = call("regressions", "publish", "--repo", "o/r", folder=tmp_path, INDUCTOR_WATCH_TRACEBACK="1", **there)
    is_one_line(done, 4, "does not answer GET /repos/o/r/issues")
    assert TOKEN not in "".join([*said, tell(done)])
    assert TOKEN.encode() not in (tmp_path / "inductor-watch.db").read_bytes()
