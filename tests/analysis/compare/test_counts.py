"""Graph breaks, recompilations and graphs are judged by one rule, and no other metric hides them."""

from __future__ import annotations

import pytest

from analysis.compare.cell_verdicts import decide
from tests.analysis.compare.judging import judged, put_run
from tests.factories import cell, passing

MODELS = tuple(f"model{number}" for number in range(4))
NONE = {"graphs": 1.0, "graph_breaks": 0.0, "recompiles": 0.0, "fallbacks": 0.0, "cudagraph_skips": 0.0}
NONE |= {"kernels_generated": 17.0, "kernels_extern": 4.0}


def known(metrics):
    """Those that are not None: NULL in a database."""
    return {name: value for name, value in metrics.items() if value is not None}


@pytest.fixture
def nights(store, tmp_path):
    """A store with a night for each argument: the counts of all its cells, a list for replicates."""

    def make(*counts):
        for number, of_night in enumerate(counts):
            made = [
                passing(cell(model), metrics=known(NONE | each), minutes=100 * number, replicate=replicate)
                for replicate, each in enumerate(of_night if isinstance(of_night, list) else [of_night])
                for model in MODELS
            ]
            put_run(store, tmp_path, f"r{number}", made, minutes=100 * number, commit=f"{number:040x}")
        return store

    return make


@pytest.mark.parametrize(
    ("metric", "base", "new", "verdict"),
    [
        ("graph_breaks", 0.0, 6.0, "regressed"),
        ("graph_breaks", 6.0, 0.0, "improved"),
        ("recompiles", 0.0, 8.0, "regressed"),
        ("cudagraph_skips", 0.0, 3.0, "regressed"),
        ("fallbacks", 0.0, 1.0, "regressed"),
        ("graphs", 1.0, 0.0, "regressed"),
        ("graphs", 0.0, 1.0, "improved"),
        ("graphs", 1.0, 7.0, None),
        ("kernels_outside_graphs", 1.0, 3.0, "regressed"),
        ("cudagraph_launches", 2.0, 0.0, "regressed"),
        ("cudagraph_launches", 1.0, 3.0, None),
        ("kernels_generated", 17.0, 9.0, None),
        ("kernels_generated", 17.0, 0.0, None),  # a library's kernels are left
        ("graph_breaks", 2.0, 2.0, None),
        ("graph_breaks", None, 6.0, None),
        ("recompiles", 8.0, None, None),
        ("graphs", 1.0, None, None),
    ],
)
def test_a_count_that_changed_is_named(nights, metric, base, new, verdict):
    judgement, row = judged(nights({metric: base}, {metric: new}))
    assert [None if word is None else str(word) for word in row[f"{metric}_verdict"]] == [verdict] * 4
    if verdict:
        assert judgement.counts() == {verdict: 4}
        assert set(row["verdict_metric"]) == {metric}
    # Without a verdict nothing could be concluded: the times of two nights alone tell too little.
    assert decide(judgement.counts(), frozenset({"regressed"}))[0] == {"regressed": 1, "improved": 0, None: 3}[verdict]


def test_kernels_of_libraries_that_nobody_counted_are_not_none(nights):
    judgement, row = judged(nights({}, {"kernels_generated": 0.0, "kernels_extern": None}))
    assert [word for word in row["kernels_generated_verdict"] if word is not None] == []
    assert "regressed" not in judgement.counts()


def test_no_kernels_at_all_are_a_regression(nights):
    gone = {"kernels_generated": 0.0, "kernels_extern": 0.0}
    store = nights({}, gone)
    judgement, row = judged(store)
    assert judgement.counts() == {"regressed": 4} and set(row["verdict_metric"]) == {"kernels_generated"}
    judgement, _ = judged(store, "latest", "latest~1")
    assert judgement.counts() == {"improved": 4}


@pytest.mark.parametrize(
    ("base", "new", "verdict"),
    [([0, 0], [2, 3], "regressed"), ([0, 2], [2, 3], None), ([1, 3], [0, 0], "improved"), ([0, 0], [0, 5], None)],
)
def test_all_runs_of_both_sides_must_agree(nights, base, new, verdict):
    sides = ([{"recompiles": float(value)} for value in side] for side in (base, new))
    _, row = judged(nights(*sides))
    assert [None if word is None else str(word) for word in row["recompiles_verdict"]] == [verdict] * 4


def test_faster_cells_do_not_hide_more_graph_breaks(nights):
    faster = {"compiled_ms": 0.01, "compile_cold_s": 0.01, "graph_breaks": 6.0}
    judgement, row = judged(nights({}, faster))
    assert judgement.counts() == {"regressed": 4}
    assert set(row["verdict_metric"]) == {"graph_breaks"}
