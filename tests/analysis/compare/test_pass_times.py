"""The passes of a compilation, each without those that it calls."""

from __future__ import annotations

import pytest

from analysis.compare.compile_passes import AFTER_COMPILING, pass_times

#: As torch 2.11 told them of resnet50's training step under `triton` on an H100.
TRAINING = {
    **{"dynamo": 37.58, "aot_autograd": 35.69, "pre_grad_passes": 0.01, "joint_graph_passes": 0.52, "backward": 24.18},
    **{"inductor": 54.06, "post_grad_passes": 1.7, "code_gen": 42.06, "wait_for_kernels": 25.76},
    **{"autotune_while_running": 2.94, "guards": 0.001},
}
#: As it told them of FlexAttention under `triton`, whose functions have joint graphs of their own.
FLEX = {
    **{"dynamo": 4.72, "aot_autograd": 4.1, "pre_grad_passes": 0.03, "joint_graph_passes": 1.25, "inductor": 3.06},
    **{"post_grad_passes": 0.07, "code_gen": 2.22, "wait_for_kernels": 2.17},
}


def by_name(phases):
    return {one.name: one.new_s for one in pass_times([], [{"compile_phases_s": phases}])}


@pytest.mark.parametrize(("phases", "whole"), [(TRAINING, 37.58 + 24.18), (FLEX, 4.72)])
def test_the_passes_add_up_to_the_compilation(phases, whole):
    found = by_name(phases)
    assert sum(taken for name, taken in found.items() if name not in AFTER_COMPILING) == pytest.approx(whole)
    assert min(found.values()) > 0


def test_a_pass_has_no_time_of_those_that_it_calls():
    found = by_name(TRAINING)
    assert found["dynamo"] == pytest.approx(37.58 - 35.69)
    assert found["aot_autograd"] == pytest.approx(35.69 + 24.18 - 54.06 - 0.01 - 0.52)
    assert found["inductor"] == pytest.approx(54.06 - 1.7 - 25.76)
    assert "guards" not in found and "code_gen" not in found
    tuned = by_name(TRAINING | {"autotune_while_compiling": 20.0})
    assert tuned["inductor"] == pytest.approx(found["inductor"] - 20.0)


def test_the_largest_change_comes_first_and_phases_without_a_whole_stay():
    new = {"compile_phases_s": TRAINING | {"dynamo": 47.58, "aot_autograd": 45.69, "joint_graph_passes": 10.52}}
    first, *others = pass_times([{"compile_phases_s": TRAINING}], [new])
    assert (first.name, first.change_s) == ("joint_graph_passes", pytest.approx(10.0))
    assert [one.change_s for one in others] == [0.0] * len(others)
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
    ("new", "verdicts"),
    [
        (runs((14.0, 3.1), (14.1, 2.9)), {"inductor": "regressed"}),
        (runs((8.0, 3.1), (8.1, 2.9)), {"inductor": "improved"}),
        (runs((8.0, 3.1), (16.1, 2.9)), {"inductor": "inconclusive"}),
        (runs((14.0, 3.1)), {}),
    ],
    ids=["longer", "shorter", "noisy", "three runs"],
)
def test_passes_are_judged_from_four_runs_on(new, verdicts):
    found = pass_times(runs((10.0, 3.0), (10.1, 3.0)), new)
    assert {one.name: one.verdict.value for one in found if one.verdict} == verdicts
    assert (found[0].name, found[0].base_s) == ("inductor", pytest.approx(12.05))
