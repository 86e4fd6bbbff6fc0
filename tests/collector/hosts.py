"""Hosts for tests: cells are measured in the test's own process, which sees what they ask their host for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from collector.measure.cell import Alone
from collector.vocabulary import Stage


class ListeningHost(Alone):
    """Notes each stage, each purpose for which the device is taken, and `given back` after that.

    `held`: the purposes for which the device is held now. `before` and `after` are for subclasses.
    """

    def __init__(self) -> None:
        self.events: list[str] = []
        self.held: list[str] = []

    def stage(self, stage: Stage) -> None:
        self.events.append(stage)

    @contextmanager
    def exclusive(self, purpose: str = "measure", needs: int | None = None) -> Iterator[None]:
        self.events.append(purpose)
        self.held.append(purpose)
        self.before(purpose)
        try:
            yield
        finally:
            self.after(purpose)
            self.held.pop()
            self.events.append("given back")

    @contextmanager
    def released(self) -> Iterator[None]:
        held, self.held = self.held, []
        yield
        self.held = held

    def before(self, purpose: str) -> None:
        """Do something when the device is taken."""

    def after(self, purpose: str) -> None:
        """Do something before the device is given back."""
