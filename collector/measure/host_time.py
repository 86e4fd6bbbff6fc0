"""The host's time in one compiled call, by part, from the profiler's events on the host.

The parts are torch's own layers: Dynamo's guards and bytecode, AOTAutograd's runtime wrapper, the wrapper that Inductor
generated, and the launches. The time of a part excludes the parts that it calls. A profiled call takes longer than others, so
that only the shares of its parts are used.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

#: The name of the event around each call (`collector.measure.timing.record`). It begins like torch's own annotations.
CALL = "## inductor-watch call"
#: The part of time that no event of a layer or of an operator covers, such as the model's own Python.
PYTHON = "python"
#: The parts, with the names of their events. An event with another name is an operator.
_PARTS = (
    ("guards", re.compile(r"TorchDynamo Cache Lookup")),
    ("bytecode", re.compile(r"Torch-Compiled Region|Pregraph bytecode")),
    ("aot_autograd", re.compile(r"AOTDispatcher Runtime Wrapper|CompiledFunction")),
    ("inductor_wrapper", re.compile(r"## Call CompiledFxGraph")),
    ("launches", re.compile(r"triton_|(?:cuda|cu|hip)[A-Z]\w*$")),
    (PYTHON, re.compile(re.escape(CALL))),
)
_OPERATORS = "operators"
#: The host does nothing while it waits for the device.
_WAITS = re.compile(r"(?:cuda|cu|hip)\w*Synchronize")


class Span(NamedTuple):
    """An event on the host: its name, its thread, and its start and end in nanoseconds."""

    name: str
    thread: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class HostTime:
    """The microseconds for which the host worked in one profiled call, their parts, and the waits, which are not among them."""

    us: float
    parts: dict[str, float]
    waited_us: float = 0.0

    def parts_of(self, us: float) -> dict[str, float]:
        """Return the parts, in microseconds, of a call of `us` microseconds that has the shares of this one."""
        return {name: round(us * spent / self.us, 3) for name, spent in self.parts.items()} if self.us else {}


def host_time(spans: Iterable[Span]) -> HostTime | None:
    """Return the host time of the call with the median host time; None if no event `CALL` marks a call.

    Of several threads (a GPU's backward pass has its own) one works at a time, so the work of another thread is not `PYTHON`.
    """
    ordered = sorted(spans, key=lambda span: (span.start, -span.end))
    calls = [span for span in ordered if span.name == CALL]
    found = sorted((_of_call(call, ordered) for call in calls), key=lambda one: one.us)
    return found[len(found) // 2] if found else None


def _of_call(call: Span, ordered: Sequence[Span]) -> HostTime:
    inside = [span for span in ordered if call.start <= span.start < call.end]
    spent: dict[str, float] = defaultdict(float)
    waited = 0.0
    for span, own in exclusive_ns(inside):
        if _WAITS.match(span.name):
            waited += own if span.thread == call.thread else 0.0
        else:
            spent[_part(span.name)] += own
    whole = call.end - call.start - waited
    spent[PYTHON] = max(0.0, whole - sum(ns for part, ns in spent.items() if part != PYTHON))
    names = [name for name, _ in _PARTS] + [_OPERATORS]
    parts = {name: round(spent[name] / 1e3, 3) for name in names if spent.get(name)}
    return HostTime(whole / 1e3, parts, waited / 1e3)


def exclusive_ns(ordered: Sequence[Span]) -> list[tuple[Span, int]]:
    """Return each span with its nanoseconds that no span within it, on its thread, takes.

    `ordered` is by start; of equal starts the longest comes first. A span that ends after the span around it is cut at the end
    of the outer one.
    """
    own: list[int] = []
    around: dict[int, list[tuple[int, int]]] = defaultdict(
        list
    )  # by thread: place and end of the open spans, the innermost last
    for place, span in enumerate(ordered):
        stack = around[span.thread]
        while stack and stack[-1][1] <= span.start:
            stack.pop()
        end = min(span.end, stack[-1][1]) if stack else span.end
        own.append(end - span.start)
        if stack:
            own[stack[-1][0]] -= end - span.start
        stack.append((place, end))
    return list(zip(ordered, own, strict=True))


def _part(name: str) -> str:
    return next((part for part, pattern in _PARTS if pattern.match(name)), _OPERATORS)
