"""What differs around the code: environments of two sides, key by key, and testbeds that must not be mixed silently."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pandas as pd

from analysis.results import EnvironmentDifference
from collector.vocabulary import canonical_json
from db.sides import Side


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
    found = ((key, values[0].get(key, set()), values[1].get(key, set())) for key in keys)
    return tuple(EnvironmentDifference(key, tuple(sorted(a)), tuple(sorted(b))) for key, a, b in found if a != b)


def testbed_notes(base: Side, new: Side, cells: pd.DataFrame) -> list[str]:
    """A line for every device type whose paired cells were measured on more than one testbed."""
    known = {run.testbed_id: run.testbed for run in (*base.runs, *new.runs)}
    notes = []
    for device, rows in cells.groupby("device", sort=True):
        sides = [tuple(sorted(rows[f"testbed_id_{side}"].dropna().unique())) for side in ("base", "new")]
        if len(set(sides[0]) | set(sides[1])) > 1:
            shown = " against ".join(_spell_testbeds(side, known) for side in sides)
            notes.append(f"{device} cells were measured on different testbeds, latencies do not compare: {shown}")
    return notes


def run_notes(*sides: Side) -> list[str]:
    """A line for every run that has no end record: cells without a row may still be coming."""
    runs = {run.run_id: run for side in sides for run in side.runs}
    return [
        f"run {run.run_id} has no end record: it was cut short or is still going"
        for run in runs.values()
        if run.finished_at is None
    ]


def _values(fingerprints: Iterable[Mapping[str, Any]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for fingerprint in fingerprints:
        for key, value in _flat(fingerprint):
            found.setdefault(key, set()).add(value if isinstance(value, str) else canonical_json(value))
    return found


def _flat(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _spell_testbeds(ids: tuple[str, ...], known: Mapping[str, Mapping[str, Any]]) -> str:
    return " and ".join(f"{testbed_id} ({_spell(known[testbed_id])})" for testbed_id in ids) or "none"


def _spell(testbed: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in sorted(testbed.items()))
