"""The data of a published site, and its files: written if they changed, removed if they no longer belong to the site.

The data are its nights, the pairs of nights that have verdicts, and both as JSON. A manifest in the folder lists the site's files
with the key by which each was made: files whose sources did not change are kept. Other files are left alone.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import pandas as pd
from sqlalchemy import Connection

from analysis.compare.cell_comparison import VERDICTS, WORSE, CellComparison, Outcome, Transition
from analysis.compare.cell_verdicts import READ
from analysis.compare.compare_sides import SideSummary, compare, summarise
from analysis.compare.comparison import Comparison
from analysis.elements.wording import OUTCOMES, glyph, judged, moment, said
from analysis.history.over_commits import labels_of_runs
from analysis.present import describe_side, dimension_lines, noise_line, sentence
from collector.metrics import METRICS, Dimension, Place, shown_in
from collector.output_file import write_output
from collector.usage_errors import ExpectedError
from collector.vocabulary import batch_word
from db.nights import NightInfo, RunInfo, list_nights
from db.queries.cells import CellName
from db.queries.series import rows_of_runs
from db.queries.sides import Side, base_nights

_MANIFEST = "site-manifest.json"
#: Names that an address needs no escapes for, and the most characters of a name; longer names are cut.
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_LONGEST = 60
#: Files beside a site that belong to its host.
_OF_HOST = {"CNAME"}


class SiteFolderError(ExpectedError):
    """The error that a folder holds something else than a site; its text is one line for a person."""


def file_of(name: str) -> str:
    """Return a name for a file or folder that is different for every `name`: `name` itself if it is plain."""
    if _PLAIN.fullmatch(name) and len(name) <= _LONGEST:
        return name
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:_LONGEST].strip("-") or "x"
    return f"{plain}.{digest(name)[:8]}"


def digest(*parts: object) -> str:
    """Return a hash of some texts and numbers."""
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:20]


class SiteFiles:
    """A folder with a site."""

    def __init__(self, folder: Path, made_by: str) -> None:
        """Open a folder. All files of a site by another `made_by` are made again.

        Raise `SiteFolderError` if the folder holds files and no site.
        """
        self.folder, self._made_by = folder, made_by
        self.written = self.kept = self.removed = 0
        self._keys: dict[str, str] = {}
        try:
            before = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
            self._before: dict[str, str] = {str(name): str(key) for name, key in before["files"].items()}
            self._is_same = before["made_by"] == made_by
        except FileNotFoundError:
            self._before, self._is_same = {}, False
            if folder.exists() and any(path.name[0] != "." and path.name not in _OF_HOST for path in folder.iterdir()):
                raise SiteFolderError(f"{folder} holds files and no published site: name an empty folder") from None
            self._write_manifest({})  # a publication that is cut short can then be made again
        except (ValueError, KeyError, TypeError, AttributeError):
            raise SiteFolderError(f"{folder / _MANIFEST} is damaged: remove the folder, or name another") from None

    def is_current(self, name: str, key: str) -> bool:
        """Return whether a file was made by this key and exists; if so, mark it as kept."""
        if self._is_same and self._before.get(name) == key and (self.folder / name).is_file():
            self._keys[name] = key
            self.kept += 1
            return True
        return False

    def put(self, name: str, content: str | bytes, key: str = "") -> None:
        """Write a file of the site if its content changed."""
        path, new = self.folder / name, content.encode(errors="replace") if isinstance(content, str) else content
        self._keys[name] = key
        if path.is_file() and path.read_bytes() == new:
            self.kept += 1
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        write_output(path, new, sync=False)
        self.written += 1

    def put_json(self, name: str, content: Any, key: str = "") -> None:
        """Write a value as JSON if it changed."""
        self.put(name, json.dumps(content, separators=(",", ":"), ensure_ascii=False, default=str), key)

    def read_json(self, name: str) -> Any:
        """Return the value in a JSON file of the site."""
        return json.loads((self.folder / name).read_text(encoding="utf-8"))

    def size_of(self, name: str) -> int:
        """Return the number of bytes of a file of the site."""
        return (self.folder / name).stat().st_size

    def close(self) -> None:
        """Remove files that no longer belong to the site, and write the manifest."""
        root = self.folder.resolve()
        for name in self._before.keys() - self._keys.keys():
            path = self.folder / name
            if path.resolve().is_relative_to(root) and path.is_file():
                path.unlink()
                self.removed += 1
                for parent in path.parents:
                    if parent == self.folder or any(parent.iterdir()):
                        break
                    parent.rmdir()
        self._write_manifest(self._keys)

    def _write_manifest(self, keys: dict[str, str]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        manifest = {"made_by": self._made_by, "files": dict(sorted(keys.items()))}
        write_output(self.folder / _MANIFEST, json.dumps(manifest, indent=0))

    @property
    def size(self) -> int:
        """Return the number of bytes of all files of the site."""
        return sum(self.size_of(name) for name in (*self._keys, _MANIFEST))

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the site's files."""
        return iter(self._keys)


