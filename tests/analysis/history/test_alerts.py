"""One alert per commit range: what is put together, whom it suspects, and what is told beside it."""

from dataclasses import replace

import pytest

from analysis.history.alerts import evidence_of, group_changes, survey
from analysis.history.branch_series import Certainty, Change, Direction, Point, Span
from collector.vocabulary import Config
from jobs.commands.alert_lines import alert_lines
from tests.analysis.compare.judging import put_run
from tests.analysis.history.histories import A_NIGHT, find_alerts, slower
from tests.factories import CUDAGRAPHS, DEFAULT, cell, passing


def point(place):
    return Point(place, f"{place:040x}", place, float(place), None, ())


def change(base, onset, first=None, last=None, cell_id="a", metric="compiled_ms"):
    span = Span(point(base), point(onset))
    possible = Span(point(base if first is None else first), point(onset if last is None else last))
    names = ("repo", "main", "bed", cell_id, cell_id, 1, metric)
    return Change(*names, Direction.WORSE, Certainty.ESTABLISHED, span, possible, False)


def grouped(*changes):
    ends = ("base", "onset", "first", "last")
    return [
        (*(getattr(group, end).index for end in ends), sorted(one.cell_id for one in group.changes))
        for group in group_changes(changes)
    ]


def test_ranges_that_overlap_are_one_group_and_narrow_each_other():
    found = grouped(change(1, 5, cell_id="wide"), change(3, 4, cell_id="sharp"), change(2, 4, cell_id="other"))
    assert found == [(3, 4, 1, 5, ["other", "sharp", "wide"])]
    # Ranges that only touch have no commit in common.
    assert grouped(change(1, 2, cell_id="a"), change(2, 3, cell_id="b")) == [(1, 2, 1, 2, ["a"]), (2, 3, 2, 3, ["b"])]
    # A wide range joins the group that its best place is in.
    sharp = [change(1, 2, cell_id="left"), change(4, 5, cell_id="right")]
    assert grouped(*sharp, change(4, 5, 0, 6, "wide"))[1] == (4, 5, 0, 6, ["right", "wide"])
    assert grouped(*sharp, change(1, 2, 0, 6, "wide"))[0] == (1, 2, 0, 6, ["left", "wide"])
    # Changes of a group share a suspect even if they form a chain.
    found = grouped(change(0, 3, cell_id="a"), change(2, 5, cell_id="b"), change(4, 7, cell_id="c"))
    assert [cells for *_, cells in found] == [["a", "b"], ["c"]]
    # A change without any commit is no part of a commit's alert.
    found = grouped(change(3, 3, cell_id="within"), change(2, 4, cell_id="a"), change(3, 3, cell_id="also"))
    assert found == [(3, 3, 3, 3, ["also", "within"]), (2, 4, 2, 4, ["a"])]


def test_one_commit_is_one_alert_over_models_configs_and_metrics(history):
    configs = (DEFAULT, CUDAGRAPHS)
    history.nights(0, 14, configs=configs)
    history.nights(14, 26, slower(1.08, ("bert", "t5"), ("compiled_ms", "compiled_kernel_ms")), configs=configs)
    (alert,) = find_alerts(history.store)
    assert (alert.branch, alert.direction, alert.certainty, alert.is_over) == ("main", "worse", "established", False)
    assert len(alert.cells) == 4
    assert alert.counts() == {"compiled_kernel_ms": 4, "compiled_ms": 4}
    assert alert.median_worsening == pytest.approx(1.08, rel=0.005)
    assert [commit.sha for commit in alert.blame.commits] == history.shas[40:43]
    assert (alert.blame.distance, alert.blame.is_whole, alert.also_possible) == (A_NIGHT, True, ())
    assert [(one.title, one.pr_number) for one in alert.blame.commits][1] == ("[inductor] Fuse more (#4242)", 4242)
    sizes = [one.levels.ratio for one in alert.worst()]
    assert len(sizes) == 5 and sizes == sorted(sizes, reverse=True)


