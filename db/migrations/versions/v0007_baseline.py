"""The baseline. `db.maintenance.migrate` creates it from `db.schema`; later versions say here what they change."""

from __future__ import annotations

revision = "0007"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """An empty database gets the newest schema at once, see `db.maintenance.migrate.upgrade`."""
