"""Nights: what the runs of several GPUs over one plan have in common. A run that is there already is a night of its own."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Not in a batch: SQLite would get a new table for the old one, and dropping that deletes all that refers to it.
    op.add_column("runs", sa.Column("night", sa.Text(), server_default="", nullable=False))
    op.execute("UPDATE runs SET night = run_id")
    op.create_index("ix_runs_night", "runs", ["night", "started_at"])


def downgrade() -> None:
    op.drop_index("ix_runs_night", "runs")
    op.drop_column("runs", "night")
