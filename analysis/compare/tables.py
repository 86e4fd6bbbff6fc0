"""Compares two sides cell by cell, for the command line and the dashboard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from sqlalchemy import Connection, func, select

from analysis.compare.code import DIFFERENT, SAME, changes
from analysis.compare.environment_diff import environment_differences, run_notes, testbed_notes
from analysis.compare.pairing import pair
from analysis.compare.repeats import RepeatRows
from analysis.compare.results import Comparison, SideSummary
from analysis.compare.suites import compare_groups, summarise_groups
from collector.code import NAME_OF_SOURCE
from collector.metrics import METRICS
from collector.own_models import USER, identity_in
from collector.vocabulary import NOT_APPLICABLE, Status, canonical_json
from db.connecting import Source, connected
from db.errors import FilterError, SideError, nearest, one_line
from db.queries.code import codes, same_code_as
from db.queries.filters import EVERYTHING, CellFilter, check_filter
from db.queries.side_rows import side_environments, side_rows
from db.queries.sides import Side, order_note, resolve_side
from db.schema import measurements

#: What the tables say of a cell whose model, one of a user's own, changed itself.
MODEL_CHANGED = "model changed"
#: Metrics that may be 0 and metrics of accuracy. Of these the newest measurement counts.
_NEWEST = {"error_rmse_ratio", "cosine", "leak_bytes_per_call"}
_AVERAGED = [name for name, metric in METRICS.items() if not metric.is_count and name not in _NEWEST]


def compare(
    source: Source, base: Side, new: Side, filters: CellFilter = EVERYTHING, configs: tuple[str, str] | None = None
) -> Comparison:
    """Every cell that either side expects, base against new, with the suites' figures over cells that pass on both.

    Only the runs of the two sides are looked at. `configs` (of base and of new, by name or `config_id`) pairs the cells of one
    config with those of another. Raises `FilterError` where the filter names something that the database does not have, or a
    side has no such config, or several of that name.
    """
    with connected(source) as conn:
        check_filter(conn, filters)
        sides = [(base, filters), (new, filters)]
        if configs:
            sides = [
                (side, _of_config(conn, side, filters, name)) for side, name in zip((base, new), configs, strict=True)
            ]
        rows = [_side_cells(conn, *side) for side in sides]
        rows = [_with_earlier_times(conn, rows[at], rows[1 - at], filters) for at in (0, 1)]
        environments = [side_environments(conn, *side) for side in sides]
        cells = pair(*rows, across_configs=configs is not None)
        environment = environment_differences(*_compared_environments(cells, environments))
        known = {**environments[0], **environments[1]}
        model_changed = _model_changed(cells, known)
        code = code_words(conn, cells).mask(model_changed, MODEL_CHANGED)
        cells = cells.assign(code=code, same_environment=_same_environment(cells, known), model_changed=model_changed)
    if configs:
        # Cells that the new config does not plan still belong to its group: they left it.
        cells = cells.assign(**{name: rows[1][name].iloc[0] for name in ("config", "config_id")})
    notes = tuple(filter(None, (order_note(source, base, new), *_notes(base, new, cells, across=configs is not None))))
    return Comparison(base, new, filters, compare_groups(cells), cells, environment, notes)


def summarise(source: Source, side: Side, filters: CellFilter = EVERYTHING) -> SideSummary:
    """One side alone, for a database with one run or a first look.

    Raises `FilterError` where the filter names something that the database does not have.
    """
    with connected(source) as conn:
        check_filter(conn, filters)
        cells = _side_cells(conn, side, filters)
    notes = (*filter(None, [order_note(source, side)]), *run_notes(side), *_carried_notes(cells["same_code_as"], ""))
    return SideSummary(side, filters, summarise_groups(cells), cells, notes)


def code_words(source: Source, cells: pd.DataFrame) -> pd.Series:
    """What became of each cell's generated code: `same code`, `3 kernels changed`, `wrapper changed`; None where not known.

    `code changed` where the database does not have the text of both. Of a cell that was not timed again for that reason:
    `same code as NIGHT`, the night whose result counts. `cells` are of `analysis.compare.pairing.pair`.
    """
    changed, new = cells["code_changed"], cells["same_code_as_new"]
    words = (
        new.map("same code as {}".format, na_action="ignore").where(new.notna() & changed.ne(True), None).astype(object)
    )
    words = words.mask(changed.eq(False) & new.isna(), SAME).mask(changed.eq(True), DIFFERENT)
    differing = cells[changed.eq(True)]
    ids = [differing[f"code_id_{side}"].tolist() for side in ("base", "new")]
    known = codes(source, {*ids[0], *ids[1]}) if len(differing) else {}
    for row, base_id, new_id in zip(differing.index, *ids, strict=True):
        if base_id in known and new_id in known:
            words[row] = changes(known[base_id], known[new_id]).words
    return words


def _of_config(conn: Connection, side: Side, filters: CellFilter, wanted: str) -> CellFilter:
    """The filter for one config of a side, by its name or `config_id`."""
    known = side_rows(conn, side, replace(filters, configs=()), metrics=())[["config", "config_id"]].drop_duplicates()
    ids = known[(known["config_id"] == wanted) | (known["config"] == wanted)]["config_id"].tolist()
    if not ids:
        raise FilterError(f"this side has no config {one_line(wanted)!r}{nearest(wanted, known['config'])}")
    if len(ids) > 1:
        raise FilterError(f"several configs are called {one_line(wanted)!r}: say one of {', '.join(sorted(ids))}")
    return replace(filters, configs=(str(ids[0]),))


def _same_environment(cells: pd.DataFrame, environments: Mapping[str, Mapping[str, Any]]) -> pd.Series:
    """Whether both sides ran with the same libraries and settings; the commit of the Python files may differ."""
    known = {
        environment_id: canonical_json({key: value for key, value in data.items() if key != NAME_OF_SOURCE})
        for environment_id, data in environments.items()
    }
    base, new = (cells[f"environment_id_{side}"].map(known) for side in ("base", "new"))
    return base.notna() & (base == new)


def _compared_environments(
    cells: pd.DataFrame, environments: Sequence[Mapping[str, Mapping[str, Any]]]
) -> list[list[Mapping[str, Any]]]:
    """The fingerprints of each side, of cells that both have; all where they have none: another machine's do not matter."""
    ids = cells[["environment_id_base", "environment_id_new"]].dropna()
    compared = [
        [of_side[name] for name in ids[column].unique() if name in of_side]
        for column, of_side in zip(ids, environments, strict=True)
    ]
    return compared if all(compared) else [list(of_side.values()) for of_side in environments]


