""""""

import math

import pytest

from analysis.compare.cell_comparison import direction, ratio


@pytest.mark.parametrize(
    ("base", "new", "expected"),
    [(2.0, 3.0, 1.5), (None, 3.0, None), (2.0, math.nan, None), (0.0, 0.0, 1.0), (0.0, 3.0, None), (4.0, 0.0, 0.0)],
)
def test_ratio_is_new_over_base_where_both_are_measured(base, new, expected):
    assert ratio(base, new) == expected


@pytest.mark.parametrize(
    ("metric", "base", "new", "expected"),
    [
        ("compiled_ms", 2.0, 1.0, "better"),
        ("compiled_ms", 1.0, 2.0, "worse"),
        ("speedup", 1.0, 2.0, "better"),
        ("speedup", 2.0, 1.0, "worse"),
        ("graph_breaks", 0.0, 3.0, "worse"),  # although 3 over 0 has no ratio
        ("compression", 1.2, 1.2, "same"),
        ("graphs", 1.0, 2.0, None),  # neither more nor fewer is better
        ("compiled_ms", None, 2.0, None),
        ("compiled_ms", 1.0, math.nan, None),
    ],
)
def test_direction_follows_the_sense_of_the_metric(metric, base, new, expected):
    assert direction(metric, base, new) == expected
