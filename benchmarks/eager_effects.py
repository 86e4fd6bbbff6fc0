"""Judge commits that change eager too, on measured nights: `python -m benchmarks eager_effects data/nights`

The nights of the first commit are stored unchanged. The last of them is stored again as another commit, with times of some models
multiplied, and compared with the first and with the last night. *Slowed* are cells whose compiled times were multiplied,
*untouched* all others. The gate is the rule of `inductor-watch gate`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from analysis.compare.cell_comparison import WORSE
from analysis.compare.cell_verdicts import decide
from analysis.compare.compare_sides import compare_named
from collector.bundle import BundleContents, BundleWriter, read_bundle
from collector.vocabulary import Measurement
from db.engine import open_store
from db.ingest import ingest_bundle

_EAGER, _COMPILED = ("eager_ms", "eager_kernel_ms"), ("compiled_ms", "compiled_kernel_ms")
_OTHER = "0123456789" * 4


@dataclass(frozen=True, slots=True)
class Effect:
    """The factors by which a commit changes the times of the first models; `share` is their part of all models."""

    title: str
    share: float
    eager: float
    compiled: float


EFFECTS = (
    Effect("eager and compiled +5 % in half of the models", 0.5, 1.05, 1.05),
    Effect("eager and compiled +10 % in half of the models", 0.5, 1.10, 1.10),
    Effect("eager and compiled +30 % in half of the models", 0.5, 1.30, 1.30),
    Effect("eager and compiled +5 % in all models", 1, 1.05, 1.05),
    Effect("eager and compiled +10 % in all models", 1, 1.10, 1.10),
    Effect("eager and compiled +30 % in all models", 1, 1.30, 1.30),
    Effect("eager -5 % in all models", 1, 0.95, 1.0),
    Effect("eager -2 % in all models", 1, 0.98, 1.0),
    Effect("eager -5 % in half of the models", 0.5, 0.95, 1.0),
    Effect("compiled +5 % in half of the models", 0.5, 1.0, 1.05),
    Effect("nothing", 0, 1.0, 1.0),
)


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcomes of slowed and of untouched cells, the gate's exit code, and the notes on the controls."""

    slowed: Counter[str]
    untouched: Counter[str]
    exit_code: int
    notes: Sequence[str]


def main() -> None:
    """Print two lines for each effect, one for each base."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="bundles of two nights of one commit or more")
    nights = nights_of(parser.parse_args().folder)
    for effect in EFFECTS:
        for base, answer in answers(nights, effect).items():
            slowed, untouched = (
                ", ".join(f"{count} {word}" for word, count in sorted(words.items())) or "none"
                for words in (answer.slowed, answer.untouched)
            )
            print(
                f"{effect.title}, against night {base}: slowed: {slowed}; untouched: {untouched}; gate {answer.exit_code}"
            )
            for note in answer.notes:
                print(f"    {note}")


def nights_of(folder: Path) -> dict[str, list[BundleContents]]:
    """Return the bundles of the nights of the first commit in a folder, oldest first."""
    bundles = sorted((read_bundle(path) for path in folder.glob("*.jsonl.*")), key=_start)
    nights: dict[str, list[BundleContents]] = {}
    for bundle in bundles:
        if bundle.header.commit == bundles[0].header.commit:
            nights.setdefault(bundle.header.night, []).append(bundle)
    return nights


def answers(nights: Mapping[str, Sequence[BundleContents]], effect: Effect) -> dict[str, Answer]:
    """Return the product's verdicts on an effect, by the base night."""
    models = sorted({item.cell.model for night in nights.values() for one in night for item in one.latest().values()})
    changed = set(models[: round(effect.share * len(models))])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = open_store(folder / "effects.db", write=True)
        for bundles in nights.values():
            for bundle in bundles:
                ingest_bundle(store, _written(folder, bundle, lambda item: item))
        for bundle in list(nights.values())[-1]:
            later = datetime.fromisoformat(bundle.header.started_at) + timedelta(days=1)
            header = replace(bundle.header, run_id=f"{bundle.header.run_id}-again", night="again", commit=_OTHER)
            bundle = replace(bundle, header=replace(header, started_at=later.isoformat()))
            ingest_bundle(store, _written(folder, bundle, lambda item: _scaled(item, effect, changed)))
        found = {}
        for base in (next(iter(nights)), list(nights)[-1]):
            comparison = compare_named(store, base, "again")
            slowed, untouched = Counter[str](), Counter[str]()
            for one in comparison.cells:
                is_slowed = effect.compiled != 1 and one.cell.model in changed
                (slowed if is_slowed else untouched)[str(one.outcome)] += 1
            code, _ = decide(comparison.counts(), frozenset(map(str, WORSE)))
            found[base] = Answer(slowed, untouched, code, comparison.control_notes)
        store.dispose()
    return found


def _written(folder: Path, bundle: BundleContents, changed: Callable[[Measurement], Measurement]) -> Path:
    writer = BundleWriter(folder, replace(bundle.header, asked=None), bundle.planned)
    for environment_id, data in bundle.environments.items():
        writer.environment(environment_id, data)
    for program_id, program in bundle.programs.items():
        writer.program(program_id, program)
    for item in bundle.latest().values():
        writer.measurement(changed(item))
    return writer.close(bundle.finished_at or bundle.header.started_at)


def _scaled(item: Measurement, effect: Effect, models: Set[str]) -> Measurement:
    """Return the measurement as it is after the commit, without samples, which would contradict it."""
    if item.cell.model not in models:
        return item
    factors = dict.fromkeys(_EAGER, effect.eager) | dict.fromkeys(_COMPILED, effect.compiled)
    return replace(
        item, metrics={name: value * factors.get(name, 1.0) for name, value in item.metrics.items()}, samples={}
    )


def _start(bundle: BundleContents) -> str:
    return bundle.header.started_at


if __name__ == "__main__":
    main()
