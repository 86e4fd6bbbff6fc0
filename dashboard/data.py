"""What the pages read, kept in memory until the data's revision changes. Nothing here decides anything.

All sessions share what is kept, as it is: `st.cache_data` would give each page a copy of its own, unpickled anew with every
run of its script, which for 600 nights and a comparison of 1,800 cells takes longer than all else on the page. So nobody
writes to what comes from here: the dataclasses are frozen, and pages make new frames (`assign`) instead of changing one.
A comparison of 1,800 cells is 3 MB with its verdicts, so few of them are kept: the last that were looked at.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st
from numpy.typing import NDArray
from sqlalchemy import Engine, event

from analysis.compare.tables import EVERYTHING, Comparison, SideSummary, compare, compare_configs, summarise
from analysis.compare.verdicts import Judgement, judge_cells
from analysis.history.recent import Recent, nights_up_to, recent
from analysis.history.record import Listed, Record, listed, record_of
from dashboard.components.outcomes import with_outcomes
from dashboard.pages.overview.groups import Sure, group_intervals
from dashboard.pages.overview.headline import Card, compared_cards
from db.connecting import connected
from db.engine import DEFAULT, VARIABLE, open_store
from db.queries import cells as queries
from db.queries.filters import CellFilter
from db.queries.side_rows import names_of, side_cells
from db.queries.sides import Side
from db.regressions.records import RegressionInfo
from db.schema import HISTORY_METRICS

_FEW, _MANY = 12, 512
#: What the page of a model can draw over the nights.
_MODEL_METRICS = (*HISTORY_METRICS, "device_speedup", "compression", "eager_ms", "compiled_peak_bytes")


@dataclass(frozen=True, slots=True)
class Data:
    """An open store at one revision. The questions are those of `db.queries.cells` and `analysis.compare.tables`."""

    engine: Engine
    stamp: str

    def nights(self) -> list[queries.NightInfo]:
        """All nights with their runs, newest first."""
        return _nights(self.engine, self.stamp)

    def axes(self) -> queries.Axes:
        """Every name that cells are made of."""
        return _axes(self.engine, self.stamp)

    def side(self, text: str) -> Side:
        """What a text names. Raises `SideError`."""
        return _side(self.engine, self.stamp, text)

    def comparison(self, base: str, new: str, filters: CellFilter) -> Comparison:
        """Two sides, by the texts that name them."""
        return _comparison(self.engine, self.stamp, base, new, filters.to_json())

    def configs(self, side: str, base: str, new: str, filters: CellFilter) -> Comparison:
        """Two configs of one side."""
        return _configs(self.engine, self.stamp, side, base, new, filters.to_json())

    def judgement(self, base: str, new: str) -> Judgement:
        """The verdicts of all cells of two sides, by cell_id: a filter hides cells and changes no verdict."""
        return _judgement(self.engine, self.stamp, base, new)

    def config_judgement(self, side: str, base: str, new: str) -> Judgement:
        """The verdicts of all cells of two configs of one side, by cell_id. Raises `FilterError`."""
        return _config_judgement(self.engine, self.stamp, side, base, new)

    def judged_configs(self, side: str, base: str, new: str, filters: CellFilter) -> pd.DataFrame:
        """The cells of `configs` with their verdicts and outcomes. Raises `FilterError`."""
        return _judged_configs(self.engine, self.stamp, side, base, new, filters.to_json())

    def judged(self, base: str, new: str, filters: CellFilter) -> pd.DataFrame:
        """The cells of `comparison` with their verdicts and outcomes, as `dashboard.components.outcomes.with_outcomes` says."""
        return _judged_cells(self.engine, self.stamp, base, new, filters.to_json())

    def intervals(self, base: str, new: str, filters: CellFilter) -> dict[tuple[str, str], Sure]:
        """The intervals of the averages of `comparison`, as `dashboard.pages.overview.groups.group_intervals` says."""
        return _intervals(self.engine, self.stamp, base, new, filters.to_json())

    def key_figures(self, base: str, new: str, filters: CellFilter) -> list[Card]:
        """The overview's key figures of `comparison`, as `dashboard.pages.overview.headline.compared_cards` says."""
        return _key_figures(self.engine, self.stamp, base, new, filters.to_json())

    def cell_ids(self, side: str) -> frozenset[str]:
        """The cells that a side expects."""
        return _cell_ids(self.engine, self.stamp, side)

    def summary(self, side: str, filters: CellFilter) -> SideSummary:
        """One side alone."""
        return _summary(self.engine, self.stamp, side, filters.to_json())

    def history(self, suite: str, model: str) -> pd.DataFrame:
        """All cells of a model over all runs."""
        return _history(self.engine, self.stamp, suite, model)

    def suite_history(self, branch: str, filters: CellFilter) -> pd.DataFrame:
        """The figures of every suite and config over a branch's runs."""
        return _suite_history(self.engine, self.stamp, branch, filters.to_json())

    def measurement(self, run_id: str, cell_id: str) -> queries.MeasurementInfo | None:
        """The newest measurement of a cell in a run."""
        return _measurement(self.engine, self.stamp, run_id, cell_id)

    def samples(self, run_id: str, cell_id: str) -> dict[str, NDArray[np.float64]]:
        """Its samples by metric."""
        return _samples(self.engine, self.stamp, run_id, cell_id)

    def program(self, program_id: str | None) -> dict[str, Any]:
        """Effective options; empty where they are unknown."""
        return _program(self.engine, self.stamp, program_id) if program_id else {}

    def default_program(self, run_id: str) -> str | None:
        """The program of a run's cells under the default config, to tell which options another one changed."""
        default = {info.config_id for info in self.axes().configs if info.request in ({}, {"template": "triton"})}
        rows = _programs(self.engine, self.stamp, run_id)
        found = rows[rows["config_id"].isin(default)]["program_id"].dropna()
        return str(found.iloc[0]) if found.nunique() == 1 else None

    def records(self, with_closed: bool) -> list[Listed]:
        """The records of regressions, the one opened last first."""
        return _records(self.engine, self.stamp, with_closed)

    def record(self, name: str) -> Record | None:
        """One record by its id, with what the store knows around it; None where there is none."""
        found = next((listed.info for listed in self.records(True) if listed.info.regression_id == name), None)
        return None if found is None else _record(self.engine, self.stamp, found)

    def recent(self, side: str, filters: CellFilter, figures: tuple[str, ...]) -> Recent:
        """The figures over the last nights of a side's branch and machines, up to the side."""
        return _recent(self.engine, self.stamp, side, filters.to_json(), figures)

    def environment(self, environment_id: str | None) -> dict[str, Any]:
        """A fingerprint; empty where it is unknown."""
        return _environment(self.engine, self.stamp, environment_id) if environment_id else {}


