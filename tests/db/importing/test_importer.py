"""What an import knows of its commit: from the record, the caller and a repository."""

import subprocess

import pytest

from collector.bundle import RunHeader
from db.importing.importer import Provenance, settle
from db.importing.result_rows import ImportingError, Uploader
from db.stored_values import to_epoch
from jobs.git_log import GitError, Repository

DATE = "2026-08-01T02:00:00+00:00"
TOLD = Uploader("me/fork", "release", "a1" * 20, to_epoch("2026-07-01"), "5", 1)


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A repository of two commits, the second one checked out."""
    folder = tmp_path_factory.mktemp("repository")
    dates = {"GIT_AUTHOR_DATE": "2026-05-01T10:00:00+00:00", "GIT_COMMITTER_DATE": "2026-05-02T10:00:00+00:00"}
    names = {"GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_CONFIG_GLOBAL": "/dev/null"}
    names |= {"GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.org", "PATH": "/usr/bin:/bin"}
    for words in (
        ["init", "-q", "-b", "trunk"],
        ["commit", "-q", "--allow-empty", "-m", "First (#1)"],
        ["commit", "-q", "--allow-empty", "-m", "Second (#2)"],
    ):
        subprocess.run(["git", *words], cwd=folder, env=names | dates, check=True)
    return Repository(folder)


def settled(told, asked):
    header = settle(told, asked)
    assert isinstance(header, RunHeader)
    return header


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (Provenance("x/y", "mine", "b2" * 20, DATE), ("x/y", "mine", "b2" * 20, DATE)),  # the caller wins
        (Provenance(branch="mine"), ("me/fork", "mine", "a1" * 20, "2026-07-01T00:00:00+00:00")),
    ],
)
def test_the_record_tells_what_the_caller_does_not(asked, expected):
    header = settled(TOLD, asked)
    assert (header.repo, header.branch, header.commit, header.started_at) == expected


def test_the_repository_tells_what_nobody_else_does(repository):
    header = settled(Uploader(), Provenance(git=repository))
    assert (header.branch, len(header.commit), header.commit_title) == ("trunk", 40, "Second (#2)")
    assert header.started_at == "2026-05-02T10:00:00+00:00"
    assert to_epoch(header.commit_date or "") == to_epoch("2026-05-01T10:00:00+00:00")


def test_a_commit_is_looked_up_in_the_repository(repository):
    (first,) = repository.commits([(0, repository.sha_of("HEAD~1"))])
    of_caller = settled(Uploader(), Provenance(commit=first.sha[:10], git=repository))
    assert (of_caller.commit, of_caller.commit_title) == (first.sha, "First (#1)")
    of_record = settled(Uploader(commit=first.sha, branch="release"), Provenance(git=repository))
    assert (of_record.commit_title, of_record.branch) == ("First (#1)", "release")
    # It lends no date to another commit.
    found = settle(Uploader(commit="a1" * 20, branch="main"), Provenance(git=repository))
    assert "--date" in str(found)


@pytest.mark.parametrize(
    ("asked", "missing"),
    [
        (Provenance(), "no commit, branch or date: pass --commit, --branch and --date, or"),
        (Provenance(commit="c", date=DATE), "no branch: pass --branch, or"),
    ],
)
def test_what_is_missing_is_named(asked, missing):
    assert missing in str(settle(Uploader(), asked))


def test_a_date_that_is_none_is_one_line():
    with pytest.raises(ImportingError, match="--date 'yesterday'"):
        settle(Uploader(), Provenance(commit="c", branch="main", date="yesterday"))


@pytest.mark.parametrize("commit", ["no-such-thing", "--output=x"])
def test_a_commit_that_is_not_there_is_one_line(repository, commit):
    with pytest.raises(GitError) as caught:
        settle(Uploader(), Provenance(commit=commit, git=repository))
    assert "\n" not in str(caught.value)
