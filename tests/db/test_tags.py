"""Tags as names of commits: what an import keeps of them, and which runs such a name stands for."""

import pytest
from sqlalchemy import select

from db.commits.commit_history import LandedCommit, find_commit, store_commits
from db.ingest import ingest_bundle
from db.queries.sides import resolve_side
from db.schema import Tag
from db.store_errors import SideError
from tests.factories import COMMIT_A, COMMIT_B, COMMIT_C, cell, header, passing, write_bundle

REPO = "pytorch/pytorch"
UNKNOWN = "d4" * 20


def imported(store, tags, repo=REPO, line=(COMMIT_A, COMMIT_B)):
    commits = [LandedCommit(place, sha, None, None, f"c{place}", "") for place, sha in enumerate(line)]
    return store_commits(store, repo, commits, tags=tags)


def stored(store):
    with store.connect() as conn:
        return {(row.repo, row.name): row.sha for row in conn.execute(select(Tag.repo, Tag.name, Tag.sha))}


@pytest.fixture
def runs(store, tmp_path):
    """Two runs of a release, which is on no line that is imported, and one of main."""
    for number, (run_id, branch, commit) in enumerate(
        [("first", "release/2.9", COMMIT_C), ("second", "release/2.9", COMMIT_C), ("night", "main", COMMIT_A)]
    ):
        head = header(run_id, minutes=60 * number, branch=branch, commit=commit)
        ingest_bundle(store, write_bundle(tmp_path, head, [passing(cell())]))
    return store


def test_a_tag_stands_for_all_runs_of_its_commit(runs):
    assert imported(runs, {"v2.9.1": COMMIT_C, "v2.8.0": COMMIT_A}).tags == 2
    side = resolve_side(runs, "v2.9.1")
    assert (side.kind, side.text, side.run_ids) == ("tag", "v2.9.1", ("second", "first"))
    assert resolve_side(runs, "v2.8.0").run_ids == ("night",)
    assert resolve_side(runs, "release/2.9@v2.9.1").run_ids == ("second", "first")
    with pytest.raises(SideError, match=r"main has no runs of commit v2\.9\.1"):
        resolve_side(runs, "main@v2.9.1")


@pytest.mark.parametrize(
    ("tags", "text", "said"),
    [
        ({"v2.9.1": COMMIT_C}, "v2.9.2", r"no night, run, branch, tag, .* is called 'v2\.9\.2'.*v2\.9\.1"),
        ({"v2.8.0": UNKNOWN}, "v2.8.0", r"the tag v2\.8\.0 is pytorch/pytorch@d4d4d4d4d4, which no run .* measured"),
        (
            {"main": COMMIT_C},
            "main",
            "a branch and also a tag: write main@a1a1a1a1a1 for the branch, or c3c3c3c3c3 for",
        ),
    ],
)
def test_a_name_that_is_unknown_unmeasured_or_ambiguous_is_one_line(runs, tags, text, said):
    imported(runs, tags)
    with pytest.raises(SideError, match=said) as told:
        resolve_side(runs, text)
    assert "\n" not in str(told.value)


def test_bots_tags_are_kept_only_of_commits_that_are_known(runs):
    found = imported(runs, {"trunk/a1": COMMIT_A, "ciflow/trunk/1": UNKNOWN, "v1": UNKNOWN})
    assert found.tags == 2
    assert stored(runs) == {(REPO, "trunk/a1"): COMMIT_A, (REPO, "v1"): UNKNOWN}


def test_a_tag_that_moved_moves_and_one_that_is_not_told_of_stays(runs):
    imported(runs, {"v1": COMMIT_A, "v2": COMMIT_B})
    assert imported(runs, {"v1": COMMIT_A}).changed is False
    assert imported(runs, {"v1": COMMIT_B}).changed is True
    assert stored(runs) == {(REPO, "v1"): COMMIT_B, (REPO, "v2"): COMMIT_B}
    assert find_commit(runs, COMMIT_B).tags == ("v1", "v2")
    assert find_commit(runs, COMMIT_A).tags == ()
