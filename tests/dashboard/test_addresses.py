"""Links to the host of the code, and addresses of the HUD as pages of ours."""

from analysis.elements import addresses
from analysis.elements.addresses import translate
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


def test_the_left_side_is_new_and_the_time_range_is_that_of_trends():
    sides = {"new": ["main@b2b2b2b2"], "base": ["main@a1a1a1a1"]}
    filters = {"dtype": ["amp"], "phase": ["training"], "device": ["cuda"], "since": ["2026-08-01"]}
    assert translate(LINK) == (sides | filters, [])
    weeks = {"stopTime": ["2026-08-08T12:30:00.000Z"], "granularity": ["week"]}
    hours = {"startTime": ["Sat, 01 Aug 2026 23:30:00 -0800"], "granularity": ["hour"]}
    for changes, expected in ((weeks, ["2026-08-01", "2026-08-08", "week"]), (hours, ["2026-08-02", None, None])):
        found, notes = translate(LINK | changes)
        assert ([found.get(key, [None])[0] for key in ("since", "until", "by")], notes) == (expected, [])


def test_what_is_not_known_is_said_and_a_branch_or_a_commit_is_a_side():
    for changes, side in (({"lCommit": []}, "main"), ({"lBranch": []}, "b2b2b2b2")):
        assert translate(LINK | changes)[0]["new"] == [side]
    _, notes = translate(LINK | {"mode": ["dynamic"], "deviceName": ["tpu v7"], "startTime": ["soon"]})
    assert "'dynamic'" in notes[0] and "'tpu v7'" in notes[1] and "'soon'" in notes[2]


def test_the_app_opens_it_and_makes_the_address_its_own(open_app, two_nights):
    app = open_app(two_nights, **LINK | {"lCommit": [stores.SHAS[1]], "rCommit": [stores.SHAS[0][:10]]})
    said = plain(app)
    assert "A HUD link: its left side is shown as new" in said
    assert "lCommit" not in app.query_params and app.query_params["base"] == "main@a1a1a1a1a1"
    assert "base main@a1a1a1a1a1" in said


SHA, OTHER = "a1" * 20, "b2" * 20


def test_a_commit_and_a_range_lead_to_the_stored_repository():
    assert 'href="https://github.com/pytorch/pytorch/commit/' + SHA + '"' in addresses.commit("pytorch/pytorch", SHA)
    found = addresses.commits("pytorch/pytorch", SHA, OTHER)
    assert f'href="https://github.com/pytorch/pytorch/compare/{SHA}...{OTHER}"' in found
    assert ">a1a1a1a1a1...b2b2b2b2b2</a>" in found
    assert 'rel="noopener noreferrer"' in found and 'target="_blank"' in found
    assert 'href="https://github.com/pytorch/pytorch/pull/12345"' in addresses.pull("pytorch/pytorch", 12345)


def test_what_is_no_repository_no_sha_or_only_in_a_local_clone_is_no_link():
    for repo in ("", "a/b/c", "../x", "a/..", "-a/b", "a/b?x", "javascript:x/y", "a/<b>", "a/b\n"):
        assert "<a" not in addresses.commit(repo, SHA) + addresses.pull(repo, 5) + addresses.commits(repo, SHA, OTHER)
    for sha in ("HEAD", "<script>", "a1a1a1/../..", None, "A1" * 20):
        found = addresses.commit("pytorch/pytorch", sha)
        assert "<a" not in found and "<script>" not in found
    addresses.LOCAL.set(frozenset({OTHER}))
    assert "<a" not in addresses.commit("pytorch/pytorch", OTHER) + addresses.commits("pytorch/pytorch", SHA, OTHER)
    assert "<a" in addresses.commit("pytorch/pytorch", SHA)
    addresses.LOCAL.set(frozenset())


def test_a_record_s_link_is_one_where_it_means_its_own_repository():
    for own in ("https://github.com/pytorch/pytorch/issues/5", "https://github.com/pytorch/pytorch/pull/77"):
        assert f'href="{own}"' in addresses.reference("pytorch/pytorch", own)
    for other in (
        "https://github.com/evil/pytorch/issues/5",
        "https://github.com.evil.example/pytorch/pytorch/issues/5",
        "https://github.com/pytorch/pytorch/issues/5?x=<script>",
        "javascript:alert(1)",
    ):
        found = addresses.reference("pytorch/pytorch", other)
        assert "<a" not in found and "<script>" not in found
