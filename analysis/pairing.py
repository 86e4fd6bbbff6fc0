"""Two sides' rows side by side: one row per cell, with the change of every metric."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from analysis.transitions import transitions
from collector.metrics import METRICS
from db.side_rows import CELL_COLUMNS, MEASURED_COLUMNS

#: A cell but for its config.
AXES = ("suite", "model", "phase", "dtype", "device", "batch_size")
#: By what the largest change is found, best first: device time is far steadier than wall-clock time.
RANKING = ("compiled_kernel_ms", "compiled_ms")

_CONFIG = ("cell_id", "config", "config_id")


def pair(base: pd.DataFrame, new: pd.DataFrame, *, across_configs: bool = False) -> pd.DataFrame:
    """One row per cell that either side expects, sorted by suite, model and config. Columns:

    - the cell: `cell` (as people write it), cell_id, suite, model, phase, dtype, device, batch_size, config, config_id;
      cell_id and config are the new side's where it expects the cell, else the base side's
    - of each side, with `_base` and `_new` behind the name: expected, cell_id, config, config_id and all of
      `db.side_rows.MEASURED_COLUMNS` (status, spread, metrics, ...), absent where there is no measurement
    - `<metric>_ratio`: new over base; NaN where a side has none or base is 0 and new is not
    - transition (a value of `Transition`), program_changed (None where a side has no program), testbed_changed (None
      where a side has no measurement)
    - rank_metric, rank_ratio and rank_change (the absolute natural logarithm of the ratio), for the largest change

    `across_configs` pairs cells that differ in their config only; then each side's rows must be of one config.
    """
    keys = [*AXES] if across_configs else [*AXES, "cell_id", "config", "config_id"]
    both = _merge(base, new, keys)
    for name in _CONFIG:
        both[name] = both[f"{name}_new"].where(both["expected_new"], both[f"{name}_base"])
    both["transition"] = transitions(both)
    both["program_changed"] = _changed(both, "program_id")
    both["testbed_changed"] = _changed(both, "testbed_id")
    both = pd.concat([both, _ratios(both)], axis=1)
    both = both.join(_ranks(both))
    both["cell"] = _spelled(both)
    both = both.sort_values([*AXES, "config", "config_id"], ignore_index=True)
    first = ["cell", *CELL_COLUMNS, "transition", "program_changed", "testbed_changed"]
    return both[first + [name for name in both.columns if name not in first]]


def _merge(base: pd.DataFrame, new: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    sides = [_of_side(rows, name) for rows, name in ((base, "base"), (new, "new"))]
    on = [*AXES] if len(keys) == len(AXES) else [*AXES, "match"]
    if "match" in on:
        for rows, name in zip(sides, ("base", "new"), strict=True):
            rows["match"] = rows[f"cell_id_{name}"]
    both = sides[0].merge(sides[1], how="outer", on=on).drop(columns="match", errors="ignore")
    for name in ("expected_base", "expected_new"):
        both[name] = both[name].eq(True)
    return both


def _of_side(rows: pd.DataFrame, side: str) -> pd.DataFrame:
    own = {name: f"{name}_{side}" for name in (*_CONFIG, *MEASURED_COLUMNS)}
    return rows[[*CELL_COLUMNS, *MEASURED_COLUMNS]].rename(columns=own).assign(**{f"expected_{side}": True})


def _changed(both: pd.DataFrame, name: str) -> pd.Series:
    base, new = both[f"{name}_base"], both[f"{name}_new"]
    return (base != new).astype(object).where(base.notna() & new.notna(), None)


def _ratios(both: pd.DataFrame) -> pd.DataFrame:
    base = both[[f"{name}_base" for name in METRICS]].to_numpy(dtype=float)
    new = both[[f"{name}_new" for name in METRICS]].to_numpy(dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = new / base
    found[base == 0] = np.nan
    found[(base == 0) & (new == 0)] = 1.0
    return pd.DataFrame(found, index=both.index, columns=[f"{name}_ratio" for name in METRICS])


def _ranks(both: pd.DataFrame) -> pd.DataFrame:
    """The first ranking metric whose ratio is known and positive."""
    metric = pd.Series([None] * len(both), index=both.index, dtype=object)
    ratio = pd.Series(np.nan, index=both.index, dtype=float)
    for name in RANKING:
        usable = ratio.isna() & (both[f"{name}_ratio"] > 0)
        metric[usable] = name
        ratio[usable] = both.loc[usable, f"{name}_ratio"]
    return pd.DataFrame({"rank_metric": metric, "rank_ratio": ratio, "rank_change": np.abs(np.log(ratio))})


def _spelled(both: pd.DataFrame) -> pd.Series:
    """As `collector.vocabulary.Cell` writes itself."""
    columns = [both[name] for name in (*AXES, "config")]
    texts = [
        f"{suite}/{model} {phase} {dtype} {device} bs{batch_size} {config}"
        for suite, model, phase, dtype, device, batch_size, config in zip(*columns, strict=True)
    ]
    return pd.Series(texts, index=both.index, dtype=object)
