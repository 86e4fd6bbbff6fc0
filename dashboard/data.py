"""The data that the pages read, cached until the store's revision changes. Nothing here decides anything.

All sessions share the cached values (`st.cache_resource`): to copy a comparison of 1,800 cells takes longer than all else on
a page. So no page may change a value from here: pages make new frames (`assign`) instead.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, TypeVar, cast

import pandas as pd
import streamlit as st
from sqlalchemy import Engine

from analysis.compare.cell_verdicts import READ
from analysis.compare.compare_sides import SideSummary, compare, summarise
from analysis.compare.comparison import Cause, Comparison, causes
from analysis.history import suite_levels
from analysis.history.branch_series import nights_up_to, recent
from analysis.history.over_commits import MODEL_METRICS, CommitCodes, code_changes, labels_of_runs
from analysis.history.regression_record import Listed, Record, listed, record_of
from collector.metrics import METRICS
from db.connecting import connected
from db.engine import DEFAULT, VARIABLE, open_store
from db.nights import NightInfo, list_nights, local_commits
from db.queries import series
from db.queries.cells import EVERYTHING, Axes, CellFilter, axes, cell_names, check_filter, revision, runs_with
from db.queries.details import CensusCodes, census_codes, references
from db.queries.series import model_history, rows_of_runs, suite_history
from db.queries.side_rows import side_rows
from db.queries.sides import Side, base_nights, resolve_side

F = TypeVar("F", bound=Callable[..., Any])


def _cached(entries: int) -> Callable[[F], F]:
    """Return a decorator that caches a method of `Data` for all sessions, by the store's revision and the arguments.

    The newest `entries` are kept.
    """
    by_revision: dict[str | type[Any], Callable[[Any], Any]] = {"dashboard.data.Data": lambda data: data.revision}
    return cast("Callable[[F], F]", st.cache_resource(show_spinner=False, max_entries=entries, hash_funcs=by_revision))


@dataclass(frozen=True, slots=True)
class Pair:
    """The texts that name two sides, or one side twice and two of its configs (base, new)."""

    base: str
    new: str
    configs: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Data:
    """An open store at one revision of its data. Sides are named by the texts that an address has."""

    engine: Engine
    revision: str

    @_cached(4)
    def nights(self) -> list[NightInfo]:
        """Return all nights with their runs, newest first."""
        return list_nights(self.engine)

    @_cached(32)
    def nights_with(self, filters: CellFilter) -> list[NightInfo]:
        """Return the nights that planned or measured a cell under the filters, newest first."""
        if filters == EVERYTHING:
            return self.nights()
        return self._nights_of(runs_with(self.engine, filters))

    @_cached(4)
    def axes(self) -> Axes:
        """Return every suite, model, phase, dtype, device and config of the stored cells."""
        return axes(self.engine)

    @_cached(512)
    def side(self, text: str) -> Side:
        """Return the side that a text names. Raises `SideError` if it names none, or several."""
        return resolve_side(self.engine, text)

    @_cached(512)
    def cell_ids(self, side: str) -> frozenset[str]:
        """Return the ids of the cells that a side planned or measured."""
        return frozenset(side_rows(self.engine, self.side(side), metrics=())["cell_id"])

    @_cached(512)
    def previous(self, side: str) -> str:
        """Return the newest night that a side can be compared with (`base_nights`); empty where there is none."""
        return next((night.night for night in base_nights(self.engine, self.side(side).runs)), "")

    @_cached(12)
    def summary(self, side: str, filters: CellFilter) -> SideSummary:
        """Return the cells and groups of one side alone."""
        return summarise(self.engine, self.side(side), filters)

    @_cached(12)
    def _comparison(self, pair: Pair) -> Comparison:
        return compare(self.engine, self.side(pair.base), self.side(pair.new), pair.configs, read=self.rows_of_run)

    @_cached(12)
    def comparison(self, pair: Pair, filters: CellFilter = EVERYTHING) -> Comparison:
        """Return two sides cell by cell; a filter hides cells and changes no verdict. Raises `FilterError` for unknown names."""
        check_filter(self.engine, filters)
        return self._comparison(pair).only(filters)

    @_cached(12)
    def causes(self, pair: Pair, filters: CellFilter) -> list[Cause]:
        """Return the changes between two sides, grouped by what explains them."""
        with connected(self.engine) as conn:
            return causes(conn, self.comparison(pair, filters))

    @_cached(64)
    def rows_of_run(self, run: int) -> pd.DataFrame:
        """Return the rows of one run that verdicts read.

        Runs are cached one by one: the noise behind any two nights is learned from mostly the same 30 nights.
        """
        return rows_of_runs(self.engine, [run], READ)

    @_cached(12)
    def history(self, suite: str, model: str) -> pd.DataFrame:
        """Return all cells of a model over all runs."""
        return model_history(self.engine, suite, model, metrics=MODEL_METRICS)

    def nights_of(self, suite: str, model: str) -> list[NightInfo]:
        """Return the nights that planned or measured a model, newest first."""
        return self._nights_of(frozenset(self.history(suite, model)["run_id"]))

    def _nights_of(self, run_ids: frozenset[str]) -> list[NightInfo]:
        return [night for night in self.nights() if any(run.run_id in run_ids for run in night.runs)]

    @_cached(12)
    def suite_history(self, branch: str, filters: CellFilter) -> pd.DataFrame:
        """Return the figures of every suite and config over a branch's runs."""
        return suite_history(self.engine, filters=filters, branch=branch)

    @_cached(12)
    def trend_history(self, branches: tuple[str, ...], filters: CellFilter) -> pd.DataFrame:
        """Return `suite_history` of some branches with columns that charts need, as `analysis.history.suite_levels` takes it."""
        history = suite_levels.joined({name: self.suite_history(name, filters) for name in branches})
        return history if history.empty else suite_levels.with_nights(history, self.nights(), self.places())

    @_cached(12)
    def trend(
        self, branches: tuple[str, ...], filters: CellFilter, metric: str, first: date, last: date, by: str
    ) -> tuple[pd.DataFrame, list[suite_levels.Step]]:
        """Return a figure over time, and its steps to new levels."""
        history = suite_levels.points(suite_levels.within(self.trend_history(branches, filters), first, last), by)
        if metric in METRICS:
            with connected(self.engine) as conn:
                values = series.passing_values(conn, history["run"].unique().tolist(), metric)
                trend = suite_levels.paired(history, cell_names(conn, filters), values, metric)
        else:
            trend = suite_levels.counted(history, metric)
        if trend.empty:
            return trend, []
        texts = [suite_levels.value(metric, number) for number in trend["value"]]
        return trend.assign(date=trend["started_at"], text=texts), suite_levels.steps(trend, metric)

    @_cached(12)
    def recent(self, side: str, filters: CellFilter, figures: tuple[str, ...]) -> dict[str, tuple[float, ...]]:
        """Return the figures over the last nights of a side's branch and machines, up to the side."""
        new = self.side(side)
        return recent(self.suite_history(new.branches[0], filters), nights_up_to(self.nights(), new), new, figures)

    @_cached(4)
    def places(self) -> dict[str, str]:
        """Return the chart labels of all runs by run id, in the order of commits."""
        return labels_of_runs(self.engine, self.nights())

    @_cached(12)
    def code_changes(self, filters: CellFilter) -> dict[str, list[CommitCodes]]:
        """Return the commits of censuses with their changes, newest first, by device and branch such as `H100, main`."""
        groups: dict[str, list[CensusCodes]] = {}
        for one in census_codes(self.engine, filters):
            groups.setdefault(f"{one.device_name}, {one.run.branch}", []).append(one)
        return {name: code_changes(censuses) for name, censuses in groups.items()}

    @_cached(32)
    def references(self, side: str, cell_ids: frozenset[str]) -> dict[tuple[str, str, int], str]:
        """Return the references of the checks of outputs of some cells of a side, by measurement (run_id, cell_id, replicate)."""
        return references(self.engine, self.side(side).keys, cell_ids)

    @_cached(12)
    def default_program(self, run_id: str) -> str | None:
        """Return the program of a run's cells under the default config, against which other configs' options are shown.

        None if there is no such program, or more than one.
        """
        default = {info.config_id for info in self.axes().configs if info.request in ({}, {"template": "triton"})}
        rows = side_rows(self.engine, self.side(run_id), metrics=())
        programs = rows[rows["config_id"].isin(default)]["program_id"].dropna()
        return str(programs.iloc[0]) if programs.nunique() == 1 else None

    @_cached(4)
    def commit_titles(self) -> dict[str, str]:
        """Return the titles of the commits that were measured, by sha."""
        return {run.commit: run.commit_title for night in self.nights() for run in night.runs if run.commit_title}

    @_cached(4)
    def local_commits(self) -> frozenset[str]:
        """Return the commits of local clones, which no host has."""
        return local_commits(self.engine)

    @_cached(4)
    def records(self, with_closed: bool) -> list[Listed]:
        """Return the records of regressions, the newest first."""
        return listed(self.engine, with_closed=with_closed)

    def record(self, name: str) -> Record | None:
        """Return one record by its id, with what the store knows around it; None where there is none."""
        info = next((each.info for each in self.records(True) if each.info.regression_id == name), None)
        if info is None:
            return None
        with connected(self.engine) as connection:
            return record_of(connection, info)


def store_address() -> str:
    """Return the path or URL of the store, as the environment says."""
    return os.environ.get(VARIABLE) or DEFAULT


def opened() -> Data:
    """Return the store, for reading only. Raises `StoreError` with one line for a person."""
    address = store_address()
    # A replaced file keeps its name and has another inode.
    inode = Path(address).stat().st_ino if "://" not in address and Path(address).is_file() else 0
    engine = _engine(address, inode)
    return Data(engine, f"{address}:{inode}:{revision(engine)}")


@st.cache_resource(show_spinner=False, max_entries=4)
def _engine(address: str, inode: int) -> Engine:
    return open_store(address, write=False)
