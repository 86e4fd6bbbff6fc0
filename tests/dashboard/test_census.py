"""The page of the census, on hand-made codes: a mark where a commit changed one, and the kernels behind it."""

import re

import pytest

from collector.bundle import CENSUS
from collector.vocabulary import Measurement, Status
from tests.dashboard import stores
from tests.dashboard.conftest import plain, table_of, text_of
from tests.dashboard.test_generated_code import NEW, OLD
from tests.factories import at, cell, header, write_bundle

CELLS = {model: cell(model) for model in ("bert", "gpt2")}
#: The code of each model at each commit, oldest first; t5 is never known.
CODES = [("c0de1", "c0de1"), ("c0de1", "c0de2"), ("c0de1", "c0de2")]


def census(folder, name, codes, minutes, device="H100", **head):
    measured = [
        Measurement(one, Status.NOT_CHECKED, at(minutes), 1.0, details={CENSUS: {"known": True}}, code_id=code_id)
        for one, code_id in zip(CELLS.values(), codes, strict=False)
    ]
    measured.append(Measurement(cell("t5"), Status.UNAVAILABLE, at(minutes), 1.0))
    head = {"trigger": CENSUS, "testbed": {"device": "cuda", CENSUS: device}} | head
    return write_bundle(folder, header(name, minutes=minutes, **head), measured, codes=(OLD, NEW))


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    folder = tmp_path_factory.mktemp("census")
    found = []
    for number, codes in enumerate(CODES):
        head = {"commit": stores.SHAS[number], "commit_title": f"Commit {number} {stores.HOSTILE}"}
        head["commit_date"] = at(1440 * number)
        found.append(census(folder, f"c{number}", codes, 10 - number, **head))  # the newest commit was taken first
    return folder, [*found, census(folder, "other", ("c0de2",), 20, "A100", commit=stores.SHAS[3])]


@pytest.fixture(scope="module")
def store(bundles):
    folder, found = bundles
    return stores.store(folder / "s.db", [*found, stores.night(folder, "n1", cells=list(CELLS.values()))])


def test_commits_are_down_and_a_mark_is_where_code_changed(open_app, store):
    app = open_app(store, "census")
    head, *rows = table_of(app, "Code for H100")
    assert head[3].startswith("gpt2") and head[4].startswith("bert")  # what changed comes first
    assert [(row[0], row[2:]) for row in rows] == [
        (stores.SHAS[2][:10], ["0 of 2", "same", "same"]),
        (stores.SHAS[1][:10], ["1 of 2", "changed", "same"]),
        (stores.SHAS[0][:10], ["0 of 2", "same", "same"]),
    ]
    assert len(table_of(app, "Code for A100")) == 2
    assert stores.HOSTILE not in text_of(app)
    # A mark leads to the kernels that differ.
    (link,) = re.findall(r'href="./census[?]([^"]*)"', text_of(app))
    query = dict(part.split("=") for part in link.replace("&amp;", "&").split("&"))
    assert query == {"base": "c0", "new": "c1", "cell": CELLS["gpt2"].cell_id}
    app = open_app(store, "census", **query)
    assert "2 kernels changed: 1 added, 1 changed; 1 unchanged." in plain(app)
    assert "triton_poi_fused_mul_0" in plain(app)
    assert any(stores.HOSTILE in one.value for one in app.code)  # its source, shown as it is
    assert "nothing here reads" not in plain(app)


def test_other_pages_lead_to_the_census_where_there_is_no_night(open_app, bundles, two_nights):
    folder, found = bundles
    path = stores.store(folder / "leads.db", found)
    said = plain(open_app(path, "overview"))
    assert "No nights yet" in said and "No runs yet" not in said
    assert len(table_of(open_app(path, "census"), "Code for H100")) == 4
    assert "No census" in plain(open_app(two_nights, "census"))
