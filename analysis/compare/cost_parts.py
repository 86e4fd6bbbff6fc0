"""The parts of a cell's cost on both sides: the host's work in a call, the passes of the compiler, the memory.

Of each cost the part that changed most comes first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np

from analysis.compare.cell_comparison import Outcome
from analysis.compare.side_differences import REST
from analysis.stats.verdicts import difference, false_discovery_rates, judge
from collector.metrics import MIN_EFFECT


@dataclass(frozen=True, slots=True)
class HostPart:
    """Microseconds per call of one part of the host's work on both sides; 0 where a side lacks the part."""

    name: str
    base_us: float
    new_us: float

    @property
    def change_us(self) -> float:
        """Microseconds that new takes longer."""
        return self.new_us - self.base_us


def host_parts(base: Mapping[str, Any], new: Mapping[str, Any]) -> list[HostPart]:
    """Return the host's parts in two measurements' details, the largest change first; empty where a side has none."""
    before, after = (_host_parts(details) for details in (base, new))
    if not before or not after:
        return []
    parts = [HostPart(name, before.get(name, 0.0), after.get(name, 0.0)) for name in dict.fromkeys((*before, *after))]
    return sorted(parts, key=lambda part: (-abs(part.change_us), -part.new_us))


def host_words(parts: list[HostPart]) -> str:
    """Return `host time 120 -> 170 us, most of it in guards (+45 us)`; empty where it did not change by a tenth."""
    base, new = sum(part.base_us for part in parts), sum(part.new_us for part in parts)
    if not parts or abs(new - base) < 0.1 * base:
        return ""
    most = max(parts, key=lambda part: part.change_us * (new - base))
    return f"host time {base:.0f} -> {new:.0f} us, most of it in {most.name} ({most.change_us:+.0f} us)"


def _host_parts(details: Mapping[str, Any]) -> dict[str, float]:
    recorded = details.get("host_parts_us")
    return {str(name): float(us) for name, us in recorded.items()} if isinstance(recorded, Mapping) else {}


#: Passes that `inductor` calls, and passes that run when the compiled program runs.
_OF_INDUCTOR = ("post_grad_passes", "wait_for_kernels", "autotune_while_compiling")
AFTER_COMPILING = ("autotune_while_running", "cudagraphify")
_PASSES = (
    *("dynamo", "before_restarts", "aot_autograd", "pre_grad_passes", "joint_graph_passes", "inductor"),
    *(*_OF_INDUCTOR, *AFTER_COMPILING),
)
#: Fewest runs of both sides together for which passes are judged.
JUDGED_FROM = 4
#: Share of the whole compilation: a pass that changed by less has no verdict.
_PART = 0.01


@dataclass(frozen=True, slots=True)
class PassTime:
    """Seconds that a pass of the compiler took on both sides, the means of their runs; None where a side has no such pass.

    `verdict` is None where the pass is not judged.
    """

    name: str
    base_s: float | None
    new_s: float | None
    verdict: Outcome | None = None

    @property
    def change_s(self) -> float:
        """Seconds that new takes longer."""
        return (self.new_s or 0.0) - (self.base_s or 0.0)


def pass_times(base: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]) -> list[PassTime]:
    """Return the passes of two sides, the largest change first, each without the passes that it calls.

    `base` and `new` have the details of each of their runs. All passes but `AFTER_COMPILING` add up to the whole compilation.
    From `JUDGED_FROM` runs on the passes that all runs have are judged.
    """
    before, after = ([passes for details in side if (passes := _passes(details))] for side in (base, new))
    names = dict.fromkeys(name for passes in (*before, *after) for name in passes)
    times = [PassTime(name, _mean(before, name), _mean(after, name)) for name in names]
    return sorted(_judged(times, before, after), key=lambda one: -abs(one.change_s))


def _mean(runs: Sequence[Mapping[str, float]], name: str) -> float | None:
    return fmean(run.get(name, 0.0) for run in runs) if any(name in run for run in runs) else None


def _judged(
    times: list[PassTime], before: Sequence[Mapping[str, float]], after: Sequence[Mapping[str, float]]
) -> list[PassTime]:
    """Return the passes with their verdicts, by the scatter of ln of each pass within the sides. All passes are one family."""
    if not before or not after or len(before) + len(after) < JUDGED_FROM:
        return times
    judged = [one for one in times if all(one.name in run for run in (*before, *after))]
    if not judged:
        return times
    base, new = (np.log([[run[one.name] for run in runs] for one in judged]) for runs in (before, after))
    df = len(before) + len(after) - 2
    within = sum(((side - side.mean(1, keepdims=True)) ** 2).sum(1) for side in (base, new)) / df
    base_runs, new_runs, degrees = (np.full(len(judged), float(count)) for count in (len(before), len(after), df))
    tested = difference(new.mean(1) - base.mean(1), base_runs, new_runs, within, degrees)
    words = judge(tested, false_discovery_rates(tested.p), MIN_EFFECT["compile_cold_s"], lower_is_better=True)
    least = _PART * max(sum(one.base_s or 0.0 for one in times), sum(one.new_s or 0.0 for one in times))
    verdicts = {
        one.name: Outcome(str(word)) for one, word in zip(judged, words, strict=True) if abs(one.change_s) >= least
    }
    return [replace(one, verdict=verdicts.get(one.name)) for one in times]


