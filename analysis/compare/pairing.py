"""Two sides' rows side by side: one row per cell, with the change of every metric."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from analysis.compare.transitions import transitions
from analysis.stats.arrays import Labels, Numbers, Words
from analysis.stats.verdicts import words_where
from collector.metrics import METRICS
from db.queries.cell_names import CELL_COLUMNS, spelled

#: A cell but for its config.
AXES = ("suite", "model", "phase", "dtype", "device", "batch_size")
#: By what the largest change is found, best first: device time is far steadier than wall-clock time.
RANKING = ("compiled_kernel_ms", "compiled_ms")

_CONFIG = ("cell_id", "config", "config_id")
_OUTCOME = ("expected_base", "expected_new", "status_base", "status_new")


def pair(base: pd.DataFrame, new: pd.DataFrame, *, across_configs: bool = False) -> pd.DataFrame:
    """One row per cell that either side expects, sorted by suite, model and config; the sides are rows of `side_rows`.

    Columns:

    - the cell: `cell` (as people write it), cell_id, suite, model, phase, dtype, device, batch_size, config, config_id;
      cell_id and config are the new side's where it expects the cell, else the base side's
    - of each side, with `_base` and `_new` behind the name: expected, cell_id, config, config_id and what was read of
      `db.queries.side_rows.MEASURED_COLUMNS` (status, spread, metrics, ...), absent where there is no measurement
    - `<metric>_ratio`: new over base; NaN where a side has none or base is 0 and new is not
    - transition (a value of `Transition`), and of a whole comparison program_changed (None where a side has no
      program), code_changed (None where a side has no generated code), testbed_changed (None where a side has no
      measurement), rank_metric, rank_ratio and rank_change (the absolute natural logarithm of the ratio), for the largest
      change

    `across_configs` pairs cells that differ in their config only; then each side's rows must be of one config.
    """
    names, rows = _aligned(base, new, list(AXES) if across_configs else ["cell_id"])
    sides = {**_of_side(base, rows["base"], "base"), **_of_side(new, rows["new"], "new")}
    cells: dict[str, Any] = {"cell": spelled(names), **{name: names[name].array for name in CELL_COLUMNS}, **sides}
    cells["transition"] = transitions(pd.DataFrame({name: sides[name] for name in _OUTCOME}, copy=False)).array
    if "program_id" in base:
        cells |= {f"{name}_changed": _changed(sides, f"{name}_id") for name in ("program", "code", "testbed")}
    ratios = {f"{name}_ratio": _ratio(sides, name) for name in METRICS if f"{name}_base" in sides}
    ranks = _ranks(ratios) if all(f"{name}_ratio" in ratios for name in RANKING) else {}
    return pd.DataFrame({**cells, **ratios, **ranks}, copy=False)


def _aligned(base: pd.DataFrame, new: pd.DataFrame, key: list[str]) -> tuple[pd.DataFrame, dict[str, Labels]]:
    """The names of all pairs in their order, and for each side the row of every pair, -1 where the side has none."""
    columns = list(dict.fromkeys([*key, *CELL_COLUMNS]))
    names = (
        pd.concat([base[columns], new[columns]]).drop_duplicates(key, keep="last").sort_values(list(CELL_COLUMNS[1:]))
    )
    wanted = pd.MultiIndex.from_frame(names[key])
    sides = {"base": base, "new": new}
    rows: dict[str, Labels] = {
        side: pd.MultiIndex.from_frame(of[key]).get_indexer(wanted) for side, of in sides.items()
    }
    return names[list(CELL_COLUMNS)].reset_index(drop=True), rows


def _of_side(cells: pd.DataFrame, rows: Labels, side: str) -> dict[str, Any]:
    """A side's columns at these rows, absent for -1, and whether it expects the cell."""
    own = [name for name in cells if name in _CONFIG or name not in CELL_COLUMNS]
    return {**{f"{name}_{side}": _at(cells[name], rows) for name in own}, f"expected_{side}": rows >= 0}


def _at(values: pd.Series, rows: Labels) -> Any:
    if isinstance(values.dtype, np.dtype):
        return np.append(values.to_numpy(), np.nan)[rows]
    return values.array.take(rows, allow_fill=True)


def _changed(sides: dict[str, Any], name: str) -> Words:
    base, new = sides[f"{name}_base"], sides[f"{name}_new"]
    return words_where(~(base.isna() | new.isna()), np.asarray(base != new, dtype=bool))


def _ratio(sides: dict[str, Any], name: str) -> Numbers:
    base, new = sides[f"{name}_base"], sides[f"{name}_new"]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.select([base != 0, new == 0], [new / base, 1.0], np.nan)


def _ranks(ratios: dict[str, Numbers]) -> dict[str, Any]:
    """The first ranking metric whose ratio is known and positive."""
    values = [ratios[f"{name}_ratio"] for name in RANKING]
    is_known = [ratio > 0 for ratio in values]
    ratio = np.select(is_known, values, np.nan)
    names = pd.array([*RANKING, None], dtype="str").take(np.select(is_known, range(len(RANKING)), -1))
    return {"rank_metric": names, "rank_ratio": ratio, "rank_change": np.abs(np.log(ratio))}
