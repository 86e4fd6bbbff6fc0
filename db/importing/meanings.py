"""What PyTorch's columns and words mean: columns as metrics, words for a result as statuses.

A column becomes a metric only where definition and unit allow it; docs/formats.md says why each one does or does not. All
other columns stay among the details, under their own names. Sources of the words: `check_accuracy` and
`write_csv_when_exception` in PyTorch's benchmarks/dynamo/common.py, and what its dashboard counts as passing (`pass`,
`pass_due_to_skip`, `eager_variation`).
"""

from __future__ import annotations

import re
from statistics import median
from typing import NamedTuple

from collector.vocabulary import Stage, Status
from db.importing.rows import Row, Target, number
from db.importing.tables import parse_name


class Meaning(NamedTuple):
    """Our status of a word, and where in a cell's life it happened. `is_known` is False for a word that is not PyTorch's."""

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
    "fail_batch_invariance_at_N": Meaning(Status.FAIL_ACCURACY, Stage.CORRECTNESS),
    "fail_to_run_at_batch_N": Meaning(Status.FAIL_TO_RUN, Stage.COMPILE),
}
#: Words with a number at their end.
_NUMBERED = re.compile(r"(fail_batch_invariance_at|fail_to_run_at_batch)_\d+")
_OURS = frozenset(status.value for status in Status)
#: What nobody knows did not pass: to call it anything better would be to invent a pass.
_UNKNOWN = Meaning(Status.FAIL_TO_RUN, Stage.COMPILE, False)


def meaning_of(word: str) -> Meaning:
    """What a word stands for; one that nobody knows is never taken for a pass."""
    word = word.strip()
    if match := _NUMBERED.fullmatch(word):
        word = f"{match[1]}_N"
    if word in _KNOWN:
        return _KNOWN[word]
    if word in _OURS:
        return Meaning(Status(word), Stage.START)
    return _UNKNOWN


#: Gigabytes as PyTorch counts them.
_GB = 1e9
#: Counters that mean here what they mean there.
_COUNTS = ("unique_graphs", "graph_breaks", "cudagraph_skips")
#: Every column that can become a metric.
METRIC_OF = {
    "unique_graphs": "graphs",
    "graph_breaks": "graph_breaks",
    "cudagraph_skips": "cudagraph_skips",
    "speedup": "speedup",
    "abs_latency": "compiled_ms",
    "eager_peak_mem": "eager_peak_bytes",
    "dynamo_peak_mem": "compiled_peak_bytes",
    "compilation_latency": "compile_cold_s",
    "compression_ratio": "compression",
}


def metrics_of(
    performance: Row | None, accuracy: Row | None, device: str
) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Metrics and samples of a cell; a value of zero that means "failed" is none of them."""
    metrics: dict[str, float] = {}
    samples: dict[str, list[float]] = {}

    def take(row: Row, column: str, factor: float = 1.0) -> None:
        """A zero or a text is no metric: the details have it. A count may be 0."""
        numbers = [value if factor == 1 else round(value * factor) for value in row.numbers(column)]
        if not numbers or not all(value > 0 or (value == 0 and column in _COUNTS) for value in numbers):
            return
        metrics[METRIC_OF[column]] = float(median(numbers))
        if len(numbers) > 1:
            samples[METRIC_OF[column]] = numbers

    ran = performance
    speedups = [value for value in map(number, ran.values.get("speedup", ())) if value is not None] if ran else []
    if speedups and max(speedups) <= 0:
        ran = None
    if ran is not None:
        take(ran, "speedup")
        take(ran, "abs_latency")
        if is_cold(ran):
            take(ran, "compilation_latency")
        if device == "cuda":
            # On a CPU these columns are the share of the host's memory that the whole process has, another quantity.
            take(ran, "compression_ratio")
            take(ran, "eager_peak_mem", _GB)
            take(ran, "dynamo_peak_mem", _GB)
    counted = ran if ran is not None and any(ran.values.get(column) for column in _COUNTS) else accuracy
    # The counters of a row that failed before anything was compiled are padding.
    if counted is not None and not (counted.target is Target.ACCURACY and counted.padded):
        for column in _COUNTS:
            take(counted, column)
    return metrics, samples


def is_cold(row: Row) -> bool:
    """Whether `compilation_latency` was taken with `--cold-start-latency`, as PyTorch's nightly always does.

    A table does not tell; one that is named as the nightly names them is believed to come from it.
    """
    if row.arguments:
        return bool(row.flag("cold_start_latency")) and not row.flag("warm_start_latency")
    return parse_name(row.source.stem).suite is not None
