"""Which part of a cell's cost changed most: the host's work, the passes of the compiler, the memory."""

import pytest

from analysis.compare import cost_parts
from analysis.compare.cost_parts import host_parts, host_words, memory_words, pass_times
from analysis.elements.program_tables import memory_tables
from collector.measure import memory

BASE = {"host_parts_us": {"guards": 20.0, "launches": 60.0, "python": 40.0}}


def test_the_part_that_took_longer_is_named():
    parts = host_parts(BASE, {"host_parts_us": {"guards": 65.0, "launches": 58.0, "python": 40.0, "operators": 7.0}})
    assert [(part.name, part.change_us) for part in parts][:2] == [("guards", 45.0), ("operators", 7.0)]
    assert host_words(parts) == "host time 120 -> 170 us, most of it in guards (+45 us)"
    assert host_words(host_parts(BASE, BASE)) == ""
    assert host_parts({}, BASE) == []


#: As torch 2.11 told them of resnet50's training step under `triton` on an H100.
TRAINING = {
    **{"dynamo": 37.58, "aot_autograd": 35.69, "pre_grad_passes": 0.01, "joint_graph_passes": 0.52, "backward": 24.18},
    **{"inductor": 54.06, "post_grad_passes": 1.7, "code_gen": 42.06, "wait_for_kernels": 25.76},
    **{"autotune_while_running": 2.94, "guards": 0.001},
}


def by_name(phases):
    return {one.name: one.new_s for one in pass_times([], [{"compile_phases_s": phases}])}


def test_a_pass_has_no_time_of_those_that_it_calls_and_all_add_up():
    found = by_name(TRAINING)
    while_compiling = sum(taken for name, taken in found.items() if name not in cost_parts.AFTER_COMPILING)
    assert while_compiling == pytest.approx(TRAINING["dynamo"] + TRAINING["backward"])
    # Within the functions of FlexAttention the passes on the joint graph are counted twice.
    flex = by_name({"dynamo": 4.72, "aot_autograd": 4.1, "joint_graph_passes": 1.25, "inductor": 3.06})
    assert sum(flex.values()) == pytest.approx(4.72)
    assert found["dynamo"] == pytest.approx(37.58 - 35.69)
    assert found["aot_autograd"] == pytest.approx(35.69 + 24.18 - 54.06 - 0.01 - 0.52)
    assert found["inductor"] == pytest.approx(54.06 - 1.7 - 25.76)
    assert "guards" not in found and "code_gen" not in found
    tuned = by_name(TRAINING | {"autotune_while_compiling": 20.0})
    assert tuned["inductor"] == pytest.approx(found["inductor"] - 20.0)
    assert by_name({"inductor": 5.0}) == {"inductor": 5.0}
    assert pass_times([], [{"compile_phases_s": "none"}]) == []


def runs(*times):
    """Runs of which `code_gen`, as part of all around it, and the passes on the joint graph took these seconds."""
    return [
        {"compile_phases_s": {"dynamo": 10 + lowering + joint, "aot_autograd": 8 + lowering + joint}
         | {"inductor": 2 + lowering, "joint_graph_passes": joint}}
        for lowering, joint in times
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("times", "verdicts"),
    [
        (((14.0, 3.1), (14.1, 2.9)), {"inductor": "regressed"}),
        (((8.0, 3.1), (16.1, 2.9)), {"inductor": "inconclusive"}),
        (((14.0, 3.1),), {}),
    ],
)
def test_passes_are_judged_from_four_runs_on(times, verdicts):
    found = pass_times(runs((10.0, 3.0), (10.1, 3.0)), runs(*times))
    assert {one.name: one.verdict.value for one in found if one.verdict} == verdicts
    assert (found[0].name, found[0].base_s) == ("inductor", pytest.approx(12.05))


SHAPE = [128, 96, 56, 56]
EACH = 128 * 96 * 56 * 56 * 4


def saved(count, *others, operators="mul"):
    return {"saved_tensors": [[operators, SHAPE, "float32", count, count * EACH], *others]}


def peak(*rows):
    return {"peak_lines": [list(row) for row in rows]}


@pytest.mark.parametrize(
    ("base", "new", "words"),
    [
        (saved(4), saved(6), ["+308 MB: 2 more tensors of [128, 96, 56, 56] float32 saved for backward (mul)"]),
        ({}, saved(4), []),
        (
            saved(4) | peak(["buf = f()", 2, 10], ["(before the call)", 0, 500]),
            saved(4) | peak(["(before the call)", 0, 500], ["buf = f()", 5, 5_000_010]),
            ["+5 MB alive at the peak (2 -> 5 times): buf = f()"],
        ),
    ],
    ids=["more", "unknown", "peak"],
)
def test_the_tensors_that_came_or_went_are_named(base, new, words):
    assert memory_words(base, new, 1e6) == words


def test_what_a_side_may_have_and_does_not_list_is_no_change():
    short = ["add", [64], "float32", 1, 256]
    rest = ["(other)", None, "", 7, 900]
    parts = cost_parts.saved_parts(saved(2, short), saved(3, ["relu", [512], "float32", 1, 2048], rest))
    assert {part.name: part.change for part in parts} == {"[128, 96, 56, 56] float32": EACH, "[512] float32": 2048}
    assert cost_parts.peak_parts(peak(["a", 1]), {"peak_lines": "none"}) == []

    # Memory of a CUDA graph is told in a sentence.
    details = {"peak_lines": [[memory.BEFORE, 0, 130]]}
    (shown,) = memory_tables(details, details)
    assert "a CUDA graph keeps its memory" in shown and "<table" not in shown
