import re
from pathlib import Path

import pytest
from sqlalchemy import select

from collector.bundle import CENSUS
from db.commits.commit_history import LandedCommit, find_commit, store_commits
from db.ingest import ingest_bundle
from db.nights import list_nights
from db.queries.series import model_history, series_runs
from db.queries.sides import previous_night, resolve_side
from db.schema import Tag
from db.store_errors import NoBaseError, SideError
from tests.factories import COMMIT_A, COMMIT_B, COMMIT_C, TESTBED, cell, header, new_store, night, passing, write_bundle

A2 = COMMIT_A[:20] + "f" * 20  # begins like COMMIT_A


#: A commit in two runs, the next in one, and a branch of its own; newest last.
RUNS = [("night-1", "main", COMMIT_A), ("night-1b", "main", COMMIT_A), ("night-2", "main", COMMIT_B)]
RUNS += [("try-1", "gh/feature", COMMIT_C), ("try-2", "gh/feature", COMMIT_A)]


def fill(store, folder, told=RUNS):
    for number, (run_id, branch, commit) in enumerate(told):
        ingest_bundle(store, night(folder, run_id, minutes=60 * number, branch=branch, commit=commit, cells=[cell()]))
    return store


@pytest.fixture(scope="module")
def runs(shared, tmp_path_factory):
    return fill(shared, tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("latest~2", "latest", ("night-2",)),
        ("night-1", "run", ("night-1",)),  # spelled out in full, although night-1b begins with it
        ("main", "branch", ("night-2",)),
        (COMMIT_A[:6], "commit", ("try-2", "night-1b", "night-1")),
        (COMMIT_B[:10].upper(), "commit", ("night-2",)),
        (f"gh/feature@{COMMIT_C[:6]}", "branch@commit", ("try-1",)),
    ],
)
def test_a_text_stands_for_its_runs_newest_first(runs, text, kind, expected):
    side = resolve_side(runs, text)
    assert (side.kind, side.run_ids, side.text) == (kind, expected, text)


def test_a_pull_request_a_day_and_a_device_name_a_side(store, tmp_path):
    one = {"commit_title": "Faster (#154667)", "testbed": {"gpu": "NVIDIA H100 80GB"}, "night": "one"}
    other = {"commit_title": "Not #154667 (#1546671)", "testbed": {"gpu": "NVIDIA H200"}, "commit": COMMIT_C}
    for run_id, minutes, more in (("first", 1200, one), ("second", 1430, one), ("third", 1440, other)):
        ingest_bundle(store, night(tmp_path, run_id, minutes=minutes, cells=[cell()], **more))
    # A day is one night, although its second run started after midnight.
    for text in ("#154667", "2026-08-01", "H100"):
        assert resolve_side(store, text).run_ids == ("second", "first")
    for text in ("2026-08-02", "h200"):
        assert resolve_side(store, text).run_ids == ("third",)


def refusal(source, text):
    with pytest.raises(SideError) as caught:
        resolve_side(source, text)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("night-", "night-1, night-1b, night-2"),
        ("nigth-1", "night-1"),
        ("LATEST", "nearest: latest"),
        (COMMIT_C[:5], "at least 6 digits"),
        ("main@123456789", "branch main has no runs of commit"),
        ("latest~5", "(the oldest is latest~4)"),
    ],
)
def test_a_text_that_stands_for_nothing_or_too_much_says_why(runs, text, said):
    assert said in refusal(runs, text)


@pytest.mark.parametrize(
    ("run_id", "changes", "text", "said"),
    [
        ("other", {"commit": A2}, COMMIT_A[:8], A2),
        ("fork", {"repo": "someone/pytorch"}, COMMIT_A, "someone/pytorch"),
        (f"{COMMIT_B[:8]}-run", {"commit": COMMIT_C}, COMMIT_B[:7], "could be"),
    ],
)
def test_a_commit_that_another_run_makes_ambiguous_names_both(store, tmp_path, run_id, changes, text, said):
    ingest_bundle(fill(store, tmp_path), night(tmp_path, run_id, cells=[cell()], **changes))
    assert said in refusal(store, text)


def test_odd_texts_match_nothing_and_break_nothing(runs):
    unreadable = ["", "a\nb", "nul\x00", "lone \ud800"]
    for text in ["%", "_ight-1", "night-1' OR '1'='1", "latest~-1", "main@", "@x", *unreadable]:
        refusal(runs, text)


