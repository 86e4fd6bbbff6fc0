"""`db rebuild`: the same answers from the bundles, with what no bundle holds; all of it, or no new database."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from sqlalchemy import insert, select, update

from collector.usage_errors import BundleError
from db.commits.commit_history import LandedCommit, store_commits
from db.engine import open_store
from db.ingest import ingest_bundle
from db.maintenance.consistency import check_bundles, check_store
from db.maintenance.rebuild import rebuild
from db.nights import list_runs
from db.queries.cells import axes, revision
from db.regression_records import Finding, change_state, list_regressions, open_regression
from db.schema import Branch, Commit, CommitLink
from db.store_errors import StoreError
from tests.db.answers import answers
from tests.factories import COMMIT_A, COMMIT_B, COMMIT_C, cell, failing, header, night, write_bundle

AT = datetime(2026, 8, 3, tzinfo=UTC)
REPO = "pytorch/pytorch"


def commit(position, sha, subject, message=""):
    return LandedCommit(position, sha, 1000.0 + position, 2000.0 + position, subject, message or subject)


@pytest.fixture
def old(store, tmp_path):
    """A database with all that no bundle holds: a line of commits, a revert, a branch's start, a regression."""
    side = {"minutes": 60, "commit": COMMIT_B, "branch": "side", "branch_start": COMMIT_A}
    for name, changes in {"r1": {}, "r2": side, "r3": {"minutes": 90, "commit": COMMIT_C}}.items():
        ingest_bundle(store, night(tmp_path / "runs", name, **changes))
    ingest_bundle(store, write_bundle(tmp_path / "runs" / "again", header("r1", attempt=2), [failing(cell())]))
    line = [
        commit(0, COMMIT_A, "Faster (#1)"),
        commit(1, "d" * 40, "In no run (#2)"),
        commit(2, COMMIT_C, 'Revert "Faster (#1)"', f"This reverts commit {COMMIT_A}."),
    ]
    store_commits(store, REPO, line)
    finding = Finding(cell().cell_id, "r1", "r3", "slower", "speedup", 2.0, 1.5)
    name = open_regression(store, finding, at=AT, author="ann")
    change_state(store, name.regression_id, "acknowledged", at=AT, author="bob", text="seen")
    return store


def paths(folder):
    return sorted((folder / "runs").rglob("*.gz"))


def line_of(engine):
    """Commits, their links and branches, by name."""
    with engine.connect() as conn:
        shas = dict(conn.execute(select(Commit.id, Commit.sha)).all())
        facts = (Commit.sha, Commit.position, Commit.author_date, Commit.committed_at, Commit.title, Commit.pr_number)
        links = conn.execute(select(CommitLink.commit, CommitLink.kind, CommitLink.target)).all()
        branches = conn.execute(select(Branch.repo, Branch.name, Branch.start)).all()
        return {
            "commits": sorted(map(tuple, conn.execute(select(*facts)))),
            "links": sorted((shas[one], kind, shas[other]) for one, kind, other in links),
            "branches": sorted((repo, name, shas.get(start)) for repo, name, start in branches),
        }


@pytest.mark.parametrize(("location", "blank"), [("sqlite", "postgresql"), ("postgresql", "sqlite")], indirect=True)
def test_a_rebuilt_database_gives_the_same_answers_in_any_order(old, blank, tmp_path):
    report = rebuild(blank, paths(tmp_path)[::-1], old)
    new = open_store(blank, write=False)
    assert (report.runs, report.measurements, report.regressions, report.lost) == (3, 27, 1, ())
    assert answers(new) == answers(old)
    assert line_of(new) == line_of(old)
    assert len(line_of(new)["links"]) == 1
    assert list_regressions(new) == list_regressions(old)
    assert check_store(new) == []
    assert check_bundles(new, paths(tmp_path)).findings == ()
    assert revision(new) > revision(old)
    new.dispose()


@pytest.mark.parametrize("location", ["sqlite"], indirect=True)
def test_files_none_of_which_is_a_bundle_leave_no_new_database(old, blank, tmp_path):
    (tmp_path / "x.jsonl").write_text("nonsense")
    with pytest.raises(BundleError):
        rebuild(blank, [tmp_path / "x.jsonl"], old)
    assert not list(tmp_path.glob("blank*"))
    if blank.startswith("postgresql"):
        new = open_store(blank, write=False)
        assert (list_runs(new), line_of(new)["commits"]) == ([], [])
        new.dispose()


@pytest.mark.parametrize(("location", "blank"), [("sqlite", "postgresql"), ("postgresql", "sqlite")], indirect=True)
def test_records_outlive_runs_and_cells_that_no_bundle_has(old, blank, tmp_path):
    other = night(tmp_path / "more", "elsewhere", minutes=300, cells=[cell("zzz")])
    rebuild(blank, [other], old)
    new = open_store(blank, write=True)
    ((found,), (before,)) = list_regressions(new), list_regressions(old)
    assert found == replace(before, base_run=None, onset_run=None, onset_at=None)
    assert [model.name for model in axes(new).models] == [cell().model, "zzz"]
    ingest_bundle(new, night(tmp_path / "more", "r4", commit="e" * 40, minutes=400))
    open_regression(new, Finding(cell("gpt2").cell_id, "r4", "r4", "slower"), at=AT, author="ann")
    assert check_store(new) == []
    new.dispose()


def test_nothing_is_replaced(old, location, tmp_path):
    before = answers(old)
    with pytest.raises(StoreError, match="nothing is replaced"):
        rebuild(location, paths(tmp_path), old)
    assert answers(old) == before


@pytest.mark.parametrize("location", ["sqlite"], indirect=True)
def test_a_branch_start_that_a_person_set_is_carried(old, blank, tmp_path):
    with old.begin() as conn:
        found = conn.execute(insert(Commit).values(repo=REPO, sha="f" * 40).returning(Commit.id)).scalar_one()
        conn.execute(update(Branch).where(Branch.name == "main").values(start=found))
    rebuild(blank, paths(tmp_path), old)
    new = open_store(blank, write=False)
    assert (REPO, "main", "f" * 40) in line_of(new)["branches"]
    new.dispose()
