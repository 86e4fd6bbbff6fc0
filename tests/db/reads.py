"""All reads of the store under one name, for tests."""
# ruff: noqa: F401

from db.nights import list_nights, list_runs
from db.queries.cells import CellFilter, axes, branches, check_filter, revision, runs_with
from db.queries.details import cell, environment, evidence, measurement, program, samples
from db.queries.series import model_history, suite_history
from db.queries.side_rows import side_environments, side_rows
from db.queries.sides import resolve_side
