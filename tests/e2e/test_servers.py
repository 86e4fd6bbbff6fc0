"""The command line on a PostgreSQL server says what it says on a file."""

from __future__ import annotations

import json

from tests.command_line import call, tell
from tests.factories import COMMIT_B, failing, matrix, night


def test_ingest_and_compare_on_a_server_give_what_they_give_on_a_file(postgres_url, tmp_path):
    bundles = [
        night(tmp_path / "runs", "one", cells=matrix(["bert"])),
        night(tmp_path / "runs", "two", cells=matrix(["bert"]), minutes=60, commit=COMMIT_B, make=failing),
    ]
    said = {}
    for place in ("store.db", postgres_url):
        done = call("ingest", *bundles, "--db", place, folder=tmp_path)
        assert done.returncode == 0, tell(done)
        compared = call("compare", "latest~1", "latest", "--json", folder=tmp_path, INDUCTOR_WATCH_DB=place)
        assert compared.returncode == 0, tell(compared)
        said[place] = (done.stdout, json.loads(compared.stdout))
    assert said["store.db"] == said[postgres_url]
    assert said["store.db"][1]["cells"]
