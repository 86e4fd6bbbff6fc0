"""The next step of a cell of a check: compile it, time it, or nothing, since it is decided."""

from __future__ import annotations

import math
from enum import StrEnum

from analysis.compare.cell_comparison import CHANGES, CellComparison, Judged, Outcome
from collector.metrics import MIN_EFFECT, Dimension
from db.queries.side_rows import CellState

#: Compilations of each side after which a compile time that is still open stays open.
MOST_COMPILES = 6
#: All compile times of a pass share the load of their host, so a change of them needs more rounds before it counts.
CONFIRMED_COMPILING = 4
#: Rounds that must show a change before it counts: the first round may be chance.
_CONFIRMED = 2
#: A change of device time of this size needs no second round if the latency by the host's clock shows half of it. In some
#: processes the device time of a program is 4 % longer than in the rest (docs/statistics.md, second modes): of this size the
#: smallest effect is left, even if one side's process is one of those.
_BEYOND_MODES = math.log(1.06)
#: With other code a change of this size needs no such witness, since the host's clock shows little of a program that waits for
#: launches: with each kernel as short as in any call, none of 147 processes on an H200 was off by one percent.
_CERTAIN = math.log(1.12)
#: A change below this multiple of the smallest effect needs as many rounds as a noisy cell. Measurements of other cells move it,
#: because they change the noise estimate and the drift of the machine: on an H100 a cell was reported as regressed (2.0 %), and
#: the report was taken back later (1.9 %).
_NEAR = 1.25
#: Rounds after which a cell is given up if it is too noisy to be decided within the budget: its noise is not known well before.
_PATIENCE = 4

#: A change of compile time is taken for noise if it is less than this fraction of half its interval, unless it is large.
#: Two passes of one commit on an H200, eight workers each, differed by up to 22 %, and by 31 % beside another GPU's work.
_SUSPICIOUS, _LARGE = 0.6, math.log(1.25)

#: Metrics of compiling, and of running.
OF_COMPILING = ("compile_cold_s", "compile_instructions")
_OF_RUNNING = ("compiled_ms", "compiled_kernel_ms")
#: What the rounds of timing decide.
_TIMED = (Dimension.LATENCY, Dimension.MEMORY)


class Need(StrEnum):
    """The next step of a cell."""

    NOTHING = "nothing"
    COMPILE = "compile"
    TIME = "time"
    #: The verdict is final, but only one side has a compile time without autotuning. Compile the other side again.
    COMPARE_COMPILING = "compare compiling"


#: The possible needs of a cell that has its verdict.
SETTLED = (Need.NOTHING, Need.COMPARE_COMPILING)


def need(
    row: CellComparison, timed: int, compiled: int, is_acting: bool, alike: int = 0, *, is_told: bool = False
) -> Need:
    """Return the next step of a cell after `timed` rounds of timing and `compiled` rounds of compiling.

    `is_acting`: files differ that act at run time, so equal code proves nothing. `alike` is the number of rounds of the model
    under other configs in which the same dimensions changed in the same directions. `is_told`: the cell was decided before, with
    the same outcome. What has been measured of other cells since then moves its interval, but asks for no further round.
    """
    if row.outcome in (Outcome.BROKE, Outcome.FIXED, Outcome.FLAKY):
        if (timed or compiled) >= _CONFIRMED:
            return Need.NOTHING
        return Need.TIME if timed else Need.COMPILE
    if not row.passes:
        # Inconclusive without a measurement: only the code is known, and it differs.
        return Need.TIME if row.outcome is Outcome.INCONCLUSIVE else Need.NOTHING
    if not is_told and (is_acting or not has_same_code(row)) and _is_time_open(row, timed, alike):
        return Need.TIME
    if row.outcome is Outcome.REGRESSED and _runs_worse(row):
        return Need.NOTHING  # its compile time would not change the verdict
    if lacks_compile_time(row.base) or lacks_compile_time(row.new):
        return Need.COMPARE_COMPILING if compiled <= _CONFIRMED else Need.NOTHING
    return Need.COMPILE if any(_is_open(row, name, compiled) for name in OF_COMPILING) else Need.NOTHING


