"""Compare two sides cell by cell and judge them, for the command line and the dashboard."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection, func, select

from analysis.compare.adjustment import YARDSTICKS, CellPairs, CommonMove, EagerFacts, PairedCells
from analysis.compare.cell_comparison import (
    DEVICE,
    WALL,
    CellComparison,
    Transition,
    by_cell,
    differ,
    findings,
    transition,
)
from analysis.compare.cell_verdicts import (
    COUNTED,
    LEAK,
    LEARNED,
    MARGIN,
    OF_SIDES,
    Circumstances,
    judge_pairs,
    outcome_of,
)
from analysis.compare.comparison import Comparison, NoiseFacts
from analysis.compare.noise import RepeatRows
from analysis.compare.side_differences import DIFFERENT, SAME, carried_notes, changes, pytorch_note, run_notes
from analysis.compare.suite_groups import SuiteSummary, summarise_groups
from collector.bundle import CENSUS
from collector.code import NAME_OF_SOURCE
from collector.metrics import METRICS, MIN_EFFECT
from collector.own_models import USER, identity_in
from collector.vocabulary import Status, canonical_json
from db.connecting import Source, connected
from db.queries.cells import EVERYTHING, CellFilter, CellName, check_filter
from db.queries.details import codes
from db.queries.series import ReadRun
from db.queries.side_rows import NOT_PLANNED, CellState, side_cells, side_environments
from db.queries.sides import Side, order_note, resolve_side
from db.schema import measurements
from db.store_errors import FilterError, SideError, nearest, one_line

#: The tables' words for a cell whose model, one of a user's own, changed itself.
MODEL_CHANGED = "model changed"
#: Metrics that may be 0 and metrics of accuracy, for which the newest measurement counts.
_NEWEST = {"error_rmse_ratio", "cosine", MARGIN, LEAK}
_AVERAGED = [
    name for name, metric in METRICS.items() if not metric.is_count and not metric.floor and name not in _NEWEST
]

Environments = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class SideSummary:
    """One side alone: the cells that it expects, and its groups."""

    side: Side
    filters: CellFilter
    suites: tuple[SuiteSummary, ...]
    cells: tuple[CellState, ...]
    notes: tuple[str, ...]


class _Pair(NamedTuple):
    cell: CellName
    base: CellState
    new: CellState


def compare_named(
    source: Source,
    base: str,
    new: str,
    filters: CellFilter = EVERYTHING,
    configs: tuple[str, str] | None = None,
    against: Mapping[str, str] = MappingProxyType({}),
) -> Comparison:
    """Compare two sides by the texts that name them; see `compare`.

    A filter hides cells and changes no verdict: false discovery rate, drift and noise are computed over all cells. Raise
    `SideError` for a text that names no side, and `FilterError` as `compare` does and for a name that no cell has.
    """
    with connected(source) as conn:
        check_filter(conn, filters)
        return compare(conn, resolve_side(conn, base), resolve_side(conn, new), configs, against=against).only(filters)


def compare(
    source: Source,
    base: Side,
    new: Side,
    configs: tuple[str, str] | None = None,
    *,
    against: Mapping[str, str] = MappingProxyType({}),
    read: ReadRun | None = None,
) -> Comparison:
    """Compare every cell that either side expects, and judge it by the noise that the store holds.

    `configs` (of base and of new, by name or `config_id`) pairs the cells of one config with the cells of another. Raise
    `FilterError` where a side has no such config, or several of that name. `against` pairs the cells of several configs of base
    with the cells of other configs of new, by `config_id`. `read` returns the rows of a run
    (`analysis.compare.cell_verdicts.READ`), if they need not be read from the store.
    """
    with connected(source) as conn:
        sides = [_side_cells(conn, side) for side in (base, new)]
        if configs:
            sides = [_of_config(states, name) for states, name in zip(sides, configs, strict=True)]
        sides = [_with_earlier_times(conn, sides[at], sides[1 - at]) for at in (0, 1)]
        pairs = _paired(*sides, across_configs=configs is not None, against=against)
        environments = side_environments(conn, base) | side_environments(conn, new)
        code = _code_words(conn, pairs)
        # The yardsticks of a night that times are taken from count as well.
        is_carried = any(state.same_code_as for states in sides for state in states)
        of_all = {*LEARNED, *YARDSTICKS} if is_carried else {*LEARNED}
        rows = RepeatRows.behind(conn, (base, new), of_all, read=read, of_sides={*OF_SIDES} - of_all)
        note = order_note(conn, base, new)
    cells, noise, eager = _judged(pairs, code, environments, rows, base, new)
    return Comparison(base, new, cells, noise, environments, note, configs, eager=eager)


def summarise(source: Source, side: Side, filters: CellFilter = EVERYTHING) -> SideSummary:
    """Summarise one side alone, for a database with one run or a first look.

    Raise `FilterError` where the filter names something that the database does not have.
    """
    with connected(source) as conn:
        check_filter(conn, filters)
        cells = _side_cells(conn, side, filters)
        note = order_note(conn, side)
    nights = carried_notes([state.same_code_as for state in cells], "")
    notes = (*([note] if note else []), *run_notes(side), *nights, *pytorch_note(cells, ""))
    return SideSummary(side, filters, summarise_groups(cells), tuple(cells), notes)


def _paired(
    base: Sequence[CellState], new: Sequence[CellState], *, across_configs: bool, against: Mapping[str, str]
) -> list[_Pair]:
    """Return a pair for each cell that either side expects, in the order of their names. A cell is named as in new."""

    def keyed(states: Sequence[CellState], configs: Mapping[str, str]) -> dict[Hashable, tuple[CellName, CellState]]:
        cells = [(state.cell, state) for state in states if state.cell]
        if across_configs:
            return {cell.axes: (cell, state) for cell, state in cells}
        return {(cell.axes, configs.get(cell.config_id, cell.config_id)): (cell, state) for cell, state in cells}

    before, after = keyed(base, against), keyed(new, {})
    names = {key: cell for key, (cell, _) in (*before.items(), *after.items())}
    ordered = sorted(names.items(), key=lambda item: item[1].place)
    nowhere = (None, NOT_PLANNED)
    pairs = [_Pair(name, before.get(key, nowhere)[1], after.get(key, nowhere)[1]) for key, name in ordered]
    if not across_configs or not new or not new[0].cell:
        return pairs
    # Cells that the new config does not plan still belong to its group: they left it.
    config, config_id = new[0].cell.config, new[0].cell.config_id
    return [pair._replace(cell=replace(pair.cell, config=config, config_id=config_id)) for pair in pairs]


def _judged(
    pairs: Sequence[_Pair],
    code: Sequence[str | None],
    environments: Environments,
    rows: RepeatRows,
    base: Side,
    new: Side,
) -> tuple[tuple[CellComparison, ...], dict[str, NoiseFacts], EagerFacts | None]:
    words = [transition(pair.base, pair.new) for pair in pairs]
    paired = PairedCells(rows, base, new, _cell_pairs(pairs, words))
    judgement = judge_pairs(paired)
    by_metric = by_cell(judgement.metrics.values(), len(pairs))
    modes = rows.modes(WALL) | rows.modes(DEVICE)
    one_commit, flaky = set(base.commits) == set(new.commits), rows.flaky()
    settings = {
        environment_id: canonical_json({key: value for key, value in data.items() if key != NAME_OF_SOURCE})
        for environment_id, data in environments.items()
    }
    censuses = {environment_id for environment_id, data in environments.items() if CENSUS in data}
    cells = []
    for at, (pair, word) in enumerate(zip(pairs, words, strict=True)):
        judged = by_metric[at]
        # Libraries and settings are compared without the source: the commit of the Python files may differ.
        before, after = (settings.get(state.environment_id or "") for state in (pair.base, pair.new))
        known = Circumstances(
            pair.base,
            pair.new,
            word,
            same_code=bool(paired.cells.same_code[at]),
            same_environment=before is not None and before == after,
            model_changed=_model_changed(pair, environments),
            only_code=_is_only_code(pair.base, censuses) and _is_only_code(pair.new, censuses),
            is_open=bool(judgement.is_open[at]),
            is_flaky=pair.new.cell_id in flaky,
            one_commit=one_commit,
        )
        outcome, metric = outcome_of(known, judged)
        moved = differ(pair.base.testbed_id, pair.new.testbed_id) is True
        found = findings(outcome, metric, judged, moved=moved, ran=not known.only_code)
        cells.append(
            CellComparison(
                *(*pair, word, outcome, metric, judged, found, bool(paired.throttled[at])),
                code=MODEL_CHANGED if known.model_changed else code[at],
                same_environment=known.same_environment,
                model_changed=known.model_changed,
                modes=modes.get(pair.new.cell_id or ""),
            )
        )
    drift = {name: float(np.expm1(moved)) for name, moved in judgement.drift.items()}
    noise = {name: NoiseFacts(judgement.noise[name], judgement.repeats[name], drift.get(name)) for name in MIN_EFFECT}
    return tuple(cells), noise, _eager_facts(pairs, judgement.eager, paired)


def _eager_facts(pairs: Sequence[_Pair], move: CommonMove | None, paired: PairedCells) -> EagerFacts | None:
    """Return the facts on the eager runs; None where no cell has an eager time on both sides."""
    measured = np.isfinite(paired.moved(move.metric)) & paired.cells.same_testbed if move else np.zeros(0, dtype=bool)
    if move is None or not measured.any():
        return None
    models = [(pair.cell.suite, pair.cell.model) for pair in pairs]
    changed, known = ({models[at] for at in np.flatnonzero(mask).tolist()} for mask in (move.changed, measured))
    change, common, corrected = (float(np.expm1(value)) for value in (move.change_of_changed, move.change, move.drift))
    return EagerFacts(move.metric, len(changed), len(known), change, common, corrected, move.machine is not None)


def _cell_pairs(pairs: Sequence[_Pair], words: Sequence[Transition]) -> CellPairs:
    changed = [differ(base.code_id, new.code_id) for _, base, new in pairs]
    sides = [pair.base for pair in pairs], [pair.new for pair in pairs]
    exact = {
        name: tuple(np.array([state.values.get(name, np.nan) for state in states]) for states in sides)
        for name in (LEAK, MARGIN, *COUNTED)
    }
    return CellPairs(
        ids=([state.cell_id for state in sides[0]], [state.cell_id for state in sides[1]]),
        passes=np.array([word is Transition.BOTH_PASS for word in words], dtype=bool),
        same_testbed=np.array([differ(base.testbed_id, new.testbed_id) is False for _, base, new in pairs], dtype=bool),
        same_code=np.array([each is False for each in changed], dtype=bool),
        timed_in=tuple(
            [state.same_code_as if each else None for state, each in zip(states, changed, strict=True)]
            for states in sides
        ),  # type: ignore[arg-type]  # two sides
        shown=exact,  # type: ignore[arg-type]  # two sides
    )


def _code_words(source: Source, pairs: Sequence[_Pair]) -> list[str | None]:
    """Return the change of each cell's code in words: `same code`, `3 kernels changed`, `wrapper changed`; None if not known.

    `code changed` where the database does not have the text of both sides. `same code as NIGHT`, the night whose result counts,
    for a cell that was not timed again since its code is known.
    """
    changed = [differ(base.code_id, new.code_id) for _, base, new in pairs]
    both = [(base.code_id, new.code_id) for _, base, new in pairs]
    wanted = {key for keys, each in zip(both, changed, strict=True) if each for key in keys if key}
    known = codes(source, wanted) if wanted else {}

    def words(new: CellState, keys: tuple[str | None, str | None], is_changed: bool | None) -> str | None:
        if is_changed:
            before, after = (known.get(key or "") for key in keys)
            return changes(before, after).words if before and after else DIFFERENT
        if new.same_code_as:
            return f"same code as {new.same_code_as}"
        return SAME if is_changed is False else None

    return [words(pair.new, keys, each) for pair, keys, each in zip(pairs, both, changed, strict=True)]


def _of_config(states: Sequence[CellState], wanted: str) -> list[CellState]:
    """Return the cells of one config of a side, by its name or `config_id`."""
    names = {state.cell.config_id: state.cell.config for state in states if state.cell}
    ids = [config_id for config_id, name in names.items() if wanted in (config_id, name)]
    if not ids:
        raise FilterError(f"this side has no config {one_line(wanted)!r}{nearest(wanted, names.values())}")
    if len(ids) > 1:
        raise FilterError(f"several configs are called {one_line(wanted)!r}: say one of {', '.join(sorted(ids))}")
    return [state for state in states if state.cell and state.cell.config_id == ids[0]]


def _is_only_code(state: CellState, censuses: Collection[str]) -> bool:
    """Return whether a census generated the code of a cell, and nothing measured it. `censuses` are its environments' ids."""
    return state.environment_id in censuses and state.status == Status.NOT_CHECKED and state.code_id is not None


