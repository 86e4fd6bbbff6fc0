"""How well change points agree with those that several people marked: F1 and covering.

Both after van den Burg and Williams, "An evaluation of change point detection algorithms" (arXiv 2003.06222, 2020), whose
benchmark is called TCPD. Index 0 starts the first piece whoever looks, so it counts as found and as marked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

#: Points by which a change point may be off and still be the marked one (TCPD's).
MARGIN = 5


def f1(marked: Sequence[Iterable[int]], found: Iterable[int], margin: int = MARGIN) -> float:
    """Return the harmonic mean 2PR / (P + R) of precision and recall, 0 to 1.

    P = |TP(union of all people's marks, found)| / |found|, R = mean over people of |TP(their marks, found)| / |their marks|.
    """
    people = [{0, *marks} for marks in marked]
    ours = {0, *found}
    precision = _true_positives(set().union(*people), ours, margin) / len(ours)
    recall = sum(_true_positives(marks, ours, margin) / len(marks) for marks in people) / len(people)
    return 2 * precision * recall / (precision + recall)


def _true_positives(marked: Iterable[int], found: Iterable[int], margin: int = MARGIN) -> int:
    """Count the marks that have a found change point within the margin, each found one serving one mark (the nearest)."""
    free, hits = set(found), 0
    for mark in sorted(marked):
        near = min(free, key=lambda index: (abs(index - mark), index), default=None)
        if near is not None and abs(near - mark) <= margin:
            free.remove(near)
            hits += 1
    return hits


def covering(marked: Sequence[Iterable[int]], found: Iterable[int], length: int) -> float:
    """Return the mean over people of the covering, 0 to 1.

    It is the sum over their pieces A of |A| / n x max over found pieces B of |A and B| / |A or B|.
    """
    ours = _bounds(found, length)
    return sum(_cover(_bounds(marks, length), ours, length) for marks in marked) / len(marked)


def _bounds(cuts: Iterable[int], length: int) -> list[int]:
    return [*sorted({0, *cuts}), length]


def _cover(theirs: list[int], ours: list[int], length: int) -> float:
    starts, ends = np.array(ours[:-1]), np.array(ours[1:])
    total = 0.0
    for start, end in pairwise(theirs):
        shared = np.maximum(np.minimum(ends, end) - np.maximum(starts, start), 0)
        total += (end - start) * float(np.max(shared / ((ends - starts) + (end - start) - shared)))
    return total / length
