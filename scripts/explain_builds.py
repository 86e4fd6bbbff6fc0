"""Where the builds of a back-fill differ by 10 % or more, and what else changed with it, from the bundles alone.

    python scripts/explain_builds.py data/releases [--least 0.1]

First the phases of compiling, as medians over the models: seconds by the clock, those of a phase within another taken out
of it, and CPU seconds: of the process itself while it compiles, and of the whole cell, in which the C++ compiler's are. Then
every change of a model from a build to the next, in means over their runs: a latency with that of eager, a compile time with
CPU seconds. `one run` says that a build has one run only, so that nothing tells the change from noise.

Phases hold what a cell stood still while another measured; the compile time does not.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from statistics import mean, median

from collector.bundle import read_bundle
from collector.vocabulary import Measurement
from jobs.builds.build import in_order, parse_build

#: A build's runs, each its passes by model.
Runs = list[dict[str, Measurement]]
PHASES = ("dynamo", "AOTAutograd", "joint graph passes", "Inductor", "code and C++ compiler")
COLD, OWN, ALL = "compile_cold_s", "CPU of the process itself", "CPU of the whole cell"


def read_builds(folder: Path) -> dict[str, Runs]:
    """The runs of each build, oldest build first."""
    found: dict[str, Runs] = defaultdict(list)
    for path in sorted(folder.rglob("*.jsonl.gz")):
        contents = read_bundle(path)
        torch = next(str(data["torch"]) for data in contents.environments.values() if "torch" in data)
        passed = {item.cell.model: item for item in contents.latest().values() if item.status == "pass"}
        found[torch.partition("+")[0]].append(passed)
    return {build.version: found[build.version] for build in in_order(map(parse_build, found))}


def seconds(item: Measurement) -> dict[str, float]:
    """A cell's compile time, its phases without those within them, and the process's own CPU seconds."""
    phases = {str(name): float(value) for name, value in item.details.get("compile_phases_s", {}).items()}
    dynamo, autograd = phases.get("dynamo", 0.0), phases.get("aot_autograd", 0.0)
    joint, inductor, code = (phases.get(name, 0.0) for name in ("joint_graph_passes", "inductor", "code_gen"))
    own = (dynamo - autograd, autograd - joint - inductor, joint, inductor - code, code)
    return {
        COLD: item.metrics[COLD],
        **dict(zip(PHASES, own, strict=True)),
        OWN: float(item.details.get("compile_cpu_s", math.nan)),
        ALL: float(item.details.get("cpu_s", math.nan)),
    }


def of_build(runs: Runs, model: str, name: str) -> float:
    """A quantity of a model in a build: the mean over its runs."""
    return mean(
        seconds(run[model])[name] if name in (*PHASES, COLD, OWN, ALL) else run[model].metrics[name] for run in runs
    )


def show_phases(builds: dict[str, Runs], models: list[str]) -> None:
    """A line a phase: the median over the models, build by build."""
    print(f"median of {len(models)} models, s".ljust(34) + "".join(f"{version:>10}" for version in builds))
    for name in (COLD, *PHASES, OWN, ALL):
        medians = [median(of_build(runs, model, name) for model in models) for runs in builds.values()]
        print(name.ljust(34) + "".join(f"{value:10.2f}" for value in medians))


def show_changes(builds: dict[str, Runs], models: list[str], least: float) -> None:
    """A line a change of at least `least` from a build to the next."""
    versions = list(builds)
    for old, new in pairwise(versions):
        known = "one run" if min(len(builds[old]), len(builds[new])) == 1 else f"{len(builds[old])} runs"
        print(f"\n{old} -> {new} ({known} of a build)")
        for metric in ("compiled_ms", "speedup", COLD):
            for model in models:
                before, after = (of_build(builds[version], model, metric) for version in (old, new))
                if max(after / before, before / after) >= 1 + least:
                    why = _work(builds, old, new, model) if metric == COLD else _eager(builds, old, new, model)
                    print(f"  {metric:<15}{model:<36}{before:8.3g} -> {after:<8.3g}{after / before - 1:+7.0%}   {why}")


def _eager(builds: dict[str, Runs], old: str, new: str, model: str) -> str:
    ratio = of_build(builds[new], model, "eager_ms") / of_build(builds[old], model, "eager_ms")
    return f"eager {ratio - 1:+.0%}"


def _work(builds: dict[str, Runs], old: str, new: str, model: str) -> str:
    ratios = {
        name: of_build(builds[new], model, name) / of_build(builds[old], model, name) - 1
        for name in (PHASES[-1], OWN, ALL)
    }
    return ", ".join(f"{name} {change:+.0%}" for name, change in ratios.items())


def main() -> None:
    """Prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--least", type=float, default=0.1)
    asked = parser.parse_args()
    builds = read_builds(asked.folder)
    if not builds:
        raise SystemExit(f"no bundle below {asked.folder}: name a folder that `inductor-watch backfill` filled")
    models = sorted(set.intersection(*(set(run) for runs in builds.values() for run in runs)))
    show_phases(builds, models)
    show_changes(builds, models, asked.least)


if __name__ == "__main__":
    main()
