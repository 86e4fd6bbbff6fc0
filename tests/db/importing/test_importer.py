"""What an import knows of its commit: from the record, the caller and a repository."""

import pytest

from db.importing.importer import Provenance, settle
from db.importing.result_rows import ImportingError, Uploader
from db.stored_values import to_epoch
from jobs.git_log import GitError, Repository
from tests.jobs.repositories import RepositoryWriter


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A repository of two commits on its main branch."""
    folder = tmp_path_factory.mktemp("repository") / "clone"
    authored, committed = (int(to_epoch(f"2026-05-0{day}T10:00:00+00:00")) for day in (1, 2))
    with RepositoryWriter(folder) as writer:
        for title in ("First (#1)", "Second (#2)"):
            writer.commit(title, branch="main", at=committed, author_at=authored)
    return Repository(folder)


def test_the_caller_is_believed_before_the_record():
    told = Uploader("me/fork", "release", "a1" * 20, to_epoch("2026-07-01"), "5", 1)
    for asked, expected in (
        (Provenance("x/y", "mine", "b2" * 20, "2026-08-01T02:00:00+00:00"), ("x/y", "mine", "b2" * 20, "2026-08-01")),
        (Provenance(branch="mine"), ("me/fork", "mine", "a1" * 20, "2026-07-01")),
    ):
        header = settle(told, asked)
        assert (header.repo, header.branch, header.commit, header.started_at[:10]) == expected


def test_the_repository_tells_what_nobody_else_does(repository):
    header = settle(Uploader(), Provenance(git=repository))
    assert (header.branch, len(header.commit), header.commit_title) == ("main", 40, "Second (#2)")
    assert header.started_at == "2026-05-02T10:00:00+00:00"
    assert to_epoch(header.commit_date or "") == to_epoch("2026-05-01T10:00:00+00:00")
    (first,) = repository.commits([(0, repository.sha_of("HEAD~1"))])
    for told, asked in ((Uploader(), {"commit": first.sha[:10]}), (Uploader(commit=first.sha, branch="release"), {})):
        header = settle(told, Provenance(git=repository, **asked))
        assert (header.commit, header.commit_title) == (first.sha, "First (#1)")
    # It lends no date to another commit.
    assert "--date" in str(settle(Uploader(commit="a1" * 20, branch="main"), Provenance(git=repository)))


def test_what_is_missing_or_is_none_is_one_line(repository):
    assert "no commit, branch or date: pass --commit, --branch and --date, or" in str(settle(Uploader(), Provenance()))
    with pytest.raises(ImportingError, match="--date 'yesterday'"):
        settle(Uploader(), Provenance(commit="c", branch="main", date="yesterday"))
    for commit in ("no-such-thing", "--output=x"):
        with pytest.raises(GitError) as caught:
            settle(Uploader(), Provenance(commit=commit, git=repository))
        assert "\n" not in str(caught.value)