#: The metrics of a night's file, and the metrics whose changes are in a pair's file: the columns of Compare.
VALUES = shown_in(Place.COLUMN, Place.COMPARE)
COLUMNS = shown_in(Place.COLUMN)
#: Significant digits of a value, and of a change, that are published.
_DIGITS, _CHANGE_DIGITS = 6, 3
#: The letter of the first verdict.
_FIRST = ord("a")
#: Most runs whose rows are kept in memory: verdicts learn the noise from 30 earlier runs.
_READ_RUNS = 256

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class PublishedNight:
    """A night of the site. `base` is the published night that it is compared with; empty where there is none.

    `file` is the name of its files; `key` changes if the night, or an earlier night of the store, changes.
    """

    info: NightInfo
    side: Side
    base: str
    file: str
    key: str

    @property
    def name(self) -> str:
        """The name of the night."""
        return self.info.night

    @property
    def run(self) -> RunInfo:
        """The newest run of the night."""
        return self.info.runs[0]


class SiteData:
    """The nights of a site, newest first, and their comparisons, read from one connection and kept in memory."""

    def __init__(self, conn: Connection, nights: int) -> None:
        """Read the newest `nights` nights."""
        self.conn = conn
        every = list_nights(conn)
        shown = {night.night for night in every[:nights]}
        keys = _keys(every)
        self.all_nights: Sequence[NightInfo] = every
        self.nights = [self._published(night, shown, keys[night.night]) for night in every[:nights]]
        self.by_name = {night.name: night for night in self.nights}
        self.read = lru_cache(_READ_RUNS)(self._rows_of_run)
        self.comparison = lru_cache(4)(self._comparison)
        self.summary = lru_cache(4)(self._summary)

    def _published(self, night: NightInfo, shown: set[str], key: str) -> PublishedNight:
        base = next((one.night for one in base_nights(self.conn, night.runs, self.all_nights)), "")
        side = Side(night.night, "night", night.runs)
        return PublishedNight(night, side, base if base in shown else "", file_of(night.night), key)

    def _rows_of_run(self, run: int) -> pd.DataFrame:
        return rows_of_runs(self.conn, [run], READ)

    def _comparison(self, pair: Pair) -> Comparison:
        base, new = (self.by_name[name].side for name in pair)
        return compare(self.conn, base, new, read=self.read)

    def _summary(self, night: str) -> SideSummary:
        return summarise(self.conn, self.by_name[night].side)

    @cached_property
    def neighbours(self) -> list[Pair]:
        """Pairs of a night's base and the night, the newest night first."""
        return [(night.base, night.name) for night in self.nights if night.base]

    @cached_property
    def pairs(self) -> list[Pair]:
        """The pairs with verdicts: neighbours, the newest night against all others, and all against the first of their branch.

        Two nights without a common testbed have no verdicts.
        """
        found = dict.fromkeys(self.neighbours)
        first: dict[str, PublishedNight] = {night.run.branch: night for night in self.nights}  # the oldest stays
        for night in self.nights[1:]:
            if _shared(night, self.nights[0]):
                found[night.name, self.nights[0].name] = None
        for night in self.nights:
            oldest = first[night.run.branch]
            if oldest is not night and _shared(oldest, night):
                found[oldest.name, night.name] = None
        return list(found)

    @cached_property
    def run_ids(self) -> frozenset[str]:
        """The runs of all nights of the site."""
        return frozenset(run.run_id for night in self.nights for run in night.info.runs)

    def file_of_pair(self, pair: Pair) -> str:
        """Return the part that the names of a pair's files share."""
        return "..".join(self.by_name[name].file for name in pair)

    def change_file(self, pair: Pair, cell_id: str) -> str:
        """Return the name of the page of a cell's change between two neighbours."""
        return f"change/{self.file_of_pair(pair)}/{cell_id}.html"

    @cached_property
    def places(self) -> dict[str, str]:
        """The labels of all runs in charts, in the order of their commits."""
        return labels_of_runs(self.conn, self.all_nights)

    def index_json(self, cells: Iterable[CellName], models: dict[str, str]) -> dict[str, Any]:
        """Return the facts on the site for the script of every page. `models` has the page of each `suite/model`."""
        return {
            "nights": [self._night_of_index(night) for night in self.nights],
            "pairs": [self.file_of_pair(pair) for pair in self.pairs],
            "metrics": {name: [METRICS[name].title, METRICS[name].unit, METRICS[name].better] for name in VALUES},
            "columns": list(COLUMNS),
            "dimensions": {dimension.value: place for place, dimension in enumerate(Dimension)},
            "verdicts": {chr(_FIRST + place): verdict.value for place, verdict in enumerate(VERDICTS)},
            "outcomes": {key: [words, glyph(Outcome(key)), Outcome(key).look] for key, words in OUTCOMES.items()},
            "cells": {
                cell.cell_id: [*cell.axes[:5], batch_word(cell.batch_size), cell.config, cell.batch_size]
                for cell in cells
            },
            "models": models,
        }

    def _night_of_index(self, night: PublishedNight) -> dict[str, Any]:
        run = night.run
        commit = {"branch": run.branch, "commit": run.commit, "title": run.commit_title or "", "release": run.release}
        when = {"started": moment(night.info.started_at), "place": night.info.place}
        runs = [run.run_id for run in night.info.runs if run.run_id != night.name]
        return {"night": night.name, "file": night.file, "base": night.base, "runs": runs, **commit, **when}

    def night_json(self, night: PublishedNight) -> dict[str, Any]:
        """Return the status of each cell of a night, and its values in the order of `VALUES`."""
        states = self.summary(night.name).cells
        return {
            "night": night.name,
            "cells": {
                state.cell_id: [state.status, *(rounded(state.values.get(name)) for name in VALUES)] for state in states
            },
        }

    def pair_json(self, pair: Pair, changed: Iterable[str]) -> dict[str, Any]:
        """Return the verdicts of a pair. `changed` has the ids of cells that have a page of this change."""
        comparison, paged = self.comparison(pair), set(changed)
        return {
            "base": pair[0],
            "new": pair[1],
            "sentence": sentence(comparison),
            "sides": [describe_side(comparison.base), describe_side(comparison.new)],
            "lines": dimension_lines(comparison),
            "notes": [noise_line(comparison), *comparison.notes],
            "cells": {one.cell.cell_id: _cell_json(one, one.cell.cell_id in paged) for one in comparison.cells},
        }

    def changed_cells(self, pair: Pair) -> list[CellComparison]:
        """Return the cells whose metrics or status changed, then cells whose code alone changed, in the order of `ranked`."""
        comparison = self.comparison(pair)
        turned = (Transition.BROKE, Transition.FIXED)
        ranked = comparison.ranked()
        changed = [one for one in ranked if one.changes or one.transition in turned]
        return [*changed, *(one for one in ranked if one.code_changed and one not in changed)]


