"""The command that measures a cell again."""

from __future__ import annotations

import shlex

from collector.vocabulary import Cell


def repro_command(cell: Cell) -> str:
    """The command that measures a cell again, ready for a shell."""
    words = ["inductor-watch", "run", "--suite", cell.suite, "--model", cell.model, "--config", cell.config.name]
    words += ["--phase", cell.phase.value, "--dtype", cell.dtype, "--device", cell.device]
    return shlex.join([*words, "--batch-size", str(cell.batch_size)])
