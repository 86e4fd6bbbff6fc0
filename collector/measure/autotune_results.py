"""What autotuning chose in this process: for each tuned operation the candidate that won, and how fast it was.

Two measurements of one program may run different kernels, since the fastest of several nearly equal candidates is found
by timing. That is the first thing to look at where a latency has two levels.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from collector.vocabulary import short_hash

#: Choices kept with a measurement, and characters of a name.
_KEPT, _LENGTH = 60, 160


@dataclass(frozen=True, slots=True)
class Choice:
    """`chosen` is the winner among `candidates` for the kernel or operation `what`; `ms` its time where it was timed."""

    what: str
    candidates: int
    chosen: str
    ms: float | None

    def to_json(self) -> list[Any]:
        """What, candidates, chosen, ms."""
        return [self.what, self.candidates, self.chosen, None if self.ms is None else round(self.ms, 6)]


_found: list[Choice] = []
_listening = False


def listen() -> None:
    """Watches Inductor's autotuning in this process from here on, and forgets what was chosen before.

    What this torch does not offer to watch is not seen; nothing that is watched behaves differently.
    """
    global _listening
    _found.clear()
    if not _listening:
        _listening = True
        with suppress(ImportError, AttributeError):
            importlib.import_module("torch._inductor.select_algorithm").add_feedback_saver(note_operation)
        with suppress(ImportError, AttributeError):  # there is no Triton
            watch_kernels(importlib.import_module("torch._inductor.runtime.triton_heuristics").CachingAutotuner)


def found() -> dict[str, Any]:
    """The choices as details of a measurement: a list, and a hash that is equal where all choices are."""
    if not _found:
        return {}
    unique = sorted({(choice.what, choice.chosen) for choice in _found})
    return {"autotuned": [choice.to_json() for choice in _found[:_KEPT]], "autotuned_id": short_hash(unique)}


def note_operation(timings: Mapping[Any, float], name: str, _: Any, candidates: Any, *__: Any) -> None:
    """Takes in one matrix product or convolution that was tuned: Inductor's feedback function, of 2.7 and later."""
    timed = {choice: ms for choice, ms in timings.items() if ms == ms and ms != float("inf")}
    if timed:
        best = min(timed, key=lambda choice: timed[choice])
        said = f"{getattr(best, 'name', best)} {getattr(best, 'description', '') or ''}".strip()
        _note(name, len(candidates), said, float(timed[best]))


def watch_kernels(autotuner: Any) -> None:
    """Wraps the two methods in which a Triton kernel's configuration is chosen."""
    for name, note in (("benchmark_all_configs", _note_timings), ("coordinate_descent_tuning", _note_descent)):
        if method := vars(autotuner).get(name):
            setattr(autotuner, name, _watched(method, note))


def _watched(method: Callable[..., Any], note: Callable[..., None]) -> Callable[..., Any]:
    @functools.wraps(method)
    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        made = method(self, *args, **kwargs)
        with suppress(Exception):  # what is only watched must not fail a compilation
            note(self, made, *args[:1])
        return made

    return watched


def _note_timings(autotuner: Any, timings: Mapping[Any, float], *_: Any) -> None:
    best = min(timings, key=lambda launcher: timings[launcher])
    _note(_kernel(autotuner), len(timings), str(best.config), float(timings[best]))


def _note_descent(autotuner: Any, launcher: Any, started_from: Any = None) -> None:
    if launcher is not started_from:
        _note(_kernel(autotuner), 0, f"{launcher.config} (coordinate descent)", None)


def _kernel(autotuner: Any) -> str:
    return str(autotuner.inductor_meta.get("kernel_name") or autotuner.fn.__name__)


def _note(what: str, candidates: int, chosen: str, ms: float | None) -> None:
    _found.append(Choice(what[:_LENGTH], candidates, chosen[:_LENGTH], ms))
