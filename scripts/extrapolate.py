"""What 150 models x 12 configs x 2 phases take on 1, 8 and 64 GPUs, extrapolated from measured bundles, as Markdown.

python scripts/extrapolate.py [BUNDLES ...] [--workers N] [--scaling S] [--mix 7,1,4] [--write]

--write puts the answer between the markers of docs/cost.md, where a test holds it against this script.
"""

from __future__ import annotations

import argparse
import math
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from collector.bundle import BundleContents, BundleError
from collector.settings import Settings
from collector.vocabulary import Phase
from jobs.backtest import Night, slack
from jobs.cost import read_history
from jobs.extrapolation import KINDS, Load, Panel, survey

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "cost.md"
BEGIN, END = "<!-- scripts/extrapolate.py: begin -->", "<!-- scripts/extrapolate.py: end -->"
MODELS, GPUS = 150, (1, 8, 64)


def render(panel: Panel, mix: Sequence[int], workers: int, scaling: float) -> list[str]:
    """The page's generated part, line by line."""
    nights = sorted(panel.nights, key=lambda night: (night.run_id, night.gpu))
    # What GPUs lose to each other on one host is what `scaling` stands for: it must not count twice.
    alone = [night for night in nights if night.gpus == 1] or nights
    factor = slack(alone)
    return [
        *_means(panel),
        "",
        *_nights(nights, factor),
        "",
        *_hours(panel, mix, workers, factor, scaling),
        "",
        *_axes(panel, mix, workers, factor),
    ]


def _means(panel: Panel) -> list[str]:
    rows = []
    for kind in KINDS:
        for phase in Phase:
            mean = panel.mean(kind, phase)
            rows.append(
                f"| {kind} | {phase} | {mean.worker_s:.1f} | {_seconds(mean.device_s)} | {mean.measure_s:.1f} "
                f"| {panel.measured[kind]} of {panel.cells[kind]} |"
            )
    worker, device, measure = panel.training
    return [
        f"The mean cell over {panel.models} models. Inference cells that no bundle holds are derived from the model's other "
        f"configs. Training is inference times the ratio of {panel.pairs} cells measured in both phases: "
        f"{worker:.2f} for the worker, {device:.2f} for the device, {measure:.2f} for measuring alone.",
        "",
        "| kind of config | phase | worker s | device s | of it measuring alone s | inference cells measured |",
        "|---|---|---:|---:|---:|---:|",
        *rows,
    ]


def _nights(nights: Sequence[Night], factor: float) -> list[str]:
    rows = [
        f"| {night.run_id} | {night.gpu} | {night.gpus} | {night.cells} | {night.workers} | {night.took_s:.0f} "
        f"| {night.predicted_s:.0f} | {night.took_s / night.predicted_s:.2f} |"
        for night in nights
    ]
    return [
        "Measured nights against what the costs of their own cells predict. Those on one GPU together took "
        f"{factor:.2f} times that, and every number of hours below is multiplied by it.",
        "",
        "| run | GPU | of | cells | workers | took s | predicted s | ratio |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
        *rows,
    ]


def _hours(panel: Panel, mix: Sequence[int], workers: int, factor: float, scaling: float) -> list[str]:
    total = panel.load(mix, MODELS)
    configs = sum(mix)
    groups = MODELS * len(Phase)
    rows = []
    for gpus in GPUS:
        most = math.ceil(groups / gpus)
        hours = total.times(most / groups).hours(workers, factor) / (scaling if gpus > 1 else 1.0)
        rows.append(f"| {gpus} | {most * configs} | {gpus * workers} | {hours:.2f} |")
    parts = ", ".join(f"{count} {kind}" for count, kind in zip(mix, KINDS, strict=True))
    held = "not recorded" if total.device_s is None else f"{total.device_s / 3600:.1f} h"
    return [
        f"{MODELS} models x {configs} configs ({parts}) x {len(Phase)} phases are {groups * configs} cells: "
        f"{total.worker_s / 3600:.1f} worker-hours, device held {held}. {workers} workers per GPU; a GPU that shares its "
        f"host with others keeps {100 * scaling:.0f} % of its pace. The configs of a model in a phase stay on one GPU.",
        "",
        "| GPUs | most cells on one GPU | workers | hours |",
        "|---:|---:|---:|---:|",
        *rows,
    ]


