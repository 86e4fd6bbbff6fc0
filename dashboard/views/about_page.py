"""The page about the numbers: the meaning of words and metrics, and how a verdict is reached."""

from __future__ import annotations

import re

from analysis.elements.wording import paragraph, status_tag, table
from collector.metrics import METRICS, MIN_EFFECT
from collector.vocabulary import NOT_APPLICABLE, Status
from dashboard import widgets
from dashboard.widgets import draw

_METHOD = (
    "A cell is one model under one config, in one phase, dtype and batch size, on one device. Each cell runs in a process of "
    "its own with empty caches. Eager and compiled calls are timed in turn, and the device is synchronised around each.",
    "A cell passes if its compiled outputs are about as close to a float64 run as its eager outputs are.",
    "An average is over the cells that pass on both sides; their number stands beside it. A cell that fails or is missing "
    "never counts as zero.",
    "A verdict compares runs, not samples: all samples of a process share its clock and its tuning. Earlier runs tell how "
    "much a cell varies while its code stays the same. A change is real if it is larger than this noise and large enough to "
    "matter. At most 5 % of the changes that are reported are expected to be noise.",
    "A slow machine slows eager calls, too. What the eager runs show of the machine is taken out before a change is judged.",
)

_MISSING = "planned and not measured: the night ended early, or its machine was lost"

_STATUSES: dict[Status, str] = {
    Status.PASS: "compiled, correct and measured; checked by cosine similarity where there is no float64 reference",
    Status.FAIL_ACCURACY: "the compiled outputs are too far from the reference, or from eager where there is none",
    Status.NONDETERMINISTIC: "two eager runs differ even with deterministic kernels, so there is nothing to compare with",
    Status.NOT_CHECKED: "the outputs are of a kind that cannot be compared: neither right nor wrong",
    Status.ILL_CONDITIONED: "rounding decides most of eager's own outputs, as near ties between experts: neither right nor wrong",
    Status.NOT_COMPILED: "no error, and no compiled graph either: all of the model ran in eager",
    Status.FAIL_TO_COMPILE: "compiling raised an error",
    Status.FAIL_TO_RUN: "it compiled, and calling it raised an error",
    Status.EAGER_FAIL: "the model fails in eager mode, or its outputs there are NaN or infinite",
    Status.OOM: "out of memory, even alone on the device",
    Status.TIMEOUT: "took longer than the time limit",
    Status.CRASHED: "its process died",
    Status.CONFIG_ERROR: "the options contradict each other, or this torch does not have them",
    Status.UNAVAILABLE: "needs something that is not installed or not supported here",
    Status.MODEL_FAIL_TO_LOAD: "the model could not be built",
    Status.SKIPPED: "left out on purpose",
}


def page() -> None:
    """Draw the page."""
    widgets.title("About the numbers")
    draw(*(paragraph("", line) for line in _METHOD))
    metrics = [
        (metric.title, metric.unit or "a number", metric.better, _titled(metric.meaning)) for metric in METRICS.values()
    ]
    draw(table("Metrics", ("metric", "unit", "better", "meaning"), metrics))
    draw(table("Verdicts", ("verdict", "meaning"), list(_verdicts().items())))
    draw(table("Statuses", ("status", "meaning"), [*map(_status, Status), (status_tag(None), _MISSING)]))


def _titled(text: str) -> str:
    """Return the text with the titles of metrics instead of their names."""
    return re.sub(r"\w+", lambda word: METRICS[word[0]].title if word[0] in METRICS else word[0], text)


def _verdicts() -> dict[str, str]:
    """Return the words for a change with their meanings, the most important first."""
    least = ", ".join(f"{METRICS[name].title} {100 * value:g} %" for name, value in MIN_EFFECT.items())
    return {
        "broke / fixed": "passes on one side and fails on the other",
        "regressed / improved": f"by more than the noise and by at least {least}; a leak: it appeared or grew",
        "unchanged": "smaller than that for certain, or the generated code is the same and was not timed again",
        "no clear change": "the runs cannot tell; beside it stands what they rule out, and how many more runs would tell",
        "environment changed": "the machine or a library differs between the sides, so times cannot be compared",
        "flaky": "passed and failed at one commit",
        "missing": "planned on a side and not measured there",
    }


def _status(status: Status) -> tuple[str, str]:
    leaves = "; not part of the pass rate" if status in NOT_APPLICABLE else ""
    return status_tag(status.value), _STATUSES[status] + leaves


page()
