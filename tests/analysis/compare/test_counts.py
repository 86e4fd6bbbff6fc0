"""Graph breaks, recompilations and graphs are judged by one rule, and no other metric hides them."""

from analysis.compare.compare_sides import compare_named
from analysis.compare.comparison import causes
from analysis.present import dimension_lines
from tests.analysis.compare.judging import judged, put_run
from tests.factories import cell, passing

NONE = {"graphs": 1.0, "graph_breaks": 0.0, "recompiles": 0.0, "fallbacks": 0.0, "cudagraph_skips": 0.0}
NONE |= {"kernels_generated": 17.0, "kernels_extern": 4.0}
#: By model: the metric that is judged, its values in base and new (several: runs), the verdict.
CASES = {
    "breaks": ("graph_breaks", 0.0, 6.0, "regressed"),
    "breaks less": ("graph_breaks", 6.0, 0.0, "improved"),
    "breaks unknown": ("graph_breaks", None, 6.0, None),
    "recompiles": ("recompiles", 0.0, 8.0, "regressed"),
    "falls back": ("fallbacks", 0.0, 1.0, "regressed"),
    "no graph": ("graphs", 1.0, 0.0, "regressed"),
    "a graph": ("graphs", 0.0, 1.0, "improved"),
    "graphs": ("graphs", 1.0, 7.0, None),
    "outside": ("kernels_outside_graphs", 1.0, 3.0, "regressed"),
    "no launch": ("cudagraph_launches", 2.0, 0.0, "regressed"),
    "launches": ("cudagraph_launches", 1.0, 3.0, None),
    "a library's kernels are left": ("kernels_generated", 17.0, 0.0, None),
    "all runs worse": ("recompiles", [0, 0], [2, 3], "regressed"),
    "all runs better": ("recompiles", [1, 3], [0, 0], "improved"),
    "error near its limit": ("error_margin", 0.2, 0.65, "regressed"),
    "error half as far": ("error_margin", 0.6, 0.75, None),
    "error of another choice of autotuning": ("error_margin", 0.937, 0.998, None),
    "error back": ("error_margin", 0.9, 0.1, "improved"),
    "error near in one run": ("error_margin", [0.1, 0.1], [0.1, 0.9], None),
    "one run of base": ("recompiles", [0, 2], [2, 3], None),
    "one run of new": ("recompiles", [0, 0], [0, 5], None),
}


def measured(model, metric, counts, number, **more):
    """The runs of a model in a night; a count that is None is not measured."""
    for replicate, count in enumerate(counts if isinstance(counts, list) else [counts]):
        metrics = {name: value for name, value in (NONE | {metric: count} | more).items() if value is not None}
        yield passing(cell(model), metrics=metrics, minutes=100 * number, replicate=replicate)


def test_a_count_that_changed_is_named(store, tmp_path):
    for number in (0, 1):
        made = []
        for model, (metric, *sides, _) in CASES.items():
            made += measured(model, metric, sides[number], number)
        made += measured("library not counted", "kernels_generated", (17.0, 0.0)[number], number, kernels_extern=None)
        put_run(store, tmp_path, f"r{number}", made, minutes=100 * number, commit=f"{number:040x}")
    _, rows = judged(store)
    found = {model: rows.loc[model, f"{metric}_verdict"] for model, (metric, *_) in CASES.items()}
    assert {model: word and str(word) for model, word in found.items()} == {model: CASES[model][3] for model in CASES}
    assert rows.loc["library not counted", "kernels_generated_verdict"] is None
    compared = compare_named(store, "latest~1", "latest")
    assert [note for note in compared.notes if "(0.94 -> 1.00)" in note and "(0.60 -> 0.75)" in note]
    assert [line for line in dimension_lines(compared) if "recompiles 0 -> 8, breaks 0 -> 6, " in line]
    assert "error over its limit" in {one.title for one in causes(store.connect(), compared)}
    for model, (metric, *_, verdict) in CASES.items():
        # Without a verdict nothing is concluded: the times of two nights alone tell too little.
        assert tuple(rows.loc[model, ["verdict", "verdict_metric"]]) == (verdict, metric) or verdict is None, model
        assert rows.loc[model, "verdict"] != "unchanged"
