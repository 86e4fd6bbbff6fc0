"""Which models pass where under what, and why the others do not: two Markdown tables of bundles, by config and by model.

python scripts/zoo_table.py BUNDLE...      the newest outcome of each cell counts

A model that passes under some configs and fails under others has the failures named with their configs.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from collector.bundle import read_bundle
from collector.vocabulary import NOT_APPLICABLE, Measurement, Status
from collector.zoo.registry import all_models

#: Not the model's doing: what a config asks for is not there, or makes no sense for it.
_NO_OUTCOME = NOT_APPLICABLE | {Status.CONFIG_ERROR}
_LENGTH = 90

#: The newest measurement by config, of one model in one place.
ByConfig = Mapping[str, Measurement]


def main() -> None:
    """Prints counts, then a row a config, then a row a model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", nargs="+", type=Path)
    found = newest(item for path in parser.parse_args().bundles for item in read_bundle(path).latest().values())
    statuses = [item.status.value for by_config in found.values() for item in by_config.values()]
    print(", ".join(f"{statuses.count(name)} {name}" for name in sorted(set(statuses))))
    places = sorted({place for _, place in found})
    print(f"\n| config | {' | '.join(places)} |\n|---|{'---|' * len(places)}")
    for config in sorted({name for by_config in found.values() for name in by_config}):
        print(f"| {config} | {' | '.join(of_config(found, place, config) for place in places)} |")
    print(f"\n| model | {' | '.join(places)} | why not |\n|---|{'---|' * len(places)}---|")
    for model in [str(spec) for spec in all_models()]:
        outcomes = [found.get((model, place), {}) for place in places]
        print(f"| {model} | {' | '.join(map(passed, outcomes))} | {'; '.join(reasons(outcomes))} |")


def newest(items: Iterable[Measurement]) -> dict[tuple[str, str], dict[str, Measurement]]:
    """By model and place (phase and device), then by config, what was measured last and has an outcome."""
    found: dict[tuple[str, str], dict[str, Measurement]] = defaultdict(dict)
    for item in sorted(items, key=lambda item: item.started_at):
        if item.status not in _NO_OUTCOME:
            cell = item.cell
            found[f"{cell.suite}/{cell.model}", f"{cell.phase.value}, {cell.device}"][cell.config.name] = item
    return found


def of_config(found: Mapping[tuple[str, str], ByConfig], place: str, config: str) -> str:
    """How many models passed under a config in one place, of how many, and how the others ended."""
    items = [by_config[config] for (_, where), by_config in found.items() if where == place and config in by_config]
    if not items:
        return "not measured"
    statuses = [item.status.value for item in items if item.status is not Status.PASS]
    others = [f"{statuses.count(name)} {name}" for name in sorted(set(statuses))]
    return ", ".join([f"{len(items) - len(statuses)} of {len(items)}", *others])


def passed(by_config: ByConfig) -> str:
    """How many configs passed, of how many; `not measured` where there is none."""
    if not by_config:
        return "not measured"
    return f"{sum(item.status is Status.PASS for item in by_config.values())} of {len(by_config)}"


def reasons(outcomes: Iterable[ByConfig]) -> list[str]:
    """Each failure once, with the configs that it is of."""
    configs: dict[str, list[str]] = defaultdict(list)
    for by_config in outcomes:
        for name, item in sorted(by_config.items()):
            if item.status is not Status.PASS:
                configs[_reason(item)].append(f"{name} ({item.cell.phase.value}, {item.cell.device})")
    return [f"{reason}: {', '.join(names)}" for reason, names in configs.items()]


def _reason(item: Measurement) -> str:
    message = item.failure.message.splitlines()[0] if item.failure and item.failure.message else ""
    short = message[:_LENGTH].replace("|", "/").replace("`", "'")
    return f"{item.status.value} `{short}`" if short else item.status.value


if __name__ == "__main__":
    main()