def _model_changed(pair: _Pair, environments: Environments) -> bool:
    """Return whether the model, one of a user's own, is known to differ between base and new: its code, or its arguments."""
    if pair.cell.suite != USER:
        return False
    sides = (environments.get(state.environment_id or "", {}) for state in (pair.base, pair.new))
    base, new = (identity_in(data, pair.cell.model) for data in sides)
    return base is not None and new is not None and base != new


def _with_earlier_times(conn: Connection, states: Sequence[CellState], other: Sequence[CellState]) -> list[CellState]:
    """Return the cells of a side; a cell that was not timed again takes its times from the night that timed its code.

    Only cells whose code differs on the other side do so: equal code says enough.
    """
    codes_of_other = {state.cell_id: state.code_id for state in other}
    nights: dict[str, dict[str | None, CellState]] = {}

    def timed(state: CellState) -> CellState:
        theirs = codes_of_other.get(state.cell_id)
        if not state.same_code_as or theirs is None or theirs == state.code_id:
            return state
        night = state.same_code_as
        if night not in nights:
            nights[night] = {}
            with suppress(SideError):  # that night may be stored no more
                nights[night] = {each.cell_id: each for each in _side_cells(conn, resolve_side(conn, night))}
        earlier = nights[night].get(state.cell_id)
        if earlier is None or earlier.code_id != state.code_id:
            return state
        spread = earlier.spread if state.spread is None else state.spread
        return replace(state, values={**earlier.values, **state.values}, spread=spread)

    return [timed(state) for state in states]


def _side_cells(conn: Connection, side: Side, filters: CellFilter = EVERYTHING) -> list[CellState]:
    """Return the cells of a side. A cell that passes and was measured several times has the means of the side's runs.

    A metric is then the geometric mean over the runs in which the cell passed, as verdicts use it (`RepeatRows.of_side`).
    The status and the counts stay those of the newest measurement.
    """
    states = side_cells(conn, side, filters)
    count, cells = func.count(), func.count(measurements.c.cell.distinct())
    measured, different = conn.execute(select(count, cells).where(measurements.c.run.in_(side.keys))).one()
    if measured == different:
        return states
    rows = RepeatRows.behind(conn, [side], _AVERAGED, look_back=0)
    several = {str(rows.cells[at]): at for at in np.flatnonzero(np.bincount(rows.cell) > 1).tolist()}
    means = {metric: np.exp(rows.of_side(side.keys, metric)[0]).tolist() for metric in _AVERAGED}

    def averaged(state: CellState) -> CellState:
        at = several.get(state.cell_id or "")
        if at is None or not state.passes:
            return state
        known = {metric: of_cells[at] for metric, of_cells in means.items() if of_cells[at] == of_cells[at]}
        return replace(state, values={**state.values, **known})

    return [averaged(state) for state in states]
