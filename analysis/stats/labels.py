"""Numbers that name things, as groups of rows do: which there are, and where each row's is among them."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Labels: TypeAlias = "npt.NDArray[np.int64]"
#: Up to so many numbers for each label, labels are put in order by a place for every number.
_SPARSE = 16


def places(labels: Labels) -> tuple[Labels, Labels]:
    """The different labels (0 or more) in order, and of each entry the place of its label: `np.unique` without sorting.

    Labels that lie so far apart that a place for every number between them would take more than sorting are sorted.
    """
    top = int(np.max(labels, initial=-1)) + 1
    if top > _SPARSE * len(labels):
        found, of_label = np.unique(labels, return_inverse=True)
        return found, of_label.astype(np.int64, copy=False)
    is_there = np.zeros(top, dtype=bool)
    is_there[labels] = True
    return np.flatnonzero(is_there), (np.cumsum(is_there) - 1)[labels]


def numbered(columns: list[Any]) -> Labels:
    """One label for each combination of labels (0 or more), counted from 0 in the order of the combinations."""
    found = places(np.asarray(columns[0], dtype=np.int64))[1]
    for column in columns[1:]:
        width = int(np.max(column, initial=0)) + 1
        # Numbered anew each time: products of many columns would not fit.
        found = places(found * width + column)[1]
    return found