@pytest.fixture(scope="module")
def nights(tmp_path_factory):
    """A night of one run, one of three GPUs, one of one run again, and one of two runs that tell no GPU; newest last."""
    folder = tmp_path_factory.mktemp("nights")
    store = new_store(folder / "store.db")
    by_night = {"n-1": ["n-1"], "g-night": ["a1", "b2", "b3"], "n-2": ["n-2"], "pair": ["p1", "p2"]}
    for number, (name, run_ids) in enumerate(by_night.items()):
        for index, run_id in enumerate(run_ids):
            head = header(
                run_id,
                minutes=60 * number + index,
                night="" if [name] == run_ids else name,
                commit=(COMMIT_A, COMMIT_B, COMMIT_C, COMMIT_C)[number],
                testbed={**TESTBED, "gpu_index": index} if name == "g-night" else TESTBED,
            )
            ingest_bundle(store, write_bundle(folder, head, [passing(cell(f"m{index}"))]))
    yield store
    store.dispose()


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("latest~2", "latest", ("n-1",)),  # what lies between was on other testbeds
        ("g-night", "night", ("b3", "b2", "a1")),
        ("a", "run", ("a1",)),
        ("p", "night", ("p2", "p1")),  # the night and its own runs begin so: the night has them all
        ("main", "branch", ("p2", "p1", "n-2")),
    ],
)
def test_a_night_stands_for_all_its_runs_and_a_run_for_itself(nights, text, kind, expected):
    side = resolve_side(nights, text)
    assert (side.kind, side.run_ids) == (kind, expected)
    if text == "g-night":
        assert side.title == f"main@{COMMIT_B[:10]} (night g-night, 3 GPUs)"


def test_a_beginning_of_a_night_and_another_name_is_ambiguous(store, tmp_path):
    for number, (run_id, name) in enumerate([("x1", "20-a"), ("x2", "20-a"), ("x3", "20-b"), ("20-ab", "")]):
        ingest_bundle(store, night(tmp_path, run_id, minutes=number, night=name))
    assert "20-a, 20-ab, 20-b" in refusal(store, "20-")
    assert resolve_side(store, "20-a").run_ids == ("x2", "x1")
    assert resolve_side(store, "20-ab").run_ids == ("20-ab",)
    assert "x1, x2, x3" in refusal(store, "x")  # although two of them are a night: its name begins otherwise


def test_a_release_of_torch_stands_for_its_commit(tmp_path):
    store = new_store(tmp_path / "store.db")
    bundle = next((Path(__file__).parents[3] / "data" / "releases").glob("20261122-025137*.jsonl.xz"))
    ingest_bundle(store, bundle)
    for name in ("2.9.1", "v2.9.1"):
        assert resolve_side(store, name).commits == ("5811a8d7da873dd699ff6687092c225caffcf1bb",)
    with pytest.raises(SideError, match=r"'2\.9\.2'; nearest: 2\.9\.1"):
        resolve_side(store, "2.9.2")


def test_a_census_is_no_night_to_compare_with(store, tmp_path):
    """Its cells have no latencies: only its own name means it."""
    census = night(tmp_path, "census-1", minutes=900, branch="main", commit=COMMIT_B, cells=[cell()], trigger=CENSUS)
    ingest_bundle(fill(store, tmp_path), census)
    meant = {"latest": "try-2", "census-1": "census-1"}
    meant |= dict.fromkeys(("main", COMMIT_B, COMMIT_B[:8], f"main@{COMMIT_B[:8]}"), "night-2")
    assert {name: resolve_side(store, name).run_ids for name in meant} == {name: (run,) for name, run in meant.items()}
    assert "census-1" not in {item.night for item in list_nights(store)}
    assert "census-1" in {item.night for item in list_nights(store, with_census=True)}
    assert "census-1" not in {run.run_id for run in series_runs(store)}
    assert "census-1" not in set(model_history(store, "huggingface", "bert")["run_id"])


# Tags as names of commits


UNKNOWN = "d4" * 20


#: Two runs of a release, which is on no line that is imported, and one of main.
RELEASES = [("first", "release/2.9", COMMIT_C), ("second", "release/2.9", COMMIT_C), ("night", "main", COMMIT_A)]


def imported(store, tags):
    commits = [LandedCommit(place, sha, None, None, f"c{place}", "") for place, sha in enumerate((COMMIT_A, COMMIT_B))]
    return store_commits(store, "pytorch/pytorch", commits, tags=tags)


@pytest.fixture
def releases(store, tmp_path):
    return fill(store, tmp_path, RELEASES)


@pytest.mark.parametrize(
    ("tags", "text", "said"),
    [
        ({"v2.9.1": COMMIT_C}, "main@v2.9.1", r"main has no runs of commit v2\.9\.1"),
        ({"v2.9.1": COMMIT_C}, "v2.9.2", r"no night, run, branch, tag, .* is called 'v2\.9\.2'.*v2\.9\.1"),
        ({"v2.8.0": UNKNOWN}, "v2.8.0", r"the tag v2\.8\.0 is pytorch/pytorch@d4d4d4d4d4, which no run .* measured"),
        ({"main": COMMIT_C}, "main", "also a tag: write main@a1a1a1a1a1 for the branch, or c3c3c3c3c3 for"),
    ],
)
def test_a_name_that_is_unknown_unmeasured_or_ambiguous_is_one_line(releases, tags, text, said):
    imported(releases, tags)
    assert re.search(said, refusal(releases, text))


