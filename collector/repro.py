"""The command that measures a cell again."""

from __future__ import annotations

import shlex

from collector.own_models import OwnModel
from collector.vocabulary import OWN_BATCH, Cell


def repro_command(cell: Cell, own: OwnModel | None = None) -> str:
    """The command that measures a cell again, ready for a shell. A model of the user's `own` is spelt in full."""
    model = cell.model if own is None or own.name == own.target else own.spelled
    words = ["inductor-watch", "run", "--suite", cell.suite, "--model", model, "--config", cell.config.name]
    words += ["--phase", cell.phase.value, "--dtype", cell.dtype, "--device", cell.device]
    if cell.batch_size != OWN_BATCH:
        words += ["--batch-size", str(cell.batch_size)]
    return shlex.join(words)
