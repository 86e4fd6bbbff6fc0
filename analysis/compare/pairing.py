"""Two sides' rows side by side: one row per cell, with the change of every metric."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.compare.transitions import transitions
from collector.metrics import METRICS
from db.queries.cell_names import CellNames, Places
from db.queries.columns import picked
from db.queries.side_rows import SideCells

#: A cell but for its config.
AXES = ("suite", "model", "phase", "dtype", "device", "batch_size")
#: By what the largest change is found, best first: device time is far steadier than wall-clock time.
RANKING = ("compiled_kernel_ms", "compiled_ms")

_CONFIG = ("cell_id", "config", "config_id")
_OUTCOME = ("expected_base", "expected_new", "status_base", "status_new")

Values = NDArray[np.float64]


def pair(base: SideCells, new: SideCells, *, across_configs: bool = False) -> pd.DataFrame:
    """One row per cell that either side expects, sorted by suite, model and config. Columns:

    - the cell: `cell` (as people write it), cell_id, suite, model, phase, dtype, device, batch_size, config, config_id;
      cell_id and config are the new side's where it expects the cell, else the base side's
    - of each side, with `_base` and `_new` behind the name: expected, cell_id, config, config_id and what was read of
      `db.queries.side_rows.MEASURED_COLUMNS` (status, spread, metrics, ...), absent where there is no measurement
    - `<metric>_ratio`: new over base; NaN where a side has none or base is 0 and new is not
    - transition (a value of `Transition`), and of a whole comparison program_changed (None where a side has no
      program), testbed_changed (None where a side has no measurement), rank_metric, rank_ratio and rank_change (the
      absolute natural logarithm of the ratio), for the largest change

    `across_configs` pairs cells that differ in their config only; then each side's rows must be of one config.
    """
    names, rows = _aligned(base, new, across_configs)
    places = np.where(rows["new"] >= 0, _at(new.places, rows["new"]), _at(base.places, rows["base"]))
    found: dict[str, Any] = {"cell": names.spelled.take(places), **names.of(places)}
    sides = {"base": _of_side(base, rows["base"], "base"), "new": _of_side(new, rows["new"], "new")}
    both = {**sides["base"], **sides["new"]}
    found["transition"] = transitions(pd.DataFrame({name: both[name] for name in _OUTCOME}, copy=False)).array
    if "program_id" in base.columns:
        found["program_changed"] = _changed(both, "program_id")
        found["testbed_changed"] = _changed(both, "testbed_id")
    ratios = {f"{name}_ratio": _ratio(both, name) for name in METRICS if f"{name}_base" in both}
    ranks = _ranks(ratios) if all(f"{name}_ratio" in ratios for name in RANKING) else {}
    return pd.DataFrame({**found, **both, **ratios, **ranks}, copy=False)


def _aligned(base: SideCells, new: SideCells, across_configs: bool) -> tuple[CellNames, dict[str, Places]]:
    """The names, and for each side the row of every pair, -1 where the side has none; in the order of the names."""
    # The later of two readings of the names knows the cells of both; numbers stay, places may not.
    names = new.names
    keys = {"base": names.at(base.names.keys[base.places].tolist()), "new": new.places}
    if across_configs:
        keys = {side: names.apart_from_config[places] for side, places in keys.items()}
    pairs = np.union1d(keys["base"], keys["new"])
    rows = {side: np.full(len(pairs), -1) for side in keys}
    for side, of_side in keys.items():
        rows[side][np.searchsorted(pairs, of_side)] = np.arange(len(of_side))
    return names, rows


def _at(values: Places, rows: Places) -> Places:
    """The values at these rows, whatever for -1."""
    return np.append(values, 0)[rows]


def _of_side(cells: SideCells, rows: Places, side: str) -> dict[str, Any]:
    """A side's columns at these rows, absent for -1, and whether it expects the cell."""
    own = {name: cells.names.columns[name].take(cells.places) for name in _CONFIG} | cells.columns
    expected = rows >= 0
    taken = {f"{name}_{side}": _taken(values, rows) for name, values in own.items()}
    return {**taken, f"expected_{side}": expected}


def _taken(values: Any, rows: Places) -> Any:
    if isinstance(values, np.ndarray):
        return np.append(values, np.nan)[rows]
    return values.take(rows, allow_fill=True)


def _changed(both: dict[str, Any], name: str) -> NDArray[np.object_]:
    base, new = both[f"{name}_base"], both[f"{name}_new"]
    found = np.asarray(base != new, dtype=bool).astype(object)
    found[base.isna() | new.isna()] = None
    return found


def _ratio(both: dict[str, Any], name: str) -> Values:
    base, new = both[f"{name}_base"], both[f"{name}_new"]
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Values = new / base
    found[base == 0] = np.nan
    found[(base == 0) & (new == 0)] = 1.0
    return found


def _ranks(ratios: dict[str, Values]) -> dict[str, Any]:
    """The first ranking metric whose ratio is known and positive."""
    count = len(ratios[f"{RANKING[0]}_ratio"])
    metric, ratio = np.full(count, -1), np.full(count, np.nan)
    for place, name in enumerate(RANKING):
        usable = np.isnan(ratio) & (ratios[f"{name}_ratio"] > 0)
        metric[usable] = place
        ratio[usable] = ratios[f"{name}_ratio"][usable]
    return {"rank_metric": picked(RANKING, metric), "rank_ratio": ratio, "rank_change": np.abs(np.log(ratio))}
