"""A database is thinned out, and built anew from its bundles."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import func, select

from collector.usage_errors import BundleError, ConfigError
from collector.vocabulary import Status
from db.commits.commit_history import LandedCommit, branch_starts, list_commits, set_branch_start, store_commits
from db.engine import open_store
from db.ingest import ingest_bundle
from db.maintenance.consistency import check_bundles, check_store
from db.maintenance.upkeep import Ages, prune, rebuild, remove_run, vacuum
from db.nights import list_runs
from db.queries.cells import axes, revision
from db.regression_records import Finding, change_state, list_regressions, open_regression
from db.schema import Evidence, Samples
from db.store_errors import StoreError
from tests.db import reads as queries
from tests.db.answers import answers
from tests.factories import COMMIT_A, COMMIT_B, START, cell, failing, header, matrix, night, passing, write_bundle

NOW = START + timedelta(days=100)
CELLS = matrix(["bert", "gpt2"])


def days(number):
    return timedelta(days=number)


@pytest.fixture
def nights(store, tmp_path):
    """Nights of 100, 60, 20 and 1 day ago, three of six cells failed with a log in each; another testbed's beside the first."""
    for run_id, age in {"oldest": 100, "old": 60, "recent": 20, "newest": 1}.items():
        minutes = (100 - age) * 1440
        made = [passing(item, minutes=minutes + 1) for item in CELLS[:3]]
        made += [failing(item, Status.FAIL_TO_RUN, minutes=minutes + 1) for item in CELLS[3:]]
        ingest_bundle(store, write_bundle(tmp_path, header(run_id, minutes=minutes), made))
    ingest_bundle(store, night(tmp_path, "aside", minutes=1, cells=CELLS, testbed={"cores": 8}))
    return store


def kept(store):
    """How many raw samples and texts each run still has, and how many rows of them."""
    found = {}
    with store.connect() as conn:
        for run in queries.list_runs(conn):
            key = queries.resolve_side(conn, run.run_id).keys[0]
            numbers = select(func.count(), func.count(Samples.data), func.count(Samples.spread))
            texts = select(func.count(Evidence.details), func.count(Evidence.log_tail)).where(Evidence.run == key)
            found[run.run_id] = (*conn.execute(numbers.where(Samples.run == key)).one(), *conn.execute(texts).one())
    return found


FULL, ASIDE = (6, 6, 6, 3, 3), (12, 12, 12, 6, 0)


def test_samples_go_first_and_leave_count_and_spread(nights, tmp_path):
    assert kept(nights) == {"aside": ASIDE, **dict.fromkeys(("oldest", "old", "recent", "newest"), FULL)}
    report = prune(nights, Ages(days(30), days(90)), NOW)
    gone = {"oldest": (6, 0, 6, 0, 0), "aside": (12, 0, 12, 0, 0), "old": (6, 0, 6, 3, 3)}
    assert kept(nights) == {**gone, "recent": FULL, "newest": FULL}
    assert (report.samples, report.evidence, report.runs, report.measurements) == (24, 12, (), 0)


@pytest.mark.parametrize("location", ["sqlite"], indirect=True)
def test_numbers_and_sums_stay_and_the_database_agrees_with_its_bundles(nights, tmp_path):
    before = {name: value for name, value in answers(nights).items() if name in ("runs", "history", "axes", "nights")}
    prune(nights, Ages(days(0), days(0)), NOW)
    assert {name: value for name, value in answers(nights).items() if name in before} == before
    assert check_store(nights) == []
    told = check_bundles(nights, sorted(tmp_path.glob("*.gz")))
    assert (told.findings, told.thinned) == ((), 36 + 30)
    found = queries.measurement(nights, "old", CELLS[0].cell_id)
    assert found.metrics == passing(CELLS[0], minutes=40 * 1440 + 1).metrics
    assert set(found.spread) == {"compiled_ms", "eager_ms"}
    assert queries.samples(nights, "old", CELLS[0].cell_id) == {}
    # What was thinned out stays out when its bundle comes again.
    before, revision = kept(nights), queries.revision(nights)
    for path in sorted(tmp_path.glob("*.gz")):
        assert not ingest_bundle(nights, path).changed
    assert (kept(nights), queries.revision(nights)) == (before, revision)