def place() -> str:
    """Where the store is, as the environment says."""
    return os.environ.get(VARIABLE) or DEFAULT


def opened() -> Data:
    """The store, for reading only. Raises `StoreError` with one line for a person."""
    where = place()
    # A file that was replaced is another file: its number tells, its name does not.
    inode = Path(where).stat().st_ino if "://" not in where and Path(where).is_file() else 0
    engine = _engine(where, inode)
    return Data(engine, f"{where}:{inode}:{queries.revision(engine)}")


@st.cache_resource(show_spinner=False, max_entries=4)
def _engine(where: str, inode: int) -> Engine:
    engine = open_store(where, write=False)
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _with_little_memory)
        # What it was opened with has none of it yet.
        engine.dispose()
    return engine


def _with_little_memory(connection: Any, _: object) -> None:
    """No database file in the server's memory: mapped, all of it that was ever read counts, and reading it is no faster."""
    for pragma in ("mmap_size = 0", "cache_size = -16384"):
        connection.execute(f"PRAGMA {pragma}").close()


@st.cache_resource(show_spinner=False, max_entries=4)
def _nights(_engine: Engine, stamp: str) -> list[queries.NightInfo]:
    return queries.list_nights(_engine)


@st.cache_resource(show_spinner=False, max_entries=4)
def _axes(_engine: Engine, stamp: str) -> queries.Axes:
    return queries.axes(_engine)


@st.cache_resource(show_spinner=False, max_entries=_MANY)
def _side(_engine: Engine, stamp: str, text: str) -> Side:
    return queries.resolve_side(_engine, text)


@st.cache_resource(show_spinner=False, max_entries=_FEW)
def _comparison(_engine: Engine, stamp: str, base: str, new: str, filters: dict[str, list[str]]) -> Comparison:
    sides = [queries.resolve_side(_engine, text) for text in (base, new)]
    return compare(_engine, sides[0], sides[1], _filter(filters))


@st.cache_resource(show_spinner=False, max_entries=_FEW)
def _configs(_engine: Engine, stamp: str, side: str, base: str, new: str, filters: dict[str, list[str]]) -> Comparison:
    return compare_configs(_engine, queries.resolve_side(_engine, side), base, new, _filter(filters))


@st.cache_resource(show_spinner=False, max_entries=_FEW)
def _judgement(_engine: Engine, stamp: str, base: str, new: str) -> Judgement:
    sides = [queries.resolve_side(_engine, text) for text in (base, new)]
    return _judged(_engine, _comparison(_engine, stamp, base, new, EVERYTHING.to_json()), sides[0], sides[1])


@st.cache_resource(show_spinner=False, max_entries=_FEW)
def _config_judgement(_engine: Engine, stamp: str, side: str, base: str, new: str) -> Judgement:
    found = queries.resolve_side(_engine, side)
    return _judged(_engine, _configs(_engine, stamp, side, base, new, EVERYTHING.to_json()), found, found)


