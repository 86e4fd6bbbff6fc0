"""What differs around the code: environments of two sides, key by key, and testbeds that must not be mixed silently."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from analysis.compare.cell_comparison import CellComparison
from collector.code import NAME_OF_SOURCE
from collector.vocabulary import canonical_json
from db.queries.sides import Side
from db.runs import RunInfo


@dataclass(frozen=True, slots=True)
class EnvironmentDifference:
    """One key of the fingerprint whose values differ between the sides; several values if a side has several."""

    key: str
    base: tuple[str, ...]
    new: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """A JSON object with stable keys."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


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


def side_notes(base: Side, new: Side, cells: Sequence[CellComparison], *, across: bool) -> list[str]:
    """Return what must be known to read a comparison, a sentence each. `across`: of two configs of one side."""
    notes = _testbed_notes(base, new, cells) + run_notes(base, new)
    coded = [one.code_changed for one in cells if one.code_changed is not None]
    if coded:
        notes.append(f"generated code: {coded.count(False)} of {len(coded)} cells have the same on both sides")
    if changed := [one for one in cells if one.model_changed]:
        models = ", ".join(sorted({one.cell.model for one in changed}))
        notes.append(
            f"{len(changed)} of {len(cells)} cells are of a model that itself changed ({models}): they tell nothing of torch"
        )
    notes += carried_notes([one.base.same_code_as for one in cells], " of base")
    notes += carried_notes([one.new.same_code_as for one in cells], " of new")
    if across:
        return notes
    if set(base.keys) == set(new.keys):
        notes.append("base and new are the same runs")
    if not any(one.base.is_expected and one.new.is_expected for one in cells):
        notes.append("no cell is expected on both sides, there is nothing to compare")
    if lost := sum(one.base.passes and one.new.is_not_applicable for one in cells):
        notes.append(f"{lost} cells that pass in base are unavailable, skipped or not checked in new")
    return notes


def carried_notes(nights: Sequence[str | None], of_side: str) -> list[str]:
    """Return how many cells were not timed again since their code is that of an earlier night, whose results count."""
    counts = Counter(night for night in nights if night)
    if not counts:
        return []
    of_nights = ", ".join(f"{night} ({count})" for night, count in counts.items())
    return [f"{counts.total()} of {len(nights)} cells{of_side} were not timed again: same code as {of_nights}"]


def _testbed_notes(base: Side, new: Side, cells: Sequence[CellComparison]) -> list[str]:
    """Return a line for every device type of which cells were measured on another testbed in new than in base."""
    known = {run.testbed_id: run.testbed for run in (*base.runs, *new.runs)}
    by_device: dict[str, list[CellComparison]] = {}
    for one in cells:
        if one.testbed_changed is not None:
            by_device.setdefault(one.cell.device, []).append(one)
    notes = []
    for device, rows in sorted(by_device.items()):
        pairs = Counter((str(one.base.testbed_id), str(one.new.testbed_id)) for one in rows if one.testbed_changed)
        if pairs:
            notes.append(
                f"{pairs.total()} of {len(rows)} {device} cells measured on both sides were measured on different testbeds, "
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
        torch = f"torch {str(fingerprint.get('torch', '')).partition('+')[0]}"
        for key, value in _flat(fingerprint):
            text = value if isinstance(value, str) else canonical_json(value)
            by_key.setdefault(key, set()).add(_source_words(text, torch) if key == NAME_OF_SOURCE else text)
    return by_key


def _source_words(text: str, torch: str) -> str:
    """`torch 2.11.0, unpatched` or `8 files of da9bfb0c0e over torch 2.11.0`, from what an overlay calls itself."""
    match = re.fullmatch(r"(\d+) files of (\S+) over (\w+)(.*)", text)
    if not match:
        return text
    return f"{torch}, unpatched" if match[1] == "0" else f"{match[1]} files of {match[2]} over {torch}{match[4]}"


def _flat(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _spell_differences(pairs: Mapping[tuple[str, str], int], known: Mapping[str, Mapping[str, Any]]) -> str:
    """`gpu_index in 12 cells (0 in base, 1 and 2 in new), ...`: key by key what differs between the testbeds."""
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
        each = (
            f"{base_values} in base, {new_values} in new"
            if base_values != new_values
            else f"each on another of {new_values}"
        )
        words.append(f"{key} in {counts[key]} cell{'s' * (counts[key] > 1)} ({each})")
    return ", ".join(words)
