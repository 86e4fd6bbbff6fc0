"""All reads of the store under one name, for tests."""

from db.nights import list_nights, list_runs
from db.queries.cells import CellFilter, axes, branches, check_filter, revision, runs_with
from db.queries.details import cell, environment, evidence, measurement, program, samples
from db.queries.series import model_history, suite_history
from db.queries.side_rows import side_environments, side_rows
from db.queries.sides import resolve_side

__all__ = [
    "CellFilter",
    "axes",
    "branches",
    "cell",
    "check_filter",
    "environment",
    "evidence",
    "list_nights",
    "list_runs",
    "measurement",
]
__all__ += ["model_history", "program", "resolve_side", "revision", "runs_with", "samples", "side_environments"]
__all__ += ["side_rows", "suite_history"]
