"""Labels put in order without sorting: as numpy does by sorting."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.stats.labels import numbered, places


@pytest.mark.parametrize("most", [1, 40, 5_000, 10**12])
def test_places_are_those_of_sorted_labels_however_far_apart(most):
    labels = np.random.default_rng(most).integers(0, most, 500)
    found, of_label = places(labels)
    expected, expected_places = np.unique(labels, return_inverse=True)
    assert found.tolist() == expected.tolist()
    assert of_label.tolist() == expected_places.tolist()


def test_no_labels_have_no_places():
    assert [part.tolist() for part in places(np.empty(0, dtype=np.int64))] == [[], []]


def test_combinations_are_numbered_in_their_order():
    columns = [np.array([7, 7, 0, 7, 0]), np.array([1, 0, 10**9, 1, 0])]
    assert numbered(columns).tolist() == [3, 2, 1, 3, 0]