@pytest.mark.parametrize(("location", "state"), [("postgresql", "new"), ("sqlite", "returned")], indirect=["location"])
def test_rows_behind_an_open_regression_are_never_touched(nights, state):
    finding = Finding(CELLS[0].cell_id, "old", "recent", "slower", "compiled_ms", 1.0, 2.0)
    name = open_regression(nights, finding, at=NOW, author="ann").regression_id
    for step in ["fixed", "returned"] if state == "returned" else []:
        change_state(nights, name, step, at=NOW, author="ann")
    report = prune(nights, Ages(days(0), days(0), days(0)), NOW)
    # From its base on, of its own testbed, and of its own cell alone.
    assert (report.runs, report.kept) == (("oldest", "aside"), ("old", "recent", "newest"))
    assert kept(nights) == dict.fromkeys(("old", "recent", "newest"), (6, 2, 6, 1, 0))
    assert list(queries.samples(nights, "old", CELLS[0].cell_id)) != []
    assert report.guarded == 3


def test_without_a_known_base_the_whole_series_is_held(nights):
    finding = Finding(CELLS[0].cell_id, "oldest", "recent", "slower")
    name = open_regression(nights, finding, at=NOW, author="ann").regression_id
    change_state(nights, name, "expected", at=NOW, author="ann")
    prune(nights, Ages(days(90), days(90), days(90)), NOW)  # the base goes
    change_state(nights, name, "acknowledged", at=NOW, author="ann")
    prune(nights, Ages(days(0), days(0)), NOW)
    assert kept(nights) == dict.fromkeys(("old", "recent", "newest"), (6, 2, 6, 1, 0))


def test_ages_that_make_no_sense_are_refused_and_a_vacuum_gives_room_back(nights):
    before = kept(nights)
    for ages in (Ages(days(90), days(30)), Ages(days(1), days(30), days(10)), Ages(days(-1), None)):
        with pytest.raises(ConfigError) as caught:
            prune(nights, ages, NOW)
        assert "\n" not in str(caught.value)
    assert kept(nights) == before
    prune(nights, Ages(days(0), days(0), days(0)), NOW)
    vacuum(nights)
    assert queries.list_runs(nights) == []
    with nights.connect() as conn:
        if conn.dialect.name == "sqlite":
            assert conn.exec_driver_sql("PRAGMA freelist_count").scalar() == 0
        else:
            assert conn.exec_driver_sql("SELECT pg_relation_size('samples')").scalar() == 0


def test_a_run_is_removed_whole_and_comes_back_with_its_bundle(nights, tmp_path):
    before, revision = list_runs(nights), queries.revision(nights)
    finding = Finding(CELLS[0].cell_id, "old", "newest", "slower", "speedup", 2.0, 1.5)
    record = open_regression(nights, finding, at=NOW, author="ann")
    dry = remove_run(nights, "newest", dry_run=True)
    assert (dry.measurements, dry.missing, dry.records) == (6, 0, (record.regression_id,))
    assert len(queries.list_runs(nights)) == 5
    assert remove_run(nights, "newest") == dry
    assert "newest" not in {run.run_id for run in queries.list_runs(nights)}
    assert check_store(nights) == []
    assert queries.revision(nights) > revision + 1
    ingest_bundle(nights, tmp_path / "newest.jsonl.gz")
    assert list_runs(nights) == before


AT = datetime(2026, 8, 3, tzinfo=UTC)
REPO, REVERT = "pytorch/pytorch", "e5" * 20


