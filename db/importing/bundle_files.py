"""Bundles made at once from what is known of a run, and put into a folder whole or not at all."""

from __future__ import annotations

import math
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from collector.bundle import BundleContents, BundleWriter
from collector.output_file import write_output
from collector.vocabulary import Measurement
from db.incoming import read_incoming


def pack_run(contents: BundleContents, folder: Path) -> Path:
    """Writes a run as a bundle of its own into a folder; closed if the run has an end, else open.

    Records come in the order of a measured run: the plan, then each measurement after its environment and program.
    """
    writer = BundleWriter(folder, contents.header, contents.planned)
    for environment, data in contents.environments.items():
        writer.environment(environment, data)
    for program, options in contents.programs.items():
        writer.program(program, options)
    for measurement in contents.measurements:
        writer.measurement(_fit_for_json(measurement))
    if contents.finished_at is not None:
        return writer.close(contents.finished_at)
    writer.abandon()
    return writer.path


def put_run(contents: BundleContents, folder: Path) -> tuple[Path, bool]:
    """The bundle of a run in a folder, and whether it is new there.

    A run that has a bundle there keeps it, whatever it holds: a name stands for one run, and what was measured knows more
    than what was copied.

    Raises:
        BundleError: its first line is one that no database takes.
        ValueError, TypeError: it holds what no JSON can.
        Nothing is written then.
    """
    name = contents.header.run_id
    for path in (folder / f"{name}.jsonl", folder / f"{name}.jsonl.gz"):
        if path.exists():
            return path, False
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="inductor-watch-") as workshop:
        made = pack_run(contents, Path(workshop))
        read_incoming(made)
        return place(made, folder / made.name), True


def place(made: Path, target: Path) -> Path:
    """Copies a file to its place, where it appears whole or not at all."""
    with made.open("rb") as source:
        write_output(target, lambda stream: shutil.copyfileobj(source, stream))
    return target


def _fit_for_json(measurement: Measurement) -> Measurement:
    """Samples that are no number go as texts, which a bundle's reader takes for the same."""
    samples: dict[str, Any] = {
        name: [value if math.isfinite(value) else str(value) for value in values]
        for name, values in measurement.samples.items()
    }
    return replace(measurement, samples=samples)
