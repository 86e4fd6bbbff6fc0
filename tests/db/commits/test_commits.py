"""Commits in their line: stored, linked, found again; on every database."""

import json
from pathlib import Path

import pytest

from db.commits import commit_history as commits
from db.commits.commit_history import LandedCommit, commit_range, find_commit, list_commits, store_commits
from db.ingest import ingest_bundle
from db.queries.cells import revision
from db.store_errors import CommitError
from tests.factories import cell, new_store, night

REPO = "pytorch/pytorch"
DATA = json.loads((Path(__file__).parents[1] / "data" / "pytorch_commits.json").read_text())


def sha(number):
    """A sha that begins with its number, in seven digits."""
    return f"{number:07x}".ljust(40, "a")


def landed(position, title="Synthetic", text="", name=None, at=None):
    when = 1_700_000_000.0 + 60 * position if at is None else at
    return LandedCommit(position, name or sha(position), when, when, title, f"{title}\n\n{text}")


def line(*told):
    """A line of commits from their titles, or titles and texts."""
    return [landed(place, *([one] if isinstance(one, str) else one)) for place, one in enumerate(told)]


def reverts(number):
    return f"This reverts commit {sha(number)[:10]}."


def pytorch():
    return [
        landed(place, one["title"], "\n".join(one["reverts"]), one["sha"].ljust(40, "0"))
        for place, one in enumerate(DATA["commits"])
    ]


def story(store, number):
    return [(one.kind, one.again, one.commit.position) for one in commits.landings(store, number)]


def test_it_does_not_matter_in_how_many_imports_a_line_came(store, tmp_path):
    whole = pytorch()
    for start, end in ((0, 7), (7, 20), (20, 33), (33, 50)):
        report = store_commits(store, REPO, whole[:end])
        assert (report.new, report.unchanged) == (end - start, start)
    before = revision(store)
    assert not store_commits(store, REPO, whole).changed
    assert revision(store) == before
    other = new_store(tmp_path / "other.db")
    store_commits(other, REPO, whole)
    assert list_commits(store) == list_commits(other)
    assert sum(bool(entry.reverts) for entry in list_commits(other)) == 11
    # A reland under another number belongs to the story of the first.
    assert [one.commit.pr_number for one in commits.landings(other, 158526)] == [158526, 158526, 159211]
    assert not store_commits(other, REPO, whole[:20]).changed
    assert list_commits(store) == list_commits(other)
    other.dispose()


def test_links_go_both_ways_and_a_revert_without_a_sha_means_the_last(store):
    """A revert of a revert lands again, and the next takes back again."""
    steps = [("landing", False, 0), ("revert", False, 1), ("landing", True, 2), ("revert", False, 3)]
    store_commits(store, REPO, line("A (#1)", ('Revert "A (#1)"', reverts(0)), "A (#1)", 'Revert "A (#1)" (#2)'))
    last, again, revert, first = list_commits(store)
    assert (revert.reverts, first.reverted_by) == ((first.sha,), (revert.sha,))
    assert (again.relands, first.relanded_by) == ((first.sha,), (again.sha,))
    assert last.reverts == (again.sha,)
    assert (story(store, 1), story(store, 2)) == (steps, [("landing", False, 3)])
    title, told = "A (#1)", ["A (#1)"]
    for place in range(4):
        title = f'Revert "{title}"'
        told.append((title, reverts(place)))
    store_commits(store, REPO, line(*told), replace=True)
    assert story(store, 1) == [*steps, ("landing", True, 4)]


def test_links_to_the_future_or_to_several_commits_are_counted(store):
    twins = ["abcdef1" + "0" * 33, "abcdef1" + "1" * 33]
    start = [landed(place, title, name=name) for place, (title, name) in enumerate(zip("AB", twins, strict=True))]
    # Itself, the future, nobody, one of two.
    texts = [reverts(2), reverts(4), "This reverts commit fffffff.", "This reverts commit abcdef1."]
    later = [landed(place, "Revert it", text) for place, text in enumerate(texts, 2)]
    report = store_commits(store, REPO, start + later)
    assert (report.misdirected, report.unknown, report.ambiguous) == (2, 1, 1)
    assert (report.reverts, report.relands) == (0, 0)