def test_a_range_is_narrowed_by_another_cell_and_its_gap_stays_possible(quiet):
    quiet.nights(12, 13)
    quiet.night(13, missing=("bert",))
    quiet.nights(14, 16, slower(1.1, ("bert", "t5")), missing=("t5",))
    quiet.nights(16, 28, slower(1.1, ("bert", "t5")))
    (alert,) = find_alerts(quiet.store)
    # bert changed after night 12 up to 14, t5 after night 13 up to 16
    assert [one.sha for one in alert.blame.commits] == quiet.shas[40:43]
    assert [one.sha for one in alert.also_possible] == [*quiet.shas[37:40], *quiet.shas[43:49]]


def test_a_commit_that_helps_some_and_harms_others_is_one_mixed_alert(quiet):
    quiet.nights(12, 22, lambda model, name: {"bert": 1.1, "t5": 0.9}.get(model, 1) if name == "compiled_ms" else 1)
    (alert,) = find_alerts(quiet.store)
    assert (alert.direction, alert.to_json()["direction"]) == (None, "mixed")
    assert evidence_of(quiet.store, replace(alert.changes[0], cell_id="no such cell")) is None


def test_a_broken_cell_and_another_driver_are_told_with_what_is_slower(quiet):
    quiet.nights(12, 22, slower(1.08, ("bert", "t5")), fails=("gpt2",), environment={"driver": "2.0"})
    (alert,) = find_alerts(quiet.store)
    assert alert.counts() == {"compiled_ms": 2, "broke": 1}
    assert [one.key for one in alert.environment] == ["driver"]


def test_a_model_that_changed_itself_alerts_nobody(history):
    versions = [{"model": {"bert": {"target": "m:f", "version": f"content {number}"}}} for number in range(2)]
    history.nights(0, 12, environment=versions[0])
    history.nights(12, 24, slower(1.1, ("bert",)), environment=versions[1])
    found = survey(history.store)
    assert (found.alerts, [one.model_changed for one in found.history.changes]) == ((), [True])


MEASURED_TIMES = ("eager_ms", "compiled_ms", "eager_kernel_ms", "compiled_kernel_ms")
CONFIGS = [DEFAULT, *(Config(overrides={"max_autotune": value}) for value in (1, 2, 3, 4))]


def test_what_slows_most_models_by_more_than_a_machine_does_opens_records(history):
    history.nights(0, 11, configs=CONFIGS)
    history.nights(11, 21, slower(1.1, ("bert", "gpt2", "t5", "vit"), MEASURED_TIMES), configs=CONFIGS)
    (alert,) = find_alerts(history.store)
    assert alert.of_machine() == ()
    assert len(alert.changes) == 40
    assert not any("eager times of all its cells" in line for line in alert_lines(alert, 1))


# Evidence


def test_kernels_counts_and_eager_times_are_laid_beside_a_change(history):
    same, gone, come = ["gemm", 1.0, 0.5], ["triton_poi_fused_add_0", 4.0, 0.2], ["triton_red_fused_sum_1", 2.0, 1.0]
    for number in range(20):
        metrics = {"compiled_ms": 2.0, "eager_ms": 4.0, "cudagraph_skips": 0.0}
        details = {"compiled_kernels": [same, gone], "cudagraph_skip_reasons": []}
        if number >= 10:
            metrics = {"compiled_ms": 3.0, "eager_ms": 4.4, "cudagraph_skips": 2.0}
            details = {"compiled_kernels": [same, come], "cudagraph_skip_reasons": ["mutated inputs"]}
        found = passing(cell(), samples={}, metrics=metrics, details=details)
        head = {"minutes": 1440 * number, "commit": history.commit(number)}
        put_run(history.store, history.folder, f"n{number}", [found], **head)
    (alert,) = find_alerts(history.store, metrics=("compiled_ms",))
    evidence = evidence_of(history.store, alert.changes[0])
    assert (evidence.base_run, evidence.onset_run) == ("n9", "n10")
    assert evidence.counts == {"cudagraph_skips": (0.0, 2.0)}
    launches = {one.name: (one.base_launches, one.new_launches) for one in evidence.kernels}
    assert launches == {"triton_red_fused_sum": (None, 2.0), "triton_poi_fused_add": (4.0, None)}
    assert evidence.to_json()["reasons"] == ({"what": "cudagraph skip", "side": "after", "text": "mutated inputs"},)
    assert evidence.to_json()["control"] == {"metric": "eager_ms", "before": 4.0, "after": 4.4}
