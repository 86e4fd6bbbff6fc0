from pathlib import Path

import pytest

from collector.bundle import CENSUS
from db.ingest import ingest_bundle
from db.nights import list_nights
from db.queries.series import model_history, series_runs
from db.queries.sides import resolve_side
from db.store_errors import SideError
from tests.factories import COMMIT_A, COMMIT_B, COMMIT_C, TESTBED, cell, header, new_store, night, passing, write_bundle

A2 = COMMIT_A[:20] + "f" * 20  # begins like COMMIT_A


STANDS_FOR = [
    ("latest", "latest", ("try-2",)),
    ("latest~2", "latest", ("night-2",)),
    ("night-1", "run", ("night-1",)),  # spelled out in full, although night-1b begins with it
    ("main", "branch", ("night-2",)),
    (COMMIT_A[:6], "commit", ("try-2", "night-1b", "night-1")),
    (COMMIT_B[:10].upper(), "commit", ("night-2",)),
    (f"main@{COMMIT_A}", "branch@commit", ("night-1b", "night-1")),
    (f"gh/feature@{COMMIT_C[:6]}", "branch@commit", ("try-1",)),
]


def fill(store, folder):
    """A commit in two runs, the next in one, and a branch of its own; newest last."""
    for number, (run_id, branch, commit) in enumerate(
        [
            *(("night-1", "main", COMMIT_A), ("night-1b", "main", COMMIT_A), ("night-2", "main", COMMIT_B)),
            *(("try-1", "gh/feature", COMMIT_C), ("try-2", "gh/feature", COMMIT_A)),
        ]
    ):
        ingest_bundle(store, night(folder, run_id, minutes=60 * number, branch=branch, commit=commit, cells=[cell()]))
    return store


@pytest.fixture(scope="module")
def runs(shared, tmp_path_factory):
    return fill(shared, tmp_path_factory.mktemp("runs"))


@pytest.fixture
def more_runs(store, tmp_path):
    return fill(store, tmp_path)


@pytest.mark.parametrize(("text", "kind", "expected"), STANDS_FOR)
def test_a_text_stands_for_its_runs_newest_first(runs, text, kind, expected):
    side = resolve_side(runs, text)
    assert (side.kind, side.run_ids) == (kind, expected)
    assert side.text == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("#154667", ("second", "first")),
        ("2026-08-01", ("second", "first")),  # one night, although the second run started after midnight
        ("2026-08-02", ("third",)),
        ("h200", ("third",)),
        ("H100", ("second", "first")),
    ],
)
def test_a_pull_request_a_day_and_a_device_name_a_side(store, tmp_path, text, expected):
    h100, h200 = ({"gpu": f"NVIDIA {name}"} for name in ("H100 80GB", "H200"))
    one = {"commit_title": "Faster (#154667)", "testbed": h100, "night": "one"}
    for run_id, minutes, more in (
        ("first", 1200, one),
        ("second", 1430, one),
        ("third", 1440, {"commit": COMMIT_C, "commit_title": "Not #154667 (#1546671)", "testbed": h200}),
    ):
        ingest_bundle(store, night(tmp_path, run_id, minutes=minutes, cells=[cell()], **more))
    assert resolve_side(store, text).run_ids == expected


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
        ("latest~5", "has 5 nights"),
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
def test_a_commit_that_another_run_makes_ambiguous_names_both(more_runs, tmp_path, run_id, changes, text, said):
    ingest_bundle(more_runs, night(tmp_path, run_id, cells=[cell()], **changes))
    assert said in refusal(more_runs, text)


@pytest.mark.parametrize(
    "text", ["%", "_ight-1", "", "night-1' OR '1'='1", "a\nb", "nul\x00", "lone \ud800", "latest~-1", "main@", "@x"]
)
def test_odd_texts_match_nothing_and_break_nothing(runs, text):
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
        ("latest", "latest", ("p2", "p1")),
        ("latest~2", "latest", ("n-1",)),  # what lies between was on other testbeds
        ("g-night", "night", ("b3", "b2", "a1")),
        ("a", "run", ("a1",)),
        ("p", "night", ("p2", "p1")),  # the night and its own runs begin so: the night has them all
        (COMMIT_B, "commit", ("b3", "b2", "a1")),
        ("main", "branch", ("p2", "p1", "n-2")),
    ],
)
def test_a_night_stands_for_all_its_runs_and_a_run_for_itself(nights, text, kind, expected):
    side = resolve_side(nights, text)
    assert (side.kind, side.run_ids) == (kind, expected)


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("latest", f"main@{COMMIT_C[:10]} (night pair, 2 runs)"),
        ("g-night", f"main@{COMMIT_B[:10]} (night g-night, 3 GPUs)"),
        ("b2", f"main@{COMMIT_B[:10]} (b2)"),
        ("main", f"main@{COMMIT_C[:10]} (2 nights, 3 runs)"),
    ],
)
def test_a_title_names_the_night(nights, text, title):
    assert resolve_side(nights, text).title == title


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


def test_a_census_is_no_night_to_compare_with(more_runs, tmp_path):
    """Its cells have no latencies: only its own name means it."""
    census = night(tmp_path, "census-1", minutes=900, branch="main", commit=COMMIT_B, cells=[cell()], trigger=CENSUS)
    ingest_bundle(more_runs, census)
    assert resolve_side(more_runs, "latest").run_ids == ("try-2",)
    for name in ("main", COMMIT_B, COMMIT_B[:8], f"main@{COMMIT_B[:8]}"):
        assert resolve_side(more_runs, name).run_ids == ("night-2",)
    assert resolve_side(more_runs, "census-1").run_ids == ("census-1",)
    assert "census-1" not in {item.night for item in list_nights(more_runs)}
    assert "census-1" in {item.night for item in list_nights(more_runs, with_census=True)}
    assert "census-1" not in {run.run_id for run in series_runs(more_runs)}
    assert "census-1" not in set(model_history(more_runs, "huggingface", "bert")["run_id"])
