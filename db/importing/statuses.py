"""PyTorch's words for how a model ended, as ours. The word itself is always kept beside it.

Sources: `check_accuracy` and `write_csv_when_exception` in PyTorch's benchmarks/dynamo/common.py, and what its dashboard
counts as passing (`pass`, `pass_due_to_skip`, `eager_variation`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from collector.vocabulary import Stage, Status


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
