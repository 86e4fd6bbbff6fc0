"""False alarms and power of our verdicts beside other systems' rules, on processes of the same code with known slow-downs.

python scripts/prove_verdicts.py FOLDER...    folders of bundles that scripts/repeat_cells.py wrote, --inject for power

Each repetition takes its turn as the new commit and each other one as the base; the rest are the history of the base's commit.
For power a quarter of the cells is slowed at a time, each quarter in its turn: what was injected replaces what was measured.
`runs` are those of base and new: 1:1 is a night against the one before, 1:2 after the new commit was measured once more,
6:2 with all of the base commit's runs as the base. Cells that do not pass in every process are left out.
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

import numpy as np
from scipy.stats import beta
from sqlalchemy import Engine

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from analysis.compare.tables import compare
from analysis.compare.verdicts import Outcome, judge_sides
from collector.bundle import BundleContents, BundleWriter, read_bundle
from collector.measure.autotune_results import found_all
from collector.vocabulary import Measurement, Status
from db.engine import open_store
from db.ingest import ingest_bundle
from db.queries.sides import resolve_side
from scripts.rivals import RIVALS, Case, Rule

#: What a false alarm is counted per: the cells of a night.
_CELLS = 1500
_METRICS = ("compiled_kernel_ms", "compiled_ms")
_BASE, _NEW = "a" * 40, "b" * 40
_OURS = "inductor-watch"
#: Slowed in turn, so that most cells of a comparison are as they were: what a false discovery rate allows hangs on that.
_PARTS = 4
#: Rules that look at all earlier runs and want two new ones; the others hold one run against one.
_OF_HISTORY = ("Otava", "HUD, 6-run median, two in a row")

#: Two of the new commit and one of the base.
_FEWEST = 3

#: A repetition: the run of each GPU.
Repetition = list[BundleContents]


@dataclass
class Tally:
    """Of one method: alarms and cells judged, by slow-down (0 is none); how often which cell was a false alarm."""

    alarms: Counter[float] = field(default_factory=Counter)
    cells: Counter[float] = field(default_factory=Counter)
    false: Counter[str] = field(default_factory=Counter)

    def add(self, level: float, alarms: int, cells: int) -> None:
        """Counts one comparison."""
        self.alarms[level] += alarms
        self.cells[level] += cells


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", metavar="folder")
    parser.add_argument(
        "--skip", type=int, default=0, metavar="N", help="leave the first N repetitions out: they chose for the others"
    )
    parser.add_argument(
        "--first", type=int, metavar="N", help="only N repetitions, e.g. where a later one was cut short"
    )
    parser.add_argument(
        "--shared", action="store_true", help="only cells whose processes all found autotuning's choices"
    )
    parser.add_argument("--ours", action="store_true", help="without the rules of other systems")
    parser.add_argument("--level", type=float, action="append", help="only this slow-down, e.g. 0.03; may be repeated")
    options = parser.parse_args()
    of_folders = (read_repetitions(folder)[options.skip :][: options.first] for folder in options.folders)
    repetitions = of_common_cells([one for of_folder in of_folders for one in of_folder], options.shared)
    if len(repetitions) < _FEWEST:
        sys.exit(
            f"{', '.join(map(str, options.folders))}: {len(repetitions)} whole repetitions, at least {_FEWEST} are needed"
        )
    levels = [level for level in injected_levels(repetitions) if not options.level or level in options.level]
    print_table(repetitions, levels, prove(repetitions, levels, {} if options.ours else RIVALS))


def print_table(
    repetitions: Sequence[Repetition], levels: Sequence[float], tallies: Mapping[tuple[str, str, str], Tally]
) -> None:
    """A line a method, metric and number of runs."""
    cells = sum(len(run.measurements) for run in repetitions[0])
    print(f"{len(repetitions)} processes of the same code for each of {cells} cells")
    for level in levels:
        found = np.quantile(_measured_slow_downs(repetitions, level), [0.5, 0.05, 0.95])
        print(
            "a slow-down of {:.0%} of device time was measured as {:.1%} (5 to 95 %: {:.1%} .. {:.1%})".format(
                level, *found
            )
        )
    print(f"false alarms: how many of how many, per {_CELLS} cells, and its upper 95 % bound; then power by slow-down")
    print(
        f"{'method':<34} {'by':<20} {'runs':<4} {'false alarms':>22}" + "".join(f" {level:>7.0%}" for level in levels)
    )
    for (method, metric, runs), tally in tallies.items():
        power = "".join(f" {_share(tally, level):>7}" for level in levels)
        print(f"{method:<34} {metric:<20} {runs:<4} {_false_alarms(tally):>22}{power}")
    for (_, metric, runs), tally in tallies.items():
        if tally.false:
            named = ", ".join(f"{number} x {name}" for name, number in tally.false.most_common())
            print(f"false alarms of ours by {metric}, {runs}: {named}")


def _measured_slow_downs(repetitions: Sequence[Repetition], level: float) -> list[float]:
    """By how much device time really grew, in every process in which it was slowed."""
    metric = "compiled_kernel_ms"
    return [
        told[metric] / item.metrics[metric] - 1
        for repetition in repetitions
        for item in _passing(repetition).values()
        if metric in (told := item.details.get("injected", {}).get(f"{level:g}", {})) and metric in item.metrics
    ]


def read_repetitions(folder: Path) -> list[Repetition]:
    """The runs of each repetition, those with slow-downs first; runs that were cut short are left out."""
    found: dict[str, list[BundleContents]] = defaultdict(list)
    for path in sorted(folder.glob("*.jsonl.gz")):
        run = read_bundle(path)
        inject = bool((run.header.asked or {}).get("settings", {}).get("inject"))
        found[f"{not inject} {run.header.label}"].append(run)
    most = max((len(runs) for runs in found.values()), default=0)
    return [runs for _, runs in sorted(found.items()) if len(runs) == most]


def of_common_cells(repetitions: Sequence[Repetition], shared: bool = False) -> list[Repetition]:
    """The same with the cells that pass in all of them; with `shared` those that never had to tune."""
    passing = [
        {cell_id for cell_id, item in _passing(each).items() if not shared or found_all(item.details)}
        for each in repetitions
    ]
    common = set.intersection(*passing) if passing else set()
    return [
        [
            replace(run, measurements=[item for item in run.measurements if item.cell.cell_id in common])
            for run in repetition
        ]
        for repetition in repetitions
    ]


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


def prove(
    repetitions: Sequence[Repetition], levels: Sequence[float], rivals: Mapping[str, Rule] = RIVALS
) -> dict[tuple[str, str, str], Tally]:
    """Every comparison that the repetitions allow, judged by everybody."""
    tallies: dict[tuple[str, str, str], Tally] = defaultdict(Tally)
    for turn in _turns(repetitions):
        _ask_us(turn, 0.0, None, tallies)
        _ask_rivals(turn, 0.0, None, tallies, rivals)
    for turn in _turns([repetition for repetition in repetitions if injected_levels([repetition])], repetitions):
        for level in levels:
            for part in range(_PARTS):
                slowed = _slowed_cells(turn, part)
                slower = replace(turn, new=[_slowed(repetition, level, slowed) for repetition in turn.new])
                _ask_us(slower, level, slowed, tallies)
                _ask_rivals(slower, level, slowed, tallies, rivals)
    return dict(sorted(tallies.items(), key=lambda pair: (_rank(pair[0][0]), pair[0])))


@dataclass(frozen=True)
class Turn:
    """Who is what in a comparison: `earlier`, of which the last is the base, and the two runs of the new commit."""

    earlier: list[Repetition]
    new: list[Repetition]


def _turns(new: Sequence[Repetition], everything: Sequence[Repetition] = ()) -> Iterator[Turn]:
    """Each of `new` with its successor as the new commit, each of the others as the base; of `everything` only every second
    one, since power needs fewer comparisons than rare alarms do."""
    for at, first in enumerate(new):
        pair = [first, new[(at + 1) % len(new)]]
        others = [repetition for repetition in everything or new if not any(repetition is one for one in pair)]
        for base in range(0, len(others), 2 if everything else 1):
            yield Turn([*others[base + 1 :], *others[:base], others[base]], pair)


def _rank(method: str) -> int:
    return [_OURS, *RIVALS].index(method)


def _slowed_cells(turn: Turn, part: int) -> set[str]:
    """Every fourth cell."""
    return set(sorted(_passing(turn.new[0]))[part::_PARTS])


def _slowed(repetition: Repetition, level: float, slowed: set[str]) -> Repetition:
    """The repetition as it would be with a slow-down of these cells."""
    return [
        replace(
            run,
            measurements=[
                _slower(item, f"{level:g}") if item.status is Status.PASS and item.cell.cell_id in slowed else item
                for item in run.measurements
            ],
        )
        for run in repetition
    ]


def _slower(item: Measurement, level: str) -> Measurement:
    measured = item.details["injected"][level]
    metrics = {**item.metrics, **{name: value for name, value in measured.items() if name != "samples"}}
    for ratio, over, under in (
        ("speedup", "eager_ms", "compiled_ms"),
        ("device_speedup", "eager_kernel_ms", "compiled_kernel_ms"),
    ):
        if over in metrics and metrics.get(under):
            metrics[ratio] = metrics[over] / metrics[under]
    return replace(item, metrics=metrics, samples={**item.samples, "compiled_ms": measured["samples"]})


def _ask_us(turn: Turn, level: float, slowed: set[str] | None, tallies: dict[tuple[str, str, str], Tally]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        engine = open_store(folder / "proof.db", write=True)
        for number, repetition in enumerate(turn.earlier):
            _store(engine, folder, repetition, f"night{number:02}", _BASE, number)
        last = f"night{len(turn.earlier) - 1:02}"
        for number, repetition in enumerate(turn.new):
            _store(engine, folder, repetition, f"new{number}", _NEW, len(turn.earlier) + number)
            for base in [last] if number == 0 else [last, _BASE]:
                runs = f"{1 if base == last else len(turn.earlier)}:{number + 1}"
                _judge(engine, (base, "new0" if number == 0 else _NEW), runs, level, slowed, tallies)
        engine.dispose()


def _judge(
    engine: Engine,
    names: tuple[str, str],
    runs: str,
    level: float,
    slowed: set[str] | None,
    tallies: dict[tuple[str, str, str], Tally],
) -> None:
    with engine.connect() as connection:
        base, new = (resolve_side(connection, name) for name in names)
        cells = compare(connection, base, new).cells
        judged = judge_sides(connection, base, new).of(cells).cells
    told = judged if slowed is None else judged[cells["cell_id_new"].isin(slowed)]
    for metric, column in {"any metric": "verdict", **{name: f"{name}_verdict" for name in _METRICS}}.items():
        verdicts = told[column].dropna()
        alarms = verdicts.index[verdicts == Outcome.REGRESSED]
        tallies[_OURS, metric, runs].add(level, len(alarms), len(verdicts))
        if slowed is None:
            where = cells.loc[alarms]
            tallies[_OURS, metric, runs].false.update((where["model"] + " " + where["config"]).tolist())


def _store(engine: Engine, folder: Path, repetition: Repetition, night: str, commit: str, day: int) -> None:
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
        ingest_bundle(engine, writer.close(header.started_at))


def _ask_rivals(
    turn: Turn,
    level: float,
    slowed: set[str] | None,
    tallies: dict[tuple[str, str, str], Tally],
    rivals: Mapping[str, Rule],
) -> None:
    for metric in _METRICS:
        for case in _cases(turn, slowed, metric):
            for name, rule in rivals.items():
                if metric == "compiled_kernel_ms" and "pooled" in name:
                    continue  # a profile has no samples
                runs = f"{len(turn.earlier)}:2" if name in _OF_HISTORY else "1:1"
                tallies[name, metric, runs].add(level, int(rule(case)), 1)


def _cases(turn: Turn, slowed: set[str] | None, metric: str) -> Iterator[Case]:
    before, after = (
        [_passing(repetition) for repetition in turn.earlier],
        [_passing(repetition) for repetition in turn.new],
    )
    for cell_id, first in after[0].items():
        runs = [found[cell_id] for found in [*before, *after] if cell_id in found and metric in found[cell_id].metrics]
        if len(runs) == len(before) + len(after) and (slowed is None or cell_id in slowed):
            values = [item.metrics[metric] for item in runs]
            samples = before[-1][cell_id].samples["compiled_ms"], first.samples["compiled_ms"]
            yield Case(values[: len(before) - 1], values[len(before) - 1], values[len(before) :], *samples)


def _passing(repetition: Repetition) -> Mapping[str, Measurement]:
    return {item.cell.cell_id: item for run in repetition for item in run.measurements if item.status is Status.PASS}


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
