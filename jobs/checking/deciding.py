"""What a cell needs next, from its row of the comparison: nothing, another compilation, or to be timed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import pandas as pd

from analysis.compare.verdicts import Outcome
from collector.metrics import MIN_EFFECT
from collector.vocabulary import Status

#: Compilations of each side after which a compile time that is still open stays open.
MOST_COMPILES = 6
#: Compile times of a pass have their host's load in common, so a change of them needs more rounds before it counts.
CONFIRMED_COMPILING = 4
#: A change counts when so many rounds show it: the first one may be chance.
_CONFIRMED = 2
#: Rounds after which a cell that is too noisy for the rest of the budget is given up: earlier its noise is not known well.
_PATIENCE = 4

#: A change of compile time is what noise looks like if it is less than this part of half its interval, unless it is large.
#: Two passes of one commit on an H200, eight workers each, differed by up to 22 %, and by 31 % beside another GPU's work.
_SUSPICIOUS, _LARGE = 0.6, math.log(1.25)

_CHANGES = (Outcome.REGRESSED, Outcome.IMPROVED)
#: Metrics of compiling, and of running, the one that decides first.
OF_COMPILING = ("compile_cold_s", "compile_instructions")
_OF_RUNNING = ("compiled_ms", "compiled_kernel_ms")


class Need(StrEnum):
    """What is to be done with a cell."""

    NOTHING = "nothing"
    COMPILE = "compile"
    TIME = "time"
    #: Decided, but whoever tuned for both sides has no compile time yet to compare the other one's with.
    COMPARE_COMPILING = "compare compiling"


#: What a cell may need that has its verdict.
SETTLED = (Need.NOTHING, Need.COMPARE_COMPILING)


def need(row: Mapping[Any, Any], timed: int, compiled: int, is_acting: bool) -> Need:
    """What a cell needs after it was timed in `timed` rounds and only compiled in `compiled` others.

    `row` is of a comparison with its judgement. `is_acting`: files differ that act at run time, so equal code proves
    nothing.
    """
    verdict = row["verdict"]
    if verdict in (Outcome.BROKE, Outcome.FIXED, Outcome.FLAKY):
        if (timed or compiled) >= _CONFIRMED:
            return Need.NOTHING
        return Need.TIME if timed else Need.COMPILE
    if not (row["status_base"] == row["status_new"] == Status.PASS.value):
        return Need.NOTHING
    if (is_acting or not has_same_code(row)) and _is_time_open(row, timed):
        return Need.TIME
    if lacks_compile_time(row, "base") or lacks_compile_time(row, "new"):
        return Need.COMPARE_COMPILING if timed + compiled <= _CONFIRMED else Need.NOTHING
    return Need.COMPILE if any(_is_open(row, name, timed + compiled) for name in OF_COMPILING) else Need.NOTHING


def has_same_code(row: Mapping[Any, Any]) -> bool:
    """Whether both sides generated the same code. Not known counts as no."""
    return row.get("code_changed") is False


def is_unconfirmed(row: Mapping[Any, Any], rounds: int) -> bool:
    """Whether the verdict is of a compile time, and too few rounds show it."""
    return row["verdict_metric"] in OF_COMPILING and rounds < CONFIRMED_COMPILING


def lacks_compile_time(row: Mapping[Any, Any], side: str) -> bool:
    """Whether `base` or `new` has compiled, but only while it tuned, which is no compile time (`collector.measure.cell`)."""
    return bool(pd.isna(row[f"compile_cold_s_{side}"]))


def _is_time_open(row: Mapping[Any, Any], timed: int) -> bool:
    verdicts = {name: row[f"{name}_verdict"] for name in _OF_RUNNING if isinstance(row[f"{name}_verdict"], str)}
    if not timed or not verdicts:
        return not timed
    # Wall-clock time decides, and device time where that is inconclusive, as for the verdict of the cell.
    decided = [name for name, word in verdicts.items() if word != Outcome.INCONCLUSIVE]
    changed = {row[f"{name}_verdict"] for name in (*decided[:1], "compiled_peak_bytes")} & set(_CHANGES)
    if decided and row["verdict"] != Outcome.INCONCLUSIVE:
        return bool(changed) and timed < _CONFIRMED
    return timed < _PATIENCE or any(row[f"{name}_more_runs"] != float("inf") for name in verdicts)


def _is_open(row: Mapping[Any, Any], name: str, rounds: int) -> bool:
    """Whether a metric of compiling differs by what matters, and another compilation may show that it is no chance."""
    word, change = row[f"{name}_verdict"], row[f"{name}_change"]
    if not isinstance(word, str) or pd.isna(change) or abs(change) <= MIN_EFFECT[name]:
        return False
    if word in _CHANGES:
        return rounds < CONFIRMED_COMPILING
    return word == Outcome.INCONCLUSIVE and rounds < MOST_COMPILES and _is_suspicious(row, name)


def _is_suspicious(row: Mapping[Any, Any], name: str) -> bool:
    adjusted, low, high = (math.log1p(row[f"{name}_{end}"]) for end in ("adjusted", "low", "high"))
    likely = math.inf if math.isnan(high - low) else _SUSPICIOUS * (high - low) / 2  # the noise may not be known yet
    return abs(adjusted) >= min(likely, _LARGE)
