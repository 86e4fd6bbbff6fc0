"""Links from the PyTorch HUD open the same comparison."""

import pytest

from analysis.elements.outside_links import translate
from tests.dashboard import stores
from tests.dashboard.conftest import plain

LINK = {
    "dashboard": ["torchinductor"],
    "startTime": ["Sat, 01 Aug 2026 00:00:00 GMT"],
    "mode": ["training"],
    "dtype": ["amp"],
    "deviceName": ["cuda (h100)"],
    "lBranch": ["main"],
    "lCommit": ["b2b2b2b2"],
    "rBranch": ["main"],
    "rCommit": ["a1a1a1a1"],
}


def test_the_left_side_is_new_and_the_right_one_base():
    found, notes = translate(LINK)
    assert found == {
        "dtype": ["amp"],
        "new": ["main@b2b2b2b2"],
        "base": ["main@a1a1a1a1"],
        "phase": ["training"],
        "device": ["cuda"],
        "since": ["2026-08-01"],
    }
    assert notes == []


@pytest.mark.parametrize(
    ("changes", "since", "until", "by"),
    [
        ({"stopTime": ["2026-08-08T12:30:00.000Z"], "granularity": ["week"]}, "2026-08-01", "2026-08-08", "week"),
        ({"startTime": ["Sat, 01 Aug 2026 23:30:00 -0800"], "granularity": ["hour"]}, "2026-08-02", None, None),
        ({"startTime": []}, None, None, None),
    ],
)
def test_the_time_range_and_the_granularity_are_those_of_trends(changes, since, until, by):
    found, notes = translate(LINK | changes)
    assert [found.get(key, [None]) for key in ("since", "until", "by")] == [[since], [until], [by]]
    assert notes == []


@pytest.mark.parametrize(
    ("changes", "side"),
    [({"lCommit": []}, "main"), ({"lBranch": []}, "b2b2b2b2"), ({"lCommit": [" "], "lBranch": []}, None)],
)
def test_a_branch_or_a_commit_alone_is_a_side(changes, side):
    assert translate(LINK | changes)[0].get("new", [None]) == [side]


def test_what_is_not_known_here_is_said():
    _, notes = translate(LINK | {"mode": ["dynamic"], "deviceName": ["tpu v7"], "startTime": ["soon"]})
    assert "'dynamic'" in notes[0] and "'tpu v7'" in notes[1] and "'soon'" in notes[2]


def test_the_app_opens_it_and_makes_the_address_its_own(open_app, two_nights):
    app = open_app(two_nights, **LINK | {"lCommit": [stores.SHAS[1]], "rCommit": [stores.SHAS[0][:10]]})
    said = plain(app)
    assert "A HUD link: its left side is shown as new" in said
    assert "lCommit" not in app.query_params and app.query_params["base"] == "main@a1a1a1a1a1"
    assert "base main@a1a1a1a1a1" in said