def _model_changed(cells: pd.DataFrame, environments: Mapping[str, Mapping[str, Any]]) -> pd.Series:
    """Whether the cell's model, one of a user's own, is known to be another in new than in base: its code, or its arguments."""

    def identity(row: Mapping[Any, Any], side: str) -> Mapping[str, Any] | None:
        return identity_in(environments.get(row[f"environment_id_{side}"], {}), row["model"])

    own = (cells["suite"] == USER).to_numpy(dtype=bool, copy=True)
    columns = ["model", "environment_id_base", "environment_id_new"]
    changed = [
        (base := identity(row, "base")) is not None and (new := identity(row, "new")) is not None and base != new
        for row in cells.loc[own, columns].to_dict("records")
    ]
    own[own] = changed
    return pd.Series(own, index=cells.index)


def _side_cells(conn: Connection, side: Side, filters: CellFilter) -> pd.DataFrame:
    cells = side_rows(conn, side, filters)
    untimed = cells["code_id"].notna() & cells["compiled_ms"].isna()
    nights = same_code_as(conn, side.keys) if untimed.any() else {}
    keys = zip(cells["run_id"], cells["cell_id"], cells["replicate"], strict=True)
    carried = pd.Series([nights.get(key) for key in keys], index=cells.index, dtype="str")
    return _with_run_means(conn, side, cells.assign(same_code_as=carried))


