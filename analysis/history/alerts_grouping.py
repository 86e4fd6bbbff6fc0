"""Changes that can come from the same commits, put together: what overlaps narrows the suspects."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from analysis.history.changes import Change, Span
from analysis.history.series import Point


@dataclass(slots=True)
class Group:
    """Changes with their common suspects: what landed after `base` up to `onset`; `first` to `last` holds all of their ranges."""

    base: Point
    onset: Point
    first: Point
    last: Point
    changes: list[Change] = field(default_factory=list)

    def overlaps(self, span: Span) -> bool:
        """Whether some commit lies in both ranges; ranges within one commit overlap where that is the same."""
        if span.is_one_commit or self.base.place == self.onset.place:
            return (span.base.place, span.onset.place) == (self.base.place, self.onset.place)
        return span.base.place < self.onset.place and self.base.place < span.onset.place

    def distance(self, span: Span) -> int:
        """How far the best place of a change lies outside the suspects, in commits measured."""
        return max(0, self.base.place - span.base.place, span.onset.place - self.onset.place)

    def take(self, change: Change) -> None:
        """Adds a change whose range overlaps: the suspects are what all ranges have in common."""
        base, onset = change.possible.base, change.possible.onset
        self.changes.append(change)
        self.base = max(self.base, base, key=_place)
        self.onset = min(self.onset, onset, key=_place)
        self.first = min(self.first, base, key=_place)
        self.last = max(self.last, onset, key=_place)


def group_changes(changes: Iterable[Change]) -> list[Group]:
    """Groups whose changes have at least one suspect in common; of one repository and branch.

    The narrowest ranges come first and make the groups; a wide one joins the group that its best place is nearest to, then
    the one with the most changes. A range that overlaps none begins a group. The order of the changes does not matter.
    """
    groups: list[Group] = []
    for change in sorted(changes, key=_width):
        span = change.possible
        fitting = [group for group in groups if group.overlaps(span)]
        if fitting:
            nearest = min(fitting, key=lambda one: (one.distance(change.span), -len(one.changes), one.onset.place))
        else:
            nearest = Group(span.base, span.onset, span.base, span.onset)
            groups.append(nearest)
        nearest.take(change)
    return sorted(groups, key=lambda one: (one.onset.place, one.base.place))


def _place(point: Point) -> int:
    return point.place


def _width(change: Change) -> tuple[int, int, int, int, str, str, str]:
    span, best = change.possible, change.span
    width = span.onset.place - span.base.place
    return (width, span.onset.place, best.onset.place, best.base.place, change.cell, change.testbed_id, change.metric)
