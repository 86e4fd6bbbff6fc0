"""Columns of PyTorch's tables as metrics of ours: only where the definition and the unit allow it.

Everything else stays among the details, under its own name. Why each is taken or not is told in docs/formats.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from db.importing.filenames import parse_name
from db.importing.rows import Row, Target
from db.importing.values import Value, number

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
