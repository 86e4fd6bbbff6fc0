"""Run by Alembic for every command: the connection is the one that `db.maintenance.migrate` hands over, its
transaction included."""

from __future__ import annotations

from alembic import context

import db.schema  # noqa: F401 -- fills the registry
from db.base import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
