"""Where a report goes: a file that is whole or not there, a picture, and the summary page of a GitHub job."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from analysis.reports.markdown import SUMMARY_BYTES

if TYPE_CHECKING:
    from analysis.reports.facts import Report

#: The file that GitHub Actions shows as the summary of a step.
SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"
#: With less room than this left in a summary there is no report worth the name.
_LEAST_BYTES = 2000
_PICTURES = (".svg", ".png")


def check_picture(path: Path) -> None:
    """Raises `click.UsageError` if no picture can be made of that kind, here."""
    from analysis.reports.charts import PictureError, converter

    if path.suffix.lower() not in _PICTURES:
        raise click.UsageError(f"--picture {path.name}: end it in {' or '.join(_PICTURES)}")
    try:
        converter()
    except PictureError as error:
        raise click.UsageError(f"--picture {path.name}: {error}") from None


def draw_picture(report: Report, chart: str, path: Path) -> bytes:
    """A chart of `analysis.reports.charts.CHARTS` as the file's name asks for it; empty where it would show nothing."""
    from analysis.reports.charts import png, svg

    drawn = svg(report, chart)
    return png(drawn) if drawn and path.suffix.lower() == ".png" else drawn.encode()


def summary_file(environ: Mapping[str, str] = os.environ) -> Path:
    """The file of the step's summary. Raises `click.UsageError` outside of GitHub Actions."""
    if not environ.get(SUMMARY_VARIABLE):
        raise click.UsageError(f"--github-summary: {SUMMARY_VARIABLE} is not set; GitHub Actions sets it in each step")
    return Path(environ[SUMMARY_VARIABLE])


def append_summary(path: Path, draw: Callable[[int], str]) -> None:
    """Appends what `draw` makes of the bytes that are left of the step's 1 MiB; GitHub drops a summary that is longer.

    Raises:
        click.UsageError: earlier commands of the step have left no room.
    """
    used = path.stat().st_size if path.exists() else 0
    room = SUMMARY_BYTES - used - 2
    if room < _LEAST_BYTES:
        raise click.UsageError(
            f"--github-summary: this step's summary is full ({used} of {SUMMARY_BYTES} bytes); use another step"
        )
    text = draw(room)
    with path.open("a", encoding="utf-8", errors="replace") as stream:
        stream.write("\n" * bool(used) + text)
