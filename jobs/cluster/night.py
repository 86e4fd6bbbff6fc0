"""A night on a cluster from start to end: its tasks begin, speak, end or are lost, and what a lost one leaves is begun again.

Ray decides what runs where and when. What is decided here is what a task consists of, and what becomes of the cells of a task
that did not end well: they make new tasks, each cell `_ATTEMPTS` times at most. A node that refuses (another torch, a model's
library missing, a GPU that no longer answers) gets no further task.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from collector.bundle import RunHeader
from collector.vocabulary import Cell, Measurement
from jobs.cluster.engine import ClusterError, Engine, LostError, Share, Wish
from jobs.cluster.gathering import Gathering
from jobs.cluster.groups import CellGroup, cut_again
from jobs.cluster.request import Request
from jobs.output.terminal import one_line

#: Tasks in a row that may be lost with a cell under way or waiting in them before nobody tries it again.
_ATTEMPTS = 3
#: Seconds between two looks at the clock while no task has anything to say.
_LOOK_S = 1.0
#: Seconds without a node that could take a task after which a night ends: a lost node may be replaced meanwhile.
_PATIENCE_S = 60.0
#: Seconds that interrupted tasks have to end their cells.
_FAREWELL_S = 15.0


@dataclass(slots=True)
class Task:
    """A group of cells on its way: `node` is empty until it has begun."""

    group: CellGroup
    node: str = ""
    reason: str = ""
    lost: str = ""
    done: bool = False


@dataclass(frozen=True, slots=True)
class Telling:
    """Who hears of what happens: outcomes, runs that were opened, and lines for people."""

    measured: Callable[[Measurement], None]
    opened: Callable[[RunHeader], None]
    say: Callable[[str], None]


@dataclass(slots=True)
class ClusterNight:
    """Measures cells with an engine's tasks; `request` is what all of them share."""

    engine: Engine
    share: Share
    request: Request
    gathering: Gathering
    telling: Telling
    clock: Callable[[], float] = time.time
    _tasks: dict[Any, Task] = field(default_factory=dict)
    _refusing: dict[str, str] = field(default_factory=dict)
    _lost: Counter[str] = field(default_factory=Counter)
    _idle_since: float | None = None
    _noted: set[tuple[str, str]] = field(default_factory=set)
    #: What people call the nodes, by Ray's ids.
    _names: dict[str, str] = field(default_factory=dict)

    def run(self, groups: Sequence[CellGroup]) -> None:
        """Starts a task a group and returns when none is left; what was not measured is in `gathering.left`.

        Raises:
            ClusterError: no node is left that could measure.
        """
        try:
            for group in groups:
                self._start(group)
            while self._tasks:
                for handle in self.engine.ready(list(self._tasks), _LOOK_S):
                    if handle in self._tasks:  # it may have been begun anew for the sake of one before it
                        self._hear(handle)
                self._look_around()
        except BaseException:
            self.cancel()
            raise

    def cancel(self) -> None:
        """Ends all tasks and takes in what they still say, for a few seconds."""
        for handle in self._tasks:
            self.engine.cancel(handle)
        deadline = self.clock() + _FAREWELL_S
        while self._tasks and self.clock() < deadline:
            for handle in self.engine.ready(list(self._tasks), _LOOK_S):
                if self._next(handle) is None:
                    del self._tasks[handle]

    def _start(self, group: CellGroup) -> None:
        cells = [cell for cell in group.cells if cell.cell_id in self.gathering.left]
        if cells:
            text = json.dumps(self.request.only(cells).to_json(), separators=(",", ":"))
            handle = self.engine.start(text, self.share, Wish(group.home, frozenset(self._refusing)))
            self._tasks[handle] = Task(group)

    def _hear(self, handle: Any) -> None:
        message = self._next(handle)
        task = self._tasks[handle]
        if message is None:
            del self._tasks[handle]
            self._over(task)
        elif "node" in message:
            task.node = str(message["node"])
            self._names[task.node] = str(message.get("name") or task.node[:8])
        elif "note" in message:
            self._note(task, one_line(str(message["note"]), 300))
        elif "error" in message:
            task.reason = one_line(str(message["error"]), 300)
        elif "done" in message:
            task.done = True
        else:
            self._take(handle, task, message)

    def _note(self, task: Task, text: str) -> None:
        if (task.node, text) not in self._noted:
            self._noted.add((task.node, text))
            self.telling.say(f"node {self._name(task.node)} {text}")

    def _next(self, handle: Any) -> dict[str, Any] | None:
        """The next message; None after the last one, whether the task ended or was lost."""
        try:
            text = self.engine.take(handle)
        except LostError as error:
            self._tasks[handle].lost = str(error)
            return None
        if text is None:
            return None
        try:
            message = json.loads(text)
        except ValueError:
            message = None
        return message if isinstance(message, dict) else {"error": "it said something that is no line of a bundle"}

    def _take(self, handle: Any, task: Task, message: dict[str, Any]) -> None:
        try:
            came = self.gathering.take(f"{id(task)} {message['run']}", message["line"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            task.reason = f"it said something that is no line of a bundle ({type(error).__name__})"
            self.engine.cancel(handle)
            return
        if came.opened:
            self.telling.opened(came.opened)
        if came.measured:
            self.telling.measured(came.measured)

    def _over(self, task: Task) -> None:
        left = self._left_of(task)
        if task.reason and task.node:
            self._refuse(task, left)
        elif not task.done:
            self._lose(task, left)
        # A task that was done and leaves cells was out of time.

    def _refuse(self, task: Task, left: list[Cell]) -> None:
        self._refusing[task.node] = task.reason
        elsewhere = f": {counted(len(left), 'cell')} planned for others" if left else ""
        self.telling.say(f"node {self._name(task.node)} gets no more cells ({task.reason}){elsewhere}")
        for group in cut_again(left):
            self._start(group)
        # Those that wait may have been promised to it.
        for handle, other in list(self._tasks.items()):
            if not other.node:
                del self._tasks[handle]
                self.engine.cancel(handle)
                self._start(other.group)

    def _lose(self, task: Task, left: list[Cell]) -> None:
        self._lost.update(cell.cell_id for cell in left)
        again = [cell for cell in left if self._lost[cell.cell_id] < _ATTEMPTS]
        where = f"node {self._name(task.node)}" if task.node else "a task that had not begun"
        self.telling.say(
            f"{where} was lost ({task.lost or 'without a last word'}): {counted(len(again), 'cell')} planned again"
        )
        for cell in left:
            if cell not in again:
                self.telling.say(f"{cell}: lost with its node {_ATTEMPTS} times, not tried again")
        for group in cut_again(again):
            self._start(group)

    def _left_of(self, task: Task) -> list[Cell]:
        return [cell for cell in task.group.cells if cell.cell_id in self.gathering.left]

    def _name(self, node_id: str) -> str:
        return one_line(self._names.get(node_id, node_id[:8]), 100)

    def _look_around(self) -> None:
        waiting = [handle for handle, task in self._tasks.items() if not task.node]
        if self.request.until is not None and self.clock() >= self.request.until:
            for handle in waiting:
                self.engine.cancel(handle)
                del self._tasks[handle]
        elif len(waiting) == len(self._tasks) and waiting:
            self._wait_for_a_node()
        else:
            self._idle_since = None

    def _wait_for_a_node(self) -> None:
        usable = [node for node in self.engine.nodes() if self.share.fits(node) and node.node_id not in self._refusing]
        if usable:
            self._idle_since = None
            return
        self._idle_since = self.clock() if self._idle_since is None else self._idle_since
        if self.clock() - self._idle_since >= (0.0 if self._refusing else _PATIENCE_S):
            why = "; ".join(dict.fromkeys(self._refusing.values())) or "all were lost"
            raise ClusterError(f"no node of the cluster is left to measure on: {why}")


def counted(number: int, word: str) -> str:
    """`1 cell`, `2 cells`."""
    return f"{number} {word}{'s' * (number != 1)}"
