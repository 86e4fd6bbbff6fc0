"""False alarms and power of our verdicts beside other systems' rules, on processes of the same code with known slow-downs.

python scripts/prove_verdicts.py FOLDER       a folder of bundles that scripts/repeat_cells.py wrote, --inject for power

Each repetition takes its turn as the new commit; another is the base, the rest are the history of the base's commit. What
is injected replaces what was measured in the new runs. `one run`: the new commit was measured once; `two`: it was measured again,
and both runs are judged together.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

from scipy.stats import beta

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from analysis.compare import compare
from analysis.verdicts import Outcome, judge_sides
from collector.bundle import BundleContents, BundleWriter, read_bundle
from collector.vocabulary import Measurement, Status
from db.engine import open_store
from db.ingest import ingest_bundle
from db.sides import resolve_side
from scripts.rivals import RIVALS, Case

#: What a false alarm is counted per: the cells of a night.
_CELLS = 1500
_METRICS = ("compiled_kernel_ms", "compiled_ms")
_BASE, _NEW = "a" * 40, "b" * 40
_OURS = "inductor-watch"

#: A repetition: the run of each GPU.
Repetition = list[BundleContents]


@dataclass
class Tally:
    """Of one method: alarms and cells judged, by slow-down (0 is none)."""

    alarms: Counter[float] = field(default_factory=Counter)
    cells: Counter[float] = field(default_factory=Counter)

    def add(self, level: float, alarms: int, cells: int) -> None:
        """Counts one comparison."""
        self.alarms[level] += alarms
        self.cells[level] += cells


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    repetitions = read_repetitions(options.folder)
    if len(repetitions) < 4:
        sys.exit(f"{options.folder}: {len(repetitions)} whole repetitions, at least four are needed")
    levels = injected_levels(repetitions)
    tallies = prove(repetitions, levels)
    cells = sum(len(run.measurements) for run in repetitions[0])
    print(f"{len(repetitions)} processes of the same code for each of {cells} cells")
    print(f"false alarms: how many of how many, per {_CELLS} cells, and its upper 95 % bound; then power by slow-down")
    print(
        f"{'method':<34} {'by':<20} {'runs':<4} {'false alarms':>22}" + "".join(f" {level:>7.0%}" for level in levels)
    )
    for (method, metric, runs), tally in tallies.items():
        power = "".join(f" {_share(tally, level):>7}" for level in levels)
        print(f"{method:<34} {metric:<20} {runs:<4} {_false_alarms(tally):>22}{power}")


def read_repetitions(folder: Path) -> list[Repetition]:
    """The runs of each repetition, those with slow-downs first; runs that were cut short are left out."""
    found: dict[str, list[BundleContents]] = defaultdict(list)
    for path in sorted(folder.glob("*.jsonl.gz")):
        run = read_bundle(path)
        inject = bool((run.header.asked or {}).get("settings", {}).get("inject"))
        found[f"{not inject} {run.header.label}"].append(run)
    most = max((len(runs) for runs in found.values()), default=0)
    return [runs for _, runs in sorted(found.items()) if len(runs) == most]


def injected_levels(repetitions: Sequence[Repetition]) -> list[float]:
    """The slow-downs that were measured, the least first."""
    found = {
        float(level)
        for runs in repetitions
        for run in runs
        for item in run.measurements
        for level in item.details.get("injected", ())
    }
    return sorted(found)


def prove(repetitions: Sequence[Repetition], levels: Sequence[float]) -> dict[tuple[str, str, str], Tally]:
    """Every comparison that the repetitions allow, judged by everybody."""
    tallies: dict[tuple[str, str, str], Tally] = defaultdict(Tally)
    count = len(repetitions)
    for turn in range(count):
        new = [repetitions[turn], repetitions[(turn + 1) % count]]
        earlier = [repetitions[(turn + place) % count] for place in range(2, count)]
        for level in [0.0, *levels]:
            slowed = [_slowed(repetition, level) for repetition in new]
            if any(repetition is None for repetition in slowed):
                continue
            whole = [repetition for repetition in slowed if repetition is not None]
            _ask_us(earlier, whole, level, tallies)
            _ask_rivals(earlier, whole, level, tallies)
    return dict(
        sorted(
            tallies.items(),
            key=lambda pair: (
                pair[0][0] != _OURS,
                list(RIVALS).index(pair[0][0]) if pair[0][0] in RIVALS else 0,
                pair[0],
            ),
        )
    )


def _slowed(repetition: Repetition, level: float) -> Repetition | None:
    """The repetition as it would be with a slow-down; None where that was not measured."""
    if not level:
        return repetition
    found = []
    for run in repetition:
        items = [_slower(item, f"{level:g}") for item in run.measurements if item.status is Status.PASS]
        if any(item is None for item in items):
            return None
        found.append(replace(run, measurements=[item for item in items if item]))
    return found


def _slower(item: Measurement, level: str) -> Measurement | None:
    measured = item.details.get("injected", {}).get(level)
    if measured is None:
        return None
    metrics = {**item.metrics, **{name: value for name, value in measured.items() if name != "samples"}}
    for ratio, over, under in (
        ("speedup", "eager_ms", "compiled_ms"),
        ("device_speedup", "eager_kernel_ms", "compiled_kernel_ms"),
    ):
        if over in metrics and metrics.get(under):
            metrics[ratio] = metrics[over] / metrics[under]
    return replace(item, metrics=metrics, samples={**item.samples, "compiled_ms": measured["samples"]})


def _ask_us(
    earlier: Sequence[Repetition], new: Sequence[Repetition], level: float, tallies: dict[tuple[str, str, str], Tally]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        engine = open_store(folder / "proof.db", write=True)
        for number, repetition in enumerate(earlier):
            _store(engine, folder, repetition, f"night{number:02}", _BASE, number)
        for number, repetition in enumerate(new):
            _store(engine, folder, repetition, f"new{number}", _NEW, len(earlier) + number)
            with engine.connect() as connection:
                base = resolve_side(connection, f"night{len(earlier) - 1:02}")
                side = resolve_side(connection, "new0" if number == 0 else _NEW)
                cells = compare(connection, base, side).cells
                judged = judge_sides(connection, base, side).of(cells)
            runs = ("one", "two")[number]
            known = judged.cells["verdict"].dropna()
            tallies[_OURS, "any metric", runs].add(level, int((known == Outcome.REGRESSED).sum()), len(known))
            for metric in _METRICS:
                if f"{metric}_verdict" in judged.cells:
                    verdicts = judged.cells[f"{metric}_verdict"].dropna()
                    tallies[_OURS, metric, runs].add(level, int((verdicts == "regressed").sum()), len(verdicts))
        engine.dispose()


def _store(engine: object, folder: Path, repetition: Repetition, night: str, commit: str, day: int) -> None:
    for place, run in enumerate(repetition):
        began = datetime.fromisoformat("2026-01-01T00:00:00+00:00") + timedelta(days=day)
        header = replace(
            run.header,
            run_id=f"{began:%Y%m%d}-000000-{place:04x}",
            night=night,
            commit=commit,
            started_at=began.isoformat(),
        )
        writer = BundleWriter(folder / night, header, [item.cell for item in run.measurements])
        for environment_id, data in run.environments.items():
            writer.environment(environment_id, data)
        for program_id, options in run.programs.items():
            writer.program(program_id, options)
        for item in run.measurements:
            writer.measurement(item)
        ingest_bundle(engine, writer.close(header.started_at))  # type: ignore[arg-type]


def _ask_rivals(
    earlier: Sequence[Repetition], new: Sequence[Repetition], level: float, tallies: dict[tuple[str, str, str], Tally]
) -> None:
    for metric in _METRICS:
        for case in _cases(earlier, new, metric):
            for name, rule in RIVALS.items():
                if metric == "compiled_kernel_ms" and "pooled" in name:
                    continue  # a profile has no samples
                runs = "two" if name in ("Otava", "HUD, 6-run median, two in a row") else "one"
                tallies[name, metric, runs].add(level, int(rule(case)), 1)


def _cases(earlier: Sequence[Repetition], new: Sequence[Repetition], metric: str) -> Iterator[Case]:
    before, after = [_passing(repetition) for repetition in earlier], [_passing(repetition) for repetition in new]
    for key, first in after[0].items():
        runs = [found[key] for found in [*before, *after] if key in found and metric in found[key].metrics]
        if len(runs) == len(before) + len(after):
            values = [item.metrics[metric] for item in runs]
            base = before[-1][key]
            samples = base.samples["compiled_ms"], first.samples["compiled_ms"]
            yield Case(values[: len(before) - 1], values[len(before) - 1], values[len(before) :], *samples)


def _passing(repetition: Repetition) -> Mapping[tuple[int, str], Measurement]:
    return {
        (place, item.cell.cell_id): item
        for place, run in enumerate(repetition)
        for item in run.measurements
        if item.status is Status.PASS
    }


def _false_alarms(tally: Tally) -> str:
    alarms, cells = tally.alarms[0.0], tally.cells[0.0]
    if not cells:
        return "-"
    bound = float(beta.ppf(0.95, alarms + 1, cells - alarms)) if alarms < cells else 1.0
    return f"{alarms}/{cells}: {_CELLS * alarms / cells:.1f} (<{_CELLS * bound:.0f})"


def _share(tally: Tally, level: float) -> str:
    return f"{tally.alarms[level] / tally.cells[level]:.2f}" if tally.cells[level] else "-"


if __name__ == "__main__":
    main()
