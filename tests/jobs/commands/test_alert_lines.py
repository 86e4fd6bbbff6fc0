"""`inductor-watch changepoints`: what it prints, hides and exits with."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from jobs.cli import app
from tests.analysis.history.histories import History, slower
from tests.command_line import call, is_one_line

TITLES = {41: "[inductor] Fuse \x1b[31mmore (#4242)"}


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """Two models slower from night 14 on, one that fails from night 20 on."""
    found = History(tmp_path_factory.mktemp("history"), titles=TITLES)
    found.import_commits()
    found.nights(0, 14)
    found.nights(14, 20, slower(1.08, ("bert", "t5")))
    found.nights(20, 26, slower(1.08, ("bert", "t5")), fails=("gpt2",))
    found.store.dispose()
    return found


def changepoints(place, *words):
    return CliRunner().invoke(app, ["changepoints", *words, "--db", str(place)])


def test_an_alert_is_told_with_its_commits_titles_and_worst_cells(history):
    lines = changepoints(history.location).output.splitlines()
    assert lines[0] == "4 cells judged; 16 series by metric; 2 alerts"
    assert lines[1].startswith("2026-08-21  main  worse: 1 cell (broke 1)  [")
    at = next(number for number, line in enumerate(lines) if line.startswith("2026-08-15"))
    assert lines[at].startswith("2026-08-15  main  worse: 2 cells (compiled_ms 2), median 8.")
    assert lines[at + 1] == f"  after {history.commit(13)[:10]} up to {history.commit(14)[:10]}, 3 commits"
    assert lines[at + 3] == f"    {history.shas[41][:10]}  [inductor] Fuse \N{REPLACEMENT CHARACTER}[31mmore (#4242)"
    assert lines[at + 5].startswith("  huggingface/")
    assert " default: compiled_ms 2" in lines[at + 5] or " default: compiled_ms 1.9" in lines[at + 5]
    assert " ms, measured +8." in lines[at + 5]
    assert "\x1b" not in "".join(lines)
    assert changepoints(history.location, "--model", "t5").output.startswith(
        "1 cell judged; 16 series by metric; 1 alert\n"
    )
    done = changepoints(history.location, "--json", "--evidence", "--pinned", history.commit(2))
    found = json.loads(done.output)
    assert (done.exit_code, found["cells"]) == (0, 4)
    broke, slow = found["alerts"]
    assert (broke["counts"], slow["counts"]) == ({"broke": 1}, {"compiled_ms": 2})
    assert [commit["pr_number"] for commit in slow["blame"]["commits"]] == [1040, 4242, 1042]
    assert slow["changes"][0]["levels"]["ratio"] == pytest.approx(1.08, rel=0.01)
    assert broke["evidence"]["exception"] == "BackendCompilerFailed"
    assert slow["evidence"]["control"]["metric"] == "eager_ms"
    assert found["drift"]["found"] == []
    assert found["drift"]["series"] > 10


@pytest.mark.parametrize(
    ("words", "counts"),
    [
        (("--metric", "status"), {"broke": 1}),
        (("--model", "t5", "--metric", "compiled_ms"), {"compiled_ms": 1}),
        (("--since", "2026-08-20", "--branch", "main", "--config", "default"), {"broke": 1}),
    ],
)
def test_filters_metrics_and_dates_hide(history, words, counts):
    (alert,) = json.loads(changepoints(history.location, "--json", *words).output)["alerts"]
    assert alert["counts"] == counts


@pytest.mark.parametrize(
    ("words", "said"),
    [(("--metric", "compild_ms"), "compiled_ms"), (("--window", "3"), "20"), (("--model", "brt"), "bert")],
)
def test_wrong_words_are_usage_and_the_nearest_are_named(history, words, said):
    is_one_line(call("changepoints", *words, "--db", history.location, folder=history.folder), 2, said)


def test_a_cell_that_was_measured_once_is_too_little_to_judge(tmp_path):
    history = History(tmp_path, nights=2)
    done = changepoints(history.location)
    assert (done.exit_code, "nothing to judge" in done.output) == (3, True)
    history.night(0)
    assert changepoints(history.location, "--json").exit_code == 3
    history.night(1)
    done = changepoints(history.location)
    assert (done.exit_code, "only statuses are judged" in done.output) == (0, True)
