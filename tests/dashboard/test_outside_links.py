"""Links to the host of the code: only from a stored repository's name, and everything else stays text."""

import pytest

from analysis.elements import outside_links
from tests.dashboard import stores
from tests.dashboard.conftest import text_of

SHA, OTHER = "a1" * 20, "b2" * 20


def test_a_commit_and_a_range_lead_to_the_stored_repository():
    assert 'href="https://github.com/pytorch/pytorch/commit/' + SHA + '"' in outside_links.commit(
        "pytorch/pytorch", SHA
    )
    found = outside_links.commits("pytorch/pytorch", SHA, OTHER)
    assert f'href="https://github.com/pytorch/pytorch/compare/{SHA}...{OTHER}"' in found
    assert ">a1a1a1a1a1...b2b2b2b2b2</a>" in found
    assert 'rel="noopener noreferrer"' in found and 'target="_blank"' in found
    assert 'href="https://github.com/pytorch/pytorch/pull/12345"' in outside_links.pull("pytorch/pytorch", 12345)


@pytest.mark.parametrize(
    "repo",
    ["", "pytorch", "a/b/c", "../x", "a/..", "a/.", "a b/c", "-a/b", "a/b?x", "javascript:x/y", "a/<b>", "a/b\n"],
)
def test_what_is_no_owner_and_name_is_no_link(repo):
    assert "<a" not in outside_links.commit(repo, SHA) + outside_links.pull(repo, 5) + outside_links.commits(
        repo, SHA, OTHER
    )


@pytest.mark.parametrize("sha", ["HEAD", "<script>", "a1a1a1/../..", "", None, "A1" * 20])
def test_what_is_no_sha_is_no_link(sha):
    found = outside_links.commit("pytorch/pytorch", sha)
    assert "<a" not in found and "<script>" not in found


def test_a_commit_of_a_local_clone_is_no_link():
    outside_links.LOCAL.set(frozenset({OTHER}))
    assert "<a" not in outside_links.commit("pytorch/pytorch", OTHER) + outside_links.commits(
        "pytorch/pytorch", SHA, OTHER
    )
    assert "<a" in outside_links.commit("pytorch/pytorch", SHA)
    outside_links.LOCAL.set(frozenset())


@pytest.mark.parametrize(
    ("written", "leads"),
    [
        ("https://github.com/pytorch/pytorch/issues/5", "/issues/5"),
        ("https://github.com/pytorch/pytorch/pull/77", "/pull/77"),
        ("https://github.com/evil/pytorch/issues/5", ""),
        ("https://github.com.evil.example/pytorch/pytorch/issues/5", ""),
        ("https://github.com/pytorch/pytorch/issues/5?x=<script>", ""),
        ("javascript:alert(1)", ""),
    ],
)
def test_a_record_s_link_is_one_where_it_means_its_own_repository(written, leads):
    found = outside_links.reference("pytorch/pytorch", written)
    assert (f'href="https://github.com/pytorch/pytorch{leads}"' in found) if leads else "<a" not in found
    assert "<script>" not in found


def test_both_sides_and_what_landed_between_are_links(open_app, two_nights):
    said = text_of(open_app(two_nights))
    for sha in stores.SHAS[:2]:
        assert f'/commit/{sha}"' in said
    assert f"/compare/{stores.SHAS[0]}...{stores.SHAS[1]}" in said
    assert f'/commit/{stores.SHAS[1]}"' in text_of(open_app(two_nights, "runs"))