def has_same_code(row: CellComparison) -> bool:
    """Return whether both sides generated the same code; False if that is not known."""
    return row.code_changed is False


def change_of_model(row: CellComparison) -> object:
    """Return a key that rows of a model share if they changed alike in each dimension; an unchanged row has its own key."""
    changes = frozenset((one.dimension, one.verdict) for one in row.changes)
    return (row.cell.axes, changes) if row.outcome in CHANGES and changes else row.cell.cell_id


def is_unconfirmed(row: CellComparison, rounds: int) -> bool:
    """Return whether the verdict is about compiling, and too few rounds show it."""
    return row.metric in OF_COMPILING and rounds < CONFIRMED_COMPILING


def lacks_compile_time(state: CellState) -> bool:
    """Return whether a side has no compile time: a process that runs autotuning records none (`collector.measure.cell`)."""
    return "compile_cold_s" not in state.values


def _is_time_open(row: CellComparison, timed: int, alike: int) -> bool:
    judged = [row.judged[name] for name in _OF_RUNNING if name in row.judged]
    if not timed or not judged:
        return not timed
    decided = [one for one in judged if one.verdict is not Outcome.INCONCLUSIVE]
    memory = row.judged.get("compiled_peak_bytes")
    changed = [one for one in (*decided, memory) if one and one.verdict in CHANGES]
    is_open = row.outcome is Outcome.INCONCLUSIVE and _is_running_open(row)
    if decided and not is_open:
        enough = _PATIENCE if all(map(_is_near_limit, changed)) else _CONFIRMED
        return bool(changed) and timed + alike < enough and not _is_beyond_modes(row)
    return timed < _PATIENCE or any(one.more_runs != float("inf") for one in judged)


def _is_running_open(row: CellComparison) -> bool:
    """Return whether latency or memory is not decided: a cell may be inconclusive for its compile time alone."""
    return any(one.verdict is Outcome.INCONCLUSIVE for one in row.findings if one.dimension in _TIMED)


def _runs_worse(row: CellComparison) -> bool:
    """Return whether a cell got slower or larger."""
    running = [row.judged[name] for name in (*_OF_RUNNING, "compiled_peak_bytes") if name in row.judged]
    return any(one.verdict is Outcome.REGRESSED for one in running)


def _is_near_limit(judged: Judged) -> bool:
    """Return whether a metric changed by little more than its smallest effect."""
    limit, change = MIN_EFFECT.get(judged.metric), judged.shown
    return limit is not None and change is not None and abs(change) < _NEAR * limit


def _is_beyond_modes(row: CellComparison) -> bool:
    """Return whether even the end of the device time's interval nearest to zero is more than a second mode explains."""
    wall, device = (row.judged.get(name) for name in _OF_RUNNING)
    if not device or device.verdict not in CHANGES or device.low is None or device.high is None:
        return False
    near = min((math.log1p(device.low), math.log1p(device.high)), key=abs)
    if device.low * device.high <= 0 or abs(near) < _BEYOND_MODES:
        return False
    by_host = math.copysign(1, near) * math.log1p((wall.adjusted if wall else None) or 0.0)
    return by_host >= _BEYOND_MODES / 2 or (row.code_changed is True and abs(near) >= _CERTAIN)


def _is_open(row: CellComparison, name: str, rounds: int) -> bool:
    """Return whether a metric of compiling differs by more than its smallest effect and more rounds may confirm that.

    A shorter time that is not clear yet asks for no round.
    """
    judged = row.judged.get(name)
    if judged is None or judged.change is None or abs(judged.change) <= MIN_EFFECT[name]:
        return False
    if judged.verdict in CHANGES:
        return rounds < CONFIRMED_COMPILING
    return judged.verdict is Outcome.INCONCLUSIVE and rounds < MOST_COMPILES and _is_suspicious(judged)


def _is_suspicious(judged: Judged) -> bool:
    likely = math.inf  # the noise may not be known yet
    if judged.low is not None and judged.high is not None:
        likely = _SUSPICIOUS * (math.log1p(judged.high) - math.log1p(judged.low)) / 2
    return math.log1p(judged.adjusted or 0.0) >= min(likely, _LARGE)
