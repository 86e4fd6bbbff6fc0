"""What PyTorch's columns and words mean: columns as metrics, words for a result as statuses.

A column becomes a metric only where definition and unit allow it; docs/formats.md says why each one does or does not. All
other columns stay among the details, under their own names. Sources of the words: `check_accuracy` and
`write_csv_when_exception` in PyTorch's benchmarks/dynamo/common.py, and what its dashboard counts as passing (`pass`,
`pass_due_to_skip`, `eager_variation`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from collector.vocabulary import Stage, Status
from db.importing.rows import Row, Target, Value, number
from db.importing.tables import parse_name


@dataclass(frozen=True, slots=True)
class Meaning:
    """Our status of a word, and where in a cell's life it happened. `is_known` is False for a guess by its spelling."""

    status: Status
    stage: Stage
    is_known: bool = True


_KNOWN = {
    "pass": Meaning(Status.PASS, Stage.DONE),
    "pass_due_to_skip": Meaning(Status.PASS, Stage.DONE),
    "eager_variation": Meaning(Status.NONDETERMINISTIC, Stage.EAGER),
    "eager_two_runs_differ": Meaning(Status.NONDETERMINISTIC, Stage.EAGER),
    "fail_accuracy": Meaning(Status.FAIL_ACCURACY, Stage.CORRECTNESS),
    "not_bitwise_equivalent": Meaning(Status.FAIL_ACCURACY, Stage.CORRECTNESS),
    "fail_to_run": Meaning(Status.FAIL_TO_RUN, Stage.COMPILE),
    "fail_to_compile": Meaning(Status.FAIL_TO_COMPILE, Stage.COMPILE),
    "warmup_failed": Meaning(Status.FAIL_TO_RUN, Stage.COMPILE),
    "OOM": Meaning(Status.OOM, Stage.COMPILE),
    "eager_1st_run_OOM": Meaning(Status.OOM, Stage.EAGER),
    "eager_2nd_run_OOM": Meaning(Status.OOM, Stage.EAGER),
    "eager_1st_run_fail": Meaning(Status.EAGER_FAIL, Stage.EAGER),
    "eager_2nd_run_fail": Meaning(Status.EAGER_FAIL, Stage.EAGER),
    "eager_fail_to_run": Meaning(Status.EAGER_FAIL, Stage.EAGER),
    "model_fail_to_load": Meaning(Status.MODEL_FAIL_TO_LOAD, Stage.LOAD_MODEL),
    "timeout": Meaning(Status.TIMEOUT, Stage.START),
    "infra_error": Meaning(Status.CRASHED, Stage.START),
}
_OURS = frozenset(status.value for status in Status)
_NUMBERED = (
    (re.compile(r"fail_batch_invariance_at_\d+"), Meaning(Status.FAIL_ACCURACY, Stage.CORRECTNESS)),
    (re.compile(r"fail_to_run_at_batch_\d+"), Meaning(Status.FAIL_TO_RUN, Stage.COMPILE)),
)
_GUESSES = (
    ("oom", Meaning(Status.OOM, Stage.COMPILE, False)),
    ("timeout", Meaning(Status.TIMEOUT, Stage.START, False)),
    ("eager", Meaning(Status.EAGER_FAIL, Stage.EAGER, False)),
    ("load", Meaning(Status.MODEL_FAIL_TO_LOAD, Stage.LOAD_MODEL, False)),
    ("infra", Meaning(Status.CRASHED, Stage.START, False)),
    ("crash", Meaning(Status.CRASHED, Stage.START, False)),
    ("skip", Meaning(Status.SKIPPED, Stage.START, False)),
    ("compile", Meaning(Status.FAIL_TO_COMPILE, Stage.COMPILE, False)),
    ("accuracy", Meaning(Status.FAIL_ACCURACY, Stage.CORRECTNESS, False)),
)
#: What no rule knows did not pass: to call it anything better would be to invent a pass.
_UNKNOWN = Meaning(Status.FAIL_TO_RUN, Stage.COMPILE, False)


