"""What the words and numbers mean, and how a verdict is reached."""

from __future__ import annotations

from collector.metrics import METRICS, MIN_EFFECT
from collector.vocabulary import NOT_APPLICABLE, Status
from dashboard.components import heading
from dashboard.components.markup import draw, paragraph, status_tag, table

_METHOD = (
    "A cell is one model in one phase, dtype, device, batch size and config. Each is measured in a process of its own with "
    "empty caches: eager and compiled calls in turn, the device synchronised around each, then a profiler pass of its own. "
    "Outputs are compared with eager's by their errors to a float64 copy; only cells that pass enter an average.",
    "Averages are formed over the cells that pass on both sides, paired; the number of pairs stands beside them. A failed "
    "cell, a missing one and one that was not planned are told apart, and none of them is ever a zero.",
    "The unit of a verdict is the run, not the sample: samples of one process share its clock, memory and tuning. How far "
    "runs of the same code lie apart is learned from repeats in this store, cell by cell, and shrunk to what its siblings "
    "show. A change is called one where it is beyond that noise and beyond the smallest effect that matters, with false "
    "discoveries held at 5 % over all cells of a metric. What the eager runs tell of the machine is removed first: "
    "what they have in common, and of a latency what the cell's own eager run explains.",
)

_MISSING = "planned and not measured: the night was cut, or its machine was lost"

_STATUSES: dict[Status, str] = {
    Status.PASS: "compiled, agreed with eager, was measured; checked by cosine where no more precise reference could be had",
    Status.FAIL_ACCURACY: "the compiled outputs are further from the reference than eager's allow, or from eager without one",
    Status.NONDETERMINISTIC: "two eager runs differ although deterministic kernels were requested: nothing to compare with",
    Status.FAIL_TO_COMPILE: "compiling raised an error",
    Status.FAIL_TO_RUN: "it compiled, and calling it raised an error",
    Status.EAGER_FAIL: "the model failed in eager mode, or what it computed there is NaN or infinite",
    Status.OOM: "out of memory, also alone on the device",
    Status.TIMEOUT: "took longer than the time limit and was ended",
    Status.CRASHED: "its process died",
    Status.CONFIG_ERROR: "the options do not fit each other or this torch",
    Status.UNAVAILABLE: "needs what is not installed or not supported here",
    Status.MODEL_FAIL_TO_LOAD: "the model could not be built",
    Status.SKIPPED: "left out on purpose",
}


def page() -> None:
    """Draws the page."""
    heading.title("About the numbers")
    draw(*(paragraph("", line) for line in _METHOD))
    metrics = [(metric.title, metric.unit or "a number", metric.better, metric.meaning) for metric in METRICS.values()]
    draw(table("Metrics", ("metric", "unit", "better", "meaning"), metrics))
    draw(table("Verdicts", ("verdict", "meaning"), list(_verdicts().items())))
    draw(table("Statuses", ("status", "meaning"), [*map(_status, Status), (status_tag(None), _MISSING)]))


def _verdicts() -> dict[str, str]:
    """What is said of a change, in the order in which it is worth a look."""
    least = ", ".join(f"{METRICS[name].title} {100 * value:g} %" for name, value in MIN_EFFECT.items())
    return {
        "broke / fixed": "passes on one side and fails on the other; no statistics are needed",
        "regressed / improved": f"beyond the noise and the smallest effect that matters ({least}); a leak: it appeared or grew",
        "unchanged": "shown to lie within the smallest effect that matters, or not timed since the generated code is the same",
        "no clear change": "neither shown; beside it: how large a change is ruled out, and how many more runs would tell",
        "environment changed": "the machine or a library differs between the sides: times do not compare",
        "flaky": "passed and failed at one commit",
        "missing": "planned on one side and not measured there",
    }


def _status(status: Status) -> tuple[str, str]:
    leaves = "; leaves the pass rate's denominator" if status in NOT_APPLICABLE else ""
    return status_tag(status.value), _STATUSES[status] + leaves


page()
