"""Tables for the code that a compiler generated. `measurements.code_id` is added as the columns of new metrics are."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Makes the tables; runs that are there already have no code."""
    text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    op.create_table(
        "codes", sa.Column("code_id", text, primary_key=True), sa.Column("graphs", sa.LargeBinary, nullable=False)
    )
    op.create_table(
        "code_texts", sa.Column("text_id", text, primary_key=True), sa.Column("text", sa.LargeBinary, nullable=False)
    )