def meaning_of(word: str) -> Meaning:
    """What a word stands for; one that nobody knows is never taken for a pass."""
    word = word.strip()
    if word in _KNOWN:
        return _KNOWN[word]
    if word in _OURS:
        return Meaning(Status(word), Stage.START)
    for pattern, meaning in _NUMBERED:
        if pattern.fullmatch(word):
            return meaning
    return next((meaning for part, meaning in _GUESSES if part in word.lower()), _UNKNOWN)


#: Counters that mean here what they mean there.
_COUNTS = {"unique_graphs": "graphs", "graph_breaks": "graph_breaks", "cudagraph_skips": "cudagraph_skips"}
#: Ratios and times of a performance row.
_TIMES = {"speedup": "speedup", "abs_latency": "compiled_ms"}
_PEAKS = {"eager_peak_mem": "eager_peak_bytes", "dynamo_peak_mem": "compiled_peak_bytes"}
#: Every column that can become a metric.
METRIC_OF = {
    **_COUNTS,
    **_TIMES,
    **_PEAKS,
    "compilation_latency": "compile_cold_s",
    "compression_ratio": "compression",
}
#: Gigabytes as PyTorch counts them.
_GB = 1e9


def metrics_of(
    performance: Row | None, accuracy: Row | None, device: str
) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Metrics and samples of a cell; a value of zero that means "failed" is none of them."""
    metrics: dict[str, float] = {}
    samples: dict[str, list[float]] = {}
    ran = performance is not None and _positive(performance.values.get("speedup", [])) is not False
    if performance is not None and ran:
        for column, metric in _TIMES.items():
            _take(metrics, samples, metric, performance.values.get(column, []), 1.0)
        if is_cold(performance):
            _take(metrics, samples, "compile_cold_s", performance.values.get("compilation_latency", []), 1.0)
        if device == "cuda":
            _memory(metrics, samples, performance)
    counted = performance if performance is not None and ran and _counts(performance) else accuracy
    if counted is not None:
        for column, metric in _counts(counted).items():
            _take(metrics, samples, metric, counted.values[column], 1.0, is_count=True)
    return metrics, samples


def _memory(metrics: dict[str, float], samples: dict[str, list[float]], row: Row) -> None:
    # On a CPU these columns are the share of the host's memory that the whole process has, another quantity.
    _take(metrics, samples, "compression", row.values.get("compression_ratio", []), 1.0)
    for column, metric in _PEAKS.items():
        _take(metrics, samples, metric, row.values.get(column, []), _GB)


def is_cold(row: Row) -> bool:
    """Whether `compilation_latency` was taken with `--cold-start-latency`, as PyTorch's nightly always does.

    A table does not tell; one that is named as the nightly names them is believed to come from it.
    """
    if row.arguments:
        return bool(row.flag("cold_start_latency")) and not row.flag("warm_start_latency")
    return parse_name(row.source.stem).suite is not None


def _counts(row: Row) -> dict[str, str]:
    """The counters that a row has; one that failed before anything was compiled has none."""
    if row.target is Target.ACCURACY and row.padded:
        return {}
    return {column: metric for column, metric in _COUNTS.items() if row.values.get(column)}


def _positive(values: Sequence[Value]) -> bool | None:
    found = [value for value in map(number, values) if value is not None]
    return any(value > 0 for value in found) if found else None


def _take(
    metrics: dict[str, float],
    samples: dict[str, list[float]],
    metric: str,
    values: Sequence[Value],
    factor: float,
    is_count: bool = False,
) -> None:
    numbers = [value if factor == 1 else round(value * factor) for value in map(number, values) if value is not None]
    numbers = [value for value in numbers if value > 0 or (is_count and value == 0)]
    if len(numbers) != len(values) or not numbers:
        return  # a zero, or a text: the details have it
    metrics[metric] = float(median(numbers))
    if len(numbers) > 1:
        samples[metric] = numbers