@pytest.fixture
def old(store, tmp_path):
    """A database with all that no bundle holds: a line of commits, a revert, a branch's start, a regression."""
    side = {"minutes": 60, "commit": COMMIT_B, "branch": "side", "branch_start": COMMIT_A}
    for name, changes in {"r1": {}, "r2": side, "r3": {"minutes": 90, "commit": REVERT}}.items():
        ingest_bundle(store, night(tmp_path / "runs", name, **changes))
    ingest_bundle(store, write_bundle(tmp_path / "runs" / "again", header("r1", attempt=2), [failing(cell())]))
    told = [(COMMIT_A, "Faster (#1)", ""), ("d" * 40, "In no run (#2)", "")]
    told.append((REVERT, 'Revert "Faster (#1)"', f"This reverts commit {COMMIT_A}."))
    line = [LandedCommit(at, sha, 1000.0 + at, 2000.0 + at, *words) for at, (sha, *words) in enumerate(told)]
    store_commits(store, REPO, line)
    finding = Finding(cell().cell_id, "r1", "r3", "slower", "speedup", 2.0, 1.5)
    name = open_regression(store, finding, at=AT, author="ann")
    change_state(store, name.regression_id, "acknowledged", at=AT, author="bob", text="seen")
    return store


def paths(folder):
    return sorted((folder / "runs").rglob("*.gz"))


@pytest.mark.parametrize(("location", "blank"), [("postgresql", "sqlite")], indirect=True)
def test_a_rebuilt_database_gives_the_same_answers_in_any_order(old, location, blank, tmp_path):
    set_branch_start(old, REPO, "main", "d" * 40)  # as a person says it
    report = rebuild(blank, paths(tmp_path)[::-1], old)
    new = open_store(blank, write=False)
    assert (report.runs, report.measurements, report.regressions, report.lost) == (3, 27, 1, ())
    assert answers(new) == answers(old)
    assert list_commits(new) == list_commits(old)
    assert [bool(commit.reverts) for commit in list_commits(new)] == [True, False, False]
    starts = {branch.name: branch.start and branch.start.sha for branch in branch_starts(new)}
    assert starts == {"main": "d" * 40, "side": COMMIT_A}
    assert list_regressions(new) == list_regressions(old)
    assert check_store(new) == []
    assert check_bundles(new, paths(tmp_path)).findings == ()
    assert revision(new) > revision(old)
    new.dispose()
    with pytest.raises(StoreError, match="nothing is replaced"):
        rebuild(location, paths(tmp_path), old)


@pytest.mark.parametrize(("location", "blank"), [("sqlite", "sqlite")], indirect=True)
def test_files_none_of_which_is_a_bundle_leave_no_new_database(old, blank, tmp_path):
    (tmp_path / "x.jsonl").write_text("nonsense")
    with pytest.raises(BundleError):
        rebuild(blank, [tmp_path / "x.jsonl"], old)
    assert not list(tmp_path.glob("blank*"))


@pytest.mark.parametrize(("location", "blank"), [("sqlite", "postgresql")], indirect=True)
def test_records_outlive_runs_and_cells_that_no_bundle_has(old, location, blank, tmp_path):
    other = night(tmp_path / "more", "elsewhere", minutes=300, cells=[cell("zzz")])
    rebuild(blank, [other], old)
    with pytest.raises(StoreError, match="nothing is replaced"):
        rebuild(location, [other], old)  # as with one on a server, which is asked above
    new = open_store(blank, write=True)
    ((found,), (before,)) = list_regressions(new), list_regressions(old)
    assert found == replace(before, base_run=None, onset_run=None, onset_at=None)
    assert [model.name for model in axes(new).models] == [cell().model, "zzz"]
    ingest_bundle(new, night(tmp_path / "more", "r4", commit="e" * 40, minutes=400))
    open_regression(new, Finding(cell("gpt2").cell_id, "r4", "r4", "slower"), at=AT, author="ann")
    assert check_store(new) == []
    new.dispose()
