"""What differs around the code: environments of two sides, key by key, and testbeds that must not be mixed silently."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pandas as pd

from analysis.compare.results import EnvironmentDifference
from collector.vocabulary import canonical_json
from db.queries.sides import Side
from db.runs import RunInfo


def environment_differences(
    base: Iterable[Mapping[str, Any]], new: Iterable[Mapping[str, Any]]
) -> tuple[EnvironmentDifference, ...]:
    """Keys (nested ones dotted) whose values differ between the fingerprints of two sides, sorted by key.

    A key that a side does not have shows with no value there. Nothing is compared with a side without fingerprints.
    """
    values = [_values(side) for side in (base, new)]
    if not all(values):
        return ()
    keys = sorted(values[0].keys() | values[1].keys())
    both = ((key, values[0].get(key, set()), values[1].get(key, set())) for key in keys)
    return tuple(EnvironmentDifference(key, tuple(sorted(a)), tuple(sorted(b))) for key, a, b in both if a != b)


def testbed_notes(base: Side, new: Side, cells: pd.DataFrame) -> list[str]:
    """A line for every device type of which cells were measured on another testbed in new than in base: how many, and why."""
    known = {run.testbed_id: run.testbed for run in (*base.runs, *new.runs)}
    notes = []
    for device, rows in cells[cells["testbed_changed"].notna()].groupby("device", sort=True):
        moved = rows[rows["testbed_changed"].astype(bool)]
        if len(moved):
            pairs = Counter(zip(moved["testbed_id_base"], moved["testbed_id_new"], strict=True))
            notes.append(
                f"{len(moved)} of {len(rows)} {device} cells measured on both sides were measured on different testbeds, "
                f"where latencies do not compare: {_spell_differences(pairs, known)}"
            )
    return notes


def run_notes(*sides: Side) -> list[str]:
    """A line for every night of which runs have no end record: cells without a row may still be coming."""
    runs = {run.run_id: run for side in sides for run in side.runs}
    nights: dict[str, list[RunInfo]] = {}
    for run in runs.values():
        nights.setdefault(run.night, []).append(run)
    notes = []
    for night, of_night in nights.items():
        still_open = [run.run_id for run in of_night if run.finished_at is None]
        if len(still_open) == 1:
            notes.append(f"run {still_open[0]} has no end record: it was cut short or is still going")
        elif still_open:
            which = f"{len(still_open)} of {len(of_night)} runs of night {night} have no end record"
            notes.append(f"{which}: they were cut short or are still going")
    return notes


def _values(fingerprints: Iterable[Mapping[str, Any]]) -> dict[str, set[str]]:
    by_key: dict[str, set[str]] = {}
    for fingerprint in fingerprints:
        for key, value in _flat(fingerprint):
            by_key.setdefault(key, set()).add(value if isinstance(value, str) else canonical_json(value))
    return by_key


def _flat(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _spell_differences(pairs: Mapping[tuple[str, str], int], known: Mapping[str, Mapping[str, Any]]) -> str:
    """`gpu_index in 12 cells (0 against 1 and 2), ...`: key by key what differs between the testbeds, base against new."""
    counts: Counter[str] = Counter()
    values: dict[str, tuple[set[str], set[str]]] = {}
    for (base, new), cells in pairs.items():
        for key in known[base].keys() | known[new].keys():
            both = known[base].get(key), known[new].get(key)
            if both[0] != both[1]:
                counts[key] += cells
                for seen, value in zip(values.setdefault(key, (set(), set())), both, strict=True):
                    seen.add("nothing" if value is None else str(value))
    words = []
    for key in sorted(counts):
        base_values, new_values = (" and ".join(sorted(side)) for side in values[key])
        words.append(f"{key} in {counts[key]} cell{'s' * (counts[key] > 1)} ({base_values} against {new_values})")
    return ", ".join(words)
