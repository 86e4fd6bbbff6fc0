"""What two measurements' evidence says side by side: kernels, options, environments, reasons. No page lives here."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.compare.environment_diff import environment_differences
from analysis.compare.results import EnvironmentDifference
from collector.metrics import METRICS

#: Inductor numbers its kernels within a program, so that one fusion more renames all that follow.
_NUMBER = re.compile(r"^((?:triton|cpp)_.*?)_\d+$")


#: Metrics that count what the compiler made, with their titles: each difference is told.
COUNTS = {metric.name: metric.title for metric in METRICS.values() if metric.is_count}
#: Reasons that the collector keeps, by their key in the details, and what they are of.
REASONS = {
    "graph_break_reasons": "graph break",
    "recompile_reasons": "recompile",
    "cudagraph_skip_reasons": "cudagraph skip",
}
#: What the collector calls the kernels that it does not list one by one.
REST = "(other)"


@dataclass(frozen=True, slots=True)
class KernelChange:
    """Kernels of one name: launches and milliseconds per call on either side; None where a side has none of it."""

    name: str
    base_launches: float | None
    base_ms: float | None
    new_launches: float | None
    new_ms: float | None

    @property
    def change_ms(self) -> float:
        """How much longer the new side spends in it; a kernel that a side does not have takes no time there."""
        return (self.new_ms or 0.0) - (self.base_ms or 0.0)


def kernels(details: Mapping[str, Any], kind: str) -> dict[str, tuple[float, float]]:
    """Launches and milliseconds per call by kernel name of `kind` ("compiled" or "eager"); same names added up."""
    found: dict[str, tuple[float, float]] = {}
    entries = details.get(f"{kind}_kernels")
    for entry in entries if isinstance(entries, list) else []:
        if not (isinstance(entry, list | tuple) and len(entry) == 3):
            continue
        name, launches, ms = str(entry[0]), float(entry[1]), float(entry[2])
        key = match[1] if (match := _NUMBER.match(name)) else name
        before = found.get(key, (0.0, 0.0))
        found[key] = (before[0] + launches, before[1] + ms)
    return found


def kernel_changes(
    base: Mapping[str, tuple[float, float]], new: Mapping[str, tuple[float, float]]
) -> list[KernelChange]:
    """All kernels of both sides, the largest change of time first; what was not listed one by one comes last."""
    found = []
    for name in {**base, **new}:
        before, after = base.get(name, (None, None)), new.get(name, (None, None))
        found.append(KernelChange(name, before[0], before[1], after[0], after[1]))
    return sorted(found, key=lambda item: (item.name == REST, -abs(item.change_ms), -(item.new_ms or 0.0), item.name))


def differences(base: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[EnvironmentDifference, ...]:
    """Keys whose values differ; nothing where a side's record is lost."""
    return environment_differences([base], [new]) if base and new else ()


def reasons(details: Mapping[str, Any], key: str) -> list[str]:
    """Recorded reasons as texts; empty where there are none."""
    found = details.get(key)
    if isinstance(found, Mapping):
        return [f"{name}: {value}" for name, value in found.items()]
    if isinstance(found, Sequence) and not isinstance(found, str):
        return [str(value) for value in found]
    return [str(found)] if found else []
