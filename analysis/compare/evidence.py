"""What two measurements' evidence says side by side: kernels, options, environments, reasons. No page lives here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.compare.environment_diff import EnvironmentDifference, environment_differences
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


#: A kernel's name, launches and milliseconds per call.
ListedKernel = tuple[str, float, float]


def listed_kernels(details: Mapping[str, Any], kind: str) -> Iterator[ListedKernel]:
    """Name, launches and milliseconds per call of the kernels of `kind`, as the profiler lists them.

    `kind` is "compiled", "eager", or "outside": what of the compiled ones no cudagraph launched.
    """
    entries = details.get(f"{kind}_kernels")
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, list | tuple) and len(entry) == 3:
            yield str(entry[0]), float(entry[1]), float(entry[2])


def stem(name: str) -> str:
    """The name of a kernel without the number that Inductor gives it within a program; a library's name as it is."""
    return match[1] if (match := _NUMBER.match(name)) else name


def is_float32(name: str) -> bool:
    """Whether a library's kernel computes on float32, by its name; the names of generated kernels do not tell.

    cuBLAS and cuDNN write the types of both operands (`gemm_f32f32_...`, `sgemm`), ATen those of the first argument of a
    template (`CUDAFunctor_add<float>`).
    """
    return re.search(r"sgemm|_f32f32_|<float[,>]", name) is not None


def differences(base: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[EnvironmentDifference, ...]:
    """Keys whose values differ; nothing where a side's record is lost."""
    return environment_differences([base], [new])


def reasons(details: Mapping[str, Any], key: str) -> list[str]:
    """Recorded reasons as texts; empty where there are none."""
    recorded = details.get(key)
    if isinstance(recorded, Mapping):
        return [f"{name}: {value}" for name, value in recorded.items()]
    if isinstance(recorded, Sequence) and not isinstance(recorded, str):
        return [str(value) for value in recorded]
    return [str(recorded)] if recorded else []


@dataclass(frozen=True, slots=True)
class ReasonDifference:
    """A reason of a graph break, recompile or cudagraph skip (`what`) that only the side `before` or `after` has."""

    what: str
    side: str
    text: str


def reason_differences(base: Mapping[str, Any], new: Mapping[str, Any]) -> list[ReasonDifference]:
    """The reasons in the details of one side only, each once: kind by kind, new ones first."""
    differing = []
    for key, what in REASONS.items():
        before, after = (dict.fromkeys(reasons(details, key)) for details in (base, new))
        differing += [ReasonDifference(what, "after", text) for text in after if text not in before]
        differing += [ReasonDifference(what, "before", text) for text in before if text not in after]
    return differing


def count_differences(base: Mapping[str, float], new: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    """The counts of both sides' metrics that differ, by name."""
    both = {name: (base[name], new[name]) for name in COUNTS if name in base and name in new}
    return {name: values for name, values in both.items() if values[0] != values[1]}
