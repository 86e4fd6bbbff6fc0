"""The scores against examples worked by hand."""

import pytest

from analysis.stats.segmentation_scores import covering, f1, true_positives


def test_a_found_point_serves_one_mark():
    assert true_positives([10, 12], [11]) == 1
    assert true_positives([10, 12], [11, 16]) == 2
    assert true_positives([10], [15]) == 1
    assert true_positives([10], [16]) == 0
    assert true_positives([], [3]) == 0


def test_f1_of_two_people_by_hand():
    # found {0, 52, 90}, union of marks {0, 50, 70}: P = 2/3. R = mean(|{0, 50}| / 2, |{0}| / 2) = 3/4. F1 = 2 * .5 / (17/12).
    assert f1([[50], [70]], [52, 90]) == pytest.approx(12 / 17)


def test_nothing_found_where_nothing_is_marked_is_perfect():
    assert f1([[], []], []) == 1
    assert covering([[], []], [], 30) == 1


def test_nothing_found_gets_the_trivial_point():
    # P = 1, R = mean(1/3, 1) = 2/3
    assert f1([[10, 20], []], []) == pytest.approx(0.8)


def test_a_mark_near_the_start_is_served_by_the_trivial_point_once():
    # Union {0, 3}; found {0}: 0 takes it, 3 goes without. P = 1, R = 1/2.
    assert f1([[3]], []) == pytest.approx(2 / 3)


def test_covering_by_hand():
    # Marked [0, 40), [40, 100); found [0, 50), [50, 100). 40/100 * 40/50 + 60/100 * 50/60 = .82. Nobody else marked: 50/100.
    assert covering([[40]], [50], 100) == pytest.approx(0.82)
    assert covering([[40], []], [50], 100) == pytest.approx((0.82 + 0.5) / 2)


def test_the_order_and_repetition_of_indices_do_not_matter():
    assert f1([[50, 20]], [52, 19, 52]) == f1([[20, 50]], [19, 52])
    assert covering([[50, 20]], [52, 19, 0], 80) == covering([[20, 50]], [19, 52], 80)


def test_without_people_there_is_no_score():
    with pytest.raises(ValueError, match="annotator"):
        f1([], [3])
    with pytest.raises(ValueError, match="annotator"):
        covering([], [3], 10)
    with pytest.raises(ValueError, match="one point"):
        covering([[]], [], 0)