def _with_earlier_times(
    conn: Connection, cells: pd.DataFrame, other: pd.DataFrame, filters: CellFilter
) -> pd.DataFrame:
    """The rows of a side with the times of cells that were not timed again, from the night that timed their code.

    Only of cells that have other code on the other side: where it is the same that says enough.
    """
    codes_of_other = other.set_index("cell_id")["code_id"]
    theirs = cells["cell_id"].map(codes_of_other)
    nights = cells["same_code_as"].where(theirs.notna() & (theirs != cells["code_id"]))
    for night in nights.dropna().unique():
        try:
            timed = _side_cells(conn, resolve_side(conn, night), filters).set_index("cell_id")
        except SideError:
            continue  # that night is stored no more
        timed = timed.reindex(cells["cell_id"]).set_axis(cells.index)
        chosen = nights.eq(night) & (timed["code_id"] == cells["code_id"])
        lacking = {name: timed[name].where(chosen & cells[name].isna(), cells[name]) for name in ("spread", *METRICS)}
        cells = cells.assign(**lacking)
    return cells


def _with_run_means(conn: Connection, side: Side, cells: pd.DataFrame) -> pd.DataFrame:
    """The rows of a side (`side_rows`) with the mean of its runs for each cell that passes and was measured several times.

    A metric is then the geometric mean over the runs in which the cell passed, as verdicts use it (`RepeatRows.of_side`).
    The status and the counts stay those of the newest measurement.
    """
    means = _run_means(conn, side)
    if means.empty:
        return cells
    means = means.reindex(cells["cell_id"]).set_axis(cells.index)
    passed = cells["status"] == Status.PASS.value
    return cells.assign(**{name: means[name].where(passed & means[name].notna(), cells[name]) for name in _AVERAGED})


def _run_means(conn: Connection, side: Side) -> pd.DataFrame:
    """A row for each cell that several runs or replicates of the side measured, by its cell_id."""
    count, cells = func.count(), func.count(measurements.c.cell.distinct())
    measured, different = conn.execute(select(count, cells).where(measurements.c.run.in_(side.keys))).one()
    if measured == different:
        return pd.DataFrame()
    rows = RepeatRows.behind(conn, [side], _AVERAGED, look_back=0)
    several = np.bincount(rows.cell) > 1
    means = {metric: np.exp(rows.of_side(side.keys, metric)[0][several]) for metric in _AVERAGED}
    return pd.DataFrame(means, index=rows.cells[several])


def _carried_notes(nights: pd.Series, of_side: str) -> list[str]:
    """How many cells were not timed again since their code is that of an earlier night, whose results count for them."""
    counts = nights.dropna().value_counts(sort=False)
    if counts.empty:
        return []
    of_nights = ", ".join(f"{night} ({count})" for night, count in counts.items())
    return [f"{counts.sum()} of {len(nights)} cells{of_side} were not timed again: same code as {of_nights}"]


def _notes(base: Side, new: Side, cells: pd.DataFrame, *, across: bool) -> list[str]:
    notes = testbed_notes(base, new, cells) + run_notes(base, new)
    if with_code := int(cells["code_changed"].notna().sum()):
        same = int(cells["code_changed"].eq(False).sum())
        notes.append(f"generated code: {same} of {with_code} cells have the same on both sides")
    if models := sorted(set(cells["model"][cells["model_changed"]])):
        changed = f"{int(cells['model_changed'].sum())} of {len(cells)} cells are of a model that itself changed"
        notes.append(f"{changed} ({', '.join(models)}): they tell nothing of torch")
    for side in ("base", "new"):
        notes += _carried_notes(cells[f"same_code_as_{side}"], f" of {side}")
    if across:
        return notes
    if set(base.keys) == set(new.keys):
        notes.append("base and new are the same runs")
    if not (cells["expected_base"] & cells["expected_new"]).any():
        notes.append("no cell is expected on both sides, there is nothing to compare")
    lost = (cells["status_base"] == Status.PASS.value) & cells["status_new"].isin([str(s) for s in NOT_APPLICABLE])
    if count := int(lost.sum()):
        notes.append(f"{count} cells that pass in base are unavailable, skipped or not checked in new")
    return notes
