"""`inductor-watch commits`: from real git repositories through the command line and back."""

import json
import re
from itertools import combinations

import pytest
from click.testing import CliRunner

from db.commits.commit_history import branch_starts, commit_range, list_commits
from db.engine import open_store
from db.ingest import ingest_bundle
from db.queries.sides import resolve_side
from jobs.cli import app
from jobs.git_log import Repository
from tests.factories import cell, new_store, night
from tests.jobs.repositories import RepositoryWriter, run_git


@pytest.fixture
def say(tmp_path):
    """Calls the verb on the test's database; a failure is the exception that `main` would turn into one line."""
    new_store(tmp_path / "store.db").dispose()
    store = ("--db", str(tmp_path / "store.db"))
    return lambda *words: CliRunner().invoke(app, ["commits", *words, *store], catch_exceptions=False).output


@pytest.fixture
def store(tmp_path, say):
    return open_store(tmp_path / "store.db", write=True)


@pytest.fixture
def clone(tmp_path):
    return RepositoryWriter(tmp_path / "clone")


def titles(store):
    return [(one.position, one.title) for one in list_commits(store)]


def test_places_follow_parents_and_ranges_are_those_of_git_log(say, store, clone):
    """Main, a side branch that took main in before it was merged, and a merge on top; a clock that goes backwards."""
    with clone as writer:
        root = writer.commit("Root", at=2_000_000_000)
        one = writer.commit("One", at=1_900_000_000)
        side = writer.commit("Side", branch="side", parents=(root,), at=5)
        writer.commit("Take main in", branch="side", parents=(side, one), at=1)
        late = writer.commit("Late", branch="side", at=2_100_000_000)
        two = writer.commit("Two", at=1_800_000_000)
        merge = writer.commit("Merge", parents=(two, late), at=3)
        top = writer.commit("Top", at=4)
    say("import", "--git", str(writer.path))
    titles = [entry.title for entry in reversed(list_commits(store))]
    assert titles == ["Root", "One", "Two", "Side", "Take main in", "Late", "Merge", "Top"]
    for base, new in combinations([root, one, two, merge, top], 2):
        between = set(run_git(writer.path, "rev-list", f"{base}..{new}").split())
        assert {entry.sha for entry in commit_range(store, base, new).commits} == between
        assert not commit_range(store, new, base).commits


def test_a_path_takes_the_commits_that_touch_it_and_the_measured_ones(say, store, clone, tmp_path):
    with clone as writer:
        writer.commit("Elsewhere", touches="README")
        writer.commit("Inductor", touches="torch/_inductor/ir.py")
        measured = writer.commit("Elsewhere again", touches="torch/_inductor_other.py")
        writer.commit("Inductor again", touches="torch/_inductor/a/b.py")
    words = ("import", "--git", str(clone.path))
    assert "4 commits: 2 new" in say(*words, "--path", "torch/_inductor")
    assert titles(store) == [(3, "Inductor again"), (1, "Inductor")]
    ingest_bundle(store, night(tmp_path, "run", cells=[cell()], commit=measured))
    assert "0 new, 1 updated" in say(*words, "--path", "torch/_inductor")
    assert titles(store) == [(3, "Inductor again"), (2, "Elsewhere again"), (1, "Inductor")]
    assert "1 new, 0 updated, 3 unchanged" in say(*words)
    assert [place for place, _ in titles(store)] == [3, 2, 1, 0]


def test_a_branch_starts_where_it_left_the_main_line(say, store, clone):
    with clone as writer:
        start = writer.commit("Start")
        writer.commit("Main")
        writer.commit("Work", branch="work", parents=(start,))
    assert f"work starts at {start[:10]}" in say("import", "--git", str(writer.path), "--branch", "work")
    assert [(one.name, one.start.sha) for one in branch_starts(store)] == [("work", start)]
    assert json.loads(say("branch", "work", "--json"))[0]["start"]["sha"] == start
    told = say("branch", "other", "--base", start[:8])
    assert told.startswith("pytorch/pytorch  other  ") and start[:10] in told
    assert "no such branch" in say("branch", "nosuch")