def _axes(panel: Panel, mix: Sequence[int], workers: int, factor: float) -> list[str]:
    total = panel.load(mix, MODELS)

    def minutes(load: Load) -> str:
        return f"{60 * load.hours(workers, factor):.1f} min"

    configs = [panel.load([int(kind == other) for other in KINDS], MODELS) for kind in KINDS]
    tuned = panel.load([0, 0, mix[2]], MODELS).worker_s / total.worker_s
    inference = sum(panel.inference[kind].worker_s * count for kind, count in zip(KINDS, mix, strict=True))
    both = panel.load(mix, 1).worker_s
    rounds = Settings().rounds
    sampling = Load(0.0, 0.0, 0.0)
    for phase_factor in (1.0, panel.training[2]):
        seconds = rounds * panel.pair_s * phase_factor * MODELS * sum(mix)
        sampling = sampling.plus(Load(seconds, seconds, seconds))
    doubled = total.plus(sampling).hours(workers, factor) - total.hours(workers, factor)
    return [
        "How it grows, on one GPU:",
        "",
        "| axis | growth | measured |",
        "|---|---|---|",
        f"| models | linear | one more model under all configs in both phases: {minutes(panel.load(mix, 1))} |",
        *(
            f"| configs: {kind} | linear | one more config on {MODELS} models in both phases: {minutes(load)} |"
            for kind, load in zip(KINDS, configs, strict=True)
        ),
        f"| configs that tune GEMMs | - | {mix[2]} of {sum(mix)} configs, {100 * tuned:.0f} % of the worker-hours |",
        f"| phases | x {both / inference:.2f} | both phases over inference alone |",
        f"| samples | device time only | {2 * rounds} pairs instead of {rounds}: {60 * doubled:+.1f} min for the whole matrix |",
        f"| commits | linear | one more commit: {total.hours(workers, factor):.1f} h, nothing is shared between commits |",
    ]


def _seconds(value: float | None) -> str:
    return "not recorded" if value is None else f"{value:.1f}"


def block(options: argparse.Namespace) -> str:
    """The whole generated part with the command that makes it.

    Raises:
        BundleError: a place holds no bundle, or the bundles hold too little.
    """
    history: list[BundleContents] = []
    for place in options.bundles:
        if not (found := read_history(ROOT / place)):
            raise BundleError(f"no bundle below {place}: give a bundle or a folder of bundles")
        history += found
    panel = survey(history)
    workers = options.workers or (round(median(night.workers for night in panel.nights)) if panel.nights else 1)
    command = ["python", "scripts/extrapolate.py", *options.bundles]
    for name in ("workers", "scaling", "mix"):
        if (value := getattr(options, name)) != _DEFAULTS[name]:
            command += [f"--{name}", ",".join(map(str, value)) if name == "mix" else f"{value:g}"]
    return "\n".join([f"`{shlex.join(command)}`", "", *render(panel, options.mix, workers, options.scaling)])


def write(text: str) -> None:
    """Puts the text between the markers of docs/cost.md. Raises `ValueError` where they are not there."""
    page = PAGE.read_text()
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"docs/cost.md lacks the lines {BEGIN} and {END}: put them where the tables belong")
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


_DEFAULTS = {"workers": None, "scaling": 1.0, "mix": (7, 1, 4)}


def _mix(text: str) -> tuple[int, ...]:
    counts = tuple(int(part) for part in text.split(","))
    if len(counts) != len(KINDS) or min(counts) < 0 or not sum(counts):
        raise ValueError
    return counts


def _share(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1:
        raise ValueError
    return value


def _workers(text: str) -> int:
    if (value := int(text)) < 1:
        raise ValueError
    return value


_share.__name__, _mix.__name__, _workers.__name__ = "share between 0 and 1", "mix, e.g. 7,1,4", "number of workers"


def main() -> None:
    """Prints the tables, or with --write refreshes docs/cost.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", nargs="*", default=["data/h200"], help="bundles, or folders of them [data/h200]")
    parser.add_argument("--workers", type=_workers, help="workers per GPU [as most measured nights had]")
    parser.add_argument("--scaling", type=_share, default=_DEFAULTS["scaling"], help="pace a GPU keeps among 8 [1]")
    parser.add_argument("--mix", type=_mix, default=_DEFAULTS["mix"], help=f"configs of each kind: {', '.join(KINDS)}")
    parser.add_argument("--write", action="store_true", help="refresh docs/cost.md")
    options = parser.parse_args()
    try:
        text = block(options)
        write(text) if options.write else print(text)
    except (BundleError, ValueError) as error:
        sys.exit(f"extrapolate.py: {error}")


if __name__ == "__main__":
    main()
