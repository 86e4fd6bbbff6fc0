"""What happens around runs: landings and reverts, branches with their start, series, regressions, notes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_NEW_TABLES = ("notes", "regression_events", "regressions", "series", "branches", "commit_links")


def upgrade() -> None:
    # Columns are added, not tables made anew: SQLite would delete all that refers to a table that is dropped.
    op.add_column("commits", sa.Column("committed_at", sa.Double(), nullable=True))
    op.create_index("ix_commits_pr", "commits", ["repo", "pr_number"])
    op.create_index("ix_commits_position", "commits", ["repo", "position"])
    op.add_column("runs", sa.Column("ci_url", sa.Text(), server_default="", nullable=False))
    op.add_column("measurements", sa.Column("version", sa.Integer(), server_default="0", nullable=False))
    _smaller()
    _commits()
    _regressions()
    # Every branch that has runs; where it started is in no bundle of that time.
    op.execute(
        "INSERT INTO branches (repo, name)"
        ' SELECT DISTINCT c.repo, r.branch FROM runs r JOIN commits c ON c.id = r."commit"'
    )


_HISTORY = ["cell", "run", "replicate", "status", "program"]


def _smaller() -> None:
    """Fewer bytes a measurement; `db.schema` says what each is for."""
    op.drop_index("ix_measurements_history", "measurements")
    if op.get_bind().dialect.name == "sqlite":
        metrics = ["speedup", "compiled_ms", "compiled_kernel_ms", "compile_cold_s"]
        op.create_index("ix_measurements_history", "measurements", [*_HISTORY, *metrics])
    # What was measured is expected by that alone, in every version of the program.
    op.execute(
        "DELETE FROM planned WHERE EXISTS"
        " (SELECT 1 FROM measurements m WHERE m.run = planned.run AND m.cell = planned.cell)"
    )


def _commits() -> None:
    op.create_table(
        "commit_links",
        sa.Column("commit", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("target", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("commit", "kind", "target", name="pk_commit_links"),
        sa.ForeignKeyConstraint(["commit"], ["commits.id"], name="fk_commit_links_commit"),
        sa.ForeignKeyConstraint(["target"], ["commits.id"], name="fk_commit_links_target"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_commit_links_target", "commit_links", ["target"])
    op.create_table(
        "branches",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("repo", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("start", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_branches"),
        sa.ForeignKeyConstraint(["start"], ["commits.id"], name="fk_branches_start"),
        sa.UniqueConstraint("repo", "name", name="uq_branches_repo_name"),
    )


def _regressions() -> None:
    op.create_table(
        "series",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("cell", sa.Integer(), nullable=False),
        sa.Column("branch", sa.Integer(), nullable=False),
        sa.Column("testbed", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_series"),
        sa.ForeignKeyConstraint(["branch"], ["branches.id"], name="fk_series_branch"),
        sa.ForeignKeyConstraint(["cell"], ["cells.id"], name="fk_series_cell"),
        sa.ForeignKeyConstraint(["testbed"], ["testbeds.id"], name="fk_series_testbed"),
        sa.UniqueConstraint("cell", "branch", "testbed", name="uq_series_cell_branch_testbed"),
    )
    op.create_table(
        "regressions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("regression_id", sa.Text(), nullable=False),
        sa.Column("series", sa.Integer(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("base_run", sa.Integer(), nullable=True),
        sa.Column("onset_run", sa.Integer(), nullable=True),
        sa.Column("base_commit", sa.Integer(), nullable=True),
        sa.Column("onset_commit", sa.Integer(), nullable=True),
        sa.Column("base_value", sa.Double(), nullable=True),
        sa.Column("new_value", sa.Double(), nullable=True),
        sa.Column("opened_at", sa.Double(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("link", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_regressions"),
        sa.ForeignKeyConstraint(["base_commit"], ["commits.id"], name="fk_regressions_base_commit"),
        sa.ForeignKeyConstraint(["base_run"], ["runs.id"], name="fk_regressions_base_run", ondelete="SET NULL"),
        sa.ForeignKeyConstraint(["onset_commit"], ["commits.id"], name="fk_regressions_onset_commit"),
        sa.ForeignKeyConstraint(["onset_run"], ["runs.id"], name="fk_regressions_onset_run", ondelete="SET NULL"),
        sa.ForeignKeyConstraint(["series"], ["series.id"], name="fk_regressions_series"),
        sa.UniqueConstraint("regression_id", name="uq_regressions_regression_id"),
    )
    op.create_index("ix_regressions_series", "regressions", ["series"])
    op.create_index("ix_regressions_state", "regressions", ["state"])
    op.create_table(
        "regression_events",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("regression", sa.Integer(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("from_state", sa.Text(), nullable=True),
        sa.Column("to_state", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_regression_events"),
        sa.ForeignKeyConstraint(
            ["regression"], ["regressions.id"], name="fk_regression_events_regression", ondelete="CASCADE"
        ),
    )
    op.create_index("ix_regression_events_regression", "regression_events", ["regression"])
    op.create_table(
        "notes",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_notes"),
    )
    op.create_index("ix_notes_subject", "notes", ["subject", "name"])


def downgrade() -> None:
    """Records and notes are in no bundle: they are lost, as everything that only this version knows."""
    for table in _NEW_TABLES:
        op.drop_table(table)
    if op.get_bind().dialect.name == "sqlite":
        op.drop_index("ix_measurements_history", "measurements")
    metrics = ["speedup", "device_speedup", "compiled_ms", "compiled_kernel_ms", "compile_cold_s", "compression"]
    op.create_index("ix_measurements_history", "measurements", [*_HISTORY, *metrics])
    op.drop_column("measurements", "version")
    op.drop_column("runs", "ci_url")
    op.drop_index("ix_commits_position", "commits")
    op.drop_index("ix_commits_pr", "commits")
    op.drop_column("commits", "committed_at")
