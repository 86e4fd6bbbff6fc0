"""The command that measures a cell again as a run measured it: commit, switches, optimizer and shared tuning."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from collector.code import NAME_OF_SOURCE
from collector.repro import repro_command
from collector.vocabulary import Cell
from db.queries.details import environment
from db.queries.details import measurement as stored_measurement
from db.runs import RunInfo, find_runs
from db.schema import Run

#: The switches of `collector.configs.backend_flags` with their defaults, and the optimizers of `collector.settings` that a
#: step can end with: both modules import torch, which reports and pages do without.
SWITCHES = {"tf32_matmul": True, "tf32_cudnn": True, "reduced_math_attention": True, "cudnn_benchmark": False}
STEPPED_BY = ("sgd", "adam")
_SHA = re.compile(r"[0-9a-fA-F]{6,40}")
#: What a check chooses itself.
_OF_A_RUN = re.compile(r" --(?:source|shared-tuning) \S+")


def repro_as(cell: Cell, run: RunInfo | None, used: Mapping[str, Any]) -> str:
    """Return the command for a cell with the options that `run` was given, `used` being its environment.

    `pytorch` stands for a clone of the repository, `tuning` for a folder. A command that cannot be given stays a comment.
    """
    command = repro_command(cell)
    if run is None or command.startswith("#"):
        return command
    words = ["--source", f"pytorch@{run.commit}"] if used.get(NAME_OF_SOURCE) and _SHA.fullmatch(run.commit) else []
    words += ["--shared-tuning", "tuning"] if run.testbed.get("tuning") == "shared" else []
    flags = run.testbed.get("flags")
    if isinstance(flags, str):
        states = {name: name in flags.split() for name in SWITCHES}
        changed = (f"{name}={'on' if is_on else 'off'}" for name, is_on in states.items() if is_on != SWITCHES[name])
        words += [word for flag in changed for word in ("--flag", flag)]
    optimizer = run.testbed.get("optimizer")
    words += ["--optimizer", optimizer] if optimizer in STEPPED_BY else []
    return f"{command} {shlex.join(words)}" if words else command


def stored_repro(conn: Connection, cell: Cell, run_id: str | None) -> str:
    """Return the command for a cell as a stored run measured it; without options where the run is not stored."""
    runs = find_runs(conn, Run.run_id == run_id) if run_id else []
    measured = stored_measurement(conn, run_id, cell.cell_id) if run_id and runs else None
    used = environment(conn, measured.environment_id) if measured and measured.environment_id else None
    return repro_as(cell, runs[0] if runs else None, used or {})


def as_check(command: str, check: str) -> str:
    """Return the command with `check` in place of `inductor-watch run`, without what a check chooses itself."""
    return _OF_A_RUN.sub("", command).replace("inductor-watch run", check, 1)