@st.cache_resource(show_spinner=False, max_entries=_FEW)
def _judged_cells(_engine: Engine, stamp: str, base: str, new: str, filters: dict[str, list[str]]) -> pd.DataFrame:
    cells = _comparison(_engine, stamp, base, new, filters).cells
    return with_outcomes(cells, _judgement(_engine, stamp, base, new).cells)


@st.cache_resource(show_spinner=False, max_entries=_FEW)
def _judged_configs(
    _engine: Engine, stamp: str, side: str, base: str, new: str, filters: dict[str, list[str]]
) -> pd.DataFrame:
    cells = _configs(_engine, stamp, side, base, new, filters).cells
    return with_outcomes(cells, _config_judgement(_engine, stamp, side, base, new).cells)


@st.cache_resource(show_spinner=False, max_entries=_FEW)
def _intervals(
    _engine: Engine, stamp: str, base: str, new: str, filters: dict[str, list[str]]
) -> dict[tuple[str, str], Sure]:
    return group_intervals(_comparison(_engine, stamp, base, new, filters).cells)


@st.cache_resource(show_spinner=False, max_entries=_FEW)
def _key_figures(_engine: Engine, stamp: str, base: str, new: str, filters: dict[str, list[str]]) -> list[Card]:
    return compared_cards(_judged_cells(_engine, stamp, base, new, filters))


@st.cache_resource(show_spinner=False, max_entries=_MANY)
def _cell_ids(_engine: Engine, stamp: str, side: str) -> frozenset[str]:
    with connected(_engine) as connection:
        cells = side_cells(connection, queries.resolve_side(connection, side), columns=["status"])
    return frozenset(names_of(cells)["cell_id"])


@st.cache_resource(show_spinner=False, max_entries=_FEW)
def _programs(_engine: Engine, stamp: str, side: str) -> pd.DataFrame:
    with connected(_engine) as connection:
        cells = side_cells(connection, queries.resolve_side(connection, side), columns=["program_id"])
    return names_of(cells)[["config_id"]].assign(program_id=cells.columns["program_id"])


def _judged(engine: Engine, found: Comparison, base: Side, new: Side) -> Judgement:
    told = judge_cells(engine, base, new, found.cells)
    return replace(told, cells=told.cells.set_axis(found.cells["cell_id"]))


@st.cache_resource(show_spinner=False, max_entries=_FEW)
def _summary(_engine: Engine, stamp: str, side: str, filters: dict[str, list[str]]) -> SideSummary:
    return summarise(_engine, queries.resolve_side(_engine, side), _filter(filters))


@st.cache_resource(show_spinner=False, max_entries=_FEW)
def _history(_engine: Engine, stamp: str, suite: str, model: str) -> pd.DataFrame:
    return queries.model_history(_engine, suite, model, metrics=_MODEL_METRICS)


@st.cache_resource(show_spinner=False, max_entries=_FEW)
def _suite_history(_engine: Engine, stamp: str, branch: str, filters: dict[str, list[str]]) -> pd.DataFrame:
    return queries.suite_history(_engine, filters=_filter(filters), branch=branch)


@st.cache_resource(show_spinner=False, max_entries=_MANY)
def _measurement(_engine: Engine, stamp: str, run_id: str, cell_id: str) -> queries.MeasurementInfo | None:
    return queries.measurement(_engine, run_id, cell_id)


@st.cache_resource(show_spinner=False, max_entries=_MANY)
def _samples(_engine: Engine, stamp: str, run_id: str, cell_id: str) -> dict[str, NDArray[np.float64]]:
    return queries.samples(_engine, run_id, cell_id)


@st.cache_resource(show_spinner=False, max_entries=_MANY)
def _program(_engine: Engine, stamp: str, program_id: str) -> dict[str, Any]:
    return queries.program(_engine, program_id) or {}


@st.cache_resource(show_spinner=False, max_entries=4)
def _records(_engine: Engine, stamp: str, with_closed: bool) -> list[Listed]:
    return listed(_engine, with_closed=with_closed)


@st.cache_resource(show_spinner=False, max_entries=_FEW, hash_funcs={RegressionInfo: lambda info: info.regression_id})
def _record(_engine: Engine, stamp: str, info: RegressionInfo) -> Record:
    with connected(_engine) as connection:
        return record_of(connection, info)


@st.cache_resource(show_spinner=False, max_entries=_FEW)
def _recent(_engine: Engine, stamp: str, side: str, filters: dict[str, list[str]], figures: tuple[str, ...]) -> Recent:
    found = _side(_engine, stamp, side)
    history = _suite_history(_engine, stamp, found.branches[0], filters)
    return recent(history, nights_up_to(_nights(_engine, stamp), found), found, figures)


@st.cache_resource(show_spinner=False, max_entries=_MANY)
def _environment(_engine: Engine, stamp: str, environment_id: str) -> dict[str, Any]:
    return queries.environment(_engine, environment_id) or {}


def _filter(fields: dict[str, list[str]]) -> CellFilter:
    return CellFilter(**{name: tuple(values) for name, values in fields.items()})
