"""What a person is likely to ask for next, computed while nobody waits for a page: the two sides swapped, the page of a model.

A pair of nights that nobody has looked at takes the server some tenths of a second. What is computed here goes where pages keep
what they read (`dashboard.data`), by the same keys, which name the revision of the data: a page finds it there, or computes
the same itself. One thread does it, a piece at a time, and lets every page go first. Where more is wanted than there are quiet
moments, the newest wish counts: with many people at once nothing is done here.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence

from sqlalchemy.exc import SQLAlchemyError

from dashboard import turns
from dashboard.data import Data
from db.errors import FilterError, SideError, StoreError
from db.queries.filters import EVERYTHING, CellFilter

#: So long nobody must have waited for a page, in seconds: the browser that draws it may be on the same machine. And how long a
#: wish waits for such a moment.
_STILL_S, _PATIENCE_S = 0.25, 5.0

Piece = Callable[[], object]


class Ahead:
    """Does the pieces of the newest wish, one after the other, in a thread of its own once it is started."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._wish: Sequence[Piece] = ()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Until this, wishes are not heard: nothing runs beside a page in tests and on the command line."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="ahead", daemon=True)
            self._thread.start()

    def wish(self, pieces: Sequence[Piece]) -> None:
        """What to do next, in place of what was to be done."""
        with self._changed:
            self._wish = pieces if self._thread is not None else ()
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: len(self._wish) > 0)
                piece, *rest = self._wish
                self._wish = rest
            if turns.quiet(_STILL_S, _PATIENCE_S):
                do(piece)


def do(piece: Piece) -> None:
    """One piece. What goes wrong is said by the page, which meets it again."""
    with contextlib.suppress(SideError, StoreError, FilterError, SQLAlchemyError):
        piece()


ahead = Ahead()


def of_pair(data: Data, pair: tuple[str, str], filters: CellFilter, figures: tuple[str, ...]) -> list[Piece]:
    """All that Overview and Compare show of two sides, in pieces; under a filter what all filters share, the most of it."""
    base, new = pair
    judged: list[Piece] = [lambda: data.judgement(base, new)]
    if filters != EVERYTHING:
        return judged
    return [
        *judged,
        lambda: data.judged(base, new, filters),
        lambda: data.intervals(base, new, filters),
        lambda: data.key_figures(base, new, filters),
        lambda: data.recent(new, filters, figures),
    ]


def of_model(data: Data, pair: tuple[str, str], filters: CellFilter) -> list[Piece]:
    """What the page of a model begins with: a model that new has, and where it is on both sides."""
    base, new = pair
    return [
        lambda: data.summary(new, filters),
        lambda: data.summary(new, EVERYTHING),
        lambda: data.summary(base, EVERYTHING),
    ]