#: The size of a change that began at 0, for pages: JSON has no infinity.
_LARGEST = 1e9


def _cell_json(one: CellComparison, has_page: bool) -> dict[str, Any]:
    """Return a cell for the pages' script.

    `o` is its outcome, `r` the size of its leading change, by which pages sort, `s` its outcomes with reasons, `f` a letter for
    each dimension, `m` the changes of `COLUMNS`, `v` values of earlier nights, `p` the mark of a cell with a page of its own.
    """
    found: dict[str, Any] = {"o": one.outcome.value}
    if one.leading:
        found["r"] = rounded(min(one.leading.size, _LARGEST))
    words = [[outcome.value, detail] for outcome, detail in said(one)]
    if words != [[one.outcome.value, ""]]:
        found["s"] = words
    if one.findings:
        verdicts = {each.dimension: chr(_FIRST + VERDICTS.index(each.verdict)) for each in one.findings}
        found["f"] = "".join(verdicts.get(dimension, ".") for dimension in Dimension)
    if any(name in one.judged for name in COLUMNS):
        found["m"] = [_change(one, name) if name in one.judged else None for name in COLUMNS]
    # A cell that was not timed again has the values of an earlier night: its own night has none.
    earlier = {
        side: {name: rounded(state.values.get(name)) for name in VALUES if name in state.values}
        for side, state in (("base", one.base), ("new", one.new))
        if state.same_code_as is not None and "compiled_ms" in state.values
    }
    if earlier:
        found["v"] = earlier
    if has_page:
        found["p"] = 1
    return found


def _change(one: CellComparison, metric: str) -> list[Any]:
    of, words = one.judged[metric], judged(one, metric)
    look = [words.look] if words and words.look != "calm" else []
    parts = (of.shown, of.low, of.high)
    # A tenth of a per cent is shown, also for a change by more than 100 %.
    return [*(rounded(part, _CHANGE_DIGITS + (part is not None and abs(part) >= 1)) for part in parts), *look]


def is_worse(cell: Mapping[str, Any]) -> bool:
    """Return whether a cell of a pair's file got worse in any dimension."""
    return cell["o"] in WORSE or any(chr(_FIRST + VERDICTS.index(verdict)) in cell.get("f", "") for verdict in WORSE)


def rounded(value: float | None, digits: int = _DIGITS) -> float | int | None:
    """Return a number with the significant digits that are published; None for NaN and infinities."""
    if value is None or not math.isfinite(value):
        return None
    number = float(f"{value:.{digits}g}")
    return int(number) if number.is_integer() and abs(number) < 1e15 else number


def _shared(one: PublishedNight, other: PublishedNight) -> bool:
    testbeds, theirs = ({run.testbed_id for run in night.info.runs} for night in (one, other))
    return not testbeds.isdisjoint(theirs)


def _keys(nights: Sequence[NightInfo]) -> dict[str, str]:
    """Return a key by night, which changes if the night or an earlier one does: verdicts learn the noise from earlier nights."""
    running = hashlib.sha256()
    keys = {}
    for night in reversed(nights):
        for run in sorted(night.runs, key=lambda run: run.run_id):
            known = (run.run_id, run.attempt, run.planned, run.measured, run.statuses, run.finished_at)
            named = (run.night, run.branch, run.commit, run.commit_title, run.release, run.label)
            running.update(json.dumps([known, named], default=str, sort_keys=True).encode())
        keys[night.night] = running.hexdigest()[:20]
    return keys
