"""How long each pass of the compiler takes, without the passes that it calls, and which of them takes longer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np

from analysis.compare.findings import Outcome
from analysis.stats.verdicts import difference, false_discovery_rates, judge
from collector.metrics import MIN_EFFECT

#: What `inductor` calls, and what runs once the program does.
_OF_INDUCTOR = ("post_grad_passes", "wait_for_kernels", "autotune_while_compiling")
AFTER_COMPILING = ("autotune_while_running", "cudagraphify")
_PASSES = (
    *("dynamo", "before_restarts", "aot_autograd", "pre_grad_passes", "joint_graph_passes", "inductor"),
    *(*_OF_INDUCTOR, *AFTER_COMPILING),
)
#: Runs of both sides together from which passes are judged.
JUDGED_FROM = 4
#: Of the whole compilation: a pass that changed by less has no verdict.
_PART = 0.01


@dataclass(frozen=True, slots=True)
class PassTime:
    """Seconds that a pass of the compiler took on both sides, the means of their runs; None where a side has no such pass.

    `verdict` is None where it is not judged.
    """

    name: str
    base_s: float | None
    new_s: float | None
    verdict: Outcome | None = None

    @property
    def change_s(self) -> float:
        """How much longer new takes."""
        return (self.new_s or 0.0) - (self.base_s or 0.0)


def pass_times(base: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]) -> list[PassTime]:
    """Return the passes of two sides, the largest change first, each without those that it calls.

    A side has the details of each of its runs. All but those of `AFTER_COMPILING` add up to the whole compilation. From
    `JUDGED_FROM` runs on those that all runs have are judged.
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
    """Return the passes with their verdicts, by the scatter of ln of each pass within the sides; they are one family."""
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
    """Return the seconds of each pass of a compilation without those of the passes that it calls (docs/metrics.md)."""
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