def test_tags_of_a_clone_name_sides_and_show_with_their_commits(say, store, clone, tmp_path):
    with clone as writer:
        first = writer.commit("First")
        released = writer.commit("Release", parents=(first,), branch="release/2.9")
        writer.commit("Second", parents=(first,))
    run_git(writer.path, "tag", "light", first)
    run_git(writer.path, "tag", "-a", "-m", "2.9.1", "v2.9.1", released)
    run_git(writer.path, "tag", "-a", "-m", "again", "v2.9.1-again", "v2.9.1")
    run_git(writer.path, "tag", "no-commit", f"{first}^{{tree}}")
    ingest_bundle(store, night(tmp_path, "r1", branch="release/2.9", commit=released, cells=[cell()]))

    assert Repository(writer.path).tags() == {"light": first, "v2.9.1": released, "v2.9.1-again": released}
    assert "3 tags that a side of a comparison can be called by" in say("import", "--git", str(writer.path))
    assert resolve_side(store, "v2.9.1").run_ids == ("r1",)
    assert re.search(r"tags +v2\.9\.1, v2\.9\.1-again", say("show", released[:10]))


def test_hostile_messages_come_through_whole_and_wrong_clocks_are_no_dates(say, store, clone):
    long = "x" * 10_000
    with clone as writer:
        messages = [
            b"Quote \"this\" and 'that'; DROP TABLE commits;--",
            b"<script>alert(1)</script>",
            "\N{PILE OF POO} (#9)".encode(),
            b"bad \xff\xfe bytes",
            b"before\x00after",
            long.encode(),
            b"",
            b"\n\n   \n",
            b"over\ntwo lines (#10)\n\nbody",
        ]
        shas = [writer.commit(message) for message in messages]
        writer.commit(f"Revert it\n\nThis reverts commit {shas[1]}.\x00This reverts commit {shas[0]}.".encode())
        writer.commit("Far future", at=99_999_999_999, author_at=1_700_000_000)
    say("import", "--git", str(writer.path))
    found = list(reversed(list_commits(store)))
    bad = "bad \N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER} bytes"
    expected = [*(message.decode() for message in messages[:3]), bad, "before", long, "", "", "over two lines (#10)"]
    assert [one.title for one in found[:9]] == expected
    assert (found[9].reverts, found[2].pr_number, found[8].pr_number) == ((shas[1],), 9, 10)
    assert (found[10].committed_at, found[10].author_date.year) == (None, 2023)
    assert len(json.loads(say("list", "--since", "2023-11-01", "--json"))) == 10
    listed = say("list", "--search", "xxxx")
    assert len(listed.splitlines()) == 1 and len(listed) < 200


def test_what_cannot_be_read_is_one_line_and_a_usage_error(say, store, clone, tmp_path):
    with clone as writer:
        writer.commit("A", touches="f")
        writer.commit("B", touches="f")
        writer.commit("Alone", branch="orphan")
    path = str(writer.path)
    shallow = tmp_path / "shallow"
    run_git(tmp_path, "clone", "-q", "--depth", "1", writer.path.as_uri(), str(shallow))
    (tmp_path / "plain").mkdir()
    (tmp_path / "empty").mkdir()
    run_git(tmp_path / "empty", "init", "-q")
    for words, said in {
        (str(tmp_path / "plain"),): "is no git repository",
        (str(shallow),): "git fetch --unshallow",
        (str(tmp_path / "empty"),): "name the main line with --ref",
        (path, "--ref", "--output=/tmp/x"): "has no commit",
        (path, "--ref", "a\nb"): "has no commit",
        (path, "--path", "nosuch"): "touches 'nosuch'",
        (path, "--branch", "orphan"): "no commit in common",
    }.items():
        with pytest.raises(Exception, match=re.escape(said)) as found:
            say("import", "--git", *words)
        assert found.value.exit_code == 2
        assert "\n" not in str(found.value)
    assert list_commits(store) == []


def test_a_rewritten_main_line_is_refused_until_it_is_said(say, store, clone, monkeypatch, tmp_path):
    with clone as writer:
        first = writer.commit("A")
        writer.commit("B")
        writer.commit("Other", branch="rewritten", parents=(first,))
    with RepositoryWriter(tmp_path / "other") as other:
        other.commit("Of another repository")
    monkeypatch.setenv("GIT_DIR", str(other.path))  # it does not mislead
    say("import", "--git", str(writer.path))
    assert titles(store) == [(1, "B"), (0, "A")]
    with pytest.raises(Exception, match="say --replace"):
        say("import", "--git", str(writer.path), "--ref", "rewritten")
    say("import", "--git", str(writer.path), "--ref", "rewritten", "--replace")
    assert titles(store) == [(1, "Other"), (0, "A")]
