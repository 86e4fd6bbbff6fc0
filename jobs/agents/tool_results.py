"""The typed results of the tools: each text has its secrets masked and no control characters, each number is finite or None.

The schemas that a client sees are made of these classes, with their docstrings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict

from collector.masking import mask
from db.store_errors import counted
from jobs.output.terminal import one_line

#: Characters of a text of one line, and of a line of code.
_LONGEST_LINE = 500

_T = TypeVar("_T")


def shown_line(text: str) -> str:
    """Return a text as one line without secrets and control characters, cut to 500 characters."""
    return one_line(mask(text), _LONGEST_LINE)


def shown_text(text: str) -> str:
    """Return a text of several lines, each of them passed through `shown_line`."""
    return "\n".join(map(shown_line, text.split("\n")))


def _finite(number: Any) -> Any:
    return None if number is not None and not math.isfinite(number) else number


Line = Annotated[str, AfterValidator(shown_line)]
Text = Annotated[str, AfterValidator(shown_text)]
#: None stands for a number that was not measured, or is not known.
Number = Annotated[float | None, BeforeValidator(_finite)]


def first(rows: Sequence[_T], limit: int, what: str, left_out: list[str]) -> list[_T]:
    """Return at most `limit` rows, and add the number of all other rows to `left_out`."""
    if len(rows) > limit:
        left_out.append(f"{len(rows) - limit} of {counted(len(rows), what)}")
    return list(rows[:limit])


class _Result(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Night(_Result):
    """A night: `missing` cells were planned and not measured; `statuses` counts cells by how they ended."""

    night: Line
    started_at: str
    branches: list[Line]
    commits: list[Line]
    where: Line
    statuses: dict[Line, int]
    missing: int
    runs: list[Line]


class Nights(_Result):
    """Nights, newest first."""

    nights: list[Night]
    left_out: list[Line]


class FoundChange(_Result):
    """The change of a cell in one dimension. Changes are relative: 0.05 is +5 %, `low` to `high` the 95 % interval.

    `base` and `new` are in the metric's unit, as measured. `change` is without the machine's part, so it can differ from new
    over base. `words` is the change for people, `beside` a remark, or what would decide the cell.
    """

    cell: Line
    cell_id: Line
    dimension: str
    verdict: str
    metric: str | None
    base: Number
    new: Number
    change: Number
    low: Number
    high: Number
    words: Line
    beside: Line


class CauseCount(_Result):
    """A cause that explains `changes` of the changes; `cells` are the two cells that changed most."""

    title: Line
    changes: int
    cells: list[Line]


class Compared(_Result):
    """Two sides, judged. `dimensions` has a line of counts for each dimension; `changes` the worst first."""

    base: Line
    new: Line
    sentence: Line
    dimensions: list[Line]
    notes: list[Line]
    environment: list[Line]
    causes: list[CauseCount]
    changes: list[FoundChange]
    left_out: list[Line]


class CellSide(_Result):
    """A cell's measurement on one side; `status` is None if the cell was planned and not measured."""

    status: str | None
    run: Line | None
    started_at: str | None
    stage: Line | None
    exception: Line | None
    message: Line | None
    hint: Line | None
    code_id: Line | None


class JudgedValue(_Result):
    """A metric with its verdict. `adjusted` is the change without the machine's part, `low` to `high` its 95 % interval.

    `more_runs` is how many more runs of each side would decide it; None if that is not known, or more than 50.
    """

    metric: str
    title: str
    unit: str
    verdict: str
    base: Number
    new: Number
    change: Number
    adjusted: Number
    low: Number
    high: Number
    q: Number
    more_runs: Number


class PlainValue(_Result):
    """A metric that is shown and has no verdict."""

    metric: str
    unit: str
    base: Number
    new: Number


class CellResult(_Result):
    """One cell on two sides.

    `evidence` lists the differences of the two measurements, `causes` the causes of its changes. `commands` are for the user
    to run: they measure it again, open a record, or search for the commit.
    """

    cell: Line
    cell_id: Line
    base_side: Line
    new_side: Line
    outcome: str
    base: CellSide
    new: CellSide
    changes: list[FoundChange]
    judged: list[JudgedValue]
    not_judged: list[PlainValue]
    evidence: list[Line]
    causes: list[Line]
    notes: list[Line]
    commands: list[Line]
    left_out: list[Line]


class HistoryPoint(_Result):
    """A run of a series: `value` is in the metric's unit, None if not measured; `status` is None for a missing cell."""

    run: Line
    commit: Line
    started_at: str
    status: str | None
    value: Number


class HistorySeries(_Result):
    """The runs of one branch and testbed, oldest first."""

    branch: Line
    testbed_id: Line
    points: list[HistoryPoint]


class HistoryChange(_Result):
    """A change point. `pending` is too young to be established; `is_over`: the series has gone back since.

    It came after `after_commit` and by `by_commit`; `suspects` are the commits in between that are known.
    """

    words: Line
    metric: str
    direction: str
    certainty: str
    is_over: bool
    after_commit: Line
    by_commit: Line
    by_date: str
    environment_changed: bool
    suspects: list[Line]


class History(_Result):
    """The series of a metric of a cell, and its change points with those of its status, newest first."""

    cell: Line
    metric: str
    unit: str
    series: list[HistorySeries]
    changes: list[HistoryChange]
    notes: list[Line]
    left_out: list[Line]


class KernelTime(_Result):
    """Kernels of the same operations: launches and milliseconds per call on both sides; `code` says how their code changed."""

    name: Line
    base_launches: Number
    base_ms: Number
    new_launches: Number
    new_ms: Number
    change_ms: Number
    code: str


class KernelDifference(_Result):
    """A generated kernel that was added, removed, changed or tuned differently.

    `operations` are the fused operations, `source` the lines of the model that they come from.
    """

    name: Line
    what: str
    base_ms: Number
    new_ms: Number
    base_tuning: Line | None
    new_tuning: Line | None
    operations: Line
    source: list[Line]


class Kernels(_Result):
    """The differences in a cell's generated code. `diff` is a unified diff of the texts, base against new, cut to `max_chars`."""

    cell: Line
    sentence: Line
    explained_by: list[Line]
    times: list[KernelTime]
    differing: list[KernelDifference]
    diff: Text
    left_out: list[Line]


class RegressionRecord(_Result):
    """A record of a regression. `commits`, `kernels` and `repro` are set if one record was asked for."""

    regression_id: Line
    state: Line
    cell: Line
    cell_id: Line
    dimension: str
    kind: Line
    metric: Line
    change: Line
    branch: Line
    base_commit: Line | None
    onset_commit: Line | None
    base_run: Line | None
    onset_run: Line | None
    onset_at: str | None
    opened_at: str
    owner: Line
    link: Line
    history: list[Line]
    commits: list[Line]
    kernels: list[Line]
    repro: Line


class Records(_Result):
    """Records of regressions, the newest onset first."""

    records: list[RegressionRecord]
    left_out: list[Line]


class Checked(_Result):
    """A check of two refs. Exit code 0: nothing got worse; 1: something did; 3: too little was measured to say.

    `how` lists what was done with the cells.
    """

    exit_code: int
    reason: Line
    sentence: Line
    how: list[Line]
    dimensions: list[Line]
    changes: list[FoundChange]
    left_out: list[Line]