def _passes(details: Mapping[str, Any]) -> dict[str, float]:
    """Return the seconds of each pass of a compilation without the passes that it calls (docs/metrics.md)."""
    recorded = details.get("compile_phases_s")
    if not isinstance(recorded, Mapping):
        return {}
    found = defaultdict(float, {str(name): float(value) for name, value in recorded.items()})
    if "dynamo" not in found:
        return dict(found)
    inductor = found["inductor"]
    # Candidates are tuned by lowering as well as by the writing of code: these two cannot be told apart.
    found["inductor"] -= sum(found[name] for name in _OF_INDUCTOR)
    found["dynamo"] -= found["aot_autograd"] + found["before_restarts"]
    found["aot_autograd"] += found["backward"] - inductor - found["pre_grad_passes"] - found["joint_graph_passes"]
    # The passes on the joint graph within FlexAttention's functions are counted twice.
    found["joint_graph_passes"] += min(0.0, found["aot_autograd"])
    return {name: seconds for name in _PASSES if (seconds := round(found[name], 4)) > 0}


#: Units of bytes: the least value, the divisor, and the format.
_UNITS = ((1e9, 1e9, "{:.2f} GB"), (1e6, 1e6, "{:.0f} MB"))
#: Keys of the details, as `collector.measure.memory` writes them.
_SAVED, _PEAK = "saved_tensors", "peak_lines"


def byte_words(number: float) -> str:
    """Return a number of bytes with its unit; many are in MB (10^6) or GB (10^9)."""
    large = ((divisor, form) for least, divisor, form in _UNITS if abs(number) >= least)
    divisor, form = next(large, (1.0, "{:,.0f} B"))
    return form.format(number / divisor)


#: The line that stands for memory allocated before the call (`collector.measure.memory`, which imports torch).
BEFORE = "(before the call)"


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """Saved tensors of one shape and dtype, or memory that one line allocated and that is alive at the peak.

    `about` has the operators that made the tensors, as far as they are known. A side without the part has counts and bytes of 0.
    """

    name: str
    about: str
    base: int
    new: int
    base_bytes: int
    new_bytes: int
    is_saved: bool

    @property
    def change(self) -> int:
        """Bytes that new has more."""
        return self.new_bytes - self.base_bytes

    @property
    def words(self) -> str:
        """The part in words: `+0.84 GB: 2 more tensors of [128, 96, 56, 56] float32 saved for backward (mul)`."""
        size = f"{'+' if self.change > 0 else ''}{byte_words(self.change)}"
        if not self.is_saved:
            return f"{size} alive at the peak ({self.base} -> {self.new} times): {self.name}"
        count = abs(self.new - self.base)
        which = "more " if self.new > self.base else "fewer " if self.new < self.base else "larger "
        tensors = f"{f'{count} ' if count else ''}{which}tensor{'s' * (count != 1)} of {self.name} saved for backward"
        return f"{size}: {tensors}{f' ({self.about})' if self.about else ''}"


def saved_parts(base: Mapping[str, Any], new: Mapping[str, Any]) -> list[MemoryPart]:
    """Return the tensors saved for the backward pass in two measurements' details, the largest change first.

    Empty where a side has no list of them. A part of one side is left out if the other side may have it among the parts that it
    does not list.
    """
    return _parts(base, new, _SAVED)


def peak_parts(base: Mapping[str, Any], new: Mapping[str, Any]) -> list[MemoryPart]:
    """Return the memory alive at the peak by the line that allocated it, in the same form as `saved_parts`."""
    return _parts(base, new, _PEAK)


def memory_words(base: Mapping[str, Any], new: Mapping[str, Any], least: float) -> list[str]:
    """Return a sentence for each saved part that changed by `least` bytes; if none did, for each such part of the peak."""
    for parts in (saved_parts(base, new), peak_parts(base, new)):
        if changed := [part.words for part in parts if abs(part.change) >= max(least, 1.0)]:
            return changed
    return []


def _parts(base: Mapping[str, Any], new: Mapping[str, Any], key: str) -> list[MemoryPart]:
    if key not in base or key not in new:
        return []
    before, after = (_rows(details[key], key) for details in (base, new))
    parts = []
    for name in dict.fromkeys((*before, *after)):
        (of_base, base_count, base_bytes), (of_new, new_count, new_bytes) = (
            side.get(name, ("", 0, 0)) for side in (before, after)
        )
        is_unknown = any(
            name not in side and REST in side and other[name][2] <= min(size for _, _, size in side.values())
            for side, other in ((before, after), (after, before))
        )
        if name != REST and not is_unknown:
            counts = base_count, new_count, base_bytes, new_bytes
            parts.append(MemoryPart(name, of_new or of_base, *counts, is_saved=key == _SAVED))
    return sorted(parts, key=lambda part: (-abs(part.change), -part.new_bytes))


def _rows(listed: Any, key: str) -> dict[str, tuple[str, int, int]]:
    """Return operators, count and bytes by name; rows that another version wrote in another form are left out."""
    return dict(_named(listed, key)) if isinstance(listed, list) else {}


def _named(listed: list[Any], key: str) -> Iterator[tuple[str, tuple[str, int, int]]]:
    for row in listed:
        match row:
            case [str(operators), list(shape), str(dtype), int(count), int(size)] if key == _SAVED:
                yield f"{shape} {dtype}", (operators, count, size)
            case [str(rest), None, _, int(count), int(size)] if key == _SAVED:
                yield rest, ("", count, size)
            case [str(line), int(count), int(size)] if key == _PEAK:
                yield line, ("", count, size)