def test_gits_facts_replace_what_a_bundle_told(store, tmp_path):
    title = {"commit_title": "What a bundle says (#7)"}
    ingest_bundle(store, night(tmp_path, "before", cells=[cell()], commit=sha(1), **title))
    assert commits.unplaced_commits(store, REPO) == {sha(1)} == commits.measured_commits(store, REPO)
    report = store_commits(store, REPO, line("A", "What git says (#8)"))
    assert (report.new, report.updated) == (1, 1)
    ingest_bundle(store, night(tmp_path, "after", cells=[cell()], commit=sha(1), minutes=9, **title))
    entry = find_commit(store, sha(1))
    assert (entry.title, entry.pr_number, entry.position) == ("What git says (#8)", 8, 1)


def test_a_line_that_grew_at_its_beginning_shifts_and_links_its_reverts(store):
    store_commits(store, REPO, [landed(0, "A", name=sha(10)), landed(1, "B", reverts(9), name=sha(11))])
    whole = [landed(0, "Older", name=sha(9)), landed(2, "B", reverts(9), name=sha(11))]
    report = store_commits(store, REPO, whole, [(1, sha(10))])
    assert (report.new, report.updated, report.reverts) == (1, 1, 1)
    assert [(entry.position, entry.title) for entry in list_commits(store)] == [(2, "B"), (1, "A"), (0, "Older")]


def test_repositories_do_not_mix(store):
    store_commits(store, REPO, line("A (#1)", ('Revert "A (#1)"', reverts(0))))
    report = store_commits(store, "somebody/else", line("A (#1)"))
    assert (report.new, report.reverts, report.unknown) == (1, 0, 0)
    assert [entry.repo for entry in list_commits(store, repo="somebody/else")] == ["somebody/else"]
    assert len(commits.landings(store, 1, REPO)) == 2
    with pytest.raises(CommitError, match="say --repo"):
        find_commit(store, sha(0))


def test_a_range_is_what_landed_after_the_first_up_to_the_second(store):
    undated = LandedCommit(2, sha(2), None, None, "C", "C")  # and the clocks go backwards
    store_commits(store, REPO, [landed(0, "A", at=2e9), landed(1, "B", at=1e9), undated, landed(3, "D", at=5.0)])
    assert find_commit(store, sha(2)).committed_at is None
    found = commit_range(store, sha(0)[:10], sha(2))
    assert ([entry.title for entry in found.commits], found.distance) == (["B", "C"], 2)
    assert commit_range(store, sha(2), sha(0)).commits == commit_range(store, sha(2), sha(2)).commits == ()
    with pytest.raises(CommitError, match="has no commit"):
        commit_range(store, "fffffff", sha(1))


def test_a_search_finds_pull_requests_shas_and_words(store):
    store_commits(store, REPO, pytorch())
    for text in ("#154455", "PR 154455", "https://github.com/pytorch/pytorch/pull/154455"):
        assert [entry.pr_number for entry in commits.find_commits(store, text)] == [154455] * 5
    assert len(commits.find_commits(store, "#154455", limit=2)) == 2
    assert [entry.sha[:10] for entry in commits.find_commits(store, "22A4CABD")] == ["22a4cabd19"]
    assert [entry.pr_number for entry in commits.find_commits(store, "aoti mps kernel")] == [158350]
    assert [commits.find_commits(store, text) for text in ("100%", "", "no such words")] == [[]] * 3


def test_a_branch_has_the_start_that_was_said_last(store):
    store_commits(store, REPO, line("A", "B"))
    commits.set_branch_start(store, REPO, "feature", sha(1)[:12])
    commits.set_branch_start(store, REPO, "feature", sha(0))
    assert [(one.name, one.start.title) for one in commits.branch_starts(store, "feature")] == [("feature", "A")]
    with pytest.raises(CommitError, match="has no commit"):
        commits.set_branch_start(store, REPO, "other", "fffffff")
    assert commits.branch_starts(store, "other") == []