def test_a_tag_that_moved_moves_and_bots_tags_want_a_commit_that_is_known(releases):
    assert imported(releases, {"v1": COMMIT_A, "v2": COMMIT_B, "trunk/1": COMMIT_A, "ciflow/1": UNKNOWN}).tags == 3
    assert imported(releases, {"v1": COMMIT_A}).changed is False
    assert imported(releases, {"v1": COMMIT_B, "v3": UNKNOWN}).changed is True
    assert find_commit(releases, COMMIT_B).tags == ("v1", "v2")  # one that is not told of stays
    assert find_commit(releases, COMMIT_A).tags == ("trunk/1",)
    with releases.connect() as conn:
        assert conn.execute(select(Tag.name).order_by(Tag.name)).scalars().all() == ["trunk/1", "v1", "v2", "v3"]


# The night that another one is compared with


NIGHTLY, ADHOC = {"trigger": "nightly"}, {"trigger": "adhoc"}
OTHER = {"night": "n", "testbed": {**TESTBED, "gpu_index": 1}}
ON_A, ON_B = {"branch": "a"}, {"branch": "b"}


def store_nights(store, folder, *told):
    for hour, (run_id, models, *changes) in enumerate(told):
        head = NIGHTLY | (changes[0] if changes else {})
        ingest_bundle(store, night(folder, run_id, minutes=60 * hour, cells=[cell(model) for model in models], **head))


#: Nights as they were measured, an hour after each other, and with which one some of them are compared.
BASES = {
    "an ad-hoc run is no base of a night": (
        [("first", "abc"), ("tried", "a", ADHOC), ("all of it", "abc", ADHOC), ("second", "abc")],
        {"second": "first", "first": "", "nowhere": ""},
    ),
    "an ad-hoc run is held against any run with its cells": (
        [("night", "abc"), ("other", "b", ADHOC), ("one", "a", ADHOC), ("again", "a", {"trigger": "again"})],
        {"one": "night", "again": "one"},
    ),
    "what a base planned on another testbed does not count": (
        [("here", "abc"), ("gpu0", "a", {"night": "n"}), ("gpu1", "bc", OTHER), ("new", "abc")],
        {"new": "here"},
    ),
    "a check has a base of its own, also before an earlier check of the branch": (
        [
            ("c1-base", "abc", {"trigger": "check"}),
            ("c1-new", "abc", {"trigger": "check"} | ON_A),
            ("c2-new", "abc", {"trigger": "check"} | ON_A),
            ("c2-base", "abc", {"trigger": "check"}),
        ],
        {"c1-new": "c1-base", "c2-new": "c2-base"},
    ),
    "a night of the same branch goes first": (
        [("old", "abc", ON_A), ("main", "abc"), ("new", "abc", ON_A), ("b", "abc", ON_B)],
        {"new": "old", "b": "new"},
    ),
}


@pytest.mark.parametrize(("told", "bases"), BASES.values(), ids=BASES)
def test_a_run_is_compared_with_the_night_that_can_tell(store, tmp_path, told, bases):
    store_nights(store, tmp_path, *told)
    assert {name: previous_night(store, name) for name in bases} == bases


@pytest.mark.parametrize(("trigger", "latest"), [("check", "c-new"), ("nightly", "c-base")])
def test_a_checks_new_side_is_the_latest_though_its_base_measured_last(store, tmp_path, trigger, latest):
    store_nights(store, tmp_path, *((f"c-{word}", "abc", {"trigger": trigger}) for word in ("new", "base")))
    assert resolve_side(store, "latest").run_ids == (latest,)


def test_a_base_planned_half_of_the_cells_or_more_and_measured_some(store, tmp_path):
    store_nights(store, tmp_path, ("whole", "abc"), ("half", "ab"), ("third", "a"))
    planned = [cell(model) for model in "abc"]
    ingest_bundle(store, write_bundle(tmp_path, header("empty", minutes=150, **NIGHTLY), [], planned=planned))
    ingest_bundle(store, night(tmp_path, "newest", minutes=180, cells=planned, **NIGHTLY))
    assert previous_night(store, "newest") == "half"
    assert resolve_side(store, "latest~2").run_ids == ("whole",)
    with pytest.raises(NoBaseError, match=r"before newest 2 measured .* \(the oldest is latest~2\)") as refused:
        resolve_side(store, "latest~3")
    assert refused.value.exit_code == 3


def test_one_night_alone_has_no_base(store, tmp_path):
    store_nights(store, tmp_path, ("alone", "abc"))
    with pytest.raises(NoBaseError, match="has 1 night") as refused:
        resolve_side(store, "latest~1")
    assert refused.value.exit_code == 3
